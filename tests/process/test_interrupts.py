"""Ctrl-C waits while something is switched, and comes where it is let through."""

from __future__ import annotations

import os
import signal
import threading
import time
import types
from collections.abc import Iterator

import pytest

from torchbench_magic.process.interrupts import (
    AGAIN_S,
    TooLong,
    deadline,
    hear_interrupt,
    interrupts_held,
    interrupts_let_through,
)


@pytest.fixture(autouse=True)
def handler_is_put_back() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    after = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, before)
    assert after is before


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def until_interrupted() -> None:
    """A signal that was put off comes again, sooner or later."""
    while True:
        pass


def test_an_interrupt_comes_when_the_block_has_ended_and_once_however_often_it_was_pressed() -> None:
    done = []

    def switch() -> None:
        with interrupts_held():
            interrupt()
            interrupt()
            done.append("to its end")

    with pytest.raises(KeyboardInterrupt):
        switch()
    assert done == ["to its end"]


def test_without_an_interrupt_nothing_comes() -> None:
    with interrupts_held() as held:
        assert not held.take()
        held.raise_if_any()


def test_within_another_block_it_waits_for_the_outer_one() -> None:
    done = []

    def switch() -> None:
        with interrupts_held():
            with interrupts_held():
                interrupt()
            done.append("after the inner one")

    with pytest.raises(KeyboardInterrupt):
        switch()
    assert done


def test_the_users_code_is_interrupted_at_once_and_what_follows_is_not() -> None:
    done = []

    def users() -> None:
        interrupt()
        done.append("not reached")

    def switch() -> None:
        with interrupts_held():
            with pytest.raises(KeyboardInterrupt), interrupts_let_through():
                users()
            interrupt()
            done.append("put back")

    with pytest.raises(KeyboardInterrupt):
        switch()
    assert done == ["put back"]


def test_one_that_waits_is_raised_before_the_users_code_begins() -> None:
    with interrupts_held():
        interrupt()
        with pytest.raises(KeyboardInterrupt), interrupts_let_through():
            pytest.fail("it began")


def test_what_is_switched_in_the_middle_of_the_users_code_is_switched_back_before_it_is_interrupted() -> None:
    done = []

    def users() -> None:
        with interrupts_held():
            interrupt()
            done.append("switched back")
        done.append("not reached")

    with interrupts_held(), interrupts_let_through(), pytest.raises(KeyboardInterrupt):
        users()
    assert done == ["switched back"]


WATCHER = """
def note(record, interrupt):
    record.append("time")
    interrupt()
    record.append("line")
"""


def test_a_function_that_watches_the_code_runs_to_its_end_and_the_code_is_interrupted_after_it() -> None:
    watcher = types.ModuleType("a_watcher")
    exec(WATCHER, vars(watcher))
    record: list[str] = []

    def users() -> None:
        watcher.note(record, interrupt)
        until_interrupted()

    with interrupts_held(), pytest.raises(KeyboardInterrupt), interrupts_let_through(("a_watcher",)):
        users()
    assert record == ["time", "line"]


def test_the_frame_that_lets_interrupts_through_is_not_broken_off_itself() -> None:
    """Where the user's code has returned, its value is not lost any more."""

    def caller() -> str:
        with interrupts_held() as held:
            with interrupts_let_through():
                signal.raise_signal(signal.SIGINT)
                value = "kept"
            while not held.take():
                time.sleep(0.001)
            return value

    assert caller() == "kept"


def test_where_the_block_ends_with_an_exception_that_one_comes() -> None:
    def switch() -> None:
        with interrupts_held():
            interrupt()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        switch()


def test_who_takes_it_sees_to_it() -> None:
    with interrupts_held() as held:
        interrupt()
        assert held.take()


def test_a_handler_that_the_users_code_sets_is_asked_and_stays() -> None:
    before, heard = signal.getsignal(signal.SIGINT), []

    def users(number: int, frame: object) -> None:
        heard.append(number)

    try:
        with interrupts_held():
            with interrupts_let_through():
                signal.signal(signal.SIGINT, users)
            interrupt()
            assert not heard
        assert heard == [signal.SIGINT]
        assert signal.getsignal(signal.SIGINT) is users
    finally:
        signal.signal(signal.SIGINT, before)


def test_where_sigint_is_ignored_it_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts_held():
            interrupt()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_in_another_thread_nothing_is_held() -> None:
    before, seen = signal.getsignal(signal.SIGINT), []

    def work() -> None:
        with interrupts_held(), interrupts_let_through():
            seen.append(signal.getsignal(signal.SIGINT) is before)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True]


