"""Does code do its work only in its first call? What that call used up, or kept for the calls after it."""

from __future__ import annotations

import functools
import statistics
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FunctionType, MappingProxyType, ModuleType
from typing import Any, ClassVar

from torchbench_magic.process.code import globals_read
from torchbench_magic.process.dynamo import frames_given
from torchbench_magic.process.machine import cache_flusher
from torchbench_magic.process.reach import Found, ReachedObject, own_attributes, search, texts_used
from torchbench_magic.results import Doubt

from .changes import Growth, InputCopies, Sizes, Streams, Supplies, TensorVersions
from .isolation import ABSENT, Holder, SharedState, SwitchScope, scope_of
from .iterators import (
    QueueWaits,
    TakenItems,
    WatchedCall,
    at_end,
    is_cursor,
    is_used_up,
    next_codes,
    rewinder,
    written_size,
)
from .plan import Plan
from .restore import Unrestored, changes_undone, is_numpy_array, kept_copies, not_restored, numbers_held
from .timed_loop import FAILED, Block, BlockRequest, Steps, Timeable

__all__ = [
    "LONG_NS",
    "SHORT_NS",
    "SLOWER",
    "SetOnce",
    "is_slow_again",
    "Once",
    "watched",
    "WatchedObjects",
]

# ---- kept_results ----------------------------------------------------------------------------------------------------
# Results that the first call of a body keeps for the calls after it, and whether it did its work for them.
#
# Known here is what the first call set, and no later call set anew, in variables of functions (``if cache is None:
# cache = f()``), attributes of classes, modules and functions, and slots; `Once` has dicts, lists and
# attributes of instances. A flag that every call sets to one value looks the same. So the body is called once more from
# the values before: it did its work there only if that call is slow again, and nothing was imported or compiled in it.

SLOWER = 2.0
"""A call from the state before the first one that takes so many times as long as a later one did its work once."""
LONG_NS, SHORT_NS, TINY_NS = 5e9, 1e8, 1e6
"""A first call above LONG_NS is not made a second time; one below SHORT_NS is made five times, one below TINY_NS
fifteen times: single calls of some 100 ns differ twofold from one to the next."""
AGAIN_NS = 1e9
"""One below it is made twice: on a busy core calls of 10 to 300 ms differ twofold too."""
READING_NS = 50.0
"""What two readings of one clock may be apart by themselves."""

_MOST_ITEMS = 100_000
_PLAIN = frozenset(("builtins", "collections"))
"""Modules of the dicts that are looked at as such."""
_CODE = (ModuleType, FunctionType, BuiltinFunctionType, type)
"""What an import or a compilation leaves is no result."""

Place = tuple[int, str]
"""Id of a holder, and the key there."""


class SetOnce:
    """Watches the places that one alternative may keep a result in. It holds values until `forget`.

    Args:
        scope: what the alternative reads and sets; None watches nothing.
        left_out: ids of holders that are looked at elsewhere.
        reads: what the alternative reaches, for dicts of users' classes among it.
    """

    def __init__(
        self,
        scope: SwitchScope | None = None,
        left_out: Collection[int] = (),
        reads: Mapping[int, ReachedObject] = MappingProxyType({}),
    ) -> None:
        self._holders: dict[int, tuple[Holder, frozenset[str] | None]] = {
            at: (_OfDictSubclass(item.value, item.label), None)
            for at, item in reads.items()
            if issubclass(type(item.value), dict) and type(item.value).__module__ not in _PLAIN
        }
        if scope is not None:
            self._holders |= {
                at: (holder, scope.keys[at])
                for at, holder in scope.holders.items()
                if holder.is_put_back and at not in left_out and at not in self._holders
            }
        self._before = self._now()
        self._after: dict[Place, Any] = {}

    def _now(self) -> dict[Place, Any]:
        return {(at, key): value for at, (holder, keys) in self._holders.items() for key, value in holder.items(keys)}

    def bound(self) -> dict[str, Any]:
        """Label -> what is there now, of all places."""
        return {self._holders[at][0].label(key): value for (at, key), value in self._now().items()}

    def concerns(self, place: Place) -> bool:
        """Whether the alternative may find there what another one keeps."""
        _, keys = self._holders.get(place[0], (None, frozenset[str]()))
        return keys is None or place[1] in keys

    def begin(self) -> None:
        """The first call begins."""
        self._before = self._now()

    def end(self) -> None:
        """It has ended."""
        self._after = self._now()

    def found(self) -> dict[Place, str]:
        """Place -> label, of each value that the first call set and that is there still."""
        now = self._now()
        return {
            (at, key): self._holders[at][0].label(key)
            for (at, key), value in self._after.items()
            if self._before.get((at, key), ABSENT) is not value
            and now.get((at, key), ABSENT) is value
            and not issubclass(type(value), _CODE)
        }

    def put_first(self, places: Collection[Place]) -> None:
        """Have these as the first call found them."""
        for at, key in places:
            self._holders[at][0].put(key, self._before.get((at, key), ABSENT))

    def put_last(self, places: Collection[Place]) -> None:
        """Have those as the first call left them that no call set since."""
        now = self._now()
        for place in places:
            if now.get(place, ABSENT) is self._before.get(place, ABSENT):
                self._holders[place[0]][0].put(place[1], self._after[place])

    def forget(self) -> None:
        """Let go of the values: a tensor that is held here would be memory of the code's."""
        self._before, self._after = {}, {}


