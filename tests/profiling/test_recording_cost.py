"""What recording cost: a word from the number of events, and with ``--twice`` a measurement."""

from __future__ import annotations

import math
import random
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torchbench_magic.errors import OptionError  # noqa: E402
from torchbench_magic.process.code import completed  # noqa: E402
from torchbench_magic.profiling import build_profile, recording_cost  # noqa: E402
from torchbench_magic.profiling.options import Schedule  # noqa: E402
from torchbench_magic.profiling.recorder import choose_line_source  # noqa: E402
from torchbench_magic.profiling.recording_cost import (  # noqa: E402
    LEAST_PAIRS,
    PAIRS,
    EventNumbers,
    OwnThread,
    Repeats,
    cost_doubt,
    measured_microseconds,
    profiler_cost,
    recording_times,
    with_repeats,
)

from .profiling_text import profiled, row  # noqa: E402


def recorded(**numbers: int) -> EventNumbers:
    return EventNumbers(**{"ops": 0, "allocations": 0, "lines": 0, "calls": 0} | numbers)


@pytest.mark.parametrize(
    ("wall_time", "added", "word"),
    [(1.0, 0.08, "little"), (1.0, 0.09, "noticeable"), (1.0, 0.51, "most"), (0.1, 0.3, "most"), (0.0, 0.0, "little")],
)
def test_the_word_follows_from_what_was_added(wall_time: float, added: float, word: str) -> None:
    assert profiler_cost(wall_time, added) == word


class Planted:
    """What recording added by planted costs, in place of what the run really had.

    Args:
        thread: what the processor did for the thread.
        costs: microseconds an event, in place of those of the table.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, thread: OwnThread, **costs: float) -> None:
        self.thread, self.costs, self.asked = thread, dict.fromkeys(recording_cost.microseconds_here(), 0.0) | costs, 0
        monkeypatch.setattr(recording_cost, "microseconds_here", lambda: dict.fromkeys(self.costs, 1.0))
        monkeypatch.setattr(recording_cost, "WORTH_MEASURING", 0.0)
        monkeypatch.setattr(build_profile, "recording_times", self.times)

    def times(self, run: Any, recorded: EventNumbers, thread: OwnThread) -> Any:
        return recording_times(run, recorded, self.thread, self.measured)

    def measured(self) -> dict[str, float]:
        self.asked += 1
        return self.costs


def test_a_line_pays_for_its_events_and_for_the_frames_that_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "def f(x):\n    return x\n\n\nfor i in range(2000):\n    f(i)\nfor i in range(2000):\n    pass\n"
    planted = Planted(monkeypatch, OwnThread(1e6, math.nan), line=1.0, entry=100.0)
    outcome = profiled(text, {})
    assert planted.asked == 1
    found = {line: row(outcome, line)["recording_time"] for line in (2, 5, 6, 7, 8)}
    assert found[6] == pytest.approx(2000 * 101e-6)  # halves of two line events, and a frame that begins
    assert found[2] == pytest.approx(2000 * 1.5e-6)  # half of its line event, and the frame's end
    assert found[8] == pytest.approx(2000e-6)
    assert [found[5], found[7]] == pytest.approx([2000e-6] * 2, rel=0.01)


def test_few_events_are_not_worth_a_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    planted = Planted(monkeypatch, OwnThread(1e6, math.nan), line=1.0)
    outcome = profiled("for i in range(200):\n    pass\n", {})
    assert planted.asked == 0
    assert row(outcome, 2)["recording_time"] > 0


def test_recording_added_at_most_what_the_thread_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    """0.3 s, which took 0.4 s as the thread waited for a core meanwhile."""
    Planted(monkeypatch, OwnThread(0.3, 0.1), line=1e6)
    lines = profiled("for i in range(2000):\n    pass\n", {}).profile.lines
    assert lines["recording_time"].sum() == pytest.approx(0.4)


def test_what_calls_outside_cost_stands_on_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    Planted(monkeypatch, OwnThread(1e9, math.nan), call=1e6)
    text = "import json\nfor i in range(1000):\n    json.loads('1')\n"
    lines = profiled(text, {}).profile.lines
    assert lines.loc[lines["line"].notna(), "recording_time"].sum() == 0
    if sys.version_info < (3, 12):
        assert lines["recording_time"].sum() >= 2000  # seconds: two functions in each call


def test_lines_and_calls_are_measured_by_loops_of_their_own() -> None:
    """By a clock that moves by 2 µs at each event."""
    now = [0]

    def tick() -> int:
        now[0] += 2000
        return now[0]

    found = measured_microseconds(lambda in_scope: choose_line_source(in_scope, now=tick), lambda: now[0] / 1e9)
    assert found["line"] == pytest.approx(2.0)
    assert found["entry"] == pytest.approx(2.0, rel=0.01)
    assert found["op"] == recording_cost.MICROSECONDS["op"]


def test_a_clock_that_is_too_coarse_leaves_the_table() -> None:
    assert measured_microseconds(clock=lambda: 1.0) == recording_cost.microseconds_here()


def test_what_is_little_is_not_worth_a_line() -> None:
    seen = recorded(ops=1200, lines=50_000)
    assert cost_doubt("little", seen) is None
    most = cost_doubt("most", seen)
    assert most is not None
    assert most.text.replace("\u202f", " ") == (
        "The profiler took most of this cell's time (50 000 lines, 1 200 operations)."
    )
    assert "--twice" in most.action


def test_a_profile_says_its_cost_and_a_heavy_one_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a cost of an event that is planted: of nothing, and of more than any run takes."""
    for seconds, word in ((0.0, "little"), (1e6, "most")):
        _plant_seconds(monkeypatch, seconds)
        made = profiled("for i in range(100):\n    a = i\n", {}).profile
        assert made.profiler_cost == word
        facts = [doubt.facts for doubt in made.warnings if doubt.kind == "profiler-cost"]
        assert len(facts) == (word == "most")
        assert all(200 <= int(str(each["lines"])) < 210 for each in facts), facts


