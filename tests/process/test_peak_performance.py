"""The peaks of a machine: how they are measured, when they are kept, and what is said where they cannot be had."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from torchbench_magic.process import machine, peak_performance
from torchbench_magic.process.interrupts import NO_PROGRESS
from torchbench_magic.process.peak_performance import (
    Peaks,
    Probe,
    measure_peaks,
    peaks_here,
    with_bandwidth_now,
    working_sets,
)

MADE = Peaks(
    threads=2,
    flops=(("float32", 1, 1e11), ("float16", 1, 2e9), ("float32", 2, 2e11)),
    bandwidth=((1 << 20, 2, 1e11), (1 << 24, 2, 2.5e10), (1 << 20, 1, 5e10)),
    dispatch=1e-6,
    caches=(("L1", 1 << 15), ("L2", 1 << 20), ("L3", 1 << 25)),
    contended=0.01,
)


class Ticking:
    """A clock that each call of ``work`` moves by what ``lengths`` gives next."""

    def __init__(self, lengths: Iterator[float]) -> None:
        self.now, self._lengths = 0.0, lengths

    def __call__(self) -> float:
        return self.now

    def work(self) -> None:
        self.now += next(self._lengths)


def of_rounds(*seconds: float) -> Iterator[float]:
    """Calls of 30 ms and so on, one a round after the call that warms up and the one that finds the group."""
    yield from (0.03, 0.03)
    yield from seconds
    while True:
        yield seconds[-1]


# ---- measured -------------------------------------------------------------------------------------------------------


def in_turns(lengths: Iterator[float]) -> tuple[Probe, int]:
    """A probe of work 3 after its rounds, and how many it had."""
    clock = Ticking(lengths)
    probe = Probe([clock.work], 3.0)
    peak_performance._take_turns([probe], clock, NO_PROGRESS, "")
    return probe, len(probe.rates)


def test_the_peak_is_the_best_round_and_rounds_end_once_three_agree_also_after_a_slow_second() -> None:
    probe, rounds = in_turns(of_rounds(0.04, 0.04, 0.0300, 0.0301, 0.0302))
    assert probe.peak == pytest.approx(100.0)
    assert rounds == 5
    probe, rounds = in_turns(of_rounds(*[0.05 * 1.02**-n for n in range(6)], 0.0300))
    assert probe.peak == pytest.approx(100.0)
    assert rounds == 9, "three that agree, after six of a slow time"


def test_a_peak_whose_rounds_never_agree_is_not_known() -> None:
    probe, rounds = in_turns(of_rounds(*(0.03 * 1.2**n for n in range(20))))
    assert math.isnan(probe.peak)
    assert rounds == peak_performance._MOST_ROUNDS


def test_a_peak_is_that_of_the_copy_whose_pages_lie_best() -> None:
    clock = Ticking(of_rounds(0.03))

    def slow() -> None:
        clock.work()
        clock.work()

    probe = Probe([slow, clock.work], 3.0)
    peak_performance._take_turns([probe], clock, NO_PROGRESS, "")
    assert probe.peak == pytest.approx(100.0)
    assert len(probe.rates) == 6, "three rounds of the faster copy"


def test_probes_take_turns() -> None:
    order: list[str] = []
    clock = Ticking(of_rounds(0.03))

    def of(name: str) -> Probe:
        def run() -> None:
            order.append(name)
            clock.work()

        return Probe([run], 1.0)

    peak_performance._take_turns([of("a"), of("b")], clock, NO_PROGRESS, "")
    assert order[4:10] == ["a", "b"] * 3


def test_bandwidth_is_measured_within_each_cache_and_far_beyond_the_last() -> None:
    sizes = working_sets((("L1", 32 << 10), ("L2", 1 << 20), ("L3", 32 << 20)))
    assert sizes == sorted(sizes)
    assert sizes[0] < 1 << 20
    assert sizes[-1] >= 4 * (32 << 20)
    assert any(1 << 20 < size < 32 << 20 for size in sizes)


def test_measuring_leaves_threads_random_numbers_and_grad_mode_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peak_performance, "_ROUND", 1e-4)
    monkeypatch.setattr(peak_performance, "_LARGEST", 1 << 20)
    for side in ("_SIDE", "_WIDE_SIDE", "_SMALL_SIDE"):
        monkeypatch.setattr(peak_performance, side, 32)
    before, state = torch.get_num_threads(), torch.random.get_rng_state()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    made = measure_peaks(cores, (("L2", 1 << 19),))
    assert torch.get_num_threads() == before
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()
    assert {count for _, count, _ in made.flops} == {1, cores}
    assert made.dispatch > 0
    assert made.flops_of("float32", 1) > 0 or math.isnan(made.flops_of("float32", 1))


def test_memory_that_cannot_be_had_leaves_a_bandwidth_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> torch.Tensor:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(torch, "full", full)
    assert math.isnan(peak_performance._best(peak_performance.streaming(1 << 20)))


def test_bandwidth_of_what_is_shared_is_that_of_now_in_the_median_round(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = iter([50.0, 10.0, 40.0, 20.0, 30.0])

    def of_size(size: int) -> list[Probe]:
        probe = Probe([lambda: None], 1.0)
        monkeypatch.setattr(Probe, "round", lambda self, clock: self.rates.append(next(rounds)))
        return [probe]

    monkeypatch.setattr(peak_performance, "streaming", of_size)
    before = torch.get_num_threads()
    made = with_bandwidth_now(MADE)
    assert made.bandwidth == ((1 << 20, 2, 1e11), (1 << 24, 2, 2.5e10), (1 << 20, 1, 5e10)), "none above half of 32 MiB"
    large = replace(MADE, bandwidth=(*MADE.bandwidth, (1 << 27, 1, 9.0), (1 << 27, 2, 99.0)))
    made = with_bandwidth_now(large)
    assert made.bandwidth[3:] == ((1 << 27, 1, 9.0), (1 << 27, 2, 30.0))
    assert torch.get_num_threads() == before


# ---- looked up ------------------------------------------------------------------------------------------------------


def test_bandwidth_between_two_sizes_lies_between_and_beyond_them_is_the_last() -> None:
    assert MADE.bandwidth_of(1 << 20) == pytest.approx(1e11)
    assert MADE.bandwidth_of(1 << 22) == pytest.approx(5e10)
    assert MADE.bandwidth_of(1 << 30) == pytest.approx(2.5e10)
    assert MADE.bandwidth_of(10) == pytest.approx(1e11)
    assert math.isnan(MADE.bandwidth_of(0))


def test_the_roof_is_the_longer_of_computing_and_moving() -> None:
    assert MADE.roof(2e11, 1 << 20, "float32") == (pytest.approx(1.0), "compute")
    assert MADE.roof(math.nan, 1 << 30, "float32") == (pytest.approx((1 << 30) / 2.5e10), "memory")
    assert math.isnan(MADE.roof(1e9, 1 << 20, "float64")[0])
    assert math.isnan(MADE.roof(math.nan, 0.0, "float32")[0])


# ---- kept -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(peak_performance, "_in_this_process", {})
    return tmp_path / "torchbench_magic"


@pytest.fixture
def measured(cached: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Measuring gives ``MADE`` with changes; the list has an entry for each time."""

    def plant(**changes: object) -> list[int]:
        asked: list[int] = []

        def measure(threads: int, *_: object) -> Peaks:
            asked.append(threads)
            return replace(MADE, **{"threads": threads} | changes)

        monkeypatch.setattr(peak_performance, "measure_peaks", measure)
        return asked

    return plant