@dataclass(frozen=True)
class _OfDictSubclass:
    """The items of a dict of a user's class (``__missing__``), read and put by ``dict`` itself."""

    held: dict[Any, Any]
    name: str
    is_put_back: ClassVar[bool] = True
    is_global: ClassVar[bool] = False

    def items(self, keys: frozenset[str] | None) -> Iterator[tuple[str, Any]]:
        if dict.__len__(self.held) <= _MOST_ITEMS:
            yield from list(dict.items(self.held))

    def put(self, key: str, value: Any) -> None:
        if value is ABSENT:
            dict.pop(self.held, key, None)
        else:
            dict.__setitem__(self.held, key, value)

    def label(self, key: str) -> str:
        return self.name


def is_slow_again(
    put_back: Sequence[Callable[[], object]],
    block: Timeable,
    first_ns: float,
    fixed_ns: float,
    explaining: Callable[[], object],
) -> Steps[tuple[bool, int]]:
    """Whether calls from the state before the first one take longer, every one of them, than calls after these usually
    do; and the calls made.

    Args:
        put_back: what brings the state back.
        first_ns: how long the first call took.
        fixed_ns: of the clocks and the synchronisation, in each reading.
        explaining: a value that is another one where a call imported or compiled something.
    """
    fresh: list[float] = []
    later: list[float] = []
    made = 0
    for _ in range(15 if first_ns < TINY_NS else 5 if first_ns < SHORT_NS else 2 if first_ns < AGAIN_NS else 1):
        for put in put_back:
            put()
        before = explaining()
        readings = []
        for _ in range(2):
            readings.append((yield BlockRequest(block, 0, 1, is_tried=True)))
            made += 1
        if FAILED in readings or explaining() != before:
            return False, made
        for times, (wall, _) in zip((fresh, later), readings, strict=True):
            times.append(wall - fixed_ns)
        shortest, usual = min(fresh), statistics.median(later)
        if shortest < SLOWER * max(min(later), 1.0):
            return False, made  # one call from there that is short tells enough
    return shortest >= SLOWER * usual and shortest - usual >= READING_NS, made


# ---- only_first_call -------------------------------------------------------------------------------------------------
# Does a body do its work only in its first call? What that call used up, or kept for the calls after it.
#
# Known for sure are an iterator's own state (of one written in Python: whether it still gives a call anything) and the
# hits and misses of ``functools`` caches. For what the first call left changed in dicts, lists, sets, attributes,
# variables of functions (`SetOnce`) and the place in a file, the body is called once more from the state before:
# only if it is slow again, it did its work there. Of what shows no items, as a ``queue.SimpleQueue``, it is known that
# a longer first call left it empty. A first call that is many times slower is by itself no sign: ordinary ops of torch
# take 2 to 3 800 times as long the first time (at most 67 ms where nothing is imported, of 45 kinds of ops, each in a
# fresh process; an import took 1.5 s).

LOOK_UP = 0.5e-6
"""Seconds that a look-up in a ``functools`` cache takes at most (60 to 150 ns with plain arguments, and several times
that on a slow machine): a call that is not longer than its look-ups does nothing else."""
START_S, START_TIMES = 1.0, 1000.0
"""A first call that nothing explains: fifteen times the longest of an ordinary op without an import."""

_EXECUTE = {"execute", "executemany", "executescript"}

Reach = Callable[[str], Found]


