"""What the objects that code reaches hold at one moment: sizes and digests to compare, copies to put back.

No kind of object is known here but the plainest: containers, arrays, tensors, variables. Whatever else is walked by
what the garbage collector knows of it; no attribute is asked of an object and no code of the user's is run.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import io
import itertools
import math
import mmap
import os
import threading
import warnings
import weakref
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from types import CellType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from torchbench_magic.process.code import names_used
from torchbench_magic.process.frame_owner import is_users_class, is_users_file
from torchbench_magic.process.reach import (
    ATTRIBUTES,
    Attributes,
    attributes_held,
    function_parts,
    is_users_module,
    mention,
)
from torchbench_magic.process.settings import generator_state, generators
from torchbench_magic.process.static_introspection import ABSENT, has_values, is_plain_tensor, shape_of

from .equality import is_compared_by_value, is_equal
from .iterators import is_cursor, is_used_up
from .written_objects import refill

_MOST_OBJECTS, _DEEPEST, _MOST_ITEMS, _FEW = 3_000, 9, 200, 8
_SAMPLE = 4_096
"""Elements of a large array that are compared; of one up to four times as large, all are."""
_MOST_COMPARED, _FEWEST = 100_000, 64
"""Items of all containers together, and of each, that are compared at one moment."""
_MOST_BYTES = 32 << 20
"""Bytes that are copied to be put back; larger state is not put to the test."""
_WORD = 40
"""Characters of a text that may be a switch."""
_AGAIN = "'"
"""Ends the label of the second thing that has the same one, and once more that of the third."""
_DICTS = (dict, OrderedDict, defaultdict, Counter, Attributes)
_CONTAINERS = (list, set, deque, bytearray, *_DICTS)
GROWING = frozenset(kind.__name__ for kind in _CONTAINERS)
_NAMED_AS = {Attributes: "dict"}
_SCALARS = (bool, int, float, complex, str, bytes)
_BUFFERED = (io.BufferedReader, io.BufferedWriter, io.BufferedRandom)
_FILES = (io.TextIOWrapper, *_BUFFERED, io.FileIO, io.BytesIO, io.StringIO, mmap.mmap)
_IN_C = (type(list.__len__), type(list.append))
"""Of methods that are no Python code."""
OF_PROCESS = "of the process"


class Left(int):
    """How many items an iterator has left; 1 where it only is known that it has some."""


class Place(int):
    """Where a file stands."""


class Seen(NamedTuple):
    """A value at one moment.

    Attributes:
        kind: name of its class; `OF_PROCESS` for a count of the process.
        size: items, `Left` of an iterator, whether a cursor has rows left, the `Place` in a file, or shape and dtype;
            None where it has none.
        digest: of what it holds, a scalar as it is.
    """

    kind: str
    size: Any
    digest: Any


@dataclass(frozen=True)
class Reached:
    """An object that code reaches.

    Attributes:
        value: the object.
        is_own: it is the user's own, so that it may be put back.
        home: the variables that it is one of, and its name there; None where it is held otherwise.
    """

    value: Any
    is_own: bool
    home: tuple[MutableMapping[str, Any], str] | None = None


def reach(homes: Mapping[str, dict[str, Any]], codes: Iterable[CodeType]) -> dict[str, Reached]:
    """Label -> object, breadth first, of all that code reaches.

    Args:
        homes: of each name that it reads, the variables that it stands among, or will.
        codes: of the code itself; what it mentions is looked for in modules of the user's.
    """
    mentioned = {name for code in codes for name in names_used(code)}
    mention(mentioned)
    todo = deque((n, Reached(home[n], True, (home, n)), 0) for n, home in sorted(homes.items()) if n in home)
    known: set[int] = set()
    found: dict[str, Reached] = {}
    while todo and len(found) < _MOST_OBJECTS:
        label, one, depth = todo.popleft()
        if not _is_scalar(one.value):
            if id(one.value) in known:
                continue
            known.add(id(one.value))
        while label in found:  # several things of one kind within one object
            label += _AGAIN
        found[label] = one
        if depth < _DEEPEST and not _is_scalar(one.value):
            with contextlib.suppress(RuntimeError):  # another thread changes it
                todo.extend([(*child, depth + 1) for child in _held_by(label, one, mentioned)])
    return found


def _held_by(label: str, one: Reached, mentioned: set[str]) -> Iterator[tuple[str, Reached]]:
    """(label, object) of what an object holds."""
    import torch

    value, own = one.value, one.is_own
    if issubclass(type(value), FunctionType):
        home, code = value.__globals__, value.__code__
        if is_users_file(code.co_filename):
            used = dict.fromkeys(names_used(code))
            mentioned.update(used)
            mention(used)
            yield from ((name, Reached(home[name], True, (home, name))) for name in used if name in home)
        for name, cell in zip(code.co_freevars, value.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # a cell that is empty
                yield name, Reached(cell.cell_contents, True)
            yield f"{name}.__dict__", Reached(cell, True)
        yield from ((name, Reached(one, own)) for how, name, one in function_parts(value) if how == "default")
        yield f"{label}.__dict__", Reached(value.__dict__, own)
    elif issubclass(type(value), type):
        if is_users_class(value):
            named = ((k, v) for k, v in vars(value).items() if not k.startswith("__"))
            yield from ((f"{label}.{k}", Reached(v, True)) for k, v in named)
    elif issubclass(type(value), ModuleType):
        if is_users_module(value):
            held = vars(value)
            yield from ((f"{label}.{k}", Reached(held[k], True, (held, k))) for k in sorted(mentioned & held.keys()))
    elif issubclass(type(value), torch.Tensor):
        if is_plain_tensor(value) and value.is_leaf and value.requires_grad:
            yield f"{label}.grad", Reached(value.grad, own)
    elif issubclass(type(value), ATTRIBUTES):
        items: Any = dict.items(value) if issubclass(type(value), dict) else value.items()
        if type(value) is Attributes or "__builtins__" not in value:  # not all names of a module
            base = label.removesuffix(".__dict__")
            for key, item in itertools.islice(items, _MOST_ITEMS):
                home = (value, key) if own and isinstance(key, str) else None
                yield (f"{base}.{key}" if home or isinstance(key, str) else f"{base}[…]"), Reached(item, own, home)
    elif not issubclass(type(value), (np.ndarray, CellType, CodeType, FrameType)):
        yield from _referents(label, value, own)


def _referents(label: str, value: Any, own: bool) -> Iterator[tuple[str, Reached]]:
    held, is_users = attributes_held(value), is_users_class(type(value))
    if held is not None:
        yield f"{label}.__dict__", Reached(held, own and is_users)
    if type(value) is list and own and len(value) <= _FEW:  # as `[0]`, which counts
        counts = ((at, each) for at, each in enumerate(value) if type(each) in (bool, int, float))
        yield from ((f"{label}[{at}]", Reached(each, True)) for at, each in counts)
    if type(value) in (list, deque, set, frozenset):  # whose referents would be a list as long
        inner: Iterable[Any] = [*itertools.islice(value, 4 * _MOST_ITEMS)]
    else:  # a tuple that C code fills, as that of `zip_longest`, has holes: to read one ends the process
        inner = gc.get_referents(value)[: 4 * _MOST_ITEMS]
    is_plain = issubclass(type(value), (list, tuple, deque, set, MethodType))
    known = {id(held), *map(id, (held or {}).values())}  # from Python 3.13 on the attributes themselves are referents
    others = (each for each in inner if id(each) not in known and not _is_scalar(each))
    for each in itertools.islice(others, _MOST_ITEMS):
        yield f"{label}·{type(value).__name__}", Reached(each, own and (is_plain or is_users))


def _is_scalar(value: Any) -> bool:
    kind = type(value)
    if kind is str or kind is int or kind is float or kind is list or kind is dict or kind is tuple:  # most are
        return kind is str or kind is int or kind is float
    import torch

    return value is None or issubclass(kind, (*_SCALARS, torch.dtype, torch.device))


def generators_among(reached: Mapping[str, Reached]) -> list[tuple[Callable[[], Any], Callable[[Any], object]]]:
    """(read, put) of the state of each random generator: of the process, and of objects that are reached."""
    own = (generator_state(one.value) for one in reached.values())
    return [*((kind.read, kind.put) for kind in generators()), *(pair for pair in own if pair is not None)]


# ---- what is compared ------------------------------------------------------------------------------------------------


def share_of(reached: Mapping[str, Reached]) -> int:
    """How many items of each container `state_of` is to compare, that all of them together take some 10 ms."""
    several = sum(type(one.value) in (*_CONTAINERS, tuple, frozenset) for one in reached.values())
    return min(4 * _SAMPLE, max(_FEWEST, _MOST_COMPARED // max(several, 1)))


def state_of(reached: Mapping[str, Reached], share: int = 4 * _SAMPLE) -> dict[str, Seen]:
    """Label -> what is there now; and what the process has open.

    Args:
        share: items of a container that are compared, all of one that has no more; a quarter of it of a larger one.
    """
    found = {label: seen_of(one.value, share) for label, one in reached.items()}
    counts = {"threads": threading.active_count(), "warning filters": len(warnings.filters)}
    with contextlib.suppress(OSError):
        counts["open files"] = len(os.listdir("/proc/self/fd"))
    return found | {name: Seen(OF_PROCESS, count, None) for name, count in counts.items()}


def seen_of(value: Any, share: int = 4 * _SAMPLE) -> Seen:
    return Seen(_NAMED_AS.get(type(value), type(value).__name__), _size(value), _digest(value, share))


def _size(value: Any) -> Any:
    import torch

    if issubclass(type(value), np.ndarray):
        return (*value.shape, str(value.dtype))
    if issubclass(type(value), torch.Tensor):  # not one of a class of its own, or whose shape the first call sets
        shape = shape_of(value) if is_plain_tensor(value) else None
        return None if shape is None else (*shape, str(value.dtype))
    if type(value) is Attributes:
        return len(value)
    for kind in type(value).__mro__:
        with contextlib.suppress(Exception):
            if kind in _FILES:
                return Place(kind.tell(value))
            named = vars(kind)
            if type(named.get("__len__")) in _IN_C:
                return named["__len__"](value)
            if type(named.get("__length_hint__")) in _IN_C:
                return Left(named["__length_hint__"](value))
    if (ended := is_used_up(value)) is None:
        return None
    return not ended if is_cursor(value) else Left(not ended)  # a cursor is given statements


def is_number(seen: Seen) -> bool:
    """Whether it is a value that counts, one in a tensor or an array without dimensions too."""
    is_kept = isinstance(seen.size, tuple) and len(seen.size) == 1
    return (is_kept or seen.kind in ("int", "float")) and type(seen.digest) in (int, float)


def extent(seen: Seen) -> float | None:
    """How much there is: items, elements of an array, or a number itself; None where nothing of these."""
    if is_number(seen):
        return seen.digest  # type: ignore[no-any-return]  # as it is: no float is as large as an int may be
    if isinstance(seen.size, tuple):
        return math.prod(seen.size[:-1])
    return seen.size if isinstance(seen.size, int) and type(seen.size) is not Place else None


def _digest(value: Any, share: int) -> Any:
    """Of values: all of a small array, a sample of a large one. Of containers: what stands where."""
    import torch

    with contextlib.suppress(Exception):  # what has no values yet, or none that can be read
        if _is_scalar(value):
            return _item(value)
        if issubclass(type(value), torch.Tensor):
            return _digest_of_tensor(value)
        if issubclass(type(value), np.ndarray):
            most = share if value.dtype.hasobject else 4 * _SAMPLE
            if not value.shape:
                return _one(value)
            some = value.ravel() if value.size <= most else value.flat[:: value.size // (most // 4) | 1]
            return hash(tuple(map(_item, some))) if some.dtype.hasobject else hash(some.tobytes())
        if issubclass(type(value), CellType):
            return _item(value.cell_contents)
        if type(value) in _DICTS:
            pairs = itertools.islice(value.items(), share)
            return hash(tuple((_item(key), _item(item)) for key, item in pairs))
        if type(value) in (*_CONTAINERS, tuple, frozenset):
            items = gc.get_referents(value) if type(value) is tuple else value  # see `_referents`
            items = items if isinstance(items, list) else [*items]
            step = 1 if len(items) <= share else len(items) // (share // 4) | 1
            return hash(tuple(map(_item, items[::step])))
    return None


def _digest_of_tensor(value: Any) -> Any:
    import torch

    if not is_plain_tensor(value):  # it would run code of its class
        return None
    if not has_values(value) or value.layout is not torch.strided:
        return value._version
    with torch.no_grad():
        some = value.detach()
        if some.numel() > 4 * _SAMPLE:
            at = torch.arange(0, some.numel(), some.numel() // _SAMPLE | 1, device=some.device)
            some = torch.take(some, at)
        if not some.shape:
            return _one(some)
        some = some.cpu().contiguous().clone()  # memory that NumPy shares cannot be resized any more
        return hash(some.view(-1).view(torch.uint8).numpy().tobytes())


def _one(value: Any) -> Any:
    """Of what has no dimensions, which may count or be a switch: its value; NaN equals itself."""
    one = value.item()
    return one if one == one else "nan"


def _item(value: Any) -> Any:
    return value if _is_scalar(value) and value == value else id(value)


def is_switch(was: Seen, now: Seen) -> bool:
    """Whether a word or a truth value was set anew, or a tensor got another shape or dtype."""
    is_text = was.kind == now.kind == "str" and max(len(was.digest), len(now.digest)) < _WORD
    is_word = was.kind in ("bool", "dtype", "device") or is_text
    is_shape = isinstance(was.size, tuple) and was.size != now.size
    return was.kind == now.kind and was[1:] != now[1:] and (is_word or is_shape)


def stays(was: Any, now: Any) -> bool:
    """Whether two objects have the same value, or are arrays of the same shape."""
    one, other = seen_of(was), seen_of(now)
    if isinstance(one.size, tuple):
        return bool(one.size == other.size)
    return (one == other and one.digest is not None) or (_has_plain_values(now) and is_equal(was, now))


def _has_plain_values(value: Any) -> bool:
    return not is_users_class(type(value)) and is_compared_by_value(type(value))


def named(label: str) -> str:
    """As the user would say it: what has no name of its own is something in what has one."""
    plain, *within = label.split("·")
    return f"{'something in ' if within else ''}`{plain.rstrip(_AGAIN).removesuffix('.__dict__')}`"


# ---- what is put back ------------------------------------------------------------------------------------------------


class Kept:
    """Copies of what was there, of the user's own containers, arrays, tensors with their gradients, and variables. What
    else has values, as a frame, is not changed: its variable is given another copy.

    Args:
        reached: what code reaches, as `reach` found it.
    """

    def __init__(self, reached: Mapping[str, Reached]) -> None:
        left = _MOST_BYTES
        self._held: dict[str, tuple[Any, Any]] = {}
        self._variables: dict[str, tuple[MutableMapping[str, Any], str, Any]] = {}
        self._copies: dict[str, Any] = {}
        for label, one in reached.items():
            if one.home is not None:
                self._variables[label] = (*one.home, one.value)
                if _has_plain_values(one.value):
                    inner = [each.value for within, each in reached.items() if _is_within(within, label)]
                    left -= sum(map(_bytes, inner))
                    is_read = not any(issubclass(type(each), io.IOBase) for each in inner)  # else a copy would read it
                    with contextlib.suppress(Exception):  # whatever its library says
                        self._copies |= {label: copy.deepcopy(one.value)} if left > 0 and is_read else {}
                    continue
            has_values = is_plain_tensor(one.value) or issubclass(type(one.value), np.ndarray)
            if not (one.is_own or has_values):  # a library may count on what stands in its containers
                continue
            left -= _bytes(one.value)
            if left > 0 and (content := _content(one.value)) is not None:
                self._held[label] = one.value, _letting_go(content)

    def put_backs(self, labels: Iterable[str], now: Mapping[str, Reached]) -> tuple[Callable[[], None], ...] | None:
        """What brings the state before the first call back, and what brings the present one, of these labels; None
        where none of them can be put back."""
        labels = [*labels]
        is_here = lambda k: k in now and k in self._held and _is_same(now[k].value, self._held[k][0])
        same = {k: self._held[k] for k in labels if is_here(k)}
        held = {k: (value, content) for k, (value, content) in same.items() if _fits(value, content)}
        moved = [self._variables[k] for k in labels if k in self._variables]
        moved = [(home, name, then) for home, name, then in moved if home.get(name, ABSENT) is not then]
        moved = [each for each in moved if not issubclass(type(each[2]), Iterator)]  # what was taken from it stays so
        within = {k for k in self._copies if any(_is_within(label, k) for label in labels)}
        anew = {k: self._variables[k] for k in within if not is_equal(self._copies[k], self._variables[k][2])}
        if not (held or moved or anew):
            return None
        present = {label: _content(value) for label, (value, _) in held.items()}
        bound = [(home, name, home.get(name, ABSENT)) for home, name, _ in [*moved, *anew.values()]]

        def first() -> None:
            for value, content in held.values():
                _put(value, content)
            for home, name, then in moved:
                home[name] = then
            for label, (home, name, _) in anew.items():
                home[name] = copy.deepcopy(self._copies[label])

        def last() -> None:
            for label, (value, _) in held.items():
                _put(value, present[label])
            for home, name, here in bound:
                if here is ABSENT:
                    home.pop(name, None)
                else:
                    home[name] = here

        return first, last


def _is_same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) is Attributes and one.owner is other.owner)


def _is_within(inner: str, label: str) -> bool:
    """Whether a label is that of something within what another one names, or of that itself."""
    return inner.startswith(label) and inner[len(label) : len(label) + 1] in ("", ".", "·", "[")


def _bytes(value: Any) -> int:

    with contextlib.suppress(Exception):  # a parameter without a shape yet, a sparse tensor
        if is_plain_tensor(value):
            return int(value.nbytes) * (2 if value.is_leaf and value.grad is not None else 1)
        if issubclass(type(value), np.ndarray):
            return int(value.nbytes)
    return 64 * len(value) if type(value) in _CONTAINERS else 0


def _content(value: Any) -> Any:
    """A copy of what is held, of what can be put back; else None."""
    import torch

    with contextlib.suppress(Exception):
        if is_plain_tensor(value):
            grad = value.grad if value.is_leaf and value.requires_grad else None
            if any(t is not None and (t.layout is not torch.strided or t.is_meta) for t in (value, grad)):
                return None
            return value.detach().clone(), grad, None if grad is None else grad.detach().clone()
        if issubclass(type(value), CellType):
            return [value.cell_contents]
        if type(value) is np.ndarray and not value.flags.writeable:
            return None
        return value.copy() if type(value) in (*_CONTAINERS, np.ndarray) else None
    return None


def _letting_go(content: Any) -> Any:
    """The same; what clears a gradient is to free it."""
    if type(content) is tuple and content[1] is not None:
        return content[0], weakref.ref(content[1]), content[2]
    return content


def _fits(value: Any, kept: Any) -> bool:
    """Whether values can be put back where they were: no tensor or array has another shape now."""
    if issubclass(type(value), np.ndarray):
        return bool(value.shape == kept.shape)
    return not is_plain_tensor(value) or bool(value.shape == kept[0].shape)


def _put(value: Any, kept: Any) -> None:
    import torch

    if issubclass(type(value), torch.Tensor):
        data, grad, values = kept
        with torch.no_grad():
            value.data.copy_(data)
            if value.is_leaf and value.requires_grad:
                grad = grad() if type(grad) is weakref.ref else grad
                value.grad = grad if grad is not None or values is None else values.clone()
                if grad is not None:
                    grad.data.copy_(values)
    elif issubclass(type(value), np.ndarray):
        value[...] = kept
    elif issubclass(type(value), CellType):
        value.cell_contents = kept[0]
    else:
        refill(value, kept)
        if type(value) in (list, bytearray):
            value.append(0)  # makes room to grow, as what grew has: else the next call would have all of it copied
            value.pop()
