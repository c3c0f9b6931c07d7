"""``sync`` and ``transfer`` on traces of a device whose every event is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from tests.results.profiles import MS, profile_of_two_kernels, trace_of_two_kernels
from torchbench_magic.results.insights import Insight
from torchbench_magic.results.profiling.insights.training.on_device import sync, transfer
from torchbench_magic.results.profiling.profile import Profile
from torchbench_magic.results.profiling.trace import EVENT_COLUMNS, KINDS, Trace, compact

NAMES = (
    *("launch", "cudaStreamSynchronize", "kernel"),
    *("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pinned -> Device)"),
)
LINE_2, LINE_3 = 1, 2  # nodes


def profile_of(*events: tuple[str, int, float, float, int], wall: float = 0.1) -> Profile:
    """(kind, number of the name, start and duration in ms, node): in their order."""
    none = np.full(len(events), -1)
    on_device = np.array([kind in ("kernel", "memcpy") for kind, *_ in events])
    columns = {
        "name": np.array([name for _, name, *_ in events]),
        "kind": np.array([KINDS.index(kind) for kind, *_ in events]),
        "start": np.array([start * MS for *_, start, _, _ in events]).astype(np.int64),
        "duration": np.array([length * MS for *_, length, _ in events]).astype(np.int64),
        "track": on_device.astype(np.int64),
        "parent": none,
        "launched_by": none,
        "node": np.array([node for *_, node in events]),
        "caused_by": none,
        "inputs": none,
    }
    known = trace_of_two_kernels()
    given: dict[str, Any] = {item.name: getattr(known, item.name) for item in fields(Trace)}
    given |= {"events": compact(EVENT_COLUMNS, columns), "names": NAMES, "duration": int(wall * 1e9)}
    return profile_of_two_kernels(trace=Trace(**given), wall_time=wall)


def steps(count: int, wait: float = 2.0, gap: float = 5.0) -> list[tuple[str, int, float, float, int]]:
    """Kernels of 3 ms; after each the host has waited for it, and the next one comes ``gap`` ms later."""
    made: list[tuple[str, int, float, float, int]] = []
    for at in range(count):
        start = at * (3 + gap)
        made += [("kernel", 2, start, 3, LINE_2), ("runtime", 1, start + 3 - wait, wait, LINE_3)]
    return made


def places(found: Sequence[Insight]) -> list[int]:
    return [each.places[0].line for each in found]


def test_the_idle_time_after_a_wait_stands_on_the_line_of_the_wait() -> None:
    (found,) = sync(profile_of(*steps(5)))
    assert places([found]) == [3]
    assert found.seconds == pytest.approx(0.02)  # four gaps; after the last kernel there is none
    assert "4 times" in found.text


@pytest.mark.parametrize(
    "events",
    [
        steps(3),  # two gaps
        steps(6, gap=0.1),  # the next launch comes at once
        [("runtime", 1, 9, 2, LINE_3), *((("kernel", 2, 8.0 * n, 7.9, LINE_2)) for n in range(8))],  # it goes on
        [event for event in steps(6) if event[0] == "kernel"],  # idle for another reason
    ],
)
def test_waits_that_make_no_idle_time_and_idle_time_without_waits_are_not_said(events: list[Any]) -> None:
    assert sync(profile_of(*events)) == []


def copies(count: int, name: int, length: float) -> list[tuple[str, int, float, float, int]]:
    return [("memcpy", name, 10.0 * at, length, LINE_2) for at in range(count)]


def test_copies_of_memory_that_is_not_pinned_are_said() -> None:
    (found,) = transfer(profile_of(*copies(5, 3, 3.0)))
    assert places([found]) == [2]
    assert found.seconds == pytest.approx(0.015)


@pytest.mark.parametrize("events", [copies(5, 4, 3.0), copies(2, 3, 3.0), copies(5, 3, 0.1)])
def test_pinned_few_and_short_copies_are_not_said(events: list[Any]) -> None:
    assert transfer(profile_of(*events)) == []


def test_both_are_silent_without_a_device() -> None:
    made = profile_of_two_kernels(trace=None)
    assert sync(made) == transfer(made) == []


def test_they_are_among_the_insights_of_a_profile_of_a_device() -> None:
    assert [each.kind for each in profile_of(*steps(5), *copies(5, 3, 0.001)).insights] == ["sync"]
