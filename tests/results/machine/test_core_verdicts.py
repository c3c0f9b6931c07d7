"""The rule that says how the cores were used: by given figures, at each of its thresholds."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from torchbench_magic.profiling.cores.table import CoreUse, mean_use, verdict_of

HEALTHY = CoreUse(
    wall=1.0, cores=4, run=3.9, wait=0.1, ext=0.05, steal=0.0, throttled=0.0, threads=4, most=4,
    alone=0.02, idle=0.0, gil=0.0, lock=0.0, samples=100,
)  # fmt: skip
ONE = replace(HEALTHY, run=0.98, wait=0.02, threads=1, most=1, alone=1.0)

CASES = {
    "healthy": (HEALTHY, {}),
    "more threads than cores": (HEALTHY, {"wait": 2.0, "threads": 8}, "oversubscribed"),
    "too many beside others": (HEALTHY, {"run": 2, "wait": 4, "threads": 8, "ext": 2.0}, "oversubscribed"),
    "one thread too many, at barriers": (HEALTHY, {"run": 3, "wait": 0.9, "threads": 5}, "oversubscribed"),
    "the same, and others may be the cause": (HEALTHY, {"run": 3, "wait": 0.9, "threads": 5, "ext": 1.0}, "contended"),
    "waiting that others can have caused": (HEALTHY, {"run": 3, "wait": 0.9, "threads": 9, "ext": 0.5}, "healthy"),
    "as many threads as cores never are too many": (HEALTHY, {"run": 3, "wait": 0.9, "threads": 4}, "healthy"),
    "workers that feed one thread": (HEALTHY, {"wait": 1.5, "threads": 5, "processes": 4}, "healthy"),
    "more workers than cores": (HEALTHY, {"wait": 2.5, "threads": 6, "processes": 5}, "oversubscribed"),
    "workers with threads of their own": (HEALTHY, {"wait": 2.5, "threads": 7, "processes": 4}, "oversubscribed"),
    "others": (HEALTHY, {"run": 2.0, "wait": 2.0, "ext": 2.0}, "contended"),
    "others that are in nobody's way": (ONE, {"ext": 2.0}, "serial"),
    "the hypervisor": (HEALTHY, {"run": 2.0, "wait": 2.0, "ext": 0.1, "steal": 1.5}, "contended"),
    "a stolen core is no waiting": (ONE, {"run": 0.75, "steal": 0.25}, "serial"),
    "the interpreter's lock": (ONE, {"gil": 2.4, "threads": 4}, "gil-bound"),
    "two that take turns at it": (ONE, {"gil": 0.9, "threads": 2}, "gil-bound"),
    "another lock": (ONE, {"lock": 2.7, "threads": 4}, "lock-bound"),
    "waits at a lock while all cores run": (HEALTHY, {"lock": 3.0}, "healthy"),
    "one thread": (ONE, {}, "serial"),
    "one thread on one core": (ONE, {"cores": 1}, "healthy"),
    "half of the cores all the time": (HEALTHY, {"run": 2.0, "wait": 0.0, "threads": 2}, "healthy"),
    "half of the cores on the average": (HEALTHY, {"run": 2.0, "wait": 0.0, "alone": 0.7}, "serial"),
    "nobody": (ONE, {"run": 0.05, "wait": 0.0, "idle": 0.95}, "waiting"),
    "a quota": (HEALTHY, {"throttled": 0.4}, "throttled"),
    "a quota before all else": (HEALTHY, {"throttled": 0.4, "wait": 9.0, "threads": 9, "ext": 3.0}, "throttled"),
    "too short": (HEALTHY, {"wall": 0.1}, "not available"),
    "nothing seen": (HEALTHY, {"run": math.nan}, "not available"),
    "few looks at code that waits": (ONE, {"samples": 5, "run": 0.1, "wait": 0.0}, "waiting"),
    "the same beside others": (ONE, {"samples": 5, "run": 0.1, "wait": 0.0, "ext": 3.0}, "not available"),
    "few looks": (ONE, {"samples": 5}, "not available"),
    "few looks at far too many threads": (HEALTHY, {"samples": 5, "wait": 9.0, "threads": 12}, "oversubscribed"),
    "the load of others is not known": (HEALTHY, {"ext": math.nan, "steal": math.nan}, "healthy"),
    "it is not known what threads wait for": (ONE, {"gil": math.nan, "lock": math.nan}, "serial"),
    "it is not known whether a quota stopped it": (HEALTHY, {"throttled": math.nan}, "healthy"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_word_for_what_was_seen(name: str) -> None:
    use, changed, *expected = CASES[name]
    assert verdict_of(replace(use, **changed)) == (expected or ["healthy"])[0]  # type: ignore[arg-type]


@pytest.mark.parametrize("cores", [1, 2, 3, 8, 64])
@pytest.mark.parametrize("ext", [0.0, 0.3, 0.6])
def test_as_many_threads_as_cores_are_never_too_many_whoever_else_runs(cores: int, ext: float) -> None:
    for share in (0.0, 0.1, 0.3, 0.5, 0.9):
        use = replace(
            HEALTHY, cores=cores, run=cores * (1 - share), wait=cores * share, threads=cores, ext=ext * cores
        )
        assert verdict_of(use) not in ("oversubscribed", "gil-bound", "lock-bound", "serial")


def test_where_a_device_is_what_the_time_depends_on_the_cores_are_not_judged() -> None:
    for use in (HEALTHY, ONE, CoreUse()):
        assert verdict_of(replace(use, device=0.9)) == "device"
        assert verdict_of(replace(use, device=0.5)) == verdict_of(use)
    assert mean_use([replace(ONE, wall=1.0, device=0.9), replace(ONE, wall=3.0)]).device == pytest.approx(0.225)


def test_stretches_are_joined_by_their_seconds() -> None:
    joined = mean_use([replace(HEALTHY, wall=1.0, cores=4), replace(ONE, wall=3.0, cores=2, ext=math.nan, threads=7)])
    assert (joined.wall, joined.cores, joined.threads, joined.samples) == (4.0, 2, 7, 200)
    assert joined.run == pytest.approx((3.9 + 3 * 0.98) / 4)
    assert joined.ext == 0.05  # of where it is known
    assert math.isnan(mean_use([replace(HEALTHY, gil=math.nan)]).gil)
