"""Alternatives kept apart: settings and switches that one sets and another may run with, read and put back."""

from __future__ import annotations

import contextlib
import dis
import enum
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

from torchbench_magic import units
from torchbench_magic.process.code import codes_within, names_by
from torchbench_magic.process.frame_owner import is_users_class
from torchbench_magic.process.reach import ATTRIBUTES, Found, ReachedObject, dict_of, is_users_module
from torchbench_magic.process.settings import ProcessState, Role, StateKind, in_words
from torchbench_magic.process.static_introspection import ABSENT, asked, is_module, is_plain_tensor
from torchbench_magic.result_base import Doubt

from .blocks import Block, BlockRequest, Steps, Timeable
from .written_objects import Keyed, always, of_class, of_dict, of_function, places_of

# ---- switches --------------------------------------------------------------------------------------------------------
# Where code may set a switch that other code runs with, how each is read and put back.
#
# Places are the attributes of modules (``nn.Module``), of users' objects, classes and Python modules, the keys of
# dicts, the globals and the variables of enclosing functions that users' functions read or bind, and whatever attribute
# a text assigns by its whole name (``F.relu = mine``). All are read as they are held, in dicts, slots and cells: no
# property, no descriptor and no ``__getattr__`` of the user's is run.

OPAQUE = object()
"""There is something that is no switch."""
_MOST_KEYS = 1_000
_LONGEST_TUPLE = 8
LONG_NS = 5e9
"""A call above it is not made once more only to look."""


@dataclass
class SwitchScope:
    """Where code may read or set a switch.

    Attributes:
        mentioned: names and short texts in it.
        holders: `Keyed.at` of a place -> the place.
        keys: the same -> the keys there that concern it; None is all of them.
    """

    mentioned: frozenset[str] = frozenset()
    holders: dict[int, Keyed] = field(default_factory=dict)
    keys: dict[int, frozenset[str] | None] = field(default_factory=dict)

    def add(self, place: Keyed, of: Iterable[str] | None = None) -> None:
        former = self.keys.get(place.at, frozenset())
        self.holders.setdefault(place.at, place)
        self.keys[place.at] = None if of is None or former is None else former | frozenset(of)


def scopes_of(found: Mapping[str, Found], blocks: Iterable[Block], namespace: dict[str, Any]) -> dict[str, SwitchScope]:
    """The scope of each alternative. What others assign in libraries belongs to it, too: a class or a module of one may
    concern all code, an instance concerns code that reaches it.
    """
    of_block = dict(zip(found, blocks, strict=True))
    assigned = [
        (name, *each)
        for name, block in of_block.items()
        for code, home in [
            (block.replicas[0].__code__, namespace),
            *((function.__code__, function.__globals__) for function in found[name].functions),
        ]
        for each in _assigned(code, home)
    ]
    scopes = {name: _scope_of(found[name], block.names, namespace) for name, block in of_block.items()}
    for name, scope in scopes.items():
        for by, value, place, key in assigned:
            if by == name or place.is_global or id(value) in found[name].items:
                scope.add(place, (key,))
    return scopes


def _scope_of(found: Found, names: Iterable[str], namespace: dict[str, Any]) -> SwitchScope:
    scope = SwitchScope(found.mentioned)
    for item in found.items.values():
        for place in (*_of_torch(item), *places_of(item)):
            if isinstance(place, Keyed) and not (place.is_container and dict.__len__(place.held) > _MOST_KEYS):
                scope.add(place, found.mentioned if is_users_module(item.value) else None)
    scope.add(of_dict("", None, namespace, always, is_global=True), names)
    for function in found.functions:
        concern = names_by(function.__code__, "LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL")
        scope.add(of_dict("", None, function.__globals__, always, is_global=True), concern)
        for place in of_function(function):
            scope.add(place)
    return scope


def _of_torch(item: ReachedObject) -> Iterator[Keyed]:
    """Of a tensor, and of a module (those within it are reached by themselves): what it is made of, whether it trains,
    its configuration."""
    value, label = item.value, item.label
    if is_plain_tensor(value):
        yield _of_tensors(label, value, {"": value})
    if not is_module(value):
        return
    inside = vars(value)
    is_users = any(map(is_users_class, type(value).__mro__))
    yield of_dict(f"{label}.", value, inside, always if is_users else lambda name: name[:1] != "_")
    if parameters := inside.get("_parameters"):
        yield _of_tensors(label, parameters, parameters)
    held = dict_of(inside.get("config"))
    if type(held) in ATTRIBUTES:
        yield of_dict(f"{label}.config.", inside["config"], held, always)


