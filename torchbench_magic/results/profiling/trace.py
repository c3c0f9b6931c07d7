"""What happened when: the events of one profiled run in compact columns.

Everything that shows an order in time (the exported trace, the timeline, the call tree, the idle gaps of a device)
derives from these columns. They hold numbers and texts: no tensor, no frame, no code object. About 60 bytes an event.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

__all__ = [
    "EVENT_COLUMNS",
    "KINDS",
    "Ints",
    "NODE_COLUMNS",
    "SEGMENT_COLUMNS",
    "TRACE_TABLES",
    "Trace",
    "Track",
    "compact",
]

Ints = NDArray[np.int64]

KINDS = ("op", "range", "runtime", "kernel", "memcpy", "memset")
"""``kind`` of an event: ops and ``record_function`` ranges run on threads, and runtime calls (``cudaLaunchKernel``),
which are no ops; kernels, copies and fills run on streams of a device."""
ON_DEVICE = frozenset({"kernel", "memcpy", "memset"})

EVENT_COLUMNS: dict[str, str] = {
    "name": "int32",  # index in Trace.names
    "kind": "int8",  # index in KINDS
    "start": "int64",  # ns since the body was entered
    "duration": "int64",  # ns
    "track": "int32",  # index in Trace.tracks
    "parent": "int32",  # event of the same thread in which it runs; -1: none
    "launched_by": "int32",  # of what ran on a device: the runtime call, or the op, that launched it; -1: not known
    "node": "int32",  # row of Trace.nodes: the line it stands on; -1: none
    "caused_by": "int32",  # row of Trace.nodes: the forward line of a backward op; -1 for others
    "inputs": "int32",  # index in Trace.inputs; -1: not recorded
}

NODE_COLUMNS: dict[str, str] = {
    "parent": "int32",  # node that called it; -1 for the root of a thread. A parent comes before its children
    "thread": "int32",  # number in the tables
    "source": "int32",  # index in Trace.sources; -1 for a root, which stands for the time on no line
    "line": "int32",  # 1-based, as shown
    "function": "int32",  # index in Trace.functions; -1 for a root
    "calls": "int64",
}

SEGMENT_COLUMNS: dict[str, str] = {
    "thread": "int32",  # number in the tables
    "start": "int64",  # ns since the body was entered; the segment ends where the next one of its thread starts
    "node": "int32",  # the line that is active
}


TRACE_TABLES = {"events": EVENT_COLUMNS, "nodes": NODE_COLUMNS, "segments": SEGMENT_COLUMNS}
"""Field of a `Trace` -> the columns of its table."""


@dataclass(frozen=True)
class Track:
    """A thread, or a stream of a device: what runs on it runs in order.

    Attributes:
        name: ``MainThread``, ``stream 7``.
        thread: number in the tables; -1 for a stream.
        ident: the operating system's thread id, or the number of the stream.
        device: ``cuda:0``; empty for a thread.
    """

    name: str
    thread: int = -1
    ident: int = 0
    device: str = ""


def compact(columns: Mapping[str, str], values: Mapping[str, Ints] | pd.DataFrame) -> pd.DataFrame:
    """The table of ``columns`` (name -> dtype) that holds ``values``, all of one length.

    Raises:
        ValueError: a column is missing, or a number does not fit into it.
    """
    made = {}
    for name, dtype in columns.items():
        given = np.asarray(values[name]) if name in values else None
        if given is None:
            raise ValueError(f"no column {name}")
        limits = np.iinfo(dtype)
        if len(given) and not (given.min() >= limits.min and given.max() <= limits.max):
            raise ValueError(f"a number of column {name} does not fit into {dtype}")
        made[name] = given.astype(dtype)
    return pd.DataFrame(made, columns=list(columns))


@dataclass(frozen=True, eq=False)
class Trace:
    """The events and the lines of one run.

    Attributes:
        events: one row per op, range, runtime call, kernel or copy, columns of `EVENT_COLUMNS`. The ops come first,
            in the order of their start, a parent before what runs in it.
        nodes: the calling-context tree of lines, columns of `NODE_COLUMNS`.
        segments: which line is active when, by thread and start, columns of `SEGMENT_COLUMNS`.
        names: distinct names of events.
        tracks: threads, then streams.
        sources: source ids.
        functions: qualified names of the functions that lines stand in.
        inputs: (shapes, dtypes, strides) as text.
        begin: Unix ns at which the body was entered.
        duration: ns until it was left.
        process: id of the process that ran it.
    """

    events: pd.DataFrame
    nodes: pd.DataFrame
    segments: pd.DataFrame
    names: tuple[str, ...] = ()
    tracks: tuple[Track, ...] = ()
    sources: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    inputs: tuple[tuple[str, str, str], ...] = ()
    begin: int = 0
    duration: int = 0
    process: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        for name, columns in TRACE_TABLES.items():
            if {c: str(dtype) for c, dtype in getattr(self, name).dtypes.items()} != columns:
                raise ValueError(f"columns of .{name} must be {' '.join(columns)}")
        if problem := self._broken():
            raise ValueError(problem)

    def _broken(self) -> str:
        """Which index points to nothing; what is read from a file must not fail later on."""
        events, count = self.events, len(self.events)
        for frame, name, low, high in (
            (events, "name", 0, len(self.names)),
            (events, "kind", 0, len(KINDS)),
            (events, "track", 0, len(self.tracks)),
            (events, "parent", -1, count),
            (events, "launched_by", -1, count),
            (events, "node", -1, len(self.nodes)),
            (events, "caused_by", -1, len(self.nodes)),
            (events, "inputs", -1, len(self.inputs)),
            (self.nodes, "source", -1, len(self.sources)),
            (self.nodes, "function", -1, len(self.functions)),
            (self.segments, "node", -1, len(self.nodes)),
        ):
            values = frame[name]
            if len(values) and not (values.min() >= low and values.max() < high):
                return f"{name} points to nothing"
        if len(self.nodes) and (self.nodes["parent"].to_numpy() >= np.arange(len(self.nodes))).any():
            return "a line comes before the line that calls it"
        return ""

    def __len__(self) -> int:
        return len(self.events)

    @cached_property
    def is_on_device(self) -> NDArray[np.bool_]:
        """bool [events]: ran on a device."""
        return self.is_kind(*ON_DEVICE)

    def is_kind(self, *kinds: str) -> NDArray[np.bool_]:
        """bool [events]."""
        return np.isin(self.events["kind"].to_numpy(), [KINDS.index(kind) for kind in kinds])

    @property
    def devices(self) -> list[str]:
        """Those that have streams."""
        return list(dict.fromkeys(track.device for track in self.tracks if track.device))
