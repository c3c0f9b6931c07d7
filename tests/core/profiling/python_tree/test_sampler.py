"""When the stack is looked at and when it is sampled: by a clock that a test sets."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from torchbench_magic.profiling.python import record as sampler
from torchbench_magic.profiling.python.record import PythonSampler, SampleRecord
from torchbench_magic.profiling.python.table import active_before, sampled_times

pytest.importorskip("pyinstrument")

US = 1000


class Clock:
    """Wall time in ns, which a test moves."""

    def __init__(self) -> None:
        self.now = 1_790_000_000 * 10**9

    def time_ns(self) -> int:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    made = Clock()
    monkeypatch.setattr(sampler, "time", SimpleNamespace(time_ns=made.time_ns))
    yield made
    sys.setprofile(None)


def loop(clock: Clock, *, short: int, long: int, times: int) -> SampleRecord:
    """So many turns of ``short`` us in calls of 10 us, then one call of ``long`` us, as the hook hears of them."""
    taken = PythonSampler(SimpleNamespace)  # type: ignore[arg-type]
    taken._began = taken._looked = taken._due = clock.now
    taken._next_due()

    def parse() -> None:
        clock.now += 10 * US
        if clock.now - taken._looked >= sampler.LOOK * 1e9:  # as pyinstrument's function does
            taken._look(sys._getframe(), "return", None)

    def wait() -> None:
        clock.now += long * US
        taken._look(sys._getframe(), "return", None)

    for _ in range(times):
        for _ in range(short // 10):
            parse()
        wait()
    return taken.stop()


def ms_of(record: SampleRecord) -> dict[str, float]:
    import numpy as np

    columns = [np.array(column, dtype=np.int64) for column in (record.moments, record.begins, record.dues)]
    moments = np.append(record.began, columns[0])
    none = np.zeros(0, dtype=np.int64)
    whole, _ = sampled_times(
        moments, columns[1], columns[2], (none, none), lambda at: active_before(at, record.began, int(moments[-1]))
    )
    found: dict[str, float] = {}
    for stack, ns in zip(record.stacks, whole.tolist(), strict=True):
        name = record.places[record.functions[stack]].name.rpartition(".")[2]
        found[name] = found.get(name, 0.0) + ns / 1e6
    return found


@pytest.mark.parametrize(("short", "long"), [(800, 2000), (400, 5000), (900, 300), (2500, 1000)])
def test_short_work_before_each_long_call_is_no_part_of_the_call(clock: Clock, short: int, long: int) -> None:
    """Once a sample was due an interval after the last one: 0.8 ms before each sleep of 2 ms counted as the sleep's."""
    found = ms_of(loop(clock, short=short, long=long, times=400))
    assert found["parse"] == pytest.approx(0.4 * short, rel=0.15)
    assert found["wait"] == pytest.approx(0.4 * long, abs=0.4 * 100 + 2)  # a look's length a turn


def test_samples_are_as_many_as_intervals_and_stretches(clock: Clock) -> None:
    record = loop(clock, short=1000, long=2000, times=300)
    assert sum(begin > 0 for begin in record.begins) == 300
    assert sum(due > 0 for due in record.dues) == pytest.approx(300, abs=5)
    assert all((begin > 0) != (due > 0) for begin, due in zip(record.begins, record.dues, strict=True))
