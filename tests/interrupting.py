"""SIGINT at a chosen line: for tests that press Ctrl-C at each line of a stretch of code in turn."""

from __future__ import annotations

import _thread
import contextlib
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType, ModuleType, SimpleNamespace
from typing import Any

import pytest

import torchbench_magic
from torchbench_magic.process import interrupts

PACKAGE = Path(torchbench_magic.__file__).parent
OWN = str(interrupts.__file__)
"""What holds the interrupts is not traced: its windows have tests of their own."""

Place = tuple[str, int]


def lines_run(action: Callable[[], object], modules: Sequence[ModuleType | Path]) -> list[Place]:
    """(file, line) of every line of these modules, or of the modules in these folders, that the action runs."""
    seen: dict[Place, None] = {}
    with _traced(modules, lambda frame: seen.setdefault((frame.f_code.co_filename, frame.f_lineno))):
        action()
    return list(seen)


def one_in(many: int, places: list[Place]) -> list[Place]:
    """So many times fewer, from a random one on: each run has others, and the seed that is printed has these again."""
    return places[random.randrange(many) :: many]


def with_interrupt_at(place: Place, action: Callable[[], object], *, times: int = 1) -> BaseException | None:
    """Run the action, with SIGINT as it comes to ``place`` for the first time; what it raised.

    Args:
        times: how often it is sent: there, and at each of the next lines of the package.
    """
    left = [times]

    def send(frame: FrameType) -> None:
        is_there = (frame.f_code.co_filename, frame.f_lineno) == place
        if left[0] and (is_there or left[0] < times):
            left[0] -= 1
            signal.raise_signal(signal.SIGINT)

    found: BaseException | None = None
    with _sent_again() as under_way:
        try:
            with _traced([Path(place[0])] if times == 1 else [PACKAGE], send):
                action()
        except BaseException as error:
            found = error
        late = _wait_for(under_way)
    return found or late


@contextlib.contextmanager
def _sent_again() -> Iterator[list[int]]:
    """One entry for each signal that is to come again in a millisecond, from another thread, and has not yet."""
    under_way: list[int] = []
    sends = interrupts._send_again

    def send() -> None:
        sends()
        under_way.pop()

    def begin(function: Callable[[], None], arguments: tuple[()]) -> int:
        under_way.append(1)
        return _thread.start_new_thread(send, arguments)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(interrupts, "_thread", SimpleNamespace(**vars(_thread) | {"start_new_thread": begin}))
        yield under_way


def _wait_for(under_way: list[int]) -> KeyboardInterrupt | None:
    """The interrupt that comes only now: a busy machine holds it up, and it would end the test, or the one after it."""
    late = None
    is_over = False
    while not is_over:
        is_over = not under_way
        try:
            time.sleep(0.001)  # what was sent last is handled here
        except KeyboardInterrupt as error:
            late = error
    return late


@contextlib.contextmanager
def _traced(modules: Sequence[ModuleType | Path], at_line: Callable[[FrameType], object]) -> Iterator[None]:
    places = tuple(str(each.__file__ if isinstance(each, ModuleType) else each) for each in modules)

    def local(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            at_line(frame)
        return local

    def called(frame: FrameType, event: str, _: Any) -> Any:
        file = frame.f_code.co_filename
        return local if file.startswith(places) and file != OWN else None

    before = sys.gettrace()
    sys.settrace(called)
    try:
        yield
    finally:
        sys.settrace(before)
