"""What code writes into objects: told entry by entry, put back in place."""

from __future__ import annotations

import functools
import gc
import queue
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from torchbench_magic import compare
from torchbench_magic.process.reach import dict_of, mention, search
from torchbench_magic.process.static_introspection import ABSENT, TOO_MANY
from torchbench_magic.timing import written_objects
from torchbench_magic.timing.written_objects import WrittenObjects


def written(names: dict[str, Any], *mentioned: str) -> WrittenObjects:
    return WrittenObjects(search(names, {*names, *mentioned}, names))


class Lines(list[int]):
    """A list of a user's own, whose methods are not to be called."""

    def __iter__(self) -> Any:
        raise AssertionError

    def __len__(self) -> int:
        raise AssertionError


def contents(value: Any) -> Any:
    return list.copy(value) if isinstance(value, list) else [*value.items()] if hasattr(value, "items") else [*value]


@pytest.mark.parametrize(
    ("value", "write", "labels"),
    [
        ([1, 2, 3], lambda v: v.append(4), ["v[3]"]),
        ([1, 2, 3], lambda v: v.clear(), ["v[0]", "v[1]", "v[2]"]),
        ([[0.5]], lambda v: v[0].__setitem__(0, 1.5), ["v[0][0]"]),
        ({"a": 1, "b": 2}, lambda v: v.update(a=3, c=4), ["v['a']", "v['c']"]),
        ({"a": 1, "b": 2}, lambda v: v.update(a=v.pop("a")), []),
        (OrderedDict(a=1, b=2), lambda v: v.move_to_end("a"), []),
        (defaultdict(list, a=[1]), lambda v: v["b"].append(2), ["v['b']"]),
        (Counter("aab"), lambda v: v.update("b"), ["v['b']"]),
        (deque([1, 2], maxlen=2), lambda v: v.append(3), ["v[0]", "v[1]"]),
        ({1, 2}, lambda v: v.add(3), ["v"]),
        (bytearray(b"ab"), lambda v: v.extend(b"c"), ["v[2]"]),
        (Lines([1, 2]), lambda v: list.append(v, 3), ["v[2]"]),
    ],
)
def test_containers_are_told_by_entry_and_put_back_in_place(
    value: Any, write: Callable[[Any], object], labels: list[str]
) -> None:
    seen = written({"v": value})
    before = contents(value)
    inner = [list(item) for item in before if isinstance(item, list)]
    write(value)
    assert sorted(seen.changed()) == sorted(labels)
    seen.put_back()
    assert contents(value) == before
    assert [list(item) for item in contents(value) if isinstance(item, list)] == inner
    assert seen.not_put_back == []


class Box:
    made = 0

    def __init__(self) -> None:
        self.n = 0


class Slotted:
    __slots__ = ("full", "hollow")

    def __init__(self) -> None:
        self.full = 1


def test_attributes_slots_and_those_of_classes_are_put_back() -> None:
    box, slotted, plain = Box(), Slotted(), SimpleNamespace(n=1)
    seen = written({"box": box, "slotted": slotted, "plain": plain}, "n", "out", "made")
    box.n, box.out, Box.made, plain.n = 1, torch.ones(1), 5, 2  # type: ignore[attr-defined]
    slotted.hollow = slotted.full
    del slotted.full
    found = seen.changed()
    assert {*found} == {"box.n", "box.out", "Box.made", "plain.n", "slotted.full", "slotted.hollow"}
    assert found["box.out"][0] is ABSENT
    assert found["slotted.full"] == (1, ABSENT)
    seen.put_back()
    assert (vars(box), Box.made, vars(plain), slotted.full) == ({"n": 0}, 0, {"n": 1}, 1)
    assert not hasattr(slotted, "hollow")


def test_plain_attributes_of_modules_are_put_back_and_their_machinery_is_left() -> None:
    class Net(nn.Linear):
        pass

    own, torchs = Net(1, 1), nn.Linear(1, 1)
    seen = written({"own": own, "torchs": torchs})
    for each in (own, torchs):
        each.last = 1
        each.eval()
        each.weight = nn.Parameter(torch.zeros(1, 1))
    assert {*seen.changed()} == {"own.last", "torchs.last"}
    seen.put_back()
    assert not hasattr(own, "last")
    assert not own.training


