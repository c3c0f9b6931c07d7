"""A result that the first call keeps in a variable, a class, a function or a slot: later calls only look it up."""

from __future__ import annotations

import functools
import gc
import itertools
import sys
import types
import weakref
from collections.abc import Iterable
from typing import Any

import pytest

from torchbench_magic import Comparison
from torchbench_magic.timing.watched_objects import is_slow_again

from ..fake_clock import FakeClock
from ..fake_clock import timed as timed_long
from .test_only_first_call import hows, sentence, used_up

timed = functools.partial(timed_long, min_run_time=0.01)

_GLOBAL = (
    "cache = None\ndef get():\n    global cache\n    clock.work(1)\n    if cache is None: cache = work()\n"
    "    return cache"
)
_MADE = (
    "def get():\n    global made\n    clock.work(1)\n    try: return made\n    except NameError: made = work()\n"
    "    return made"
)
_NONLOCAL = (
    "def make():\n    kept = None\n    def get():\n        nonlocal kept\n        clock.work(1)\n"
    "        if kept is None: kept = work()\n        return kept\n    return get\nget = make()"
)
_CLASS = (
    "class Config:\n    _one = None\n    @classmethod\n    def get(cls):\n        clock.work(1)\n"
    "        if cls._one is None: cls._one = work()\n        return cls._one\nget = Config.get"
)
_ON_FUNCTION = (
    "def get():\n    clock.work(1)\n    if not hasattr(get, 'kept'): get.kept = work()\n    return get.kept"
)
_SLOT = (
    "class Lazy:\n    __slots__ = ('_v',)\n    @property\n    def v(self):\n        clock.work(1)\n"
    "        try: return self._v\n        except AttributeError: self._v = work()\n        return self._v\n"
    "lazy = Lazy()\nget = lambda: lazy.v"
)
_ATTRIBUTE = (
    "class Lazy:\n    _v = None\n    @property\n    def v(self):\n        clock.work(1)\n"
    "        if self._v is None: self._v = work()\n        return self._v\nlazy = Lazy()\nget = lambda: lazy.v"
)


def names_of(clock: FakeClock, cell: str) -> dict[str, Any]:
    """What a cell defines, where ``work()`` takes 500 us."""

    def work() -> object:
        clock.work(500)
        return object()

    names: dict[str, Any] = {"clock": clock, "work": work, "__name__": "__main__"}
    exec(compile(cell, "<cell>", "exec"), names)
    return names


_MISSING = (
    "class Memo(dict):\n    def __missing__(self, key):\n        self[key] = value = work()\n        return value\n"
    "memo = Memo()\ndef get():\n    clock.work(1)\n    return memo[3]"
)
_WRAPPED = (
    "import collections, weakref\nclass Key: pass\nkey = Key()\nmemo = {}()\ndef get():\n    clock.work(1)\n"
    "    if key not in memo: memo[key] = work()\n    return memo[key]"
)


@pytest.mark.parametrize(
    ("cell", "label"),
    [
        (_MISSING, "memo"),
        (_WRAPPED.format("collections.UserDict"), "memo"),
        (_WRAPPED.format("weakref.WeakKeyDictionary"), "memo"),
        (_GLOBAL, "cache"),
        (_MADE, "made"),
        (_NONLOCAL, "kept"),
        (_CLASS, "Config._one"),
        (_ON_FUNCTION, "get.kept"),
        (_SLOT, "lazy._v"),
        (_ATTRIBUTE, "lazy._v"),
    ],
)
def test_a_lone_statement_says_where_its_first_call_kept_the_result(cell: str, label: str) -> None:
    clock = FakeClock()
    result = timed(clock, {"": "get()"}, names=names_of(clock, cell))
    assert hows(result) == [("memo", label)]
    assert sentence(result).startswith(f"The first call did its work once and kept the result in {label}: ")


def test_one_in_a_module_of_ones_own_is_said_too(monkeypatch: Any) -> None:
    clock, module = FakeClock(), types.ModuleType("mymod")
    vars(module).update(names_of(clock, _GLOBAL), __name__="mymod")
    exec(compile(_GLOBAL, "<mymod>", "exec"), vars(module))
    monkeypatch.setitem(sys.modules, "mymod", module)
    assert hows(timed(clock, {"": "mymod.get()"}, names={"mymod": module})) == [("memo", "mymod.cache")]


def test_an_alternative_that_finds_it_there_is_void_too() -> None:
    clock = FakeClock()
    names = names_of(clock, _GLOBAL)
    bodies = {"plain": "clock.work(500)", "a": "get()", "b": "get()\nclock.work(2)"}
    result = timed(clock, bodies, names=names)
    assert result.frame["verdict"].tolist() == ["baseline", "undecided", "undecided"]
    assert ("memo", "cache") in hows(result)


def test_it_is_there_after_the_run_as_the_code_left_it() -> None:
    clock = FakeClock()
    names = names_of(clock, _GLOBAL)
    timed(clock, {"": "get()"}, names=names)
    assert names["cache"] is not None


def test_the_first_result_is_let_go_of_before_the_samples() -> None:
    """Else a tensor of the first call would stay in memory beside those of later calls."""
    clock, first, alive = FakeClock(), [], []

    class Result:
        pass

    cell = "last = None\ndef step():\n    global last\n    last = made()\n    look()\n    clock.work(100)"
    names = names_of(clock, cell)

    def made() -> Result:
        result = Result()
        if not first:
            clock.work(400)
            first.append(weakref.ref(result))
        return result

    def look() -> None:
        if clock.wall_ns > 100_000_000 and not alive:  # the warm-up, of 50 ms at most, is over
            gc.collect()
            alive.append(first[0]() is not None)

    names.update(made=made, look=look)
    timed(clock, {"": "step()"}, names=names, number=10, repeat=200)
    assert alive == [False]


