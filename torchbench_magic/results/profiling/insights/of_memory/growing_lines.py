"""Which lines' bytes grow as a loop goes on: told by what of their blocks is alive at moments of the loop."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ....insights import CodeLine
from ...profile import Profile
from ...trace import Trace
from ..source_trees import place_in

__all__ = ["FEWEST_RUNS", "GrowingLine", "growing_lines", "line_named"]

FEWEST_RUNS = 5
"""Of a line: with fewer steps a few blocks that stay are no growth yet."""
_MANY_RUNS = 16
_STEADY = 0.4
"""Of the even growth: the least that each stretch of the loop must add. A cache that is full, state that the first
step makes, and a buffer that has reached its limit add nothing in the last stretches; blocks of equal size, one a run,
add the whole."""

_LOOPS = (ast.For, ast.AsyncFor, ast.While)

_Key = tuple[str, int, int]


@dataclass(frozen=True)
class GrowingLine:
    """A line whose blocks add up.

    Attributes:
        where: the line that allocates them.
        runs: of the line that repeats it.
        blocks: numbers of those that are alive at the end.
        bytes_of: bytes of each of them.
    """

    where: CodeLine
    device: str
    runs: int
    blocks: tuple[int, ...]
    bytes_of: tuple[int, ...]


def growing_lines(profile: Profile) -> Iterator[GrowingLine]:
    """Lines whose bytes rise through all of a loop and are there at the end."""
    memory, trace = profile.memory, profile.trace
    if memory is None or trace is None or memory.empty or not len(trace.segments):
        return
    known = memory[memory["block"].notna() & memory["change"].notna()]
    made = known[(known["change"] > 0) & known["line"].notna()]
    left = made[~made["block"].isin(known.loc[known["change"] < 0, "block"])]
    key: Any
    for key, kept in left.groupby(["device", "source_id", "line", "thread"], sort=False):
        device, source_id, line, thread = key
        repeating = _repeating(trace, (str(source_id), int(line), int(thread)))
        moments = _moments_of_runs(trace, repeating)
        if moments is None:
            continue
        mine = made[(made["device"] == device) & (made["source_id"] == source_id) & (made["line"] == line)]
        if _rises(known[known["block"].isin(mine.loc[mine["thread"] == thread, "block"])], moments):
            blocks, sizes = kept["block"].astype("int64").tolist(), kept["change"].astype("int64").tolist()
            where = line_named(profile, str(source_id), int(line))
            yield GrowingLine(where, str(device), _runs(profile, trace, repeating), tuple(blocks), tuple(sizes))


def line_named(profile: Profile, source_id: str, line: int) -> CodeLine:
    source = profile.sources.get(source_id)
    return CodeLine(f"{source.label if source is not None else '?'}:{line}", source_id, line)


def _repeating(trace: Trace, key: _Key) -> int:
    """The node of the line that repeats this one: the outermost that ran often enough, itself included; -1 where there
    is none. A function that fills a cache runs less and less often; the line that calls it does not."""
    nodes = trace.nodes
    parent, calls = nodes["parent"].to_numpy(), nodes["calls"].to_numpy()
    source = nodes["source"].to_numpy()
    if key[0] not in trace.sources:
        return -1
    is_line = (source == trace.sources.index(key[0])) & (nodes["line"].to_numpy() == key[1])
    repeating = -1
    for at in np.flatnonzero(is_line & (nodes["thread"].to_numpy() == key[2])).tolist():
        found = -1
        while at >= 0 and source[at] >= 0:
            found = at if calls[at] >= FEWEST_RUNS else found
            at = int(parent[at])
        if found >= 0 and (repeating < 0 or calls[found] > calls[repeating]):
            repeating = found
    return repeating


def _moments_of_runs(trace: Trace, node: int) -> NDArray[np.float64] | None:
    """Seconds at which the line of a node ran; None for -1, and where that was not often enough."""
    if node < 0:
        return None
    segments = trace.segments
    starts = segments["start"].to_numpy()[segments["node"].to_numpy() == node]
    if len(starts) < FEWEST_RUNS:
        return None
    # a run has a segment for each stretch that the line itself is active in: they are about as many in each run
    some = np.linspace(0, len(starts) - 1, int(trace.nodes["calls"].iloc[node])).round().astype(int)
    return np.asarray(starts[some] / 1e9, dtype=np.float64)


def _runs(profile: Profile, trace: Trace, node: int) -> int:
    """How often the line of a node ran; of the head of a loop the iterations, since it runs once more to end."""
    nodes = trace.nodes
    calls, parent = int(nodes["calls"].iloc[node]), int(nodes["parent"].iloc[node])
    source = profile.sources.get(trace.sources[int(nodes["source"].iloc[node])])
    place = place_in(source, int(nodes["line"].iloc[node]))
    loops = [each for each in place.statements if isinstance(each, _LOOPS)] if place is not None else []
    if source is None or place is None or not loops:
        return calls
    beside = nodes[(nodes["parent"] == parent) & (nodes["source"] == nodes["source"].iloc[node])]
    beside = beside[beside["thread"] == nodes["thread"].iloc[node]]

    def first_calls(loop: ast.stmt) -> int:
        """Of the first line within a loop; 0 where it is not known."""
        line = loop.body[0].lineno if isinstance(loop, _LOOPS) else loop.lineno
        return int(beside.loc[beside["line"] == line + source.first_line - 1, "calls"].sum())

    if loops[0].body[0].lineno > loops[0].lineno and (found := first_calls(loops[0])):
        return found
    around = place.repeated_by
    if isinstance(around, _LOOPS):
        entered = first_calls(around) if around.body[0] is not loops[0] else 0
        return calls - entered if entered else calls
    return calls - (int(nodes["calls"].iloc[parent]) if around is not None and parent >= 0 else 1)


def _rises(changes: pd.DataFrame, moments: NDArray[np.float64]) -> bool:
    """Whether what is alive of these blocks rises in each part of the loop, and is there at the end."""
    order = np.argsort(changes["time"].to_numpy(), kind="stable")
    times = changes["time"].to_numpy()[order]
    totals = np.append(0, np.cumsum(changes["change"].to_numpy(np.int64)[order]))
    parts = 8 if len(moments) >= _MANY_RUNS else 4
    ends = moments[np.linspace(0, len(moments), parts + 1)[1:-1].astype(int)]
    alive = totals[np.append(np.searchsorted(times, ends, side="right"), len(totals) - 1)]
    at_end = int(alive[-1])
    return at_end > 0 and bool((np.diff(alive, prepend=0) >= _STEADY * at_end / parts).all())