def _of_tensors(label: str, held: Any, tensors: Mapping[str, Any]) -> Keyed:
    """Dtype, device, ``requires_grad`` and memory format of tensors; a cast cannot be undone, so these are not put
    back."""

    def read() -> dict[str, Any]:
        there = [(f"{label}.{name}".rstrip("."), tensor) for name, tensor in [*tensors.items()] if tensor is not None]
        kept = ("dtype", "device", "requires_grad")
        strides = {f"{at}.stride()": asked(tensor.stride, otherwise=None) for at, tensor in there}
        return {f"{at}.{what}": getattr(tensor, what) for at, tensor in there for what in kept} | strides

    return Keyed(label, held, str, read, None)


# ---- what code assigns by its whole name -----------------------------------------------------------------------


def _assigned(code: CodeType, home: Mapping[str, Any]) -> Iterator[tuple[Any, Keyed, str]]:
    """(object, where it holds them, attribute) of each ``a.b.c = ...`` in code, as far as it can be looked up
    without running any."""
    for chain in _chains(code):
        value = home.get(chain[0])
        for name in chain[1:-1]:
            value = _held(value).get(name) if value is not None else None
        if value is None or is_users_class(value if issubclass(type(value), type) else type(value)):
            continue  # users' classes and their instances are looked at as a whole
        label = ".".join(chain[:-1])
        if issubclass(type(value), type):
            yield value, of_class(value, always), chain[-1]
        elif type(held := _held(value)) in ATTRIBUTES:
            is_global = issubclass(type(value), ModuleType)
            yield value, of_dict(f"{label}.", value, held, always, is_global=is_global), chain[-1]


def _held(value: Any) -> Any:
    return vars(value) if issubclass(type(value), type) else dict_of(value) or {}


def _chains(code: CodeType) -> Iterator[tuple[str, ...]]:
    chain: tuple[str, ...] = ()
    for instruction in (each for part in codes_within(code) for each in dis.get_instructions(part)):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            chain = (instruction.argval,)
        elif instruction.opname == "LOAD_ATTR" and chain:
            chain += (instruction.argval,)
        elif instruction.opname == "STORE_ATTR" and chain:
            yield (*chain, instruction.argval)
            chain = ()
        else:
            chain = ()


# ---- values --------------------------------------------------------------------------------------------------------


def token(value: Any) -> object:
    """What tells two settings of a switch apart; OPAQUE where a value is no setting but data."""
    kind: Any = type(value)
    if value is None or value is ABSENT or kind is bool or kind is str:
        return value
    if kind in (int, float, complex, bytes):
        return kind, value
    if kind is FunctionType:
        return value.__code__
    if kind is tuple:
        inner = tuple(token(one) for one in value) if len(value) <= _LONGEST_TUPLE else (OPAQUE,)
        return OPAQUE if OPAQUE in inner else (kind, inner)
    if issubclass(kind, (enum.Enum, type, BuiltinFunctionType)):
        return kind, id(value)
    if kind.__module__ == "torch" and kind.__name__ in ("dtype", "device", "layout", "memory_format"):
        return kind, str(value)
    return OPAQUE


def is_flag(one: object) -> bool:
    """Whether a token is of a flag or a word; numbers may count, and functions may be results."""
    return one is None or type(one) in (bool, str)


# ---- shared_state ----------------------------------------------------------------------------------------------------
# Switches that the alternatives share: what one sets there, another may run with.
#
# What the process has is put back between alternatives (`isolation`); what their objects, classes and modules have is
# not, since nobody knows what else belongs to it. A model that one section turns to bfloat16, or to evaluation, is so
# for all. What calls change again and again is the code's work (counters, hooks, states): a switch has, after many
# calls, the value that it had after the first.

_Key = tuple[int, str]


