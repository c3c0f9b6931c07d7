"""Ctrl-C in a magic: the wait for a store ends at once, what was not stored is said, counts are not times."""

from __future__ import annotations

import itertools
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from tests.interrupting import PACKAGE, lines_run, with_interrupt_at
from torchbench_magic import load
from torchbench_magic.notebook import display
from torchbench_magic.timing import counted_alternatives

Run = Callable[..., str]
QUICK = "-n 1 -r 3"


@pytest.fixture
def shell(loaded: InteractiveShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    """A shell in an empty folder, whose code can lock a store, with torch and a tensor."""
    import torch

    held: list[sqlite3.Connection] = []

    def lock() -> None:
        held.append(sqlite3.connect("runs.sqlite", isolation_level=None))
        held[-1].execute("BEGIN EXCLUSIVE")

    monkeypatch.chdir(tmp_path)
    names = {"lock": lock, "stop": lambda: signal.raise_signal(signal.SIGINT)}
    loaded.user_ns.update(time=time, torch=torch, x=torch.ones(8), **names)
    yield loaded
    for connection in held:
        connection.close()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was said to be under way; Ctrl-C is pressed at the first word of a wait for a store."""
    seen: list[str] = []

    def update(self: display.Output, done: float, total: float | None, what: str) -> None:
        seen.append(what)
        if what.startswith("waiting") and sum(one.startswith("waiting") for one in seen) == 1:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(display.Output, "update", update)
    return seen


def test_ctrl_c_ends_the_wait_for_a_store_and_the_profile_is_shown(shell: Any, run: Run, told: list[str]) -> None:
    shown = run(shell, "%%tprofile --save runs.sqlite\ny = x + 1\nlock()")
    assert sum(what.startswith("waiting") for what in told) == 1
    assert "waiting for runs.sqlite, locked by another process" in told
    why = "The profile could not be stored: interrupted while another process had locked runs.sqlite"
    assert why in " ".join(shown.split())
    assert "wall time" in shown
    assert "KeyboardInterrupt" in shown
    assert "torchbench_magic" not in shown
    assert not shell.user_ns["_tprofile"].partial


def test_ctrl_c_ends_the_wait_before_anything_runs(shell: Any, run: Run, told: list[str]) -> None:
    run(shell, "%%tprofile -q --save runs.sqlite\ny = x + 1")
    run(shell, "lock()")
    shown = run(shell, "%%tprofile --save runs.sqlite\nran = True")
    assert "KeyboardInterrupt" in shown
    assert "ran" not in shell.user_ns
    assert sum(what.startswith("waiting") for what in told) == 1


def test_ctrl_c_ends_the_wait_for_a_store_and_the_timing_is_shown(shell: Any, run: Run, told: list[str]) -> None:
    shown = run(shell, f"%%timer {QUICK} --save runs.sqlite\n# --- setup\nlock()\n# --- a\nx + 1")
    assert sum(what.startswith("waiting") for what in told) == 2, "and a last try, of a tenth of a second"
    said = " ".join(shown.split())
    assert "1 finished point could not be stored: runs.sqlite: interrupted while another process held it" in said
    assert "KeyboardInterrupt" in shown
    assert "torchbench_magic" not in shown
    assert not shell.user_ns["_timer"].partial


def test_what_was_interrupted_is_not_stored_and_that_is_said_even_where_nothing_is_shown(shell: Any, run: Run) -> None:
    def stop_late() -> None:
        time.sleep(0.001)
        if next(calls) == 400:  # long after the first block
            raise KeyboardInterrupt

    shell.user_ns["stop_late"] = stop_late
    for quiet in ("-q ", ""):
        calls = itertools.count()
        shown = " ".join(run(shell, f"%%timer {quiet}--min-run-time 9 --save runs.sqlite\nstop_late()").split())
        assert "runs.sqlite stores finished points only, not the interrupted one" in shown
        assert "KeyboardInterrupt" in shown
        assert shell.user_ns["_timer"].partial
    shell.user_ns["_timer"].save("runs.sqlite")
    assert [result.partial for result in load("runs.sqlite")] == [True]


@pytest.fixture
def counting_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*args: object, **more: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(counted_alternatives, "count_instructions", stopped)


@pytest.mark.usefixtures("counting_is_stopped")
def test_an_interrupt_while_instructions_are_counted_is_told_as_that(shell: Any, run: Run) -> None:
    shown = " ".join(run(shell, f"%%timer {QUICK} --callgrind\n# --- a\nx + 1\n# --- b\nx + 2").split())
    said = "Interrupted while counting instructions: times are complete, the count of `a` and `b` is missing"
    assert said.replace("`", "") in shown.replace("`", "").replace("“", "").replace("”", "")
    assert "Partial" not in shown
    assert "KeyboardInterrupt" in shown
    assert not shell.user_ns["_timer"].partial


@pytest.mark.usefixtures("counting_is_stopped")
def test_an_interrupt_while_a_later_point_is_counted_leaves_the_rest_partial(shell: Any, run: Run) -> None:
    shown = " ".join(run(shell, f"%%timer {QUICK} --callgrind --sweep n=[1,2]\nx + n").split())
    assert "Partial: interrupted" in shown
    assert "at point 1 of 2" in shown
    assert shell.user_ns["_timer"].partial


def test_a_profile_that_takes_long_to_make_says_so(shell: Any, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[str, float]] = []

    def await_end(self: display.Output, done: float, total: float | None, what: str, *, after: float = 0.0) -> None:
        heard.append((what, after))

    monkeypatch.setattr(display.Output, "await_end", await_end)
    run(shell, "%%tprofile\ny = x + 1")
    assert heard == [("making the profile", 1.0)]
    assert display.Output._line(0.0, None, "making the profile") == (
        "making the profile · an interrupt takes effect once it is shown"
    )


def test_an_interrupt_at_any_line_of_loading_or_unloading_leaves_neither_half_done(shell: Any) -> None:
    def magics() -> set[str]:
        return {*shell.magics_manager.magics["cell"]} & {"timer", "tprofile", "tcompare"}

    def looking() -> int:
        return sum("_note_cell" in str(each) for each in shell.events.callbacks["pre_run_cell"])

    manager, folder = shell.extension_manager, PACKAGE / "notebook"
    for loads, way in ((False, manager.unload_extension), (True, manager.load_extension)):
        back = manager.load_extension if not loads else manager.unload_extension
        if loads:
            back("torchbench_magic")
        places = lines_run(lambda way=way: way("torchbench_magic"), [folder])  # type: ignore[misc]
        assert len(places) > 30
        for place in places[::4]:
            back("torchbench_magic")
            error = with_interrupt_at(place, lambda way=way: way("torchbench_magic"))  # type: ignore[misc]
            assert isinstance(error, KeyboardInterrupt), place
            assert magics() in (set(), {"timer", "tprofile"}), place
            assert looking() == bool(magics()), place
            manager.loaded.add("torchbench_magic") if magics() else manager.loaded.discard("torchbench_magic")
            if bool(magics()) is not loads:  # it came before anything was done
                way("torchbench_magic")
