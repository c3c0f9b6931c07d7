"""Which steps are recorded: as ``torch.profiler.schedule`` has it, for every set of numbers."""

from __future__ import annotations

import itertools
import warnings

import pytest

from torchbench_magic.errors import OptionError
from torchbench_magic.profiling.schedule import Schedule

RANGES = {
    "wait": (0, 1, 2, 5),
    "warmup": (0, 1, 3),
    "active": (1, 2, 3),
    "repeat": (0, 1, 2),
    "skip_first": (0, 1, 10),
    "skip_first_wait": (0, 1),
}
SETS = [dict(zip(RANGES, values, strict=True)) for values in itertools.product(*RANGES.values())]


def test_each_step_does_what_torchs_schedule_does_in_it() -> None:
    profiler = pytest.importorskip("torch").profiler
    different = []
    for numbers in SETS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, about a warmup of 0
            theirs = profiler.schedule(**numbers)
        ours = Schedule(**numbers)
        different += [(numbers, step) for step in range(40) if ours(step).name != theirs(step).name]
    assert len(SETS) == 648
    assert different == []


@pytest.mark.parametrize("numbers", SETS[::37], ids=str)
def test_the_first_recorded_step_and_the_end_are_known(numbers: dict[str, int]) -> None:
    schedule = Schedule(**numbers)
    recorded = [step for step in range(60) if schedule(step).records]
    assert schedule.first_recorded == recorded[0]
    assert (schedule.steps is None) == (numbers["repeat"] == 0)
    if schedule.steps is not None:
        assert recorded[-1] == schedule.steps - 1


def test_it_is_written_and_read_back() -> None:
    schedule = Schedule.of("skip_first=10, wait=5,warmup=1,active=3,repeat=2")
    assert schedule == Schedule(skip_first=10, wait=5, warmup=1, active=3, repeat=2)
    assert Schedule.of(str(schedule)) == schedule
    assert Schedule.of({"active": 2}) == Schedule.of("active=2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wait=1", "active is needed"),
        ("active=0", "active=0: give a whole number of at least 1"),
        ("active=1,wait=-1", "'wait=-1' is not a number"),
        ("active=1,activ=2", "no 'activ'; it has active, wait"),
        ("active=1,active=2", "given twice"),
        ("3", "'3' is not a number"),
        ("", "write skip_first="),
        ("active=x", "'active=x' is not a number"),
    ],
)
def test_what_makes_no_schedule_is_one_line(text: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        Schedule.of(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
