"""What happened when: the events of a run in columns, the texts they stand in, stays on lines."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from torchbench_magic.array_types import Ints

# Everything that shows an order in time (the exported trace, the timeline, the call tree, the idle gaps of a device)
# derives from these columns. They hold numbers and texts: no tensor, no frame, no code object. About 60 bytes an event.


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
            values = frame[name].to_numpy()
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
        is_one: NDArray[np.bool_] = np.array([kind in kinds for kind in KINDS])
        return np.take(is_one, self.events["kind"].to_numpy())

    @property
    def devices(self) -> list[str]:
        """Those that have streams."""
        return list(dict.fromkeys(track.device for track in self.tracks if track.device))


@dataclass(frozen=True)
class Source:
    """The text that the lines of a profile stand in: a cell, or a file.

    Attributes:
        source_id: identifies the text across kernels and re-runs.
        file: file name of its code.
        text: the visible text, magic line included.
        cell: the last n of ``In[n]`` it ran as; None for a file.
        first_line: number of the first line of ``text``.
        version: which text of the file it is, in words; empty for the one that the file has.
    """

    source_id: str
    file: str
    text: str
    cell: int | None = None
    first_line: int = 1
    version: str = ""

    @property
    def label(self) -> str:
        """``In[3]``, or the last part of the file name, with the version in brackets."""
        name = f"In[{self.cell}]" if self.cell is not None else self.file.rsplit("/", 1)[-1]
        return f"{name} ({self.version})" if self.version else name

    def line(self, number: int) -> str:
        """Text of line ``number``; empty where the text has no such line."""
        index = number - self.first_line
        return self._lines[index] if 0 <= index < len(self._lines) else ""

    @cached_property
    def _lines(self) -> list[str]:
        return self.text.splitlines()


def node_sources(trace: Trace, sources: Mapping[str, Source]) -> list[Source | None]:
    """Of each node of ``trace``, the source that its line stands in; None for a root, and where no text is known."""
    return [sources.get(trace.sources[at]) if at >= 0 else None for at in trace.nodes["source"].tolist()]


def line_label(sources: Mapping[str, Source], source_id: Any, line: Any) -> str:
    """``In[3]:4``, or ``?:4`` of a source that is not there."""
    source = sources.get(source_id)
    return f"{source.label if source is not None else '?'}:{line}"


def line_text(sources: Mapping[str, Source], source_id: Any, line: Any) -> str | None:
    """Text of a line of one of ``sources``; None for no line (NA), or of a source that is not there."""
    if pd.isna(source_id) or pd.isna(line) or source_id not in sources:
        return None
    return sources[str(source_id)].line(int(line))


# ---- line_ranges -----------------------------------------------------------------------------------------------------

_DEEPEST = 200  # lines above a line that ranges are made of; a deeper recursion stands on the last of them


@dataclass(frozen=True, eq=False)
class LineRanges:
    """One range per stay on a line, the lines it calls included: int64 columns of one length.

    Those of a thread nest and are in the order of their start; of two that start together the outer one comes first.

    Attributes:
        thread: number in the tables.
        node: row of ``Trace.nodes``.
        start, end: ns since the body was entered.
    """

    thread: Ints
    node: Ints
    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.node)


def line_ranges(trace: Trace) -> LineRanges:
    """Each stay on a line as one range; a stay of no length is left out.

    A range goes on as long as its line, and those above it, are the same. The root of a thread is no line.
    """
    chains: list[tuple[int, ...]] = []  # of each node, the lines above it and itself, the outermost first
    for parent in trace.nodes["parent"].tolist():  # a parent comes before its children
        above = chains[parent] if parent >= 0 else ()
        chains.append((*above, len(chains)) if parent >= 0 and len(above) < _DEEPEST else above)
    chains.append(())  # -1: no line is known
    threads: list[int] = []
    nodes: list[int] = []
    starts: list[int] = []
    ends: list[int] = []
    running: list[int] = []  # the ranges that go on, the outermost first
    before = None
    segments = trace.segments.sort_values("thread", kind="stable")
    for thread, start, node in zip(*(segments[name].tolist() for name in ("thread", "start", "node")), strict=True):
        if thread != before:
            running, before = [], thread
        chain, same = chains[node], 0
        while same < len(running) and same < len(chain) and nodes[running[same]] == chain[same]:
            same += 1
        for ended in running[same:]:
            ends[ended] = start
        del running[same:]
        for line in chain[same:]:
            running.append(len(nodes))
            threads.append(thread)
            nodes.append(line)
            starts.append(start)
            ends.append(trace.duration)
    made = np.array([threads, nodes, starts, ends], dtype=np.int64).reshape(4, -1)
    return LineRanges(*made[:, made[3] > made[2]])


# ---- joined_traces ---------------------------------------------------------------------------------------------------

T = TypeVar("T", bound=Hashable)
_OPS = (KINDS.index("op"), KINDS.index("range"))


def one_after_the_other(traces: Sequence[Trace]) -> Trace | None:
    """All events of ``traces``, in the order of time; None for none. Between two of them no line is known."""
    if len(traces) < 2:
        return traces[0] if traces else None
    first, last = traces[0], traces[-1]
    names, sources, functions = (_numbered(getattr(t, of) for t in traces) for of in ("names", "sources", "functions"))
    tracks, inputs = _numbered(t.tracks for t in traces), _numbered(t.inputs for t in traces)
    events: list[pd.DataFrame] = []
    nodes: list[pd.DataFrame] = []
    segments: list[pd.DataFrame] = []
    n_events = n_nodes = 0
    for trace in traces:
        later = trace.begin - first.begin
        e, n, s = (frame.astype("int64") for frame in (trace.events, trace.nodes, trace.segments))
        events.append(
            e.assign(
                name=_mapped(e["name"], trace.names, names),
                track=_mapped(e["track"], trace.tracks, tracks),
                inputs=_mapped(e["inputs"], trace.inputs, inputs),
                start=e["start"] + later,
                **{name: _moved(e[name], n_events) for name in ("parent", "launched_by")},
                **{name: _moved(e[name], n_nodes) for name in ("node", "caused_by")},
            )
        )
        nodes.append(
            n.assign(
                parent=_moved(n["parent"], n_nodes),
                source=_mapped(n["source"], trace.sources, sources),
                function=_mapped(n["function"], trace.functions, functions),
            )
        )
        threads = s["thread"].unique()
        end = pd.DataFrame({"thread": threads, "start": trace.duration, "node": -1}, dtype="int64")
        both = pd.concat([s, end], ignore_index=True)
        segments.append(both.assign(start=both["start"] + later, node=_moved(both["node"], n_nodes)))
        n_events, n_nodes = n_events + len(e), n_nodes + len(n)
    ordered = pd.concat(segments, ignore_index=True).sort_values(["thread", "start"], kind="stable")
    return Trace(
        compact(EVENT_COLUMNS, _ops_first(pd.concat(events, ignore_index=True))),
        compact(NODE_COLUMNS, pd.concat(nodes, ignore_index=True)),
        compact(SEGMENT_COLUMNS, ordered),
        names=tuple(names),
        tracks=tuple(tracks),
        sources=tuple(sources),
        functions=tuple(functions),
        inputs=tuple(inputs),
        begin=first.begin,
        duration=last.begin + last.duration - first.begin,
        process=first.process,
    )


def _numbered(groups: Iterable[Iterable[T]]) -> dict[T, int]:
    return {value: i for i, value in enumerate(dict.fromkeys(value for group in groups for value in group))}


def _mapped(index: pd.Series[int], values: Sequence[T], numbers: dict[T, int]) -> Ints:
    """Indices into ``values`` as indices by ``numbers``; -1 stays."""
    table = np.array([*(numbers[value] for value in values), -1], dtype=np.int64)
    return table[index.to_numpy()]


def _moved(index: pd.Series[int], by: int) -> Ints:
    """Indices ``by`` further on; below 0 is nothing."""
    values = index.to_numpy()
    return np.where(values >= 0, values + by, -1)


def _ops_first(events: pd.DataFrame) -> pd.DataFrame:
    """In the order that a trace has: ops and ranges first."""
    order = np.argsort(~np.isin(events["kind"].to_numpy(), _OPS), kind="stable")
    place = np.empty(len(order) + 1, dtype=np.int64)
    place[order], place[-1] = np.arange(len(order)), -1
    moved = events.iloc[order].reset_index(drop=True)
    return moved.assign(**{name: place[moved[name].to_numpy()] for name in ("parent", "launched_by")})