@dataclass
class _First:
    """What is known of one alternative's first call."""

    wall_ns: float = 0.0
    is_explained: bool = False
    before: dict[int, Any] = field(default_factory=dict)
    after: dict[int, Any] = field(default_factory=dict)
    misses: int = 0
    caches: dict[int, tuple[int, int]] = field(default_factory=dict)
    looked_up: dict[str, float] = field(default_factory=dict)
    kept_in: list[tuple[str, str]] = field(default_factory=list)
    ran_out: list[str] = field(default_factory=list)
    had: dict[int, int] = field(default_factory=dict)
    emptied: list[str] = field(default_factory=list)
    set_once: SetOnce = field(default_factory=SetOnce)
    kept_at: dict[Place, str] = field(default_factory=dict)
    growth: Growth = field(default_factory=lambda: Growth({}))
    ended: frozenset[int] = frozenset()  # files that are at their end after it


class Once:
    """Watches what the alternatives of one run reach.

    Args:
        names: of the alternatives.
        reach: name -> what that alternative reaches now.
        scope: name, what it reaches -> where it may set a switch, or keep a result; None looks at none of it.
        put_back: ids of files and containers that are put back before each call.
        before_all: the bodies are run before their first timed call (``--check``): compare with the state now.

    Attributes:
        waits: queues that calls may run dry. Set by whoever knows the blocks.
        rewritten: labels of what every call writes and is put back before each block: it looks as the first call left
            it, and is no result that was kept. Set by whoever puts it back.
    """

    def __init__(
        self,
        names: tuple[str, ...] = (),
        reach: Reach = lambda name: Found({}),
        scope: Callable[[str, Found], SwitchScope] | None = None,
        put_back: Collection[int] = (),
        before_all: bool = False,
    ) -> None:
        self._reach, self._before_all = reach, before_all
        self.waits = QueueWaits({}, {}, {})
        self.rewritten: Collection[str] = ()
        found = {name: reach(name) for name in names}
        self._reads = {name: one.items for name, one in found.items()}
        everything = {at: one for reads in self._reads.values() for at, one in reads.items()}
        self._iterators = {at: used for at, one in everything.items() if (used := is_used_up(one.value)) is not None}
        files = {at: one.value for at, one in everything.items() if at not in put_back}
        self._files = {at: (end, rewinder(f)) for at, f in files.items() if (end := at_end(f)) is not None}
        self._sizes = {at: written_size(files[at]) for at in self._files}
        self._after_first: dict[int, bool] = {}
        self._put_back = put_back
        scopes = {name: scope(name, one) for name, one in found.items()} if scope is not None else {}
        self._first = {name: _first_of(reads, scopes.get(name)) for name, reads in self._reads.items()}
        self._switches = SharedState(scopes if len(names) > 1 else {})

    def before_first(self, name: str) -> None:
        """Note the state that the first call of an alternative finds."""
        if name in self._first:
            one = self._first[name]
            one.before = one.before if self._before_all else kept_copies(self._reads[name])
            one.misses = sum(misses for _, misses in _caches(self._reads[name]).values())
            one.is_explained = False
            one.had = numbers_held(self._reads[name])
            one.growth.note()
            if not self._before_all:
                one.set_once.begin()
            self._work = _explaining()
            self._switches.begin()
            self.waits.begin(name)

    def after_first(self, name: str, wall_ns: float) -> None:
        """Note the state that it leaves, and how long it took."""
        if name in self._first:
            one = self._first[name]
            one.wall_ns, one.after = wall_ns, kept_copies(self._reads[name])
            one.misses = sum(misses for _, misses in _caches(self._reads[name]).values()) - one.misses
            one.is_explained = _explaining() != self._work
            one.growth.note(1)
            one.set_once.end()
            self.waits.end(name)
            files = self._files.keys() & self._reads[name].keys()
            one.ended = frozenset(at for at in files if at_end(self._reads[name][at].value))
            left = numbers_held(self._reads[name])
            one.had = {at: number for at, number in one.had.items() if number and not left[at]}
            self._switches.end(name)
            for at in self._iterators:
                if at in self._reads[name]:
                    self._after_first[at] = bool(is_used_up(self._reads[name][at].value))

    def warming(self, name: str) -> None:
        """The warm-up of an alternative begins."""
        if name in self._first:
            self._first[name].caches = _caches(self._reads[name])
            self._first[name].growth.note()
            self._switches.begin()

    def warmed(self, name: str, block: Timeable, calls: int, call_ns: float, fixed_ns: float) -> Steps[int]:
        """It has ended: see what changed in the first call only, and try a call from the state before it.

        Returns:
            How many calls this took.
        """
        if name not in self._first:
            return 0
        self._switches.end(name)
        one = self._first[name]
        one.growth.note(calls)
        more = yield from self._try_switches(name, block, call_ns)
        more += yield from self._watch_iterators(name, block, call_ns)
        for at, (hits, misses) in _caches(self._reads[name]).items():
            was = one.caches.get(at, (hits, misses))
            if misses == was[1] and hits > was[0]:
                one.looked_up[self._reads[name][at].label] = (hits - was[0]) / calls
        one.emptied = self._emptied(name, call_ns)
        more += yield from self._kept(name, block, call_ns, fixed_ns)
        one.set_once.forget()
        return more

    def _kept(self, name: str, block: Timeable, call_ns: float, fixed_ns: float) -> Steps[int]:
        """See whether the first call did its work for what it left changed; the calls that this took."""
        one = self._first[name]
        undone = [(found, put_back) for found, put_back in self._undone(name) if not self._ran_out(name, found[1])]
        places = {at: label for at, label in one.set_once.found().items() if label not in self.rewritten}
        if not (undone or places) or one.wall_ns < SLOWER * call_ns:
            return 0
        calls = 0
        if one.wall_ns > LONG_NS:
            is_slow = one.wall_ns > 10 * call_ns and not one.is_explained
        else:
            put_back = [put for _, put in undone] + [functools.partial(one.set_once.put_first, places)]
            is_slow, calls = yield from is_slow_again(put_back, block, one.wall_ns, fixed_ns, _explaining)
            one.set_once.put_last(places)
        if is_slow:
            one.kept_at = places
            labels = dict.fromkeys(places.values())
            one.kept_in = [*(found for found, _ in undone), *(("memo", label) for label in labels)]
        return calls

    def _try_switches(self, name: str, block: Timeable, call_ns: float) -> Steps[int]:
        """Call an alternative once with the switches as setup left them that it may set itself; the calls made."""
        keys = self._switches.to_try(name)
        if not keys or call_ns > LONG_NS:
            return 0
        before = self._switches.put_first(keys)
        yield BlockRequest(block, 0, 1, is_tried=True)
        self._switches.tried(name, before)
        return 1

    def _watch_iterators(self, name: str, block: Timeable, call_ns: float) -> Steps[int]:
        """Call an alternative once: do iterators written in Python still give it anything? The calls made."""
        codes = {at: code for at, code in next_codes(self._reads[name]).items() if at not in self._iterators}
        if not codes or call_ns > LONG_NS:
            return 0
        watched_call = WatchedCall(block, codes)
        yield BlockRequest(watched_call, 0, 1)
        self._first[name].ran_out = [self._reads[name][at].label for at in codes if at in watched_call.used_up]
        return 1

    def _ran_out(self, name: str, label: str) -> bool:
        """Whether a label is of an attribute of an iterator that is used up, as its place in what it reads is."""
        return any(label.startswith(f"{iterator}.") for iterator in self._first[name].ran_out)

    def _emptied(self, name: str, call_ns: float) -> list[str]:
        """Labels of what the first call, a longer one, left empty and is empty still."""
        one, reads = self._first[name], self._reads[name]
        if one.wall_ns < SLOWER * call_ns:
            return []
        now = numbers_held({at: reads[at] for at in one.had})
        return [reads[at].label for at in one.had if not now[at] and at not in self._put_back]

    def _undone(self, name: str) -> list[tuple[tuple[str, str], Callable[[], object]]]:
        """((how, label), what undoes it) of each change that the first call made and that no later call made again."""
        one = self._first[name]
        found = changes_undone(one.before, one.after, self._reads[name], self._put_back, self.rewritten)
        for at, (ended, back) in self._files.items():
            if at in one.ended and not ended and back is not None and at_end(self._reads[name][at].value):
                found.append((("file", self._reads[name][at].label), back))
        return found

    def found(self, name: str, times: Sequence[float]) -> tuple[tuple[str, str], ...]:
        """(how, label) of each thing that leaves nothing to do for calls that take these times, in nanoseconds.

        ``how``: an iterator used up by the "first" call, "before" it, "later" or ("used") at some time before the timed
        calls; a "file" read to its end; a "cache" of ``functools``; a "memo" that the first call filled; a container
        that it "emptied", made "shorter" or put in another order ("changed"), one that shows no items and that it left
        "empty", or one that was "drained" later; what "grows" (as "state" of a training, or "bound" anew by
        functions) or "shrinks" with every call; a switch,
        "shared" or "global", as another alternative had set it; the "start": a first call that nothing explains.
        """
        if name not in self._first or not times:
            return ()
        one, median = self._first[name], statistics.median(times) / 1e9
        said: list[tuple[str, str]] = []
        reached = self._reach(name)
        for at, item in reached.items.items():
            if at not in self._iterators or item.value is not self._value(at) or not is_used_up(item.value):
                continue
            if is_cursor(item.value) and (self._iterators[at] or _EXECUTE & reached.mentioned):
                continue  # the body gives it a statement
            if not self._iterators[at]:
                said.append(("first" if self._after_first.get(at) else "later", item.label))
            elif item.direct:
                said.append(("before", item.label))
        said += [("used", label) for label in one.ran_out]
        said += self._switches.inherited(name)
        said += one.kept_in
        said += [("empty", label) for label in one.emptied]
        if "seek" not in reached.mentioned:
            said += [found for found in self._read_to_end(name, median) if found not in said]
        said += [
            (how, label)
            for how, label in self._drained(name) + one.growth.found(times)
            if label not in {n for _, n in said}
        ]
        said += [found for found in self._shared(name) if found not in said]
        for label, hits in one.looked_up.items():
            was_slow = one.misses and one.wall_ns > SHORT_NS / 10 and one.wall_ns / 1e9 > 100 * median
            if median <= LOOK_UP * hits or (was_slow and not one.is_explained):
                said.append(("cache", label))
        if not said and one.wall_ns / 1e9 >= max(START_S, START_TIMES * median) and not one.is_explained:
            said.append(("start", name))
        return tuple(said)

    def _read_to_end(self, name: str, median: float) -> list[tuple[str, str]]:
        """Files that are at their end and were not before the first call, of code that does not seek.

        Where the first call came to the end, calls that are as short as a look-up read nothing of them. (The first read
        of a whole ``BytesIO`` copies nothing: it is as short.) Else later ones did, and those after them read nothing.
        """
        ended = self._first[name].ended
        files = {at: item for at, item in self._reads[name].items() if at in self._files and not self._files[at][0]}
        unwritten = [item for at, item in files.items() if written_size(item.value) == self._sizes[at]]
        there = [(id(item.value) in ended, item) for item in unwritten if at_end(item.value)]
        return [("file" if first else "later", item.label) for first, item in there if not first or median <= LOOK_UP]

    def _drained(self, name: str) -> list[tuple[str, str]]:
        """Containers that calls of an alternative emptied bit by bit: shorter after the first, empty in the end."""
        one, reads = self._first[name], self._reads[name]
        held = {at: after for at, after in one.after.items() if at in one.before and not is_numpy_array(after)}
        shrunk = [at for at, after in held.items() if 0 < len(after) < len(one.before[at])]
        return [
            ("drained", reads[at].label)
            for at in shrunk
            if own_attributes(reads[at].value) is None and at not in self._put_back and not len(reads[at].value)
        ]

    def _value(self, at: int) -> Any:
        return next((found[at].value for found in self._reads.values() if at in found), None)

    def _shared(self, name: str) -> list[tuple[str, str]]:
        """What another alternative filled that this one reaches too, so that its own first call found it filled."""
        labels = {item.label for item in self._reads[name].values()}
        others = [one for other, one in self._first.items() if other != name]
        places = {at: label for one in others for at, label in one.kept_at.items()}
        found = [one for other in others for one in other.kept_in if one[1] in labels]
        concerned = (label for at, label in places.items() if self._first[name].set_once.concerns(at))
        return found + [("memo", label) for label in dict.fromkeys(concerned)]