def test_a_call_that_fails_from_the_state_before_is_no_failure_of_the_run() -> None:
    cell = (
        "port = None\nbound = []\ndef get():\n    global port\n    clock.work(1)\n    if port is None:\n"
        "        if len(bound) == 1: raise OSError('address in use')\n        bound.extend([1]); port = work()\n"
        "    return port"
    )
    clock = FakeClock()
    names = names_of(clock, cell)
    names["bound"] = _Hidden()
    timed(clock, {"": "get()"}, names=names)
    assert names["port"] is not None  # as the first call left it


class _Hidden:
    """A count that nobody finds in it."""

    __slots__ = ()
    _kept: list[list[int]] = [[]]  # noqa: RUF012

    def __len__(self) -> int:
        return len(self._kept[0])

    def extend(self, more: list[int]) -> None:
        self._kept[0].extend(more)


_SLOW_START = "clock.work(500 if first() else 10)"


@pytest.mark.parametrize(
    "body",
    [
        "global flag; flag = True",
        "global word; word = 'fast'",
        "global n; n = 7",
        "global shape; shape = (3, 4)",
        "global out; out = object()",
        "global out; out = [1, 2, 3]",
        "global count; count = count + 1",
        "global best; best = max(best, 3)",
        "global last; last, now = now, last",
        "global fn; fn = len",
        "Config.x = 1",
        "Config.x = Config.x + 1",
        "Config.mode = 'train'",
        "obj.v = 3",
        "obj.v = [1]",
        "obj.v = obj.v",
        "obj.ready = True",
        "here.done = True",
        "slotted.v = 3",
        "mod.ready = True",
        "global np; import math as np",
        "global seen; seen = seen | {3}",
        "del obj.gone" + "; obj.gone = 3",
        "held['y'] = 1",
    ],
)
def test_a_slow_first_call_that_sets_something_is_no_work_done_once(body: str) -> None:
    clock, calls = FakeClock(), itertools.count()
    names = names_of(
        clock,
        "count = best = 0; last, now = 1, 2; seen = frozenset(); held = {}\n"
        "class Config: x = 0; mode = None\nclass Obj: v = None\nobj = Obj(); obj.gone = 1\n"
        "class Slotted: __slots__ = ('v',)\nslotted = Slotted()",
    )
    names |= {"first": lambda: next(calls) == 0, "mod": types.ModuleType("mod")}
    declared, _, rest = body.partition("; ") if body.startswith("global") else ("pass", "", body)
    extra = ", now" if "now" in rest else ""
    exec(compile(f"def here():\n    {declared}{extra}\n    {rest}\n    {_SLOW_START}", "<cell>", "exec"), names)
    result = timed(clock, {"": "here()"}, names=names)
    assert used_up(result) == []


def test_a_first_call_that_compiles_each_time_it_starts_afresh_is_explained() -> None:
    """As ``if compiled is None: compiled = torch.compile(f)``: the time asked for is that of the compiled code."""
    clock = FakeClock()
    cell = (
        "import sys, types\ncompiled = None\nnumber = iter(range(10**9))\ndef get():\n    global compiled\n"
        "    clock.work(1)\n"
        "    if compiled is None:\n        clock.work(500)\n        compiled = f'torchbench_made_{next(number)}'\n"
        "        sys.modules[compiled] = types.ModuleType(compiled)\n    return compiled"
    )
    try:
        assert not used_up(timed(clock, {"": "get()"}, names=names_of(clock, cell)))
    finally:
        for name in [name for name in sys.modules if name.startswith("torchbench_made_")]:
            del sys.modules[name]


def test_a_result_that_setup_filled_is_what_the_cell_asks_for() -> None:
    clock = FakeClock()
    result: Comparison = timed(clock, {"": "get()"}, setup=["get()"], names=names_of(clock, _GLOBAL))
    assert not used_up(result)


def answered(blocks: Iterable[tuple[float, float]], first_ns: float) -> tuple[bool, int]:
    """What is told where calls from the state before, and those after them, take these nanoseconds."""
    asked = is_slow_again([], None, first_ns, 0.0, lambda: 0)  # type: ignore[arg-type]
    next(asked)
    try:
        for pair in blocks:
            for wall in pair:
                asked.send((wall, wall))
    except StopIteration as ended:
        return tuple(ended.value)  # type: ignore[return-value]
    raise AssertionError("it asks for more calls")


def test_only_calls_that_are_long_each_time_from_the_state_before_tell_of_a_kept_result() -> None:
    assert answered([(5e6, 1e6)] * 5, 5e6) == (True, 10)
    assert answered([(5e6, 1e6), (1e6, 1e6)], 5e6) == (False, 4), "it was another program that made one call long"
    assert answered([(5e6, 1e6)] + [(5e6, 4e6)] * 4, 5e6) == (False, 10), "one short call is no usual one"
    assert answered([(3e8, 1e8), (1.1e8, 1e8)], 3e8) == (False, 4)
    assert answered([(3e8, 1e8)] * 2, 3e8) == (True, 4)
