"""Where the output of measured code goes."""

from __future__ import annotations

import itertools
import sys
import threading

import pytest

from torchbench_magic import compare
from torchbench_magic.process.settings import CountingSink, output_to
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
