"""Iterators, files and queues that are used up: told without taking anything, refused where they cannot be put back."""

from __future__ import annotations

import copy
import gc
import io
import itertools
import os
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

from torchbench_magic.errors import BodyError
from torchbench_magic.process.code import globals_read
from torchbench_magic.process.reach import Found, ReachedObject, own_attributes
from torchbench_magic.process.static_introspection import asked
from torchbench_magic.result_base import Doubt

# Is an iterator used up, a file at its end? Nothing is ever taken from the user's object.
#
# It is told from the state of the interpreter's own kinds. What one written in Python holds tells nothing.

_EMPTY: dict[object, object] = {}
_FORWARD: tuple[Iterable[Any], ...] = (
    *([], (), range(0), range(1 << 70), "", "\u00e9", b"", bytearray(), set()),
    *(_EMPTY, _EMPTY.values(), _EMPTY.items()),
)
_BACKWARD: tuple[Any, ...] = ([], _EMPTY, _EMPTY.values(), _EMPTY.items())
_COUNTED = frozenset(map(type, (*map(iter, _FORWARD), *map(reversed, _BACKWARD), itertools.repeat(None, 0))))
"""Iterators of the interpreter's own that count what is left (``__length_hint__``) and change nothing by it."""

_ANY = (zip, map, filter, enumerate, itertools.starmap, itertools.accumulate, itertools.compress, itertools.groupby,
        itertools.takewhile, itertools.dropwhile)  # fmt: skip
"""Iterators that end when one of those they take from does."""
_ALL = (itertools.chain, itertools.zip_longest)
"""Iterators that end when the last of those they take from does."""
_TEE: type = type(itertools.tee(())[0])
_DROPPING = (itertools.islice, itertools.pairwise, getattr(itertools, "batched", itertools.islice), *_ALL)
"""Iterators that let go of those they take from when they end."""
_CALLING = (type(iter(int, 0)),)
"""``iter(function, sentinel)`` lets go of both at its end."""


def counted_left(value: Any) -> int | None:
    """How many items an iterator of the interpreter's own has left; None of anything else."""
    if type(value) not in _COUNTED:
        return None
    return asked(lambda: int(value.__length_hint__()), otherwise=None)  # itertools.repeat(1) has no number


def is_used_up(value: Any) -> bool | None:
    """True where a further ``next`` would raise StopIteration; None where that is no iterator, or cannot be told.

    Known are generators, coroutines, the iterators of the interpreter's own types, ``zip``, ``map``, ``filter``,
    ``enumerate``, most of ``itertools``, ``csv.reader``, the iterators of a torch DataLoader, and a cursor
    of sqlite3, which lets go of its statement at the end (and has none before it is given one).
    """
    kind = type(value)
    if issubclass(type(value), GeneratorType):
        return value.gi_frame is None
    if issubclass(type(value), CoroutineType):
        return value.cr_frame is None
    if issubclass(type(value), AsyncGeneratorType):
        return value.ag_frame is None
    if (left := counted_left(value)) is not None:
        return left == 0
    if kind in _CALLING:
        return not gc.get_referents(value)
    if kind in _ANY:
        return _has_stopped(value) or any(is_used_up(source) for source in _sources(value))
    if kind in _DROPPING:
        sources = list(_sources(value))
        return all(is_used_up(source) for source in sources) if kind in _ALL else not sources
    if kind is _TEE:
        return _branch_is_used_up(value)
    if is_cursor(value):
        return not any(type(held).__name__ == "Statement" for held in gc.get_referents(value))
    if (kind.__module__, kind.__name__) == ("_csv", "reader"):
        return any(is_used_up(source) or at_end(source) for source in _sources(value))
    if any(base.__name__ == "_BaseDataLoaderIter" for base in kind.__mro__):
        return _loader_is_used_up(value)
    return None


def _sources(value: Any) -> Iterator[Any]:
    """The iterators that one made of others takes from: what the collector sees in it, tuples opened."""
    for held in gc.get_referents(value):
        inner = gc.get_referents(held) if type(held) is tuple else (held,)  # ``zip_longest`` leaves holes in its tuple
        yield from (one for one in inner if hasattr(type(one), "__next__"))


def _has_stopped(value: Any) -> bool:
    """Whether a ``takewhile`` met what it ends at. From Python 3.14 on it does not show that."""
    if type(value) is not itertools.takewhile:
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return bool(value.__reduce__()[2])
        except (TypeError, IndexError):
            return False


def is_cursor(value: Any) -> bool:
    return issubclass(type(value), getattr(sys.modules.get("sqlite3"), "Cursor", ()))


def _branch_is_used_up(branch: Any) -> bool:
    """Of ``itertools.tee``. What it still keeps, a copy of it tells, once the iterator that all branches take from is
    used up, so that nothing is taken from that one."""
    data = next((held for held in gc.get_referents(branch) if type(held).__name__ == "_tee_dataobject"), None)
    source = next((held for held in gc.get_referents(data) if hasattr(type(held), "__next__")), None)
    return bool(is_used_up(source)) and _ends_alone(source) and next(copy.copy(branch), _EMPTY) is _EMPTY


def _ends_alone(value: Any) -> bool:
    """Whether a further ``next`` of what is used up takes no item from any other iterator."""
    sources = list(_sources(value)) if type(value) in (*_ANY, *_DROPPING) else []
    return len(sources) <= 1 and all(map(_ends_alone, sources))


