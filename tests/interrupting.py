"""SIGINT at a chosen line: for tests that press Ctrl-C at each line of a stretch of code in turn."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import torchbench_magic

PACKAGE = Path(torchbench_magic.__file__).parent
OWN = str(PACKAGE / "core" / "process" / "held_interrupts.py")
"""What holds the interrupts is not traced: its windows have tests of their own."""

Place = tuple[str, int]


def lines_run(action: Callable[[], object], modules: Sequence[ModuleType | Path]) -> list[Place]:
    """(file, line) of every line of these modules, or of the modules in these folders, that the action runs."""
    seen: dict[Place, None] = {}
    with _traced(modules, lambda frame: seen.setdefault((frame.f_code.co_filename, frame.f_lineno))):
        action()
    return list(seen)


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

    try:
        with _traced([Path(place[0])] if times == 1 else [PACKAGE], send):
            action()
    except BaseException as error:
        return error
    return None


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
