"""The call tree as it grows: finds, or makes, the frame for a stack."""

from __future__ import annotations

import numpy as np

from ..torch_events.events import Ints
from .segments import LineTree

__all__ = ["FUNCTION", "KINDS", "LINE", "MODULE", "OP", "RANGE", "THREAD", "Places"]

KINDS = ("thread", "function", "line", "module", "op", "python")
THREAD, FUNCTION, LINE, MODULE, OP, RANGE = range(len(KINDS))


class Places:
    """The tree as it grows: finds, or makes, the frame for a stack."""

    def __init__(self, lines: LineTree, has_function: list[bool]) -> None:
        self.lines = lines
        self.level: list[int] = []  # of each line, how many lines are above it
        for above in lines.parent:  # a parent comes before its children
            self.level.append(self.level[above] + 1 if above >= 0 else 0)
        self.parent: list[int] = []
        self.kind: list[int] = []
        self.label: list[int] = []
        self.node: list[int] = []  # line tree node that the frame stands on
        self.thing: list[int] = []  # innermost frame of a module, op or range, itself included; -1 for none
        self._has_function = has_function
        self._index: dict[tuple[int, int, int], int] = {}
        self._known: dict[tuple[int, int], int] = {}

    def child(self, parent: int, kind: int, label: int, node: int) -> int:
        key = (parent, kind, label)
        found = self._index.get(key)
        if found is None:
            found = self._index[key] = len(self.parent)
            self.parent.append(parent)
            self.kind.append(kind)
            self.label.append(label)
            self.node.append(node)
            above = self.thing[parent] if parent >= 0 else -1
            self.thing.append(found if kind >= MODULE else above)
        return found

    def find(self, parent: int, kind: int, label: int) -> int | None:
        return self._index.get((parent, kind, label))

    def at(self, thing: int, node: int) -> int:
        """The frame of the moment at which ``thing`` (a frame; -1: none) is innermost and line ``node`` active."""
        lines, level, waiting = self.lines, self.level, []
        while (found := self._known.get((thing, node))) is None:
            waiting.append((thing, node))
            if thing >= 0 and level[node] <= level[self.node[thing]]:
                thing = self._outside(thing)  # entered in this frame, or in one that is left by now
            elif lines.parent[node] < 0:
                found = self.child(-1, THREAD, lines.thread[node], node)
                self._known[waiting.pop()] = found
                break
            else:
                node = lines.parent[node]
        for thing, node in reversed(waiting):
            if thing >= 0 and level[node] <= level[self.node[thing]]:
                found = self.child(found, self.kind[thing], self.label[thing], node)
            else:
                code = lines.code[node]
                if self._has_function[code]:
                    found = self.child(found, FUNCTION, code, lines.parent[node])
                found = self.child(found, LINE, node, node)
            self._known[thing, node] = found
        return found

    def _outside(self, thing: int) -> int:
        above = self.parent[thing]
        return self.thing[above] if above >= 0 else -1

    def all_at(self, things: Ints, nodes: Ints) -> Ints:
        """`at` for many moments."""
        width = len(self.lines) + 1
        different, index = _distinct((things + 1) * width + nodes)
        found = [self.at(int(key // width) - 1, int(key % width)) for key in different.tolist()]
        return np.array(found, dtype=np.int64)[index]

    def children(self, parents: Ints, kinds: Ints, labels: Ints, nodes: Ints) -> Ints:
        """`child` for many."""
        width = int(labels.max(initial=0)) + 1
        keys = (parents * len(KINDS) + kinds) * width + labels
        _, index = _distinct(keys)
        first = np.empty(int(index.max(initial=-1)) + 1, dtype=np.int64)
        first[index] = np.arange(len(index))  # any of each will do
        columns = (values[first].tolist() for values in (parents, kinds, labels, nodes))
        found = [self.child(*row) for row in zip(*columns, strict=True)]
        return np.array(found, dtype=np.int64)[index]


def _distinct(keys: Ints) -> tuple[Ints, Ints]:
    """The different keys, none below 0, and the index of each: `numpy.unique`, without its sort where they are few."""
    widest = int(keys.max(initial=-1)) + 1
    if widest > 4 * len(keys) + 1_000_000:
        return np.unique(keys, return_inverse=True)
    there = np.zeros(widest, dtype=bool)
    there[keys] = True
    different = np.flatnonzero(there)
    position = np.empty(widest, dtype=np.int64)
    position[different] = np.arange(len(different))
    return different, position[keys]
