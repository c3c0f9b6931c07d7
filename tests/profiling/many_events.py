"""A profile of many events, made from columns, and what it costs to work on one in calls of Python functions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.schema import MEMORY_COLUMNS, frame_of
from torchbench_magic.profiling.trace import EVENT_COLUMNS, SEGMENT_COLUMNS, Trace, compact

from .profiles import MS, profile_of_two_kernels


def profile_of_many(steps: int) -> Profile:
    """Lines 2 and 3 by turns, ``steps`` times, in 10 ms; on each an op, and one block that the next one frees."""
    few = profile_of_two_kernels()
    assert few.trace is not None
    count = 2 * steps
    start = np.arange(count) * (10 * MS // count)
    none, zeros, turns = np.full(count, -1), np.zeros(count), np.arange(count) % 2
    events = dict.fromkeys(EVENT_COLUMNS, none) | {
        "name": turns, "kind": zeros, "start": start, "duration": np.full(count, 7), "track": zeros, "node": 1 + turns,
    }  # fmt: skip
    segments = {"thread": zeros, "start": start, "node": 1 + turns}
    fields = {name: getattr(few.trace, name) for name in few.trace.__dataclass_fields__}
    fields |= {"events": compact(EVENT_COLUMNS, events), "segments": compact(SEGMENT_COLUMNS, segments)}
    fields["tracks"] = few.trace.tracks[:1]  # nothing runs on a device
    memory = {
        "time": start / 1e9,
        "bytes": np.tile([4096, 0], steps),
        "device": np.array(["cpu"] * count, dtype=object),
        "change": np.tile([4096, -4096], steps),
        "block": np.repeat(np.arange(steps), 2),
        "cell": np.full(count, 3),
        "line": 2 + turns,
        "source_id": np.array(["ab12"] * count, dtype=object),
        "file": np.array(["<cell>"] * count, dtype=object),
        "thread": zeros.astype(np.int64),
    }
    return profile_of_two_kernels(trace=Trace(**fields), memory=frame_of(MEMORY_COLUMNS, memory))


def calls_of(work: Callable[[], Any]) -> int:
    """How many Python functions and generators are entered in ``work()``, however fast the machine is."""
    count = 0

    def seen(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count