def test_globals_of_functions_their_attributes_and_enclosing_variables_are_put_back() -> None:
    home: dict[str, Any] = {"__name__": "__main__"}
    text = """
n, other = 0, 0
def around():
    count = 0
    def inner():
        nonlocal count
        count += 1
        return count
    return inner
inner = around()
def use():
    global n, new
    n += 1
    new = 1
    use.calls = 1
    inner()
"""
    exec(text, home)
    seen = WrittenObjects(search(["use"], {"use"}, home))
    home["use"]()
    home["other"] = 3
    assert {*seen.changed()} == {"n", "new", "use.calls", "count"}
    seen.put_back()
    assert home["n"] == 0
    assert "new" not in home
    assert home["other"] == 3, "nobody there sets it"
    assert home["inner"]() == 1


def test_only_the_parts_that_are_asked_for_are_put_back() -> None:
    names: dict[str, Any] = {"memo": {}, "log": [], "last": {"a": 0, "b": 0}}
    seen = written(names)
    names["memo"]["x"] = 1
    names["log"].append(1)
    names["last"].update(a=1, b=2)
    assert seen.parts_changed() == {"memo['x']", "log", "last['a']", "last['b']"}
    seen.put_back({"log", "last['a']"})
    assert names == {"memo": {"x": 1}, "log": [], "last": {"a": 0, "b": 2}}


def test_what_is_too_large_is_said_to_be_too_much_and_what_was_added_is_taken_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(written_objects, "_MOST_KEPT", 3)
    monkeypatch.setattr(written_objects, "_MOST_TOLD", 2)
    names: dict[str, Any] = {"long": [0] * 4, "table": dict.fromkeys(range(4)), "many": [0] * 3}
    seen = written(names)
    names["long"].append(1)
    names["table"][9] = 1
    names["many"][:] = [1, 2, 3]
    assert seen.changed() == dict.fromkeys(("long", "table", "many"), (ABSENT, TOO_MANY))
    seen.put_back()
    assert (names["long"], names["many"]) == ([0] * 4, [0] * 3)
    assert seen.not_put_back == ["table"]


# ==== attributes ======================================================================================================


class Tracker:
    step = 0

    def __init__(self) -> None:
        self.best, self.log = 9.0, ["a"]

    @property
    def asked(self) -> int:
        raise AssertionError("ran")

    @functools.cached_property
    def made(self) -> int:
        raise AssertionError("ran")

    def reset(self) -> None:
        self.made = self.asked = 1  # type: ignore[misc]

    def lasts(self) -> int:
        return 1


INSIDE = pytest.mark.skipif(
    not (3, 11) <= sys.version_info < (3, 13), reason="attributes stand in a dict, or are as fast as if they did not"
)


def referents(value: Any) -> list[str]:
    return [type(each).__name__ for each in gc.get_referents(value)]


@INSIDE
def test_attributes_are_told_and_put_without_a_dict_of_them() -> None:
    """Which would make each further use of them slower."""
    one = Tracker()
    before = referents(one)
    held = dict_of(one)
    assert [*held.items()] == [("best", 9.0), ("log", ["a"])]
    held["best"] = 1.0
    held["step"] = 5  # a name that the class has too
    assert (one.best, one.step) == (1.0, 5)
    mention(["step"])
    assert dict(held) == {"best": 1.0, "log": ["a"], "step": 5}
    del held["step"]
    one.lasts = abs  # type: ignore[method-assign,assignment]
    assert dict(dict_of(one)) == {"best": 1.0, "log": ["a"], "lasts": abs}
    del one.lasts
    assert referents(one) == before


@INSIDE
@pytest.mark.parametrize(
    "changed",
    [
        lambda one: one.__dict__["best"],
        lambda one: setattr(one, "of_no_" + "code", 1),
        lambda one: one.__dict__.update(made=1),
    ],
    ids=["its dict was made", "a name that nobody knows", "the name of what would run"],
)
def test_where_they_cannot_be_told_the_dict_is_asked_for(changed: Callable[[Any], object]) -> None:
    one = Tracker()
    changed(one)
    assert dict_of(one) is one.__dict__


@INSIDE
def test_a_comparison_leaves_objects_as_they_were() -> None:
    class Early:
        def __init__(self) -> None:
            self.best, self.bad = 9.0, 0

        def __call__(self, loss: float) -> int:
            self.bad = 0 if loss < self.best else self.bad + 1
            self.best = min(loss, self.best)
            return self.bad

    stop, jobs = Early(), queue.Queue()  # type: ignore[var-annotated]
    before = referents(stop), referents(jobs)
    bodies = {"a": "stop(1.0)", "b": "jobs.put(1); jobs.get()"}
    compare(bodies, globals={"stop": stop, "jobs": jobs}, threads=1, min_run_time=0.01)
    assert (referents(stop), referents(jobs)) == before
