"""Switches that the alternatives share: what one sets there, another may run with.

What the process has is put back between alternatives (`isolation`); what their objects, classes and modules have is
not, since nobody knows what else belongs to it. A model that one section turns to bfloat16, or to evaluation, is so for
all. What calls change again and again is the code's work (counters, hooks, states): a switch has, after many calls, the
value that it had after the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .settings_holders import ABSENT, OPAQUE, Holder
from .switches import SwitchScope, is_flag, token

__all__ = ["SharedState"]

_Key = tuple[int, str]


class SharedState:
    """Watches the switches that at least two alternatives may read or set.

    An alternative sets a switch where a call of it leaves another value than it found, or sets it again after it was
    put back as the setup left it (`tried`). Another alternative that leaves it as it is was timed in that state.

    Args:
        scopes: alternative -> where it may read or set a switch.
    """

    def __init__(self, scopes: Mapping[str, SwitchScope]) -> None:
        scopes = {name: scope.with_assigned(scopes.values()) for name, scope in scopes.items()}
        counts: dict[int, int] = {}
        for scope in scopes.values():
            for at in scope.holders:
                counts[at] = counts.get(at, 0) + 1
        self._scopes = scopes
        self._holders: dict[int, Holder] = {}
        self._keys: dict[int, frozenset[str] | None] = {}
        for scope in scopes.values():
            for at in scope.holders.keys() & {at for at, count in counts.items() if count > 1}:
                former, more = self._keys.get(at, frozenset()), scope.keys[at]
                self._holders.setdefault(at, scope.holders[at])
                self._keys[at] = None if former is None or more is None else former | more
        self._first = self._now()
        self._values = {key: value for key, value in self._read() if self._first[key] is not OPAQUE}  # no data is kept
        self._found = self._last = self._first
        self._calls: dict[str, list[tuple[dict[_Key, object], dict[_Key, object]]]] = {name: [] for name in scopes}
        self._before: set[_Key] | None = None  # changed before any call was watched (``--check``), nobody knows by whom
        self._sets: dict[str, set[_Key]] = {name: set() for name in scopes}

    def _read(self) -> Iterator[tuple[_Key, object]]:
        for at, holder in self._holders.items():
            yield from (((at, key), value) for key, value in holder.items(self._keys[at]))

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

    def to_try(self, name: str) -> list[_Key]:
        """The switches that another alternative may have set and that this one leaves as it finds them: it may set
        them itself, to the same value."""
        if name not in self._calls:
            return []
        own, others = self._moved(name), set(self._before or ())
        others = others.union(*(self._moved(other) for other in self._calls if other != name))
        return [
            key
            for key in others - own
            if self._holders[key[0]].is_put_back and self._concerns(name, key, self._last.get(key, ABSENT))
        ]

    def put_first(self, keys: list[_Key]) -> dict[_Key, object]:
        """Have these as the setup left them; returns what they were."""
        values = dict(self._read())
        for at, key in keys:
            self._put((at, key), self._values.get((at, key), ABSENT), values)
        return {key: values.get(key, ABSENT) for key in keys}

    def tried(self, name: str, before: Mapping[_Key, object]) -> None:
        """The call has ended: note what it set again, and have the rest as it was ``before``."""
        values = dict(self._read())
        for key, value in before.items():
            if _token(values.get(key, ABSENT)) != self._first.get(key, ABSENT):
                self._sets[name].add(key)
            else:
                self._put(key, value, values)
        self._last = self._now()

    def _put(self, key: _Key, value: object, now: Mapping[_Key, object]) -> None:
        if now.get(key, ABSENT) is not value:
            self._holders[key[0]].put(key[1], value)

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
            ("global" if self._holders[at].is_global else "shared", self._holders[at].label(key)) for at, key in keys
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
        return not self._holders[key[0]].is_put_back or (is_flag(now) and is_flag(first)) or key[1] in scope.mentioned

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


def _token(value: object) -> object:
    return value if value is ABSENT else token(value)
