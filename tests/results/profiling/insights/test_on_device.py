"""``sync`` and ``transfer`` on traces of a device whose every event is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from tests.results.profiles import MS, profile_of_two_kernels, trace_of_two_kernels
from torchbench_magic.insights.training import sync, transfer
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.trace import (
    EVENT_COLUMNS,
    KINDS,
    Trace,
    compact,
    host_waits,
    share_of_devices,
    waited_for,
)
from torchbench_magic.results import Insight

NAMES = (
    *("launch", "cudaStreamSynchronize", "kernel"),
    *("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pinned -> Device)"),
    *("cudaMemcpyAsync", "Memcpy DtoH (Device -> Pageable)", "aten::nonzero"),
)
LINE_2, LINE_3 = 1, 2  # nodes


def profile_of(
    *events: tuple[str, int, float, float, int],
    wall: float = 0.1,
    parent: dict[int, int] | None = None,
    by: dict[int, int] | None = None,
) -> Profile:
    """(kind, number of the name, start and duration in ms, node): in their order; ``parent`` and ``by``: in which op an
    event runs, and by which call it was launched."""
    none = np.full(len(events), -1)
    parents, launched_by = (
        np.array([(given or {}).get(at, -1) for at in range(len(events))], dtype=np.int64) for given in (parent, by)
    )
    on_device = np.array([kind in ("kernel", "memcpy") for kind, *_ in events])
    columns = {
        "name": np.array([name for _, name, *_ in events]),
        "kind": np.array([KINDS.index(kind) for kind, *_ in events]),
        "start": np.array([start * MS for *_, start, _, _ in events]).astype(np.int64),
        "duration": np.array([length * MS for *_, length, _ in events]).astype(np.int64),
        "track": on_device.astype(np.int64),
        "parent": parents,
        "launched_by": launched_by,
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
    assert found.seconds == pytest.approx(0.008)  # of four gaps of 5 ms the 2 ms that each wait took; the last has none
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


def test_a_wait_saves_no_more_than_it_took_and_what_is_idle_later_counts_too() -> None:
    """As ``nonzero`` does: after each wait of 2 ms a short kernel follows at once, and then the device idles for 3."""
    made = []
    for at in range(5):
        start = 8.0 * at
        made += [("kernel", 2, start, 4, LINE_2), ("runtime", 1, start + 2, 2, LINE_3)]
        made += [("kernel", 2, start + 4.01, 0.99, LINE_3)]
    (found,) = sync(profile_of(*made))
    assert places([found]) == [3]
    assert found.seconds == pytest.approx(0.008 + 1e-5)  # of four gaps 2 ms, and 10 us after the last wait


def with_copy(name: int) -> list[tuple[str, int, float, float, int]]:
    return [*steps(5), ("memcpy", name, 60, 0.001, LINE_3)]


@pytest.mark.parametrize(
    ("name", "cure", "not_said"), [(3, "pin_memory", "loss.detach"), (6, "loss.detach", "pin_memory")]
)
def test_the_cure_of_a_wait_is_that_of_its_copy(name: int, cure: str, not_said: str) -> None:
    (found,) = sync(profile_of(*with_copy(name)))
    assert cure in str(found.cures)
    assert not_said not in str(found.cures)


def test_the_cure_of_an_operation_whose_shape_depends_on_values_is_a_mask() -> None:
    ops = [("op", 7, 8.0 * at, 3.0, LINE_3) for at in range(5)]
    (found,) = sync(profile_of(*ops, *steps(5), parent={6 + 2 * at: at for at in range(5)}))
    assert "torch.where" in str(found.cures)


def test_a_copy_waits_where_its_call_has_not_returned_when_it_begins() -> None:
    blocking = [("kernel", 2, 0, 10, LINE_2), ("runtime", 5, 1, 10, LINE_3), ("memcpy", 6, 10, 1, LINE_3)]
    waits = host_waits(profile_of(*blocking, by={2: 1}).trace)
    assert waits["seconds"].tolist() == [0.01]
    assert waits["node"].tolist() == [LINE_3]
    returns = [("kernel", 2, 0, 10, LINE_2), ("runtime", 5, 1, 0.01, LINE_3), ("memcpy", 6, 10, 1, LINE_3)]
    assert host_waits(profile_of(*returns, by={2: 1}).trace).empty


def test_a_wait_within_a_wait_is_counted_once() -> None:
    nested = [("kernel", 2, 0, 10, LINE_2), ("runtime", 1, 1, 9, LINE_3), ("runtime", 1, 2, 7, LINE_3)]
    assert host_waits(profile_of(*nested).trace)["seconds"].tolist() == [0.009]


@pytest.mark.parametrize(
    "name",
    [
        *("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cuCtxSynchronize"),
        *("hipDeviceSynchronize", "zeEventHostSynchronize", "urQueueFinish"),
    ],
)
def test_calls_that_wait_are_known_by_their_names(name: str) -> None:
    trace = profile_of(("kernel", 2, 0, 10, LINE_2), ("runtime", 1, 1, 9, LINE_3)).trace
    assert trace is not None
    named = {item.name: getattr(trace, item.name) for item in fields(Trace)}
    names = tuple(name if each == "cudaStreamSynchronize" else each for each in NAMES)
    assert host_waits(Trace(**named | {"names": names}))["seconds"].tolist() == [0.009]
    for other in ("cudaLaunchKernel", "cudaStreamWaitEvent", "cudaEventQuery"):
        names = tuple(other if each == "cudaStreamSynchronize" else each for each in NAMES)
        assert host_waits(Trace(**named | {"names": names})).empty


def test_the_share_of_a_device_and_what_the_host_waits_for() -> None:
    made = profile_of(("kernel", 2, 0, 40, LINE_2), ("kernel", 2, 30, 20, LINE_2), ("runtime", 1, 45, 15, LINE_3))
    assert share_of_devices(made.trace) == pytest.approx(0.5)
    assert share_of_devices(made.trace, with_waits=True) == pytest.approx(0.6)
    assert made.trace is not None
    assert waited_for(made.trace, host_waits(made.trace)) == ("ab12", 2)
    assert share_of_devices(None) == 0


def test_a_copy_and_the_wait_for_its_end_are_one_wait_of_their_operation_and_not_of_a_range() -> None:
    pairs = []
    for at in range(5):
        start = 8.0 * at
        pairs += [("kernel", 2, start, 3, LINE_2), ("runtime", 1, start + 1, 1, LINE_3)]
        pairs += [("runtime", 1, start + 2, 1, LINE_3)]
    for kind, often in (("op", "4 times"), ("range", "8 times")):  # after the fifth nothing comes
        around = [(kind, 0, 8.0 * at, 3.5, LINE_3) for at in range(5)]
        parents = {5 + 3 * at + each: at for at in range(5) for each in (1, 2)}
        made = profile_of(*around, *pairs, parent=parents)
        (found,) = sync(made)
        assert often in found.text
        assert found.seconds == pytest.approx(0.008)  # 2 ms of each of four gaps


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
