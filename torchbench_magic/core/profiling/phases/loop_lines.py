"""Which line of the user's runs when, for what a loop does between its phases and within its input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from torchbench_magic.results.profiling.insights.source_trees import place_in
from torchbench_magic.results.profiling.profile import Source
from torchbench_magic.results.profiling.trace import Trace

from ..loop_marks.marks import INPUT
from .spans import Span

__all__ = ["LinesSeen", "PlaceNumbers", "RecordedLines", "SampledLines"]


class PlaceNumbers:
    """Numbers of lines: equal lines have one."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, int]] = []
        self._numbers: dict[tuple[str, int], int] = {}

    def number(self, source_id: str, line: int) -> int:
        key = source_id, line
        if key not in self._numbers:
            self._numbers[key] = len(self.lines)
            self.lines.append(key)
        return self._numbers[key]


class LinesSeen(Protocol):
    """Tells of a stretch of time, on which lines it was spent."""

    def shares(self, begin: int, end: int) -> Mapping[int, float]:
        """Number of a place (-1: no line) -> ns; they add up to the stretch, or are empty where nothing is known."""
        ...

    def looks(self, begin: int, end: int) -> Mapping[int, int] | None:
        """Number of a place (-1: no line) -> looks that saw it; None where lines are known without looks."""
        ...


class SampledLines:
    """From looks at the stack: a stretch in which nobody looked is not known.

    Args:
        record: ``[Unix ns, place, ...]``.
    """

    def __init__(self, record: Sequence[int]) -> None:
        flat = np.array(record, dtype=np.int64).reshape(-1, 2)
        self._times, self._places = flat[:, 0], flat[:, 1]

    def shares(self, begin: int, end: int) -> Mapping[int, float]:
        seen = self.looks(begin, end)
        whole = sum(seen.values())
        return {place: (end - begin) * count / whole for place, count in seen.items()}

    def looks(self, begin: int, end: int) -> Mapping[int, int]:
        first, last = np.searchsorted(self._times, (begin, end))
        return Counter(self._places[first:last].tolist())


@dataclass(frozen=True)
class RecordedLines:
    """From the lines that were recorded, of the cell's own thread.

    Attributes:
        starts: int64 [n], Unix ns: when each segment starts; it ends with the next.
        nodes: int64 [n], the node of the trace.
        place_of: int64 [nodes], number of its line; -1 for none.
        parent: int64 [nodes], the caller of each; -1 for none. It comes before.
        is_head: bool [nodes], it is the head of a ``for`` loop, where that gets its next item.
        end: Unix ns.
    """

    starts: NDArray[np.int64]
    nodes: NDArray[np.int64]
    place_of: NDArray[np.int64]
    parent: NDArray[np.int64]
    is_head: NDArray[np.bool_]
    end: int

    @classmethod
    def of(cls, trace: Trace, sources: Mapping[str, Source], places: PlaceNumbers) -> RecordedLines:
        mine = trace.segments[trace.segments["thread"] == 0]
        found, heads = [], []
        is_head: dict[tuple[str, int], bool] = {}
        for at, line in zip(trace.nodes["source"].tolist(), trace.nodes["line"].tolist(), strict=True):
            if at < 0:
                found.append(-1)
                heads.append(False)
                continue
            key = trace.sources[at], line
            if key not in is_head:
                is_head[key] = _is_head(sources.get(key[0]), line)
            found.append(places.number(*key))
            heads.append(is_head[key])
        return cls(
            mine["start"].to_numpy(np.int64) + trace.begin,
            mine["node"].to_numpy(np.int64),
            np.array(found, dtype=np.int64),
            trace.nodes["parent"].to_numpy(np.int64),
            np.array(heads, dtype=bool),
            trace.begin + trace.duration,
        )

    def shares(self, begin: int, end: int) -> Mapping[int, float]:
        first = max(int(np.searchsorted(self.starts, begin, side="right")) - 1, 0)
        last = int(np.searchsorted(self.starts, end, side="left"))
        if last <= first:
            return {}
        edges = np.clip(np.append(self.starts[first:last], end), begin, end)
        lengths, places = np.diff(edges), self.place_of[self.nodes[first:last]]
        sums = np.bincount(places + 1, weights=lengths)
        return {int(at) - 1: float(sums[at]) for at in np.nonzero(sums)[0]}

    def looks(self, begin: int, end: int) -> None:
        return None

    def heads(self) -> Iterator[Span]:
        """Each time that a ``for`` loop got its next item: the head and all that it called."""
        chains = self._chains()
        if not any(chains):
            return
        inside = np.array([chain[-1] if chain else -1 for chain in chains])[self.nodes]
        changes = np.nonzero(np.diff(inside))[0] + 1
        firsts = np.concatenate(([0], changes)) if len(inside) else changes
        running: dict[int, int] = {}  # head -> since when
        for first in firsts.tolist():
            moment, chain = int(self.starts[first]), chains[self.nodes[first]]
            yield from (self._span(head, running.pop(head), moment) for head in [*running] if head not in chain)
            for head in chain:
                running.setdefault(head, moment)
        yield from (self._span(head, since, self.end) for head, since in running.items())

    def _chains(self) -> list[tuple[int, ...]]:
        """Of each node, the heads of loops that it runs in, the outermost first, its own among them."""
        found: list[tuple[int, ...]] = []
        for node, (parent, is_head) in enumerate(zip(self.parent.tolist(), self.is_head.tolist(), strict=True)):
            above = found[parent] if parent >= 0 else ()
            found.append((*above, node) if is_head else above)
        return found

    def _span(self, head: int, begin: int, end: int) -> Span:
        return Span(begin, end, INPUT, int(self.place_of[head]), is_head=True)


def _is_head(source: Source | None, line: int) -> bool:
    """Whether a line is the head of a ``for`` loop and nothing else."""
    import ast

    place = place_in(source, line)
    if place is None or source is None:
        return False
    number = line - source.first_line + 1
    loops = [each for each in place.statements if isinstance(each, ast.For | ast.AsyncFor)]
    if not loops or len(place.statements) != 1:
        return False
    head = loops[0].iter
    return loops[0].lineno <= number <= (head.end_lineno or head.lineno)
