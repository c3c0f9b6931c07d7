"""The clocks as a run is entered and left: one that was set is told, a process that was stopped between two readings is
not taken for it."""

from __future__ import annotations

import itertools
import time
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from torchbench_magic.profiling import recording

from ..profiling_text import profiled

MS = 1_000_000


class Clocks:
    """Two clocks that only reading moves, by 100 ns; one of both may be stopped before a reading, or set."""

    def __init__(self, stops: dict[int, int], set_by: int = 0) -> None:
        self.now, self.readings, self.stops, self.set_by, self.was_set = 0, 0, stops, set_by, 0

    def time_ns(self) -> int:
        return self._read() + 1_790_000_000_000 * MS + self.was_set

    def perf_counter_ns(self) -> int:
        return self._read()

    def _read(self) -> int:
        self.now += 100 + self.stops.get(self.readings, 0)
        self.readings += 1
        return self.now


def run_of(clocks: Clocks, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A run of 10 ms that was entered and left by these clocks."""
    times = SimpleNamespace(time_ns=clocks.time_ns, perf_counter_ns=clocks.perf_counter_ns, thread_time_ns=lambda: 0)
    times.perf_counter = lambda: 0.0
    monkeypatch.setattr(recording, "time", times)
    source: Any = SimpleNamespace(name="none", outside_calls=lambda: 0)
    options: Any = SimpleNamespace(python=False, concurrency=False, threads=1, memory=False, shapes=False)
    run = recording.RecordedRun(source, options, SimpleNamespace(update=print))  # type: ignore[arg-type]
    run.enter()
    clocks.now += 10 * MS
    clocks.was_set = clocks.set_by
    run.leave()
    return run


def test_a_process_that_is_stopped_between_any_two_readings_has_not_set_the_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for stopped in itertools.product([0, 500 * MS], repeat=6):
        run = run_of(Clocks(dict(enumerate(stopped))), monkeypatch)
        assert run.clock_set_by == 0, stopped


@pytest.mark.parametrize("ms", [500, -500])
def test_a_clock_that_was_set_is_told_by_how_much_at_the_least(ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_of(Clocks({}, ms * MS), monkeypatch).clock_set_by == pytest.approx(0.5, abs=1e-6)
    for at in range(6):
        run = run_of(Clocks({at: 100 * MS}, ms * MS), monkeypatch)
        assert 0.4 - 1e-6 <= run.clock_set_by <= 0.5, at


def test_it_is_said_that_no_time_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording.RecordedRun, "clock_set_by", 3600.0)
    (doubt,) = [each for each in profiled("x = 1").profile.warnings if each.kind == "clock-set"]
    assert doubt.text.startswith("The system clock was changed during the run: ")
    assert doubt.text.endswith("No time here is valid.")
    assert doubt.action == "Run it again."


def test_a_body_ends_when_the_device_has_and_begins_when_what_was_launched_before_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clocks, waits = Clocks({}), iter([30 * MS, 46 * MS])

    def wait_for_devices() -> bool:
        clocks.now += next(waits)
        return True

    monkeypatch.setattr(recording, "wait_for_devices", wait_for_devices)
    run = run_of(clocks, monkeypatch)
    assert run.end - run.begin == pytest.approx(56 * MS, abs=2000)
    assert run.after == pytest.approx(46 * MS, abs=2000)
    assert run.wall_by_other_clock == pytest.approx(0.056, abs=2e-6)
    assert run.clock_set_by == 0


def test_without_a_device_in_use_a_body_ends_with_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "wait_for_devices", lambda: False)
    run = run_of(Clocks({}), monkeypatch)
    assert run.after == 0
    assert run.end - run.begin == pytest.approx(10 * MS, abs=2000)


def test_what_a_device_does_after_the_code_is_part_of_the_time_and_on_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait at the end is a sleep here; the one before the body is none of its time. As of this package, its lines
    are not recorded."""
    waits: list[int] = []
    text = "def wait_for_devices():\n  time.sleep(0.05)\n  waits.append(1)\n  return True"
    names: dict[str, Any] = {"time": time, "waits": waits}
    exec(compile(text, "/usr/lib/elsewhere.py", "exec"), names)
    monkeypatch.setattr(recording, "wait_for_devices", names["wait_for_devices"])
    made = profiled("x = 1\ny = 2").profile
    assert len(waits) == 2
    assert made.wall_time >= 0.05
    (doubt,) = [each for each in made.warnings if each.kind == "device-after"]
    assert float(str(doubt.facts["seconds"])) >= 0.05
    assert made.not_attributed >= 0.05
    assert float(made.lines.loc[made.lines["line"].notna(), "wall_time"].sum()) < made.wall_time - 0.05
    assert "attributed" in str(made)
    assert " 0.0 % attributed" not in str(made)