class SharedState:
    """Watches the switches that at least two alternatives may read or set.

    An alternative sets a switch where a call of it leaves another value than it found, or sets it again after it was
    put back as the setup left it (`tried`). Another alternative that leaves it as it is was timed in that state.

    Args:
        scopes: alternative -> where it may read or set a switch.
    """

    def __init__(self, scopes: Mapping[str, SwitchScope]) -> None:
        self._scopes, shared = scopes, SwitchScope()
        counts = Counter(at for scope in scopes.values() for at in scope.holders)
        for scope in scopes.values():
            for at, place in scope.holders.items():
                if counts[at] > 1:
                    shared.add(place, scope.keys[at])
        self._holders, self._keys = shared.holders, shared.keys
        self._first = self._now()
        self._values = {key: value for key, value in self._read() if self._first[key] is not OPAQUE}  # no data is kept
        self._found = self._last = self._first
        self._calls: dict[str, list[tuple[dict[_Key, object], dict[_Key, object]]]] = {name: [] for name in scopes}
        self._before: set[_Key] | None = None  # changed before any call was watched (``--check``), nobody knows by whom
        self._sets: dict[str, set[_Key]] = {name: set() for name in scopes}

    def _read(self) -> Iterator[tuple[_Key, object]]:
        for at, holder in self._holders.items():
            entries, keys = holder.read(), self._keys[at]
            if keys is not None:
                yield from (((at, key), entries[key]) for key in keys if key in entries)
            elif len(entries) <= _MOST_KEYS:
                yield from (((at, key), value) for key, value in entries.items() if type(key) is str)

    def _now(self) -> dict[_Key, object]:
        return {key: token(value) for key, value in self._read()}

    def begin(self) -> None:
        """Calls of an alternative begin."""
        self._found = self._now()
        if self._before is None:
            self._before = _changed(self._first, self._found)

    def end(self, name: str) -> None:
        """They have ended: the first call, then those of the warm-up."""
        self._last = self._now()
        if name in self._calls and len(self._calls[name]) < 2:
            self._calls[name].append((self._found, self._last))

    # ---- a call from the setup's values -----------------------------------------------------------------------

    def tried(self, name: str, block: Timeable, call_ns: float) -> Steps[int]:
        """The warm-up of an alternative has ended: call it once with the switches as setup left them that it may set
        itself. Note what it sets again, and have the rest as it was; the calls made."""
        self.end(name)
        keys = self._to_try(name)
        if not keys or call_ns > LONG_NS:
            return 0
        values = dict(self._read())
        before = {key: values.get(key, ABSENT) for key in keys}
        for key in keys:
            self._put(key, self._values.get(key, ABSENT), values)
        yield BlockRequest(block, 0, 1, is_tried=True)
        values = dict(self._read())
        for key, value in before.items():
            if token(values.get(key, ABSENT)) != self._first.get(key, ABSENT):
                self._sets[name].add(key)
            else:
                self._put(key, value, values)
        self._last = self._now()
        return 1

    def _to_try(self, name: str) -> list[_Key]:
        """The switches that another alternative may have set and that this one leaves as it finds them: it may set
        them itself, to the same value."""
        if name not in self._calls:
            return []
        own, others = self._moved(name), set(self._before or ())
        others = others.union(*(self._moved(other) for other in self._calls if other != name))
        return [
            key
            for key in others - own
            if self._holders[key[0]].put is not None and self._concerns(name, key, self._last.get(key, ABSENT))
        ]

    def _put(self, key: _Key, value: object, now: Mapping[_Key, object]) -> None:
        put = self._holders[key[0]].put
        if put is not None and now.get(key, ABSENT) is not value:
            put(key[1], value)

    # ---- what was found -----------------------------------------------------------------------------------------

    def inherited(self, name: str) -> list[tuple[str, str]]:
        """(how, label) of the switch that an alternative was timed with as another one had set it; at most one is
        named. ``how``: one of "shared" objects, or of a "global" thing: a class, a module, a variable."""
        if name not in self._calls or not self._holders:
            return []
        now, own = self._now(), self._moved(name) | self._sets[name]
        found = {key for other in self._calls if other != name for key in self._switched(other)} | self._late(now)
        keys = [key for key in found - own if self._concerns(name, key, now.get(key, ABSENT))]
        said = [
            ("global" if self._holders[at].is_global else "shared", self._holders[at].named(key)) for at, key in keys
        ]
        return sorted(said, key=lambda one: (len(one[1]), one))[:1]

    def _concerns(self, name: str, key: _Key, now: object) -> bool:
        """Whether an alternative may run with this switch, which is no more as the setup left it. Numbers, functions
        and what was not there before must be mentioned in its code."""
        scope, first = self._scopes[name], self._first.get(key, ABSENT)
        if key[0] not in scope.holders or now == first or OPAQUE in (now, first):
            return False
        keys = scope.keys[key[0]]
        if keys is not None:
            return key[1] in keys
        return self._holders[key[0]].put is None or (is_flag(now) and is_flag(first)) or key[1] in scope.mentioned

    def _moved(self, name: str) -> set[_Key]:
        """What calls of an alternative were seen to change."""
        found = {key for before, after in self._calls[name] for key in _changed(before, after)}
        return found | self._sets[name]

    def _switched(self, name: str) -> set[_Key]:
        """Those of them that have one value after many calls."""
        found = set(self._sets[name])
        for key in self._moved(name) - found:
            ends = [after.get(key, ABSENT) for _, after in self._calls[name]]
            is_late = ends[0] == self._calls[name][0][0].get(key, ABSENT) and is_flag(ends[-1])
            if ends[0] == ends[-1] or is_late:
                found.add(key)
        return found

    def _late(self, now: Mapping[_Key, object]) -> set[_Key]:
        """Flags that changed after the warm-up, which no alternative was seen to change before."""
        moved: set[_Key] = set().union(*(self._moved(name) for name in self._calls))
        return {key for key in _changed(self._last, now) if key not in moved and is_flag(now.get(key, ABSENT))}