def test_peaks_are_measured_once_for_each_number_of_threads(measured: Callable[..., list[int]]) -> None:
    asked = measured()
    first, again, other = peaks_here(2), peaks_here(2), peaks_here(1)
    assert asked == [2, 1]
    assert (first.is_kept, again.is_kept, other.is_kept) == (False, True, False)
    assert replace(again, is_kept=False) == first


def test_peaks_of_a_busy_machine_are_used_said_and_not_kept(measured: Callable[..., list[int]], cached: Path) -> None:
    asked = measured(contended=0.8)
    made = peaks_here(2)
    assert "0.8 cores" in made.notes[-1]
    assert "not kept" in made.notes[-1]
    assert made.flops_of("float32", 1) == 1e11
    assert math.isnan(made.flops_of("float32", 2)), "threads that wait for each other"
    assert math.isnan(made.bandwidth_of(1 << 20, 2))
    assert not cached.exists() or not [*cached.glob("peaks-*")]
    peaks_here(2)
    assert asked == [2, 2], "nor for this process"


def test_peaks_that_may_have_been_disturbed_serve_this_process_only(
    measured: Callable[..., list[int]], cached: Path
) -> None:
    asked = measured(contended=math.nan)
    assert "is unknown here: the peaks are not kept" in peaks_here(2).notes[-1]
    assert peaks_here(2).flops
    assert asked == [2]
    assert not [*cached.glob("peaks-*")]


def test_a_peak_that_is_not_known_is_not_kept(measured: Callable[..., list[int]], cached: Path) -> None:
    measured(flops=(("float32", 2, math.nan),))
    assert "could not be kept" in peaks_here(2).notes[-1]
    assert not [*cached.glob("peaks-*")]


@pytest.mark.parametrize("change", ["", "{", "[]", '{"key": 1}', "null", "negative", "text"])
def test_a_damaged_file_is_measured_anew(change: str, measured: Callable[..., list[int]], cached: Path) -> None:
    asked = measured()
    peaks_here(2)
    (file,) = cached.glob("peaks-*.json")
    text = file.read_text()
    held = json.loads(text)
    if change in ("negative", "text"):
        held["flops"][0][2] = -1.0 if change == "negative" else "fast"
        change = json.dumps(held)
    file.write_text(change)
    assert peaks_here(2).flops == MADE.flops
    assert asked == [2, 2]
    assert file.read_text() == text


def test_a_cache_that_cannot_be_written_is_said(measured: Callable[..., list[int]], cached: Path) -> None:
    cached.write_text("a file where the folder should be")
    asked = measured()
    assert "could not be kept" in peaks_here(2).notes[-1]
    peaks_here(2)
    assert asked == [2]


def test_a_user_without_a_home_folder_gets_peaks_and_is_told(
    measured: Callable[..., list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured()
    monkeypatch.delenv("XDG_CACHE_HOME")

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(peak_performance, "user_cache_folder", homeless)
    assert "no home folder" in peaks_here(2).notes[-1]


def test_caches_that_the_system_does_not_tell_are_said(
    measured: Callable[..., list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with an unreadable or hidden /sys, and on macOS."""
    measured()
    monkeypatch.setattr(machine.glob, "glob", lambda pattern: [])
    assert "Cache sizes: unknown here" in peaks_here(2).notes[0]
    assert working_sets(()) == sorted(working_sets(()))