def watched(
    names: Iterable[str],
    blocks: Sequence[Block],
    namespace: dict[str, Any],
    plan: Plan,
    inputs: InputCopies | None,
    others: Iterable[dict[str, Any]] = (),
) -> Once:
    """What watches these blocks over ``namespace``; iterators, files and containers join the ``inputs``
    that are put back, in ``others`` too: the names of blocks that have their own.

    With several calls in a block they cannot be put back before each, and are not.
    """
    by_name = dict(zip(names, blocks, strict=True))
    if inputs is not None and plan.number in (None, 1):
        read = {name for block in blocks for name in block.inputs}
        inputs.streams = Streams(read - {name for block in blocks for name in block.kept}, namespace, *others)

    codes = {name: block.replicas[0].__code__ for name, block in by_name.items()}

    def reach(name: str) -> Found:
        return search(by_name[name].inputs, {*by_name[name].names, *texts_used(codes[name])}, namespace)

    def scope(name: str, found: Found) -> SwitchScope:
        return scope_of(found, [codes[name]], by_name[name].names, namespace)

    put_back = inputs.streams.put_back if inputs is not None and inputs.streams is not None else ()
    once = Once(tuple(by_name), reach, scope, put_back, before_all=bool(plan.check))
    once.waits = QueueWaits({name: reach(name).items for name in by_name}, by_name, namespace)
    return once


