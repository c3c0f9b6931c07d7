"""Inputs of less common kinds that the first call uses up: branches of ``tee``, cursors, arrays, bound methods."""

from __future__ import annotations

import collections
import itertools
import sqlite3
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ChainDataset, DataLoader

from torchbench_magic import Comparison
from torchbench_magic.timing.iterators import is_used_up

from ..fake_clock import FakeClock, timed


def run(body: str, make: Any, **names: Any) -> Comparison:
    """A body that works 20 us for each of 50 items, beside one that works for 500 us a call."""
    clock = FakeClock()

    def val(item: Any) -> Any:
        clock.work(20)
        return item

    bodies = {"a": "clock.work(500)", "b": f"clock.work(1)\n{body}"}
    names |= {"val": val, "q": make(map(val, range(50)))}
    return timed(clock, bodies, names=names, min_run_time=0.01)


def hows(result: Comparison) -> list[tuple[object, object]]:
    return [d.facts["how"] for d in result.warnings if d.kind == "used-up"]


def cursor(_: Any = None) -> Any:
    connection = sqlite3.connect(":memory:")
    connection.execute("create table t(a)")
    connection.executemany("insert into t values(?)", [(i,) for i in range(50)])
    return connection.execute("select * from t")


class Slotted:
    __slots__ = ("it",)
    __module__ = "__main__"

    def __init__(self, it: Any) -> None:
        self.it = it

    def total(self) -> int:
        return sum(self.it)


@pytest.mark.parametrize(
    ("body", "make"),
    [
        ("list(q)", lambda it: itertools.tee(it)[0]),
        ("list(q)", lambda it: itertools.takewhile(lambda x: True, it)),
        ("list(q)", lambda it: itertools.dropwhile(lambda x: False, it)),
        ("list(q)", lambda it: itertools.zip_longest(it, [1], fillvalue=0)),
        ("list(q)", lambda it: itertools.zip_longest([1], it)),
        ("for row in q: val(row)", cursor),
        ("[val(row) for row in q.fetchall()]", cursor),
        ("list(iter(q, None))", lambda it: it.__next__),
    ],
)
def test_an_iterator_that_the_first_call_used_up_is_said_as_that(body: str, make: Any) -> None:
    result = run(body, make)
    assert hows(result) == ["less"]
    assert result.frame["verdict"].tolist() == ["baseline", "undecided"]


def test_one_that_a_slot_holds_is_said_too() -> None:
    assert hows(run("q.total()", Slotted)) == ["less"]


@pytest.mark.parametrize(
    ("body", "make"),
    [
        ("while q: val(q.pop())", lambda it: collections.UserList(range(50))),
        ("while q: val(q.popitem())", lambda it: collections.ChainMap(dict.fromkeys(range(50)))),
        ("try:\n    while True: val(q())\nexcept IndexError: pass", lambda it: list(range(50)).pop),
    ],
)
def test_a_container_within_another_object_that_the_first_call_emptied_is_said(body: str, make: Any) -> None:
    assert hows(run(body, make)) == ["less"]


@pytest.mark.parametrize("shape", [(1,), ()])
def test_a_position_in_an_array_is_said(shape: tuple[int, ...]) -> None:
    body = "while pos.sum() < 50: pos += 1; val(0)"
    assert hows(run(body, list, pos=np.zeros(shape, int))) == ["less"]


@pytest.mark.parametrize(
    ("body", "make"),
    [
        ("next(q)", lambda it: itertools.tee(itertools.count())[0]),
        ("next(q)", lambda it: itertools.takewhile(lambda x: True, itertools.count())),
        ("q.execute('select 1').fetchall()", lambda it: cursor()),
        ("q.execute('select 1').fetchall()", lambda it: sqlite3.connect(":memory:").cursor()),
        ("q(1)", lambda it: [].append),
        ("q(1)", lambda it: collections.deque(maxlen=3).append),
        ("q.fill(0); q += 1", lambda it: np.ones(9)),
        ("q[0] = 7", lambda it: np.ones(9)),
        ("q += 1", lambda it: np.ones(9)),
        ("q.sort()", lambda it: np.arange(9)[::-1].copy()),
        ("q.append(1); q.pop()", lambda it: collections.UserList(range(3))),
        ("q['a'] = 1", lambda it: collections.ChainMap({}, {"a": 2})),
        ("len(q)", lambda it: "text"),
    ],
)
def test_ordinary_bodies_over_these_say_nothing(body: str, make: Any) -> None:
    result = run(f"{body}\nval(0)", make)
    assert not hows(result)
    assert result.frame["verdict"].tolist() == ["baseline", "faster"]


def test_a_branch_with_items_that_it_keeps_is_not_used_up_and_nothing_is_taken_from_it() -> None:
    source = iter(range(3))
    one, other = itertools.tee(source)
    assert list(one) == [0, 1, 2]
    assert is_used_up(one) is True
    assert is_used_up(other) is False
    assert list(other) == [0, 1, 2]
    held = iter([7])
    both = itertools.tee(zip(held, iter([]), strict=False))[0]
    assert is_used_up(both) is False  # to ask it would take the 7
    assert list(held) == [7]


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="does not show it any more")
def test_a_takewhile_that_met_its_end_is_used_up() -> None:
    taking = itertools.takewhile(lambda x: x < 3, itertools.count())
    assert is_used_up(taking) is False
    assert list(taking) == [0, 1, 2]
    assert is_used_up(taking) is True


class Streamed(torch.utils.data.IterableDataset[Any]):
    """A dataset that gives the same iterator each time."""

    __module__ = "__main__"

    def __init__(self, it: Any) -> None:
        self.it = (torch.tensor(0.0) for _ in it)

    def __iter__(self) -> Any:
        return self.it


class Sampled:
    __module__ = "__main__"

    def __init__(self, it: Any) -> None:
        self.it = (0 for _ in it)

    def __iter__(self) -> Any:
        return self.it

    def __len__(self) -> int:
        return 50


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda it: DataLoader(Streamed(it), batch_size=5), "q.dataset.it"),
        (lambda it: DataLoader(torch.arange(9), sampler=Sampled(it)), "q.sampler.it"),
        (lambda it: DataLoader(ChainDataset([Streamed(it)])), "q.dataset.datasets[0].it"),
        (lambda it: iter(DataLoader(Streamed(it))), "q._dataset_fetcher.dataset_iter"),
    ],
    ids=["dataset", "sampler", "dataset of datasets", "iterator of a loader"],
)
def test_what_a_loader_reads_is_looked_into(make: Any, name: str) -> None:
    result = run("for batch in q: pass", make)
    assert hows(result) == ["less"]


def test_a_loader_that_begins_anew_is_not_used_up() -> None:
    result = run("for batch in q: val(batch)", lambda it: DataLoader(torch.arange(20), batch_size=5))
    assert hows(result) == []
