"""The instructions of one statement as a flame graph."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torchbench_magic import units
from torchbench_magic.results.counting.counts import CountKey, Counts
from torchbench_magic.results.counting.differences import CountsDiff
from torchbench_magic.results.counting.instruction_tree import Frame

from ..drawing.flame import FlameGraph, Measure

__all__ = ["flamegraph", "of_diff"]

_KINDS = {"torch": "torch", "Python": "python", "allocator and lookup": "memory", "other": "other"}
_NOTE = (
    "Instructions per call, without the empty loop. callgrind records calls, not whole stacks: what a"
    " function costs is shared among its callers in proportion to what each paid for calling it, and functions that"
    " call each other are one frame. Functions below 0.05 % are merged into their caller."
)


def flamegraph(counts: Counts, key: CountKey | str | None = None, *, held: str = "") -> FlameGraph:
    """The flame graph of one count; errors as of ``Counts.tree``. ``held``: the attribute that the counts are."""
    if key is None and len(counts) == 1:
        (key,) = counts
    tree = counts.tree(key)
    where = "" if key is None else f"{held}.graph({key!r}).frame"
    return _drawn(tree, where)


def of_diff(diff: CountsDiff) -> FlameGraph:
    """The flame graph of the alternative of a difference, whole: what was filtered stays in it."""
    if diff.source is not None and diff.keys is not None:
        return flamegraph(diff.source, diff.keys[1], held=".source")
    if diff.sides is None:
        return flamegraph(Counts())
    return flamegraph(Counts({(diff.names[1], None, diff.num_threads): diff.sides[1]}))


def _drawn(tree: Frame, where: str) -> FlameGraph:
    parents, frames = [], []
    for parent, frame in _flat(tree):
        parents.append(parent)
        frames.append(frame)
    measure = Measure(
        "instructions",
        np.array([frame.total for frame in frames]),
        np.array([frame.own for frame in frames]),
        units.Scale(places=0),
    )
    calls = Measure("calls", np.array([frame.calls for frame in frames]), None, units.Scale(places=1))
    count = units.number(tree.total, units.Scale(places=0), digits=None)
    return FlameGraph(
        f"{tree.name} executes {count} instructions per call",
        np.array(parents, dtype=np.int64),
        [frame.name for frame in frames],
        [_KINDS.get(frame.group, "other") for frame in frames],
        (measure,),
        facts=(calls,),
        notes={at: [text for text in (frame.file, frame.library) if text] for at, frame in enumerate(frames)},
        note=_NOTE,
        where=where,
    )


def _flat(tree: Frame) -> Iterator[tuple[int, Frame]]:
    """(position of the parent, frame), parents first."""
    waiting, made = [(-1, tree)], 0
    while waiting:
        parent, frame = waiting.pop()
        yield parent, frame
        at, made = made, made + 1
        waiting += [(at, child) for child in reversed(frame.children)]