def _changed(before: Mapping[_Key, object], after: Mapping[_Key, object]) -> set[_Key]:
    if before == after:
        return set()
    return {key for key in before.keys() | after.keys() if before.get(key, ABSENT) != after.get(key, ABSENT)}


# ---- isolation -------------------------------------------------------------------------------------------------------
# Alternatives kept apart: each has the process's settings to itself, as if it ran in a process of its own.
#
# Before a block of another alternative the settings that code was seen to change are exchanged, as a scheduler
# exchanges registers: those of the last one are read and kept, those of the next one are put. So a body that switches
# grad mode off goes on without grad, and the others never notice. Random generators are exchanged likewise: every
# alternative draws a stream of its own, and all streams begin with the same numbers.
#
# Grad and inference mode, dtype and threads, which are read in a quarter of a microsecond, are exchanged always, the
# others once they were seen to change: all are read after the first call of each alternative, after its warm-up, and
# every 50 ms from then on. Where one leaves gradients and another one leaves none, each finds its own: adding to them
# is other work than making them.

_ALWAYS = ("inference mode", "grad mode", "default dtype", "threads")
_SILENT = ("generator", "gradient")
"""Roles of which an alternative has its own, and nothing is said."""


def gradients_of(tensors: Sequence[Any]) -> StateKind:
    """The gradients of tensors; the same where they have, or lack, one."""

    def put(values: Sequence[Any]) -> None:
        for tensor, gradient in zip(tensors, values, strict=True):
            if (tensor.grad is None) != (gradient is None):
                with contextlib.suppress(RuntimeError):  # the tensor was cast meanwhile: `SharedState` says so
                    tensor.grad = gradient

    def same(one: Sequence[Any], other: Sequence[Any]) -> bool:
        return [each is None for each in one] == [each is None for each in other]

    read = lambda: [tensor.grad for tensor in tensors]
    return StateKind("gradients", read, put, lambda value, than: "gradients", same, role="gradient")


