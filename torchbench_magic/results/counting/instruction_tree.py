"""A tree of the instructions of one count, for a flame graph.

callgrind's file has arcs, not stacks. The tree is what gprof2dot draws from the same file, unfolded: what a function
costs is shared among its callers in proportion to what each of them paid for calling it, on every way alike. That is
an assumption where a function does other work for other callers, and exact where it has one caller. Functions that
call each other in a circle (Python's interpreter and the calls it makes) are one frame, as in gprof: inside a circle
the inclusive costs of arcs count the same instructions many times.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .call_graph import CallGraph
from .functions import group_of, parts_of

__all__ = ["Frame", "tree_of"]

_LEAST = 0.0005  # of the whole: what costs less is not a frame of its own
_DEEPEST = 200

Arcs = Mapping[tuple[str, str], tuple[int, int]]


@dataclass(frozen=True)
class Frame:
    """One box: instructions per call of the statement.

    Attributes:
        name: the function; of a circle, the costliest of its functions and how many more there are.
        file, library, group: whose it is.
        total: with everything below it.
        own: without.
        calls: how often its parent called it, per call of the statement; 0 where that is not known.
        children: the costliest first.
    """

    name: str
    file: str
    library: str
    group: str
    total: float
    own: float
    calls: float = 0.0
    children: tuple[Frame, ...] = ()


def tree_of(own: Mapping[str, int], graph: CallGraph, name: str) -> Frame:
    """The tree of one count.

    Args:
        own: ``file:function [library]`` -> its own instructions over all calls, the empty loop's taken out.
        graph: its arcs.
        name: of the root, whose total is the sum of ``own``.
    """
    folded: dict[str, int] = defaultdict(int)
    for function, cost in own.items():
        home = graph.arc_names([function])
        folded[home.pop() if len(home) == 1 else function] += cost
    return _Unfolding(folded, graph.net, graph.number).root(name)


class _Unfolding:
    def __init__(self, own: Mapping[str, int], arcs: Arcs, number: int) -> None:
        self._number = number
        self._whole = max(sum(own.values()), 0)
        names = dict.fromkeys([*own, *(name for arc in arcs for name in arc)])
        circles = _circles(names, arcs)
        self._members = {members[0]: members for members in circles}
        home = {name: members[0] for members in circles for name in members}
        self._own: dict[str, int] = defaultdict(int)
        for function, cost in own.items():
            self._own[home[function]] += cost
        self._own_of = own
        self._down: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
        self._paid: dict[str, int] = defaultdict(int)
        for (caller, callee), (calls, cost) in arcs.items():
            one, two = home[caller], home[callee]
            if one == two or cost <= 0:
                continue
            before = self._down[one].get(two, (0, 0))
            self._down[one][two] = before[0] + calls, before[1] + cost
            self._paid[two] += cost

    def _spent(self, function: str) -> int:
        """Its own instructions and those of its calls."""
        return max(self._own[function], 0) + sum(cost for _, cost in self._down[function].values())

    def root(self, name: str) -> Frame:
        """What nobody who was counted paid for stands at the top; frames around the whole count are left out."""
        spent = {function: self._spent(function) for function in self._members}
        tops = {f: cost - self._paid[f] for f, cost in spent.items() if cost > self._paid[f]}
        scale = min(1.0, self._whole / sum(tops.values())) if tops else 1.0
        children = [self._frame(f, cost * scale, 0, 0) for f, cost in tops.items() if self._is_seen(cost * scale)]
        total = self._whole / self._number
        while len(children) == 1 and len(children[0].children) == 1 and children[0].own < 0.5:
            children = list(children[0].children)  # a frame around the whole count: the way to the code, none of it
        own = total - sum(child.total for child in children)
        return Frame(name, "", "", "other", total, max(own, 0.0), children=_sorted(children))

    def _is_seen(self, cost: float) -> bool:
        return cost >= _LEAST * self._whole

    def _frame(self, function: str, weight: float, calls: float, depth: int) -> Frame:
        """``weight`` instructions of a function over all calls, shared out as all of its instructions are."""
        spent = self._spent(function)
        share = weight / spent if spent else 0.0
        children = []
        if depth < _DEEPEST:
            for callee, (often, cost) in self._down[function].items():
                if self._is_seen(cost * share):
                    children.append(self._frame(callee, cost * share, often * share, depth + 1))
        members = self._members[function]
        if len(members) > 1:
            mine = ((m, max(self._own_of.get(m, 0), 0) * share) for m in members)
            children += [self._named((m,), cost, cost, 0.0, ()) for m, cost in mine if self._is_seen(cost)]
        below = sum(child.total for child in children) * self._number
        return self._named(members, weight, max(weight - below, 0.0), calls, _sorted(children))

    def _named(
        self, members: tuple[str, ...], weight: float, own: float, calls: float, below: tuple[Frame, ...]
    ) -> Frame:
        first = max(members, key=lambda member: self._own_of.get(member, 0))
        file, name, library = parts_of(first)
        if len(members) > 1:
            name = f"{name} and {len(members) - 1} more that call each other"
        n = self._number
        return Frame(name, file, library, group_of(first), weight / n, own / n, calls / n, below)


def _sorted(frames: list[Frame]) -> tuple[Frame, ...]:
    return tuple(sorted(frames, key=lambda frame: (-frame.total, frame.name)))


def _circles(names: Mapping[str, None], arcs: Arcs) -> list[tuple[str, ...]]:
    """Strongly connected components (Kosaraju's algorithm: what is reached backwards, from the last one left on)."""
    down: dict[str, list[str]] = defaultdict(list)
    up: dict[str, list[str]] = defaultdict(list)
    for caller, callee in arcs:
        down[caller].append(callee)
        up[callee].append(caller)
    seen: set[str] = set()
    left = [name for start in names for name in _reached(start, down, seen)]
    seen.clear()
    return [tuple(members) for start in reversed(left) if (members := _reached(start, up, seen))]


def _reached(start: str, following: Mapping[str, Sequence[str]], seen: set[str]) -> list[str]:
    """What ``start`` leads to and is not in ``seen`` yet, each after what itself leads to; it is put in there."""
    found: list[str] = []
    way = [] if start in seen else [(start, iter(following.get(start, ())))]
    seen.add(start)
    while way:
        node, rest = way[-1]
        new = next((name for name in rest if name not in seen), None)
        if new is None:
            found.append(node)
            way.pop()
        else:
            seen.add(new)
            way.append((new, iter(following.get(new, ()))))
    return found
