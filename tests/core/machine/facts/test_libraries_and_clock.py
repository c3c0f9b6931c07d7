"""Loaded libraries and what steers the clock, from trees of files and of this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchbench_magic.process.machine import clock_control, governor_text, native_libraries

from ...doctor.trees import tree

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


def test_this_process_has_torchs_openmp() -> None:
    import torch

    assert torch.get_num_threads() >= 1
    assert any(one.kind == "OpenMP" and "torch" in one.place for one in native_libraries() or ())


def test_torchs_openmp_is_found_once_though_it_is_mapped_in_pieces() -> None:
    import torch

    text = Path("/proc/self/maps").read_text()
    assert text.count("/libgomp") > 1 or torch.version.cuda
    paths = [one.path for one in native_libraries() or ()]
    assert len(paths) == len(set(paths))


@pytest.mark.parametrize(
    ("files", "said", "turbo"),
    [
        ({}, "", None),
        (
            {f"{CPUS}/cpu0/cpufreq/scaling_governor": "performance\n", f"{CPUS}/intel_pstate/no_turbo": "0\n"},
            "performance",
            True,
        ),
        (
            {
                f"{CPUS}/cpu0/cpufreq/scaling_governor": "powersave",
                f"{CPUS}/cpu1/cpufreq/scaling_governor": "performance",
                f"{CPUS}/cpufreq/boost": "0",
            },
            "performance on 1, powersave on 1 processors",
            False,
        ),
        ({f"{CPUS}/cpu0/cpufreq/scaling_governor": "", f"{CPUS}/cpufreq/boost": "unknown"}, "", None),
    ],
)
def test_governor_and_turbo(tmp_path: Path, files: dict[str, str], said: str, turbo: bool | None) -> None:
    control = clock_control(tree(tmp_path, files))
    assert governor_text(control) == said
    assert control.turbo is turbo
