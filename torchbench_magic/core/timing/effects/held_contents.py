"""What containers and users' objects hold: copies to compare later, to put back, or only the number of items.

``queue.SimpleQueue`` shows no items; arrays, and classes of users made of a list, a dict, a set or a deque, are no
plain containers: of these only the number is asked.
"""

from __future__ import annotations

import sys
from array import array
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Mapping
from functools import partial
from queue import SimpleQueue
from typing import Any

from torchbench_magic.core.code.reached_objects import ReachedObject, own_attributes

__all__ = ["ABSENT", "changes_undone", "differ", "is_numpy_array", "kept_copies", "numbers_held"]

_MOST_KEPT = 100_000
ABSENT = object()
_MOST_ELEMENTS = 16_384
"""Of an array whose values are kept."""
_DICTS = (dict, defaultdict, OrderedDict)
_COPIED = (list, set, deque)


def kept_copies(reads: Mapping[int, ReachedObject]) -> dict[int, Any]:
    """Id -> a shallow copy of what each dict, list, set, small array and user's instance among these holds."""
    kept: dict[int, Any] = {}
    for at, item in reads.items():
        own = own_attributes(item.value)
        value: Any = item.value if own is None else own
        if type(value) in _DICTS and len(value) <= _MOST_KEPT:
            kept[at] = dict(value)
        elif is_numpy_array(value):
            kept.update({at: value.copy()} if value.size <= _MOST_ELEMENTS else {})
        elif type(value) in _COPIED and len(value) <= _MOST_KEPT:
            kept[at] = value.copy()
    return kept


def is_numpy_array(value: Any) -> bool:
    """Whether it is an array of numpy's own class."""
    return type(value) is getattr(sys.modules.get("numpy"), "ndarray", ())


def _is_other_array(one: Any, other: Any) -> bool:
    """Whether two arrays hold other bytes; of those that hold objects, other ones."""
    return (one.shape, one.dtype) != (other.shape, other.dtype) or bool(one.tobytes() != other.tobytes())


def differ(one: Any, other: Any) -> bool:
    """Whether two copies hold other objects."""
    if is_numpy_array(one):
        return _is_other_array(one, other)
    if isinstance(one, set):
        return len(one) != len(other) or {*map(id, one)} != {*map(id, other)}  # the items' own ``__eq__`` is not called
    if len(one) != len(other):
        return True
    if isinstance(one, (list, deque)):
        return any(a is not b for a, b in zip(one, other, strict=True))
    return any(other.get(key, ABSENT) is not value for key, value in one.items())


def _same_items(one: Any, other: Any) -> bool:
    """Whether two copies hold the same objects, in whatever order."""
    return len(one) == len(other) and sorted(map(id, one)) == sorted(map(id, other))


def _put_keys(target: dict[Any, Any], before: Mapping[Any, Any], keys: list[Any]) -> None:
    for key in keys:
        if key in before:
            target[key] = before[key]
        else:
            target.pop(key, None)


def _put_items(target: Any, before: Any) -> None:
    if is_numpy_array(target):
        target[...] = before
    elif isinstance(target, list):
        target[:] = before
    elif isinstance(target, deque):
        target.clear()
        target.extend(before)
    else:
        target.intersection_update(before)
        target.update(before)


def changes_undone(
    before: Mapping[int, Any],
    after: Mapping[int, Any],
    reads: Mapping[int, ReachedObject],
    put_back: Collection[int],
    rewritten: Collection[str] = (),
) -> list[tuple[tuple[str, str], Callable[[], object]]]:
    """((how, label), what undoes it) of each change that the first call made and that no later call made again.

    Args:
        before, after: copies of `kept_copies`, of the first call.
        reads: the objects.
        put_back: ids of those that are put back before each call.
        rewritten: labels of entries, and of whole lists and sets, that are put back likewise: every call writes them.
    """
    found: list[tuple[tuple[str, str], Callable[[], object]]] = []
    kept = kept_copies(reads)
    for at, was in before.items():
        left, value, label = after.get(at), reads[at].value, reads[at].label
        if left is None or at not in kept or at in put_back or label in rewritten or not differ(was, left):
            continue
        now = kept[at]
        if isinstance(left, dict):
            held = own_attributes(value)
            target = value if held is None else held
            entry = f"{label}[{{!r}}]" if held is None else f"{label}.{{}}"
            keys = [k for k, v in left.items() if was.get(k, ABSENT) is not v and now.get(k, ABSENT) is v]
            keys = [k for k in keys if not rewritten or entry.format(k) not in rewritten]
            gone = [k for k in was if k not in left and k not in now] if now or not left else []
            if keys or gone:
                label = label if held is None else f"{label}.{(keys or gone)[0]}"
                how = "memo" if keys else "emptied" if not left else "shorter"
                found.append(((how, label), partial(_put_keys, target, was, keys + gone)))
        elif is_numpy_array(left):
            if value.flags.writeable and was.shape == left.shape and not differ(left, now):
                found.append((("memo", label), partial(_put_items, value, was)))
        elif not differ(left, now):
            fewer = "shorter" if left else "emptied"
            how = fewer if len(left) < len(was) else "changed" if _same_items(was, left) else "memo"
            found.append(((how, label), partial(_put_items, value, was)))
    return found


_BASES = (list, dict, set, deque, bytearray, array)
_PLAIN = (*_DICTS, list, set, deque)
"""Those that are copied."""


def numbers_held(reads: Mapping[int, ReachedObject]) -> dict[int, int]:
    """Id -> number of items, of each queue, array and instance of a class made of a container among these."""
    found = {}
    for at, item in reads.items():
        kind = type(item.value)
        if issubclass(kind, SimpleQueue):
            found[at] = SimpleQueue.qsize(item.value)
        elif kind not in _PLAIN:
            base = next((base for base in _BASES if issubclass(kind, base)), None)
            if base is not None:  # its own ``__len__`` is the user's code, and not called
                found[at] = base.__len__(item.value)
    return found
