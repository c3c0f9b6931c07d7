"""Is an iterator used up, a file at its end? Told from their state: nothing is ever taken from the user's object."""

from __future__ import annotations

import copy
import gc
import io
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

__all__ = ["at_end", "is_used_up", "rewinder", "second_copy"]

_EMPTY: dict[object, object] = {}
_FORWARD: tuple[Iterable[Any], ...] = (
    *([], (), range(0), range(1 << 70), "", "\u00e9", b"", bytearray(), set()),
    *(_EMPTY, _EMPTY.values(), _EMPTY.items()),
)
_BACKWARD: tuple[Any, ...] = ([], _EMPTY, _EMPTY.values(), _EMPTY.items())
_COUNTED = frozenset(map(type, (*map(iter, _FORWARD), *map(reversed, _BACKWARD), itertools.repeat(None, 0))))
"""Iterators of the interpreter's own that count what is left (``__length_hint__``) and change nothing by it."""

_ANY = (zip, map, filter, enumerate, itertools.starmap, itertools.accumulate, itertools.compress, itertools.groupby)
"""Iterators that end when one of those they take from does."""
_DROPPING = (itertools.islice, itertools.pairwise, getattr(itertools, "batched", itertools.islice), itertools.chain)
"""Iterators that let go of those they take from when they end."""
_CALLING = (type(iter(int, 0)),)
"""``iter(function, sentinel)`` lets go of both at its end."""


def is_used_up(value: Any) -> bool | None:
    """True where a further ``next`` would raise StopIteration; None where that is no iterator, or cannot be told.

    Known are generators, coroutines, the iterators of the interpreter's own types, ``zip``, ``map``, ``filter``,
    ``enumerate``, most of ``itertools``, ``csv.reader``, and the iterators of a torch DataLoader.
    """
    kind = type(value)
    if issubclass(type(value), GeneratorType):
        return value.gi_frame is None
    if issubclass(type(value), CoroutineType):
        return value.cr_frame is None
    if issubclass(type(value), AsyncGeneratorType):
        return value.ag_frame is None
    if kind in _COUNTED:
        return bool(value.__length_hint__() == 0)
    if kind in _CALLING:
        return not gc.get_referents(value)
    if kind in _ANY:
        return any(is_used_up(source) for source in _sources(value))
    if kind in _DROPPING:
        sources = list(_sources(value))
        return all(is_used_up(source) for source in sources) if kind is itertools.chain else not sources
    if (kind.__module__, kind.__name__) == ("_csv", "reader"):
        return any(is_used_up(source) or at_end(source) for source in _sources(value))
    if any(base.__name__ == "_BaseDataLoaderIter" for base in kind.__mro__):
        return _loader_is_used_up(value)
    return None


def _sources(value: Any) -> Iterator[Any]:
    """The iterators that one made of others takes from: what the collector sees in it, tuples opened."""
    for held in gc.get_referents(value):
        inner = held if type(held) is tuple else (held,)
        yield from (one for one in inner if hasattr(type(one), "__next__"))


def _loader_is_used_up(value: Any) -> bool | None:
    """torch's ``_BaseDataLoaderIter``: its sampler is used up and no worker owes a batch (both are private names)."""
    inside = vars(value)
    sampler = is_used_up(inside.get("_sampler_iter"))
    return sampler if sampler is None else sampler and not inside.get("_tasks_outstanding", 0)


def at_end(value: Any) -> bool | None:
    """Whether a file that is only read is at its end; None for whatever else."""
    if not issubclass(type(value), io.IOBase) or value.closed:
        return None
    try:
        if type(value) is io.BytesIO:
            with value.getbuffer() as held:
                return value.tell() >= held.nbytes
        if type(value) is io.StringIO:
            place = value.tell()
            end = value.seek(0, os.SEEK_END)
            value.seek(place)
            return place >= end
        known = (io.TextIOWrapper, io.BufferedReader, io.FileIO)
        if type(value) not in known or not value.seekable() or value.writable():
            return None
        return bool(value.tell() >= os.fstat(value.fileno()).st_size)
    except (OSError, ValueError):  # in the midst of ``for line in file``
        return None


def rewinder(value: Any) -> Callable[[], object] | None:
    """What brings a file back to where it is now; None where it cannot be."""
    try:
        place = value.tell()
    except (OSError, ValueError):
        return None
    return lambda: value.seek(place)


def second_copy(value: Any) -> Callable[[], Any] | None:
    """What makes, again and again, an iterator that stands where this one stands now; None where there is no such
    thing: a generator cannot be copied, nor what takes from one, nor (from Python 3.14 on) those of ``itertools``."""
    if type(value) in _COUNTED:
        kept = copy.copy(value)
        return lambda: copy.copy(kept)
    if type(value) not in (zip, map, filter, enumerate):
        return None
    kind, arguments, *state = value.__reduce__()
    makers = [second_copy(one) if hasattr(type(one), "__next__") else partial(_same, one) for one in arguments]
    known = [maker for maker in makers if maker is not None]
    return partial(_made_again, kind, known, state) if len(known) == len(makers) else None


def _same(value: Any) -> Any:
    return value


def _made_again(kind: type, makers: Sequence[Callable[[], Any]], state: Sequence[Any]) -> Any:
    made: Any = kind(*(maker() for maker in makers))
    if state:  # ``zip(strict=True)``
        made.__setstate__(*state)
    return made
