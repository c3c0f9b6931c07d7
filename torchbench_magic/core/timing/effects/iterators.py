"""Is an iterator used up, a file at its end? Nothing is ever taken from the user's object.

It is told from the state of the interpreter's own kinds. What one written in Python holds tells nothing: it may be used
up and still count its calls. So the body is called once more with a trace function (``sys.settrace``) that looks at
``__next__`` and ``__anext__`` of these objects only; those that ended without giving one item are used up. Classes of
users are meant, and those of libraries (``csv.DictReader``).
"""

from __future__ import annotations

import copy
import gc
import io
import itertools
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import AsyncGeneratorType, CodeType, CoroutineType, FrameType, FunctionType, GeneratorType
from typing import Any

from torchbench_magic.core.code.reached_objects import ReachedObject
from torchbench_magic.core.code.timed_loop import BlockAround, Timeable
from torchbench_magic.core.process.held_interrupts import interrupts_held, interrupts_let_through

from ...machine.clocks import Clocks

__all__ = [
    "WatchedCall",
    "at_end",
    "counted_left",
    "is_cursor",
    "is_used_up",
    "next_codes",
    "rewinder",
    "second_copy",
    "written_size",
]

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
    return int(value.__length_hint__()) if type(value) in _COUNTED else None


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
    """Whether it is a cursor of sqlite3."""
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


def written_size(value: Any) -> int | None:
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
    size = written_size(value)
    return lambda: value.seek(place) if written_size(value) == size else None


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


def next_codes(reads: Mapping[int, ReachedObject]) -> dict[int, CodeType]:
    """Id -> code of ``__next__`` or ``__anext__``, of each object among these whose class defines it in Python."""
    found = {}
    for at, item in reads.items():
        for base in type(item.value).__mro__:
            method = next((vars(base)[name] for name in ("__next__", "__anext__") if name in vars(base)), None)
            if method is not None:
                if issubclass(type(method), FunctionType) and method.__code__.co_argcount:
                    found[at] = method.__code__
                break
    return found


@dataclass
class WatchedCall(BlockAround):
    """A block that is run under a trace function, see above.

    Attributes:
        block: what is run.
        codes: id -> code, of `next_codes`.
        gave, ended: ids of the iterators that gave an item, and that raised StopIteration.
    """

    block: Timeable
    codes: Mapping[int, CodeType]
    gave: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._watched = frozenset(self.codes.values())

    @property
    def used_up(self) -> set[int]:
        """Ids of the iterators that ended and gave nothing."""
        return self.ended - self.gave

    def start(self, replica: int, calls: int, clocks: Clocks, sync: Any) -> Any:
        """As the block's own; its times are not to be used."""
        if self.is_async:
            return self._awaited(replica, calls, clocks, sync)
        with self._traced(), interrupts_let_through((__name__,)):
            return self.block.start(replica, calls, clocks, sync)

    async def _awaited(self, replica: int, calls: int, clocks: Clocks, sync: Any) -> Any:
        with self._traced(), interrupts_let_through((__name__,)):
            return await self.block.start(replica, calls, clocks, sync)

    @contextmanager
    def _traced(self) -> Iterator[None]:
        before = sys.gettrace()
        with interrupts_held():
            sys.settrace(self._called)
            try:
                yield
            finally:
                sys.settrace(before)

    def _called(self, frame: FrameType, event: str, _: Any) -> Any:
        """The trace function of all frames: a local one for those that are looked at, none for the others."""
        if event != "call" or frame.f_code not in self._watched:
            return None
        at = id(frame.f_locals.get(frame.f_code.co_varnames[0]))
        if at not in self.codes:
            return None
        frame.f_trace_lines = False
        return _Next(self, at).seen


class _Next:
    """What one call of ``__next__`` comes to."""

    def __init__(self, call: WatchedCall, at: int) -> None:
        self._call, self._at, self._raised = call, at, False

    def seen(self, frame: FrameType, event: str, value: Any) -> Any:
        """The trace function of its frame; a return of None after an exception is the exception leaving."""
        if event == "exception":
            self._raised = issubclass(value[0], (StopIteration, StopAsyncIteration))
        elif event == "return" and value is None and self._raised:
            self._call.ended.add(self._at)
        elif event == "return":  # a coroutine that waits "returns" too: then it counts as one that gave something
            self._call.gave.add(self._at)
        return self.seen