def _plant_seconds(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """That much on each node of the lines."""
    monkeypatch.setattr(build_profile, "recording_times", lambda run, *rest: np.full(len(run.joined.tree), seconds))


def test_where_python_memory_is_counted_no_word_is_given() -> None:
    made = profiled("x = 1\n", {}, host_memory=True).profile
    assert made.profiler_cost is None
    assert made.lines["recording_time"].isna().all()


def test_a_profile_draws_no_random_numbers() -> None:
    torch.manual_seed(7)
    random.seed(7)
    before = torch.get_rng_state(), random.getstate()
    profiled("torch.ones(3)\n", memory=True, shapes=True)
    profiled("torch.ones(3)\n", twice=True)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]


def test_a_short_body_runs_in_pairs_with_and_without() -> None:
    profile = profiled("ran.append(1)\n", {"ran": (ran := [])}, twice=True).profile
    assert len(profile.repeats) in range(LEAST_PAIRS, PAIRS + 1)
    assert len(ran) == 1 + 2 * len(profile.repeats)
    assert profile.unprofiled_time is not None
    low, high = profile.dilation_interval
    assert low <= profile.dilation <= high
    assert [d.kind for d in profile.warnings].count("dilation") == 1
    assert "profiler-cost" not in [d.kind for d in profile.warnings]


def test_without_twice_the_body_runs_once() -> None:
    profile = profiled("ran.append(1)\n", {"ran": (ran := [])}).profile
    assert ran == [1]
    assert profile.unprofiled_time is None
    assert math.isnan(profile.dilation)


def test_an_error_of_a_later_run_is_the_users_and_the_profile_is_kept() -> None:
    outcome = profiled("n.append(1)\n1 / (2 - len(n))\n", {"n": []}, twice=True)
    assert isinstance(outcome.error, ZeroDivisionError)
    assert outcome.profile.unprofiled_time is None
    assert "twice-failed" in [d.kind for d in outcome.profile.warnings]


