"""Traces of cycles that ran one after the other, as one trace with the gaps in between."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

import numpy as np
import pandas as pd

from .trace import EVENT_COLUMNS, KINDS, NODE_COLUMNS, SEGMENT_COLUMNS, Ints, Trace, compact

__all__ = ["one_after_the_other"]

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
