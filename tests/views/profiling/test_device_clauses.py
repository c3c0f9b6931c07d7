"""What the sentence says of a device, on traces whose every event is given."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.results.profiles import profile_of_two_kernels
from tests.results.profiling.insights.test_on_device import LINE_2, LINE_3, profile_of, steps
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.schema import LINE_COLUMNS, frame_of
from torchbench_magic.profiling.warnings import worked_on

LINES = {
    "cell": [3, 3], "line": [2, 3], "source": ["busy(x)", "y.item()"], "file": ["<cell>"] * 2,
    "source_id": ["ab12"] * 2, "thread": [0, 0], "calls": [10, 10], "python_time": [0.0, 0.0],
}  # fmt: skip


def with_times(made: Profile, cpu: tuple[float, float], device: tuple[float, float], **more: Any) -> Profile:
    times = {"wall_time": cpu, "self_cpu_time": cpu, "cpu_time": cpu, "self_device_time": device, "device_time": device}
    lines = frame_of(LINE_COLUMNS, LINES | {name: list(values) for name, values in times.items()})
    return profile_of_two_kernels(lines=lines, trace=made.trace, wall_time=made.wall_time, **more)


def head(made: Profile) -> str:
    return " ".join(re.split(r"\n\n|\n\*", str(made))[0].split())


def test_the_head_of_a_run_that_a_device_bounds_is_about_the_device_and_says_where_the_host_waits() -> None:
    """Kernels of 3 ms, and a read after each: the line that reads has the host's time, the other the device's."""
    events = [("kernel", 2, 3.0 * at, 2.95, LINE_2) for at in range(10)]
    events += [("runtime", 1, 3.0 * at + 0.1, 2.8, LINE_3) for at in range(10)]
    made = with_times(profile_of(*events, wall=0.03), (0.001, 0.028), (0.0295, 0.0))
    said = "In[3]:2 launches all of the work of cuda:0 (29.5 ms), which is busy for 98 % of the time (30.0 ms)"
    assert head(made) == f"{said}; the host waits for it at In[3]:3 (28.0 ms)"


def test_a_line_that_waits_is_not_said_to_work_in_torch() -> None:
    made = with_times(profile_of(*steps(5, wait=2.9, gap=5.0), wall=0.04), (0.001, 0.0145), (0.015, 0.0))
    said = "In[3]:3 takes 36 % of the time (14.5 of 40.0 ms), nearly all of it waiting for the device"
    assert head(made) == f"{said}, for what In[3]:2 launched"


def test_a_line_that_waits_for_its_own_work_names_no_other() -> None:
    events = [("kernel", 2, 8.0 * at, 3.0, LINE_3) for at in range(5)]
    events += [("runtime", 1, 8.0 * at + 0.1, 2.9, LINE_3) for at in range(5)]
    made = with_times(profile_of(*events, wall=0.04), (0.001, 0.0145), (0.0, 0.015))
    assert head(made).endswith("nearly all of it waiting for the device")


def test_a_short_wait_on_a_line_is_not_named() -> None:
    made = with_times(profile_of(*steps(5, wait=0.5, gap=5.0), wall=0.04), (0.001, 0.0145), (0.015, 0.0))
    assert "nearly all of it in torch" in head(made)


def test_that_the_host_ran_ahead_is_said_with_the_time_at_which_the_code_ended() -> None:
    doubt = worked_on(0.0462, 0.0476)
    assert doubt is not None
    assert doubt.kind == "device-after"
    assert doubt.text.startswith("When the code had ended, after 1.4 ms, the device worked on for 46.2 ms")
    made = with_times(
        profile_of(("kernel", 2, 0.1, 47.4, LINE_2), wall=0.0476), (0.0013, 0.0), (0.0474, 0.0), warnings=[doubt]
    )
    said = "In[3]:2 launches all of the work of cuda:0 (47.4 ms), which is busy for 100 % of the time (47.6 ms)"
    assert head(made).startswith(f"{said}; the code itself ends after 1.40 ms")


@pytest.mark.parametrize(("after", "wall"), [(0.0, 0.01), (1e-5, 0.01), (1e-5, 3e-5), (0.0, 0.0)])
def test_a_device_that_has_ended_with_the_code_is_no_doubt(after: float, wall: float) -> None:
    assert worked_on(after, wall) is None
