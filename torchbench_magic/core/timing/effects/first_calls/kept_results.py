"""Results that the first call of a body keeps for the calls after it, and whether it did its work for them.

Known here is what the first call set, and no later call set anew, in variables of functions (``if cache is None:
cache = f()``), attributes of classes, modules and functions, and slots; `only_first_call` has dicts, lists and
attributes of instances. A flag that every call sets to one value looks the same. So the body is called once more from
the values before: it did its work there only if that call is slow again, and nothing was imported or compiled in it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, MappingProxyType, ModuleType
from typing import Any, ClassVar

from torchbench_magic.core.code.reached_objects import ReachedObject
from torchbench_magic.core.code.timed_loop import Timeable

from ...block_requests import FAILED, BlockRequest, Steps
from ..settings_holders import ABSENT, Holder
from ..switches import SwitchScope

__all__ = ["LONG_NS", "SHORT_NS", "SLOWER", "SetOnce", "is_slow_again"]

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
        return {
            (at, key): value for at, (holder, keys) in self._holders.items() for key, value in holder.items(keys)
        }

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