def test_a_forked_process_has_its_own_interrupts() -> None:
    with interrupts_held():
        child = os.fork()
        if child == 0:
            try:
                interrupt()
            except KeyboardInterrupt:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_handler_that_is_left_behind_holds_nothing() -> None:
    with interrupts_held():
        left = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, left)
    with pytest.raises(KeyboardInterrupt):
        interrupt()
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize("number", [signal.SIGCHLD, signal.SIGALRM])
def test_a_handler_that_raises_for_another_signal_waits_too(number: signal.Signals) -> None:
    """As torch's of SIGCHLD, where a DataLoader's worker died, and those of SIGALRM that end what takes too long."""

    def refuse(number: int, frame: object) -> None:
        raise RuntimeError(signal.Signals(number).name)

    def switch() -> None:
        with interrupts_held():
            signal.raise_signal(number)
            done.append("to its end")

    def users() -> None:
        signal.raise_signal(number)
        done.append("not reached")

    done: list[str] = []
    before = signal.signal(number, refuse)
    try:
        with pytest.raises(RuntimeError, match=number.name):
            switch()
        assert done == ["to its end"]
        with interrupts_held(), pytest.raises(RuntimeError, match=number.name), interrupts_let_through():
            users()
        assert done == ["to its end"]
        assert signal.getsignal(number) is refuse
    finally:
        signal.signal(number, before)


def test_signals_that_nobody_handles_are_left_alone() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        with interrupts_held():
            assert signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_handler_that_the_users_code_sets_for_another_signal_waits_from_then_on_and_stays() -> None:
    before, heard = signal.getsignal(signal.SIGCHLD), []
    try:
        with interrupts_held():
            with interrupts_let_through():
                signal.signal(signal.SIGCHLD, users := lambda number, frame: heard.append(number))
            signal.raise_signal(signal.SIGCHLD)
            assert not heard
        assert heard == [signal.SIGCHLD]
        assert signal.getsignal(signal.SIGCHLD) is users
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_one_that_waits_is_heard_where_something_of_ours_takes_long() -> None:
    done = []
    with interrupts_held():
        hear_interrupt()
        interrupt()
        with pytest.raises(KeyboardInterrupt):
            hear_interrupt()
        hear_interrupt()
        done.append("heard once")
    assert done


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="Windows has no alarms")
def test_a_deadline_by_an_alarm_is_heard_there_too() -> None:
    def late(number: int, frame: object) -> None:
        raise TimeoutError("too long")

    before = signal.signal(signal.SIGALRM, late)
    try:
        with interrupts_held():
            signal.raise_signal(signal.SIGALRM)
            with pytest.raises(TimeoutError, match="too long"):
                hear_interrupt()
            hear_interrupt()
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="Windows has no alarms")
def test_the_end_of_the_time_is_raised_again_where_the_first_was_lost() -> None:
    """As in a finaliser, which Python lets nothing out of."""
    heard = []
    with interrupts_held(), interrupts_let_through(), deadline(30.0):
        assert signal.getitimer(signal.ITIMER_REAL)[1] == AGAIN_S
        for _ in range(2):
            try:
                signal.raise_signal(signal.SIGALRM)
            except TooLong as error:
                heard.append(error)
    assert len(heard) == 2


def test_one_that_comes_as_a_block_is_entered_or_left_is_neither_lost_nor_leaves_a_handler() -> None:
    """At each line of both, by a trace function."""
    import sys

    from torchbench_magic.process import interrupts

    def block() -> None:
        with interrupts_held():
            done.append("begun")
            done.append("ended")

    def at(wanted: int | None) -> int:
        lines = [0]

        def local(frame: types.FrameType, event: str, _: object) -> object:
            if event == "line":
                if lines[0] == wanted:
                    interrupt()
                lines[0] += 1
            return local

        def called(frame: types.FrameType, event: str, _: object) -> object:
            return local if frame.f_code.co_filename == interrupts.__file__ else None

        sys.settrace(called)  # type: ignore[arg-type]
        try:
            block()
        finally:
            sys.settrace(None)
        return lines[0]

    done: list[str] = []
    count, before = at(None), signal.getsignal(signal.SIGINT)
    assert count > 20
    for line in range(count):
        done.clear()
        with pytest.raises(KeyboardInterrupt):
            at(line)
        assert done in ([], ["begun", "ended"]), line
        assert signal.getsignal(signal.SIGINT) is before, line
        assert interrupts._now.depth == 0, line
        assert interrupts._now.base is None, line