def _loader_is_used_up(value: Any) -> bool | None:
    """torch's ``_BaseDataLoaderIter``: its sampler is used up and no worker owes a batch (both are private names)."""
    inside = vars(value)
    sampler = is_used_up(inside.get("_sampler_iter"))
    return sampler if sampler is None else sampler and not inside.get("_tasks_outstanding", 0)


def at_end(value: Any) -> bool | None:
    """Whether a file that is read, maybe one that can be written too, is at its end; None for whatever else."""
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
        if _is_packed(value):
            return not value.peek(1) if value.readable() else None
        known = (io.TextIOWrapper, io.BufferedReader, io.BufferedRandom, io.FileIO)
        if type(value) not in known or not value.seekable() or not value.readable():
            return None
        if type(value) is io.TextIOWrapper and _is_packed(value.buffer):
            place = value.tell()
            ended = not value.read(1)
            value.seek(place)
            return ended
        return bool(value.tell() >= os.fstat(value.fileno()).st_size)
    except (OSError, ValueError, EOFError):  # in the midst of ``for line in file``
        return None


def _written_size(value: Any) -> int | None:
    """The size of a file that can be written, with what waits to be; None of a file that is only read."""
    if type(value) not in (io.TextIOWrapper, io.BufferedRandom, io.FileIO) or value.closed or not value.writable():
        return None
    try:
        place = value.tell()  # a text file writes first what waits
        size = os.fstat(value.fileno()).st_size
        return size if type(value) is io.TextIOWrapper else max(place, size)
    except (OSError, ValueError):
        return None


def rewinder(value: Any) -> Callable[[], object] | None:
    """What brings a file back to where it is now; None where it cannot be. One that grew meanwhile was written and is
    left alone."""
    try:
        place = value.tell()
    except (OSError, ValueError):
        return None
    size = _written_size(value)
    return lambda: value.seek(place) if _written_size(value) == size else None


def _is_packed(value: Any) -> bool:
    """Whether a file is unpacked as it is read: of ``gzip``, ``bz2`` or ``lzma``."""
    kinds = (("gzip", "GzipFile"), ("bz2", "BZ2File"), ("lzma", "LZMAFile"))
    return (type(value).__module__, type(value).__name__) in kinds


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


# ---- taken_items -----------------------------------------------------------------------------------------------------
# What timed code took from the user's own iterators, without using them up: nobody can give it back.


class TakenItems:
    """Where the generators and the iterators of the interpreter's own types stand, at one moment.

    A generator stands elsewhere if its frame is at another instruction or its variables hold other objects: one whose
    variables stay (``while True: yield x``) gives the same again, and is not told from one that nobody asked.
    """

    def __init__(self, reached: Iterable[ReachedObject]) -> None:
        self._before = [(one, place) for one in reached if (place := _place(one.value)) is not None]

    def doubts(self, told: Collection[str], *, restore: bool) -> list[Doubt]:
        """Name those that stand elsewhere now; not those used up, of which more is said, nor those ``told``."""
        names = [
            one.label
            for one, place in self._before
            if one.label not in told and is_used_up(one.value) is False and not _is_same(_place(one.value), place)
        ]
        if not names:
            return []
        listed = ", ".join(f"`{name}`" for name in names[:4]) + (f" and {len(names) - 4} more" * (len(names) > 4))
        which = "`--restore` cannot restore" if restore else "are not restored"
        text = f"Timed calls took items from {listed}, which {which}."
        action = f"Make {'it' if len(names) == 1 else 'them'} in the body, or in setup."
        return [Doubt("taken-items", text, action, {"names": names})]


def _place(iterator: Any) -> tuple[Any, ...] | None:
    """What tells where an iterator stands; None of what is none, is used up, or does not tell."""
    frame = None
    if issubclass(type(iterator), GeneratorType):
        frame = iterator.gi_frame
    elif issubclass(type(iterator), AsyncGeneratorType):
        frame = iterator.ag_frame
    elif (left := counted_left(iterator)) is not None:
        return (left,)
    return None if frame is None else (frame.f_lasti, *frame.f_locals.items())


def _is_same(now: tuple[Any, ...] | None, before: tuple[Any, ...]) -> bool:
    """Whether both hold the same objects: what they hold may have an ``==`` of its own."""
    if now is None or len(now) != len(before) or now[0] != before[0]:
        return False
    return all(one[0] == other[0] and one[1] is other[1] for one, other in zip(now[1:], before[1:], strict=True))


# ---- given_once ------------------------------------------------------------------------------------------------------
# Iterators that a cell takes from and that cannot be put back: refused before anything is taken from them.


def check_iterators(found: Found, copied: Collection[str]) -> None:
    """Refuse what a call of the cell uses up for good: a trial calls it again and again.

    An iterator that can be copied is put back where the body itself reads it by its name; one of a user's class by its
    attributes.

    Args:
        copied: names of the iterators that are put back.

    Raises:
        BodyError: one line, with the iterator by name.
    """
    by_functions = {name for function in found.functions for name in globals_read(function.__code__)}
    for one in found.items.values():
        is_put_back = one.label in copied and one.label not in by_functions
        if _gives_each_item_once(one) and not is_put_back:
            raise BodyError(
                f"--try calls the cell many times, and items taken from `{one.label}` cannot be put back: take"
                f" what you need before the cell, for example `x = next({one.label})`"
            )


def _gives_each_item_once(one: ReachedObject) -> bool:
    kind = type(one.value)
    is_iterator = any("__next__" in vars(base) or "__anext__" in vars(base) for base in kind.__mro__)
    if not is_iterator or issubclass(kind, (io.IOBase, type)) or own_attributes(one.value) is not None:
        return False
    return not is_cursor(one.value)  # the body gives it a statement
