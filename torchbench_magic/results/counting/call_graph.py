"""Who called whom while a statement was counted: the arcs of callgrind's file, and what two of them differ by.

An arc knows how often one function called another and how many instructions these calls took, those of everything
further down included. callgrind keeps no whole stacks: by which way a caller itself was reached is not in its file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import pandas as pd

from torchbench_magic.errors import InputError

from .functions import parts_of

__all__ = ["CallEdge", "CallGraph", "Neighbours", "Side", "callers_or_callees"]

Side = Literal["callers", "callees"]

_FRAME = ("caller", "callee", "calls", "inclusive", "file", "library")
_NEIGHBOURS = ("function", "file", "library", "baseline_calls", "calls", "baseline_count", "count", "delta")


class CallEdge(NamedTuple):
    """All calls of one function by another; both are ``file:function [library]``, costs are totals over a count.

    ``calls`` is 0 where it is not known.
    """

    caller: str
    callee: str
    calls: int
    inclusive: int


class Neighbours:
    """Who called whom; which columns the tables have is said where the class is."""

    def callers(self, function: str) -> pd.DataFrame:
        """Who called a function; see `callees`."""
        return self._beside(function, "callers")

    def callees(self, function: str) -> pd.DataFrame:
        """What a function called.

        Args:
            function: its name as in ``frame``, or ``file:function [library]`` where several have that name.

        Raises:
            InputError: there is no such function, or who called whom is not known (stats of torch alone).
        """
        return self._beside(function, "callees")

    def _beside(self, function: str, side: Side) -> pd.DataFrame:
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class CallGraph(Neighbours):
    """The calls of one count. `callers` and `callees` are tables ``function file library calls inclusive``, per call of
    the statement.

    Attributes:
        statement, empty: of the statement's dump and of the empty loop's.
        number: calls of the statement that were counted.
    """

    statement: tuple[CallEdge, ...]
    empty: tuple[CallEdge, ...]
    number: int

    @cached_property
    def net(self) -> dict[tuple[str, str], tuple[int, int]]:
        """(caller, callee) -> (calls, instructions) over all calls of the statement, the empty loop's taken out."""
        found: dict[tuple[str, str], tuple[int, int]] = {}
        for sign, calls in ((1, self.statement), (-1, self.empty)):
            for one in calls:
                often, cost = found.get(one[:2], (0, 0))
                found[one[:2]] = often + sign * one.calls, cost + sign * one.inclusive
        return {arc: known for arc, known in found.items() if known != (0, 0)}

    @cached_property
    def beside(self) -> dict[Side, dict[str, list[tuple[str, int, int]]]]:
        """Function -> (neighbour, calls, instructions) of its callers, and of its callees."""
        found: dict[Side, dict[str, list[tuple[str, int, int]]]] = {"callers": {}, "callees": {}}
        for (caller, callee), (calls, cost) in self.net.items():
            found["callers"].setdefault(callee, []).append((caller, calls, cost))
            found["callees"].setdefault(caller, []).append((callee, calls, cost))
        return found

    def arc_names(self, functions: Iterable[str]) -> set[str]:
        """The names under which functions call and are called.

        Lines that were inlined into a function are counted under its name and their own file; its calls are not. So a
        text that has no arcs is looked for by function and library.
        """
        found = set()
        for text in functions:
            if text in self.beside["callers"] or text in self.beside["callees"]:
                found.add(text)
            else:
                found |= self._homes.get(parts_of(text)[1:], set())
        return found

    @cached_property
    def _homes(self) -> dict[tuple[str, ...], set[str]]:
        found: dict[tuple[str, ...], set[str]] = defaultdict(set)
        for name in (name for arc in self.net for name in arc):
            found[parts_of(name)[1:]].add(name)
        return dict(found)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row an arc, the costliest first: ``caller callee calls inclusive file library``.

        Calls and instructions per call of the statement, the empty loop's taken out; ``file`` and ``library`` are
        the callee's. ``calls`` is 0 where it is not known: calls that were still running when the count ended, C++.
        """
        rows = []
        for (caller, callee), (calls, cost) in sorted(self.net.items(), key=lambda item: (-item[1][1], item[0])):
            file, name, library = parts_of(callee)
            rows.append((parts_of(caller)[1], name, calls / self.number, cost / self.number, file, library))
        return pd.DataFrame(rows, columns=list(_FRAME))

    def _beside(self, function: str, side: Side) -> pd.DataFrame:
        known = dict.fromkeys(name for arc in self.net for name in arc)
        wanted = self.arc_names([function]) or {name for name in known if parts_of(name)[1] == function}
        if not wanted:
            raise InputError(f"no function is called {function!r}: see .frame of the graph for the names")
        table = callers_or_callees(None, self, wanted, side)
        return table.drop(columns=["baseline_calls", "baseline_count", "delta"]).rename(columns={"count": "inclusive"})


def callers_or_callees(
    base: CallGraph | None,
    other: CallGraph,
    of: Collection[str],
    side: Side,
    shown: Callable[[str], str] = lambda name: name,
) -> pd.DataFrame:
    """Callers or callees of some functions in two counts, largest change first.

    Args:
        base: of the baseline; None where there is none.
        other: of the other.
        of: full names of the functions.
        side: which neighbours.
        shown: the name that a neighbour gets; those that get one name are added up.

    Returns:
        ``function file library baseline_calls calls baseline_count count delta``: how often, and the inclusive
        instructions of these calls, per call of the statement.
    """
    found: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0, 0.0])
    homes: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for at, graph in enumerate((base, other)):
        for neighbour, calls, cost in _arcs(graph, of, side):
            row = shown(neighbour)
            found[row][at] += calls
            found[row][2 + at] += cost
            file, _, library = parts_of(neighbour)
            homes[row].add((file, library))
    rows = []
    for name, (calls_before, calls, before, count) in found.items():
        places = homes[name]
        file, library = places.pop() if len(places) == 1 else ("", "")
        rows.append((parts_of(name)[1], file, library, calls_before, calls, before, count, count - before))
    rows.sort(key=lambda row: (-abs(row[7]), -row[6], row[0]))
    return pd.DataFrame(rows, columns=list(_NEIGHBOURS))


def _arcs(graph: CallGraph | None, of: Collection[str], side: Side) -> Iterator[tuple[str, float, float]]:
    if graph is None:
        return
    for mine in graph.arc_names(of):
        for neighbour, calls, cost in graph.beside[side].get(mine, ()):
            yield neighbour, calls / graph.number, cost / graph.number