def _first_of(reads: Mapping[int, ReachedObject], scope: SwitchScope | None) -> _First:
    """What is watched of an alternative's first call."""
    before = kept_copies(reads)
    copied = [reads[at].value for at in before]
    left_out = {id(value if (held := own_attributes(value)) is None else held) for value in copied}
    set_once = SetOnce(scope, left_out, reads)
    return _First(before=before, set_once=set_once, growth=Growth(reads, set_once.bound))


def _caches(reads: Mapping[int, ReachedObject]) -> dict[int, tuple[int, int]]:
    """Id -> (hits, misses) of each ``functools.lru_cache`` among these."""
    found = {}
    for at, item in reads.items():
        if issubclass(type(item.value), functools._lru_cache_wrapper):
            info = item.value.cache_info()
            found[at] = (info.hits, info.misses)
    return found


def _explaining() -> tuple[int, int]:
    """What grows where a first call imports or compiles: modules, frames that torch.compile was given."""
    return len(sys.modules), frames_given()


# ---- watched_objects -------------------------------------------------------------------------------------------------
# The objects that the code of a run reads: what is noted of them, and what is put back before a block.


class WatchedObjects:
    """Notes the state of what the code reads, as setup left it.

    Args:
        plan: whether tensors are put back, and caches emptied, before a block.
        used: names that the code uses, of ``names``.
        functions: of the notebook, that it may call.

    Attributes:
        versions: in-place versions of the tensors.
        sizes: of the containers.
        supplies: what calls may use up.
        inputs: what is put back with ``plan.restore``; None without.
        once: what only the first call does. Set by whoever knows the blocks.
        readers: variable -> the alternatives that may read it, likewise; of one that is not there nobody knows.
        rebound: alternative -> as `rebound_names` and `shadowed_names`, likewise.
    """

    def __init__(
        self,
        plan: Plan,
        used: Iterable[str] = (),
        names: Mapping[str, Any] | None = None,
        functions: Iterable[FunctionType] = (),
    ) -> None:
        names, used = names or {}, set(used)
        functions = list(functions)
        reached = search(used, used, names).items
        held = [(one.label, one.value) for one in reached.values()]
        self.versions = TensorVersions(used, names, functions, held)
        self.sizes = Sizes(used, names)
        self._taken = TakenItems(reached.values())
        self.supplies = Supplies(held, self.versions.held.tensors.values())
        self.inputs = InputCopies(self.versions.held) if plan.restore else None
        homes = [(name, f.__globals__) for f in functions for name in globals_read(f.__code__)]
        self._unrestored = Unrestored(reached, homes) if plan.restore else None
        self.once = Once()
        self.readers: Mapping[str, Collection[str]] = {}
        self.rebound: Mapping[str, tuple[tuple[str, str], ...]] = {}
        self._flush = cache_flusher() if plan.cold else None

    @property
    def before_block(self) -> Callable[[], None] | None:
        """What must run before each block; None where nothing must."""
        return self._before_block if self.inputs is not None or self._flush is not None else None

    @property
    def has_streams(self) -> bool:
        """Iterators and the like are put back: a second call of one block would find them used up."""
        return self.inputs is not None and bool(self.inputs.streams)

    def restore(self, *, is_last: bool = False) -> None:
        """Put back whatever was changed, with ``plan.restore``."""
        if self.inputs is not None:
            self.inputs.restore_all(is_last=is_last)

    def not_restored(self, told: Collection[str] = ()) -> list[Doubt]:
        """Say what changed and was not put back, without what is ``told`` otherwise. After the last block."""
        taken = self._taken.doubts(told, restore=self.inputs is not None)
        if self.inputs is None or self._unrestored is None:
            return taken
        state = self.inputs.state
        labels = [*state.unrestored, *self._unrestored.changed(state.held.holders.keys())]
        return taken + not_restored([label for label in labels if label not in told], state.late, state.shapeless)

    def _before_block(self) -> None:
        if self.inputs is not None:
            self.inputs.restore()
        if self._flush is not None:
            self._flush()
