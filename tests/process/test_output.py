"""Where the output of measured code goes."""

from __future__ import annotations

import contextvars
import io
import itertools
import logging
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stderr, redirect_stdout
from typing import Any, Self

import pytest

from torchbench_magic import compare
from torchbench_magic.process.output import (
    CountingSink,
    Drops,
    close_channel,
    dropped_output,
    open_channel,
    output_to,
    shown,
)
from torchbench_magic.timing.comparison import Comparison


def test_the_main_thread_shows_what_it_prints_while_another_one_measures(capsys: pytest.CaptureFixture[str]) -> None:
    sink, entered, printed = CountingSink(), threading.Event(), threading.Event()
    there = sys.stdout

    def measure() -> None:
        with output_to(sink, CountingSink()):
            entered.set()
            sys.stdout.write("of the code\n")
            printed.wait()

    thread = threading.Thread(target=measure)
    thread.start()
    entered.wait()
    sys.stdout.write("of another cell\n")
    printed.set()
    thread.join()
    assert sys.stdout is there
    assert capsys.readouterr().out == "of another cell\n"
    assert sink.characters == len("of the code\n")


def test_of_code_measured_on_another_thread_nothing_is_said_that_the_main_thread_did() -> None:
    made: list[Comparison] = []
    called, printed, calls = threading.Event(), threading.Event(), itertools.count(1)

    def code() -> None:
        if next(calls) == 3:  # what the first call prints is shown
            called.set()
            printed.wait()

    thread = threading.Thread(
        target=lambda: made.append(compare({"a": code}, min_run_time=0.01, max_run_time=0.02, threads=1))
    )
    thread.start()
    called.wait()
    sys.stdout.write("of another cell\n")
    printed.set()
    thread.join()
    assert "prints" not in {doubt.kind for doubt in made[0].warnings}


class Streams:
    """Stdout and stderr while this is open, and a logger with a handler as ``logging.basicConfig`` makes it."""

    def __init__(self) -> None:
        self.out, self.err, self.log = io.StringIO(), io.StringIO(), logging.Logger("train")

    def __enter__(self) -> Self:
        self._around = ExitStack()
        self._around.enter_context(redirect_stdout(self.out))
        self._around.enter_context(redirect_stderr(self.err))
        self.log.addHandler(logging.StreamHandler())
        return self

    def __exit__(self, *error: object) -> None:
        self._around.close()


class Front:
    """A host that shows what it is told, and asks before it does. It is a library's: no state of the timed code."""

    __module__ = "IPython"

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.drops: Drops | None = None

    def show(self, text: str) -> None:
        if self.drops is None or not self.drops("displays"):
            self.shown.append(text)

    @contextmanager
    def channel(self, drops: Drops) -> Iterator[None]:
        assert self.drops is None  # not opened twice
        self.drops = drops
        try:
            yield
        finally:
            self.drops = None


@pytest.fixture
def front() -> Iterator[Front]:
    made = Front()
    open_channel(made.channel)
    yield made
    close_channel(made.channel)


def test_what_timed_code_logs_and_displays_is_shown_of_the_first_call_and_counted_of_later_ones(front: Front) -> None:
    with Streams() as streams:

        def code() -> None:
            streams.log.warning("a step")
            front.show("a picture")

        made = compare({"a": code}, min_run_time=0.01, max_run_time=0.02, threads=1)
        assert streams.err.getvalue() == "a step\n"
        assert front.shown == ["a picture"]
        (doubt,) = (doubt for doubt in made.warnings if doubt.kind == "prints")
        calls = doubt.facts["displays"]
        assert calls > 1
        assert doubt.facts["characters"] == calls * len("a step\n")
        assert f"{calls:,} displayed outputs" in doubt.text
        streams.log.warning("after")
        front.show("after")
    assert streams.err.getvalue() == "a step\nafter\n"
    assert front.shown == ["a picture", "after"]


@pytest.mark.parametrize("ended_by", [ValueError, KeyboardInterrupt, None])
def test_all_is_put_back_whatever_ends_it(front: Front, ended_by: type[BaseException] | None) -> None:
    expected: Any = nullcontext() if ended_by is None else pytest.raises(ended_by)
    with Streams() as streams:
        with expected, dropped_output(CountingSink()), dropped_output(CountingSink()):
            sys.stderr.write("within")
            streams.out.write("within")
            front.show("within")
            if ended_by is not None:
                raise ended_by
        assert (sys.stdout, sys.stderr) == (streams.out, streams.err)
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            assert not {"write", "flush"} & vars(stream).keys()
    assert front.drops is None
    assert not front.shown
    assert not streams.out.getvalue() + streams.err.getvalue()


def test_a_stream_that_the_code_changes_stays_so() -> None:
    written: list[str] = []
    with Streams() as streams:
        with dropped_output(CountingSink()):
            streams.out.write = written.append  # type: ignore[assignment, method-assign]
        streams.out.write("after")
    assert written == ["after"]


def test_what_is_ours_comes_through_from_our_threads_too(front: Front) -> None:
    sink = CountingSink()

    @shown()
    def tell(stream: io.StringIO, what: str) -> contextvars.Context:
        stream.write(what)
        front.show(what)
        return contextvars.copy_context()

    with Streams() as streams, ThreadPoolExecutor(1) as pool, dropped_output(sink):
        ours = tell(streams.out, "ours")
        pool.submit(ours.run, front.show, "of a thread").result()
        pool.submit(front.show, "of the code").result()
        pool.submit(streams.out.write, "of the code").result()
        front.show("of the code")
    assert streams.out.getvalue() == "ours"
    assert front.shown == ["ours", "of a thread"]
    assert (sink.characters, sink.dropped["displays"]) == (len("of the code"), 2)


def test_the_innermost_sinks_count(front: Front) -> None:
    sinks = outer, inner, errors = CountingSink(), CountingSink(), CountingSink()
    with Streams() as streams, dropped_output(outer):
        with dropped_output(inner, errors):
            streams.log.warning("in")
            front.show("in")
        streams.log.warning("out")
    assert [sink.characters for sink in sinks] == [len("out\n"), 0, len("in\n")]
    assert [sink.dropped["displays"] for sink in sinks] == [0, 1, 0]


def test_the_main_thread_shows_what_it_displays_while_another_one_measures(front: Front) -> None:
    entered, showed = threading.Event(), threading.Event()

    def measure() -> None:
        with dropped_output(CountingSink()):
            entered.set()
            front.show("of the code")
            showed.wait()

    thread = threading.Thread(target=measure)
    thread.start()
    entered.wait()
    front.show("of another cell")
    showed.set()
    thread.join()
    assert front.shown == ["of another cell"]
