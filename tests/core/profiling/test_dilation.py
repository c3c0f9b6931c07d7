"""How much slower profiling made a body: measured, and estimated against bodies that are timed plain."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torchbench_magic.core.body import compile_body  # noqa: E402
from torchbench_magic.core.profiling import dilation  # noqa: E402
from torchbench_magic.core.profiling.dilation import (  # noqa: E402
    Costs,
    Counts,
    calibrated,
    dilation_doubt,
    estimated_without,
    with_unprofiled,
)
from torchbench_magic.errors import OptionError  # noqa: E402
from torchbench_magic.results.cell import Body  # noqa: E402
from torchbench_magic.results.schedule import Schedule  # noqa: E402

from .profiling_text import profiled  # noqa: E402

BODIES = {
    "tiny ops": "for _ in range(4000):\n    x + 1\n",
    "lines": "for i in range(30_000):\n    a = i\n    b = a\n",
    "modules": "for _ in range(300):\n    net(x)\n",
    "large ops": "for _ in range(4):\n    big @ big\n",
}
CASES = [(name, {}) for name in BODIES] + [("tiny ops", {"shapes": True, "memory": True})]


def names() -> dict[str, Any]:
    net = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(4)])
    return {"torch": torch, "x": torch.ones(4), "net": net, "big": torch.ones(500, 500)}


@pytest.mark.parametrize(("name", "options"), CASES)
def test_the_estimate_is_near_the_time_without(name: str, options: dict[str, bool]) -> None:
    """The share of the run that profiling added, estimated and measured. The runs alternate with plain ones and go by
    the thread's CPU time, which a busy machine changes least; where profiling is most of the time the share is known
    to two fifths, whatever the machine does meanwhile."""
    text = f"began = clock()\n{BODIES[name]}spent.append(clock() - began)\n"
    body, namespace = compile_body(Body(text, "<plain>")), names() | {"clock": time.thread_time}
    body.run(namespace | {"spent": []})
    found = []
    for _ in range(3):
        spent: list[float] = []
        calibrated.cache_clear()  # a stall may spoil one: here the median of three counts
        body.run(namespace | {"spent": spent})
        profile = profiled(text, namespace | {"spent": spent}, **options).profile
        plain, dilated = spent
        found.append((1 - profile.estimated_time / profile.wall_time, 1 - plain / dilated))
    estimated, measured = (statistics.median(shares) for shares in zip(*found, strict=True))
    assert abs(estimated - measured) < 0.4, found
    if measured > 0.6:
        assert estimated > 0.25, "a cell that became several times slower is said to be"
    if name == "large ops":
        assert estimated < 0.1


def test_the_estimate_takes_the_cost_of_each_event_out() -> None:
    costs = Costs(op=1e-5, allocation=1e-6, line=1e-7, call=1e-8)
    counts = Counts(ops=1000, allocations=2000, line_events=10_000, outside_calls=100_000)
    assert estimated_without(0.1, counts, costs) == pytest.approx(0.1 - 0.01 - 0.002 - 0.001 - 0.001)
    assert estimated_without(0.1, counts, costs, stretch=2.0) == pytest.approx(0.1 - 2 * 0.014)
    assert estimated_without(0.1, counts, costs, pace=3.0) == pytest.approx(0.1 - 3 * 0.014)
    assert estimated_without(0.011, counts, costs) == pytest.approx(0.011 / 20), "never nothing, nor less"


def test_what_slows_the_processor_slows_the_work_beside_and_leaves_the_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slow = [0.0], itertools.cycle([1.0] * 41 + [2.5] * 30)

    def work(of: float) -> Callable[[], None]:
        return lambda: now.__setitem__(0, now[0] + of * next(slow))

    monkeypatch.setattr(dilation, "clock", lambda: now[0])
    monkeypatch.setattr(dilation, "work", work(0.1))
    assert dilation._typical(work(0.4)) == pytest.approx(4, rel=0.1)


def test_twice_runs_the_body_a_second_time_and_says_so() -> None:
    profile = profiled("ran.append(1)\ntime.sleep(0.03)\n", {"ran": (ran := []), "time": time}, twice=True).profile
    assert ran == [1, 1]
    assert profile.unprofiled_time is not None
    assert 0.03 <= profile.unprofiled_time < 0.2
    assert profile.dilation == pytest.approx(profile.wall_time / profile.unprofiled_time - 1)
    (doubt,) = [d for d in profile.warnings if d.kind == "dilation"]
    assert "ran a second time" in doubt.text


def test_without_twice_the_body_runs_once() -> None:
    profile = profiled("ran.append(1)\n", {"ran": (ran := [])}).profile
    assert ran == [1]
    assert profile.unprofiled_time is None
    assert not math.isnan(profile.estimated_time)


def test_an_error_of_the_second_run_is_the_users_and_the_profile_is_kept() -> None:
    outcome = profiled("n.append(1)\n1 / (2 - len(n))\n", {"n": []}, twice=True)
    assert isinstance(outcome.error, ZeroDivisionError)
    assert outcome.profile.unprofiled_time is None
    assert "twice-failed" in [d.kind for d in outcome.profile.warnings]


def test_twice_has_the_threads_of_the_first_run() -> None:
    seen: list[int] = []
    before = torch.get_num_threads()
    profiled("seen.append(torch.get_num_threads())\n", {"seen": seen, "torch": torch}, twice=True, threads=1)
    assert seen == [1, 1]
    assert torch.get_num_threads() == before


def test_twice_and_a_schedule_exclude_each_other() -> None:
    with pytest.raises(OptionError, match="give one"):
        profiled("x = 1\n", {}, twice=True, schedule=Schedule.of("active=1"))


def test_the_sentence_is_that_of_the_style() -> None:
    doubt = dilation_doubt(3.24, 3.12, measured=False)
    assert doubt is not None
    assert doubt.text == "Profiling made this cell about 4 % slower (3.12 s without, estimated)."
    assert dilation_doubt(3.13, 3.12, measured=False) is None, "what is below 2 % is not worth a line"
    measured = dilation_doubt(3.24, 3.12, measured=True)
    assert measured is not None
    assert measured.text.startswith("Profiling made this cell about 4 % slower (")
    short = dilation_doubt(20e-6, 10e-6, measured=True)
    assert short is not None
    assert "10.0 µs without" in short.text


def test_an_estimate_that_is_the_rest_of_a_subtraction_names_no_figure() -> None:
    doubt = dilation_doubt(8.65e-6, 8.65e-6 / 20, measured=False)
    assert doubt is not None
    assert doubt.text == "Nearly all of this cell's time is the cost of profiling it."


def test_a_measured_time_takes_the_place_of_the_estimate() -> None:
    profile = profiled("for _ in range(3000):\n    torch.ones(1)\n").profile
    made = with_unprofiled(profile, profile.wall_time / 2, complete=True)
    assert made.dilation == pytest.approx(1.0)
    assert [d.kind for d in made.warnings].count("dilation") == 1


def test_where_python_memory_is_counted_nothing_is_estimated() -> None:
    assert math.isnan(profiled("x = 1\n", {}, host_memory=True).profile.dilation)
