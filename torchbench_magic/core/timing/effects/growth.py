"""Do inputs grow or get shorter with every call? Then later calls may do other work than earlier ones.

Objects are measured, whatever their class, from what their dicts, lists and tensors hold; nothing of theirs is called.
A tensor that is there before and after a call and larger after it was copied to grow, as a KV cache is with
``torch.cat``: then every call does more than the one before. A container that grows may be a log that costs nothing, so
there the times must show it.
"""

from __future__ import annotations

import statistics
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from types import FunctionType, ModuleType
from typing import Any

from torchbench_magic.core.code.held_values import is_plain_tensor
from torchbench_magic.core.code.reached_objects import ReachedObject, dict_of

from .restoring.held_state import is_training_state

__all__ = ["Growth", "lasting_times"]

_MOST_NODES = 2_000
_CONTAINERS = (list, dict, set, deque, bytearray, tuple, defaultdict, OrderedDict, Counter)
_TEXTS, _LONG = (str, bytes), 1_000
"""A text counts as an item for each so many characters: words change, long ones grow."""
SLOWER = 1.25
"""Calls of the last quarter of a run that take so many times as long as those of the first do other work (or as many
times less); the drift of a machine within a run was a few per cents, where it was not busy."""
FEWEST = 16
"""Samples from which quarters are compared."""


@dataclass(frozen=True)
class _Size:
    """How much an object holds: items of containers, tensors, elements of tensors."""

    items: int
    tensors: int
    elements: int


_NOTHING = _Size(0, 0, 0)


class Growth:
    """Sizes of what one alternative reads by name, and of what its functions bind: before and after its first call,
    and after its warm-up.

    Args:
        reads: what it reaches.
        bound: label -> what is bound there now, of the places that its functions may bind anew, such as globals and
            attributes of classes.
    """

    def __init__(self, reads: Mapping[int, ReachedObject], bound: Callable[[], Mapping[str, Any]] = dict) -> None:
        self._reads = {at: item for at, item in reads.items() if item.direct and _is_measured(item.value)}
        self._bound = bound
        self._sizes: list[dict[int | str, _Size]] = []
        self._calls = 0

    def note(self, calls: int = 0) -> None:
        """Measure; ``calls`` were made since the last time."""
        self._calls = calls
        sizes: dict[int | str, _Size] = {at: _size(item.value) for at, item in self._reads.items()}
        for label, value in self._bound().items():
            if id(value) not in self._reads and (type(value) in (*_CONTAINERS, *_TEXTS) or is_plain_tensor(value)):
                sizes[label] = _size(value)
        self._sizes.append(sizes)

    def found(self, times: Sequence[float]) -> list[tuple[str, str]]:
        """(how, label): what "grows" or "shrinks" with every call, so that these times (in the order of the calls) are
        of unlike work. "state" belongs to tensors elsewhere, as an optimizer's does: it is not to be copied; nor is
        what a function binds ("bound")."""
        if len(self._sizes) < 4:
            return []
        said = []
        for at in dict.fromkeys(at for sizes in self._sizes[:4] for at in sizes):
            start, left, again, last = (sizes.get(at, _NOTHING) for sizes in self._sizes[:4])
            first = _less(left, start)
            # what is put back before a block is made again by its first call: that is no growth by every call
            warm = _less(last, _furthest(left, again, first))
            copied = first.elements > 0 and warm.elements >= self._calls and warm.tensors < self._calls
            lasts_longer = (first.items + first.tensors) * (warm.items + warm.tensors) > 0 and lasting_times(times)
            if copied or lasts_longer:
                by = first.elements if copied else first.items + first.tensors
                if isinstance(at, str):
                    said.append(("bound" if by > 0 else "shrinks", at))
                    continue
                item = self._reads[at]
                grows = "state" if is_training_state(item.value) else "grows"
                said.append((grows if by > 0 else "shrinks", item.label))
        return said


def lasting_times(times: Sequence[float]) -> bool:
    """Whether the calls at the end of the run took other times than those at its begin."""
    if len(times) < FEWEST:
        return False
    quarter = len(times) // 4
    early, late = statistics.median(times[:quarter]), statistics.median(times[-quarter:])
    return max(early, late) >= SLOWER * max(min(early, late), 1e-3)


def _less(one: _Size, other: _Size) -> _Size:
    return _Size(one.items - other.items, one.tensors - other.tensors, one.elements - other.elements)


def _furthest(left: _Size, again: _Size, by: _Size) -> _Size:
    """The larger of two sizes where the first call made things larger, else the smaller."""
    parts = zip(astuple(left), astuple(again), astuple(by), strict=True)
    return _Size(*(max(a, b) if more > 0 else min(a, b) for a, b, more in parts))


def _is_measured(value: Any) -> bool:
    code_or_number = (type, ModuleType, FunctionType, str, bytes, int, float)
    return not issubclass(type(value), code_or_number) and not is_plain_tensor(value)


def _size(value: Any) -> _Size:
    """Of an object and of what it holds, each thing once."""
    seen: set[int] = set()
    todo, items, tensors, elements = [value], 0, 0, 0
    while todo and len(seen) < _MOST_NODES:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if is_plain_tensor(one):
            tensors, elements = tensors + 1, elements + one.numel()
            continue
        if type(one) in _TEXTS:
            items += len(one) // _LONG
        elif type(one) in _CONTAINERS:
            items += len(one)
            inner = one.values() if issubclass(type(one), dict) else () if type(one) in (set, bytearray) else one
            todo += [held for held in list(inner)[:_MOST_NODES] if type(held) not in _SCALARS or _is_long(held)]
        elif type(held := dict_of(one)) is dict and _is_measured(one):
            todo += [inner for inner in held.values() if type(inner) not in _SCALARS or _is_long(inner)]
    return _Size(items, tensors, elements)


def _is_long(value: Any) -> bool:
    return type(value) in _TEXTS and len(value) >= _LONG


_SCALARS = frozenset((type(None), bool, int, float, complex, str, bytes))