class Isolation:
    """The settings of the alternatives of one run. They are told apart by numbers: of their rows in the result.

    Args:
        notebook: the settings that the run found, before its setup.
        threads: torch's threads of the first call.
        more: kinds of what this run's code reaches, with the values that setup left.
    """

    def __init__(self, notebook: ProcessState, threads: int, more: Sequence[StateKind] = ()) -> None:
        self._kinds = (*notebook.kinds, *more)
        self._base = ProcessState(self._kinds)
        self._found = [*notebook.values, *self._base.values[len(notebook.values) :]]  # by the run, before its setup
        self._threads, self._collector = notebook.index("threads"), notebook.index("gc")
        self._base.values[self._threads] = threads
        self._first: list[list[Any]] = []
        self._bases: dict[int, list[Any]] = {}
        self._own: dict[int, list[Any]] = {}
        self._names: dict[int, str] = {}
        self._watched = {notebook.index(name) for name in _ALWAYS}
        self._current: int | None = None
        self._modules = len(sys.modules)
        self._changed: dict[tuple[str, int], Any] = {}  # (alternative, kind) -> the value it sets
        self._late: set[int] = set()  # kinds that changed after the warm-up
        self._is_new = False
        self._of_setup = self._differing(self._base.values, self._found)
        if self._base.modules - notebook.modules:  # they may be of the modules that it imports
            self._of_setup -= {i for i, kind in enumerate(self._kinds) if kind.role == "incidental"}

    def _differing(self, values: Sequence[Any], than: Sequence[Any]) -> set[int]:
        return {i for i, kind in enumerate(self._kinds) if not kind.same(values[i], than[i])}

    # ---- before the rounds --------------------------------------------------------------------------------

    def put_back(self, *, is_last: bool = False) -> None:
        """Have all settings as the setup left them; gradients, when all is over, as the code did."""
        left: tuple[Role, ...] = ("gradient",) if is_last else ()
        self._base.put_back(without=left)
        self._current = None
        self._modules = len(sys.modules)

    def note_first_call(self, name: str) -> None:
        """Note what the first call of the next alternative left changed; call it after `put_back` and that call."""
        self._first.append(self._read(name, self._base.values))

    def collector_is(self, is_on: bool) -> None:
        """The garbage collector is on or off from now on, for all that do not switch it themselves."""
        base, i = self._base.values, self._collector
        before, base[i] = base[i], (is_on, base[i][1])
        for values in self._first:
            if values[i] == before:
                values[i] = base[i]
        for key in [key for key, value in self._changed.items() if key[1] == i and value == base[i]]:
            del self._changed[key]  # it switches to what is there anyway

    def begin(self, key: int, nth: int, name: str, threads: int) -> None:
        """Put the settings of alternative ``key`` for the first time: those that the first call of the ``nth`` body
        left, with this thread count unless it chose one itself."""
        base = list(self._base.values)
        base[self._threads] = threads
        own = list(self._first[nth])
        if own[self._threads] == self._base.values[self._threads]:
            own[self._threads] = threads
        self._bases[key], self._own[key], self._names[key] = base, own, name
        for kind, value in zip(self._kinds, own, strict=True):
            if not kind.same(kind.read(), value):
                kind.put(value)
        self._current, self._modules = key, len(sys.modules)

    def note_warm_up(self, key: int) -> None:
        self._own[key] = self._read(self._names[key], self._bases[key])

    def rewind(self, keys: Iterable[int]) -> None:
        """Have the random streams of these begin anew, all with the same numbers."""
        if self._current is not None:
            self._save(self._current)
            self._current = None
        for key in keys:
            for i, kind in enumerate(self._kinds):
                if kind.role == "generator":
                    self._own[key][i] = self._base.values[i]

    def _read(self, name: str, base: Sequence[Any]) -> list[Any]:
        """All values now; what is not as in ``base`` is watched from now on, and told as the doing of ``name``."""
        values = [kind.read() for kind in self._kinds]
        for i in self._differing(values, base):
            if self._is_of_an_import(i):
                self._adopt(i, values[i])
                continue
            self._watched.add(i)
            if self._kinds[i].role not in _SILENT:
                self._changed[name, i] = values[i]
        return values

    def _is_of_an_import(self, i: int) -> bool:
        """Whether a change of this kind may be the doing of a module that was loaded just now."""
        return self._kinds[i].role == "incidental" and len(sys.modules) > self._modules

    def _adopt(self, i: int, value: Any) -> None:
        """Have for all what an import set."""
        before = self._base.values[i]
        for values in (self._base.values, *self._bases.values(), *self._own.values(), *self._first):
            if self._kinds[i].same(values[i], before):
                values[i] = value

    # ---- between the blocks -------------------------------------------------------------------------------

    def enter(self, key: int) -> bool:
        """Exchange the settings for those of ``key``; whether torch's threads had to be set, which rebuilds a team."""
        if key == self._current:
            return False
        if self._current is not None:
            self._save(self._current)
        own, rebuilt = self._own[key], False
        for i in sorted(self._watched):
            kind = self._kinds[i]
            now = kind.read() if self._current is None else self._own[self._current][i]
            if not kind.same(now, own[i]):
                kind.put(own[i])
                rebuilt |= i == self._threads
        self._current = key
        return rebuilt

    def without_gradients(self, key: int) -> list[int]:
        """Which of the tensors of `gradients_of` have no gradient after calls of ``key``, and one after others'."""
        (i,) = [i for i, kind in enumerate(self._kinds) if kind.role == "gradient"] or (None,)
        if i not in self._watched:
            return []
        here, *others = (self._own[k][i] for k in (key, *(self._own.keys() - {key})))
        return [n for n, mine in enumerate(here) if mine is None and any(own[n] is not None for own in others)]

    def exchanges(self, keys: Sequence[int]) -> bool:
        """Whether settings are exchanged between blocks of these, random numbers apart."""
        settings = [i for i in self._watched if self._kinds[i].role != "generator"]
        first, *others = (self._own[key] for key in keys)
        return any(not self._kinds[i].same(own[i], first[i]) for own in others for i in settings)

    def _save(self, key: int) -> None:
        """Keep what this alternative left."""
        own, base = self._own[key], self._bases[key]
        for i in self._watched:
            kind, value = self._kinds[i], self._kinds[i].read()
            if kind.same(value, own[i]):
                continue
            own[i] = value
            if kind.role not in _SILENT and not kind.same(value, base[i]):
                self._note_late(i, key)

    def _note_late(self, i: int, key: int) -> None:
        """A setting that this alternative had left alone until now: what was sampled before is of other settings."""
        if (self._names[key], i) not in self._changed:
            self._changed[self._names[key], i] = self._own[key][i]
            self._late.add(i)
            self._is_new = True

    def look(self) -> bool:
        """Read everything; whether settings have changed since the last look that were not seen to change before.

        Then the samples are void. Where it is not known which of several alternatives did it, the setting is as it was
        from now on, for all but those that change it again.
        """
        assert self._current is not None
        self._save(self._current)
        base = self._bases[self._current]
        for i, kind in enumerate(self._kinds):
            if i in self._watched or kind.same(value := kind.read(), base[i]):
                continue
            if self._is_of_an_import(i):
                self._adopt(i, value)
                continue
            self._watched.add(i)
            if kind.role in _SILENT:
                continue
            self._late.add(i)
            self._is_new = True
            if len(set(self._names.values())) == 1:
                self._own[self._current][i] = self._changed[self._names[self._current], i] = value
            else:
                kind.put(base[i])
        is_new, self._is_new = self._is_new, False
        self._modules = len(sys.modules)
        return is_new

    # ---- in words -----------------------------------------------------------------------------------------

    def state_of(self, key: int) -> tuple[str, ...]:
        """The settings that the row ran with, where they are not the notebook's; threads are its own only where it
        sets them, and the garbage collector is told where it is on."""
        than = list(self._found)
        than[self._threads] = self._bases[key][self._threads]
        than[self._collector] = (False, than[self._collector][1])
        values, name = self._own[key], self._names[key]
        known = {i for of, i in self._changed if of == name} | self._of_setup | {self._collector}
        return in_words(self._kinds, values, than, self._differing(values, than) & known)

    def doubts(self, names: Sequence[str]) -> Iterator[Doubt]:
        """Who changes what, in the order of ``names``."""
        by_name: dict[str, dict[int, Any]] = {name: {} for name in names}
        for (name, i), value in self._changed.items():
            by_name[name][i] = value
        for name, values in by_name.items():
            yield from self._doubts_of(name, values, is_alone=len(names) == 1)
        yield from self._unattributed(self._late - {i for _, i in self._changed})

    def _doubts_of(self, name: str, changed: Mapping[int, Any], *, is_alone: bool) -> Iterator[Doubt]:
        base = self._base.values
        values = [changed.get(i, value) for i, value in enumerate(base)]
        for which in ({self._threads} & changed.keys(), changed.keys() - {self._threads}):
            if not which:
                continue
            words = units.listed(in_words(self._kinds, values, base, which))
            who, when = ("The code", "after the run") if is_alone else (f"`{name}`", "before every block of the others")
            text = f"{who} runs with {words}: its own code sets this. It is restored {when}."
            if self._late & which:
                text += " It does so only after some calls: earlier samples were dropped."
            is_threads = self._threads in which
            yield Doubt(
                "changes-threads" if is_threads else "changes-state",
                text,
                "Use `-t` to choose thread counts." if is_threads else "",
                {"name": name, **({"threads": changed[self._threads]} if is_threads else {})},
            )

    def _unattributed(self, kinds: set[int]) -> Iterator[Doubt]:
        for i in sorted(kinds):
            what = self._kinds[i].name
            yield Doubt(
                "changes-state",
                f"The code changed a setting once, after many calls ({what}): it was put back, and the samples before"
                " were dropped.",
                "",
                {"setting": what},
            )
