"""What is known of the machine, from trees of files and of this process."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
import torch

from torchbench_magic.process import environment
from torchbench_magic.process.environment import read_environment
from torchbench_magic.process.machine import (
    cpu_quota,
    governor,
    memory_limit,
    native_libraries,
    throttled_share,
    usable_cores,
)

from .trees import tree

# ==== cgroups =========================================================================================================
# Quota and memory of cgroups, both versions, from trees of files.


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


# ==== libraries and clock =============================================================================================


CPUS = "/sys/devices/system/cpu"


def maps(*paths: str) -> dict[str, str]:
    lines = [f"7f{n:04x}000-7f{n:04x}fff r-xp 00000000 08:01 {n}    {path}\n" for n, path in enumerate(paths, 1)]
    return {
        "/proc/self/maps": "".join(
            [*lines, "7ffc000-7ffd000 rw-p 00000000 00:00 0   [stack]\n", "7ffe-7fff r-xp 0 00:00 0\n"]
        )
    }


def test_libraries_are_known_by_their_file_and_the_package_that_brings_them(tmp_path: Path) -> None:
    found = native_libraries(
        tree(
            tmp_path,
            maps(
                "/srv/me/secret/.venv/lib/python3.12/site-packages/torch/lib/libgomp.so.1",
                "/srv/me/secret/.venv/lib/python3.12/site-packages/torch/lib/libgomp.so.1",  # its second segment
                "/srv/me/secret/.venv/lib/python3.12/site-packages/scikit_learn.libs/libgomp-a34b3233.so.1.0.0",
                "/srv/me/secret/.venv/lib/python3.12/site-packages/numpy.libs/libscipy_openblas64_-32a4b2a6.so",
                "/srv/me/my conda/lib/libiomp5.so (deleted)",
                "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2",
                "/usr/lib/x86_64-linux-gnu/libgomplike.so.2",
                "/usr/lib/x86_64-linux-gnu/libblast.so.2",
            ),
        )
    )
    assert found is not None
    assert [(one.kind, one.name, str(one)) for one in found] == [
        ("BLAS", "scipy_openblas", "libscipy_openblas64_-32a4b2a6.so (numpy)"),
        ("OpenMP", "gomp", "libgomp-a34b3233.so.1.0.0 (scikit_learn)"),
        ("OpenMP", "gomp", "libgomp.so.1 (torch)"),
        ("OpenMP", "iomp5", "libiomp5.so (…/lib)"),
        ("allocator", "jemalloc", "libjemalloc.so.2 (/usr/lib/x86_64-linux-gnu)"),
    ]
    assert not any("secret" in str(one) for one in found)


def test_without_maps_the_libraries_are_not_known_which_is_not_none(tmp_path: Path) -> None:
    assert native_libraries(tree(tmp_path, {"/proc/cpuinfo": ""})) is None
    assert native_libraries(tree(tmp_path, maps("/usr/lib/libc.so.6"))) == ()


def test_torchs_openmp_is_found_once_though_it_is_mapped_in_pieces() -> None:
    assert torch.get_num_threads() >= 1
    assert Path("/proc/self/maps").read_text().count("/libgomp") > 1 or torch.version.cuda
    found = native_libraries() or ()
    assert any(one.kind == "OpenMP" and "torch" in one.place for one in found)
    assert len({one.path for one in found}) == len(found)


def test_the_governors_of_all_processors_are_named(tmp_path: Path) -> None:
    names = enumerate(("powersave\n", "ondemand", ""))
    governors = {f"{CPUS}/cpu{at}/cpufreq/scaling_governor": name for at, name in names}
    assert governor(tree(tmp_path, governors)) == "ondemand, powersave"
    assert governor(tree(tmp_path / "guest", {})) == ""


# ==== accelerators name ===============================================================================================
# The accelerator is named without waking it.


@pytest.mark.parametrize(
    ("models", "name"), [({"NVIDIA H200"}, "NVIDIA H200"), ({"NVIDIA H200", "NVIDIA L4"}, "cuda"), (set(), "cuda")]
)
def test_a_device_that_is_not_in_use_is_named_by_its_driver(
    models: set[str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(environment, "devices_in_use", list)
    monkeypatch.setattr(environment, "_models", lambda: models)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: pytest.fail("it makes a context"))
    assert read_environment().accelerator == name
