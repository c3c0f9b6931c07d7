"""Quota and memory of cgroups, both versions, from trees of files."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from torchbench_magic.process.environment import usable_cores
from torchbench_magic.process.machine import cpu_quota, memory_limit, throttled_share

from ...doctor.trees import tree

CG = "/sys/fs/cgroup"


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({f"{CG}/cpu.max": "50000 100000\n"}, 0.5),  # a container with a namespace of its own
        ({"/proc/self/cgroup": "0::/\n", f"{CG}/cpu.max": "max 100000\n"}, math.inf),
        (
            {"/proc/self/cgroup": "0::/a/b\n", f"{CG}/a/b/cpu.max": "max 100000", f"{CG}/a/cpu.max": "150000 100000"},
            1.5,
        ),
        (
            {
                "/proc/self/cgroup": "0::/a/b\n",
                f"{CG}/a/b/cpu.max": "100000 100000",
                f"{CG}/a/cpu.max": "400000 100000",
            },
            1.0,
        ),
        ({"/proc/self/cgroup": "0::/../x\n", f"{CG}/x/cpu.max": "200000 100000"}, 2.0),
        # version 1, mounted under the names of all its controllers, and a container that sees the host's path
        (
            {
                "/proc/self/cgroup": "3:cpu,cpuacct:/docker/1\n",
                f"{CG}/cpu,cpuacct/docker/1/cpu.cfs_quota_us": "75000",
                f"{CG}/cpu,cpuacct/docker/1/cpu.cfs_period_us": "50000",
            },
            1.5,
        ),
        (
            {
                "/proc/self/cgroup": "3:cpu,cpuacct:/docker/1\n",
                f"{CG}/cpu/cpu.cfs_quota_us": "200000",
                f"{CG}/cpu/cpu.cfs_period_us": "100000",
            },
            2.0,
        ),
        ({"/proc/self/cgroup": "1:cpu:/\n0::/\n", f"{CG}/cpu/cpu.cfs_quota_us": "-1"}, math.inf),
        # both: the smaller holds; a quota of another controller's line is none of the processor's
        (
            {
                "/proc/self/cgroup": "1:cpu:/\n0::/\n",
                f"{CG}/cpu/cpu.cfs_quota_us": "300000",
                f"{CG}/cpu/cpu.cfs_period_us": "100000",
                f"{CG}/unified/cpu.max": "100000 100000",
            },
            1.0,
        ),
        ({"/proc/self/cgroup": "1:memory:/m\n0::/\n", f"{CG}/m/cpu.max": "100000 100000"}, math.inf),
        ({f"{CG}/cpu.max": "rubbish"}, math.inf),
        ({f"{CG}/cpu.max": ""}, math.inf),
    ],
)
def test_the_smallest_quota_of_the_cgroup_and_its_parents_counts(
    tmp_path: Path, files: dict[str, str], cores: float
) -> None:
    quota = cpu_quota(tree(tmp_path, files))
    assert quota.value == cores
    assert quota.is_set == math.isfinite(cores) == bool(quota.said) == bool(quota.folder)


def test_without_cgroups_nothing_is_known(tmp_path: Path) -> None:
    files = tree(tmp_path, {"/proc/self/cgroup": "0::/a\n"})
    assert math.isnan(cpu_quota(files).value)
    assert math.isnan(memory_limit(files).value)
    assert not cpu_quota(files).is_set
    assert usable_cores(files) == len(os.sched_getaffinity(0))


def test_half_a_core_is_one_usable_core(tmp_path: Path) -> None:
    assert usable_cores(tree(tmp_path, {f"{CG}/cpu.max": "50000 100000"})) == 1


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({f"{CG}/memory.max": "1073741824"}, 2.0**30),
        ({f"{CG}/memory.max": "max"}, math.inf),
        (
            {
                "/proc/self/cgroup": "4:memory:/a\n",
                f"{CG}/memory/a/memory.limit_in_bytes": "9223372036854771712",
                f"{CG}/memory/memory.limit_in_bytes": "4096",
            },
            4096.0,
        ),
        (
            {"/proc/self/cgroup": "4:memory:/a\n", f"{CG}/memory/a/memory.limit_in_bytes": "9223372036854771712"},
            math.inf,
        ),
    ],
)
def test_the_smallest_memory_limit_counts(tmp_path: Path, files: dict[str, str], limit: float) -> None:
    assert memory_limit(tree(tmp_path, files)).value == limit


def test_how_often_the_quota_stopped_the_cgroup_is_read_where_the_quota_is(tmp_path: Path) -> None:
    stat = "usage_usec 5\nnr_periods 200\nnr_throttled 50\nthrottled_usec 9\n"
    files = tree(tmp_path, {f"{CG}/cpu.max": "50000 100000", f"{CG}/cpu.stat": stat})
    assert throttled_share(cpu_quota(files), files) == 0.25
    empty = tree(
        tmp_path / "other", {f"{CG}/cpu.max": "50000 100000", f"{CG}/cpu.stat": "nr_periods 0\nnr_throttled 0"}
    )
    assert math.isnan(throttled_share(cpu_quota(empty), empty))


def test_an_unreadable_file_is_no_error(tmp_path: Path) -> None:
    files = tree(tmp_path, {f"{CG}/cpu.max/is-a-folder": "", f"{CG}/memory.max": "1024"})
    assert math.isinf(cpu_quota(files).value)
    assert memory_limit(files).value == 1024