def test_what_was_measured_before_an_interrupt_is_kept() -> None:
    text = "n.append(1)\nif len(n) == 9:\n    raise KeyboardInterrupt\n"
    outcome = profiled(text, {"n": []}, twice=True)
    assert isinstance(outcome.error, KeyboardInterrupt)
    assert 0 < len(outcome.profile.repeats) < LEAST_PAIRS
    (doubt,) = [d for d in outcome.profile.warnings if d.kind == "dilation"]
    assert "no interval" in doubt.text or "cannot be told" in doubt.text


def test_every_run_has_the_threads_of_the_first() -> None:
    seen: list[int] = []
    before = torch.get_num_threads()
    profiled("seen.append(torch.get_num_threads())\n", {"seen": seen, "torch": torch}, twice=True, threads=1)
    assert set(seen) == {1}
    assert torch.get_num_threads() == before


def test_twice_and_a_schedule_exclude_each_other() -> None:
    with pytest.raises(OptionError, match="use one of them"):
        profiled("x = 1\n", {}, twice=True, schedule=Schedule.of("active=1"))


class FakeRuns:
    """A body and a recording that take what they are told to, by a clock of their own."""

    def __init__(self, plain: float, added: float) -> None:
        self.now, self.plain, self.added, self.is_recorded, self.runs = 0.0, plain, added, False, 0

    def body(self) -> None:
        self.runs += 1
        self.now += self.plain + self.added * self.is_recorded * (1 + 0.01 * (self.runs % 7))

    @contextmanager
    def record(self) -> Iterator[FakeRuns]:
        self.is_recorded = True
        yield self
        self.is_recorded = False

    def enter(self) -> None: ...
    def leave(self) -> None: ...

    def measured(self, first: float) -> Any:
        record: Any = self.record
        repeats = Repeats(self.body, record, None, clock=lambda: self.now)
        completed(repeats.measure(first))
        assert repeats.error is None
        return with_repeats(profiled("x = 1\n", {}).profile, repeats)


def said(profile: Any) -> str:
    return next(d.text for d in profile.warnings if d.kind == "dilation")


def test_the_cost_comes_with_its_interval() -> None:
    profile = FakeRuns(plain=0.010, added=0.005).measured(first=0.015)
    low, high = profile.dilation_interval
    assert 0.5 - 1e-9 <= low < profile.dilation < high <= 0.5 * 1.06 + 1e-9
    assert re.fullmatch(
        r"With the profiler this cell takes 1\.5\d times as long \(1\.5\d* … 1\.5\d*; 8 runs each: 15\.\d ms with,"
        r" 10\.0 ms without\)\.",
        said(profile),
    )


def test_what_the_runs_cannot_tell_is_not_measured() -> None:
    text = said(FakeRuns(plain=0.010, added=0.0).measured(first=0.010))
    assert "hether recording slows this cell cannot be resolved: with it" in text


def test_a_long_body_runs_once_more_and_has_no_interval() -> None:
    profile = FakeRuns(plain=2.0, added=1.0).measured(first=3.0)
    assert profile.repeats == ((3.0, 2.0),)
    assert "no interval" in said(profile)
    close = FakeRuns(plain=2.0, added=1.0).measured(first=2.2)
    assert said(close) == "The profiler's overhead cannot be resolved (one run each: 2.20 s with, 2.00 s without)."


def test_calls_of_the_profilers_own_before_and_after_the_body_are_none_of_its(monkeypatch: pytest.MonkeyPatch) -> None:
    _plant_seconds(monkeypatch, 1e6)  # it is said, however long the run is
    facts = [each.facts for each in profiled("pass\n").profile.warnings if each.kind == "profiler-cost"]
    assert sum(int(str(each["calls"])) for each in facts) < 100  # more than 200 with those round the body
