"""Inputs that the first call uses up: later calls do other work, which is said and takes the verdict."""

from __future__ import annotations

import asyncio
import collections
import csv
import functools
import io
import itertools
import queue
import sqlite3
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import ChainDataset, DataLoader

from torchbench_magic import Comparison, load
from torchbench_magic.cell_body import Body
from torchbench_magic.process.reach import search
from torchbench_magic.result_base import Doubt
from torchbench_magic.show.document import plain
from torchbench_magic.timing import view
from torchbench_magic.timing.iterators import at_end, is_used_up
from torchbench_magic.timing.plan import Plan
from torchbench_magic.timing.repeat_warnings import doubts_of_subjects, said
from torchbench_magic.timing.run import compare_bodies
from torchbench_magic.timing.samples import Subject
from torchbench_magic.timing.sweep import sweep_points
from torchbench_magic.timing.task import Task

from .fake_clock import FakeClock
from .fake_clock import timed as timed_long

# ==== only first call =================================================================================================
# Bodies that do their work only in the first call.


timed = functools.partial(timed_long, min_run_time=0.01)


def used_up(result: Comparison) -> list[Doubt]:
    return [doubt for doubt in result.warnings if doubt.kind == "used-up"]


def hows(result: Comparison) -> list[tuple[object, object]]:
    return [doubt.facts["how"] for doubt in used_up(result)]


def sentence(result: Comparison) -> str:
    return plain(view.document(result).sentence)


def test_a_generator_that_the_first_call_used_up_voids_the_verdict_and_is_said_first() -> None:
    clock = FakeClock()
    gen = (clock.work(10) for _ in range(100))
    bodies = {"list": "clock.work(1000)", "gen": "clock.work(1)\nlist(gen)"}
    result = timed(clock, bodies, names={"gen": gen})
    assert result.frame["ratio"][1] == pytest.approx(0.001)
    assert result.frame["verdict"].tolist() == ["baseline", "undecided"]
    assert hows(result) == ["less"]
    assert used_up(result)[0].facts["voids"] == [1]
    assert sentence(result).startswith("Later calls of gen did not do the work of the first: line ")
    assert "faster" not in sentence(result)
    assert not result.undecided_seconds  # more seconds would decide nothing


def test_a_verdict_beside_the_void_one_stands() -> None:
    clock = FakeClock()
    gen = (clock.work(10) for _ in range(100))
    bodies = {"a": "clock.work(10)", "gen": "clock.work(1)\nlist(gen)", "b": "clock.work(20)"}
    assert timed(clock, bodies, names={"gen": gen}).frame["verdict"].tolist() == ["baseline", "undecided", "slower"]


def test_a_baseline_that_does_nothing_voids_every_verdict_until_another_one_is_chosen() -> None:
    clock = FakeClock()
    gen = (clock.work(10) for _ in range(100))
    bodies = {"gen": "clock.work(1)\nlist(gen)", "a": "clock.work(10)", "b": "clock.work(20)"}
    result = timed(clock, bodies, names={"gen": gen})
    assert result.frame["verdict"].tolist() == ["baseline", "undecided", "undecided"]
    assert result.rebase("a").frame["verdict"].tolist() == ["undecided", "baseline", "slower"]


def test_a_lone_statement_says_it_before_its_time() -> None:
    result = timed(FakeClock(), {"": "clock.work(1)\nlist(it)"}, names={"it": iter([1, 2])})
    assert sentence(result).startswith("Later calls did not do the work of the first: the value was a list of 2 in ")
    assert "~1" in sentence(result)


def test_it_is_kept_in_a_store(tmp_path: Any) -> None:
    result = timed(FakeClock(), {"a": "clock.work(10)", "b": "clock.work(1)\nlist(it)"}, names={"it": iter([1, 2])})
    result.save(tmp_path / "runs.sqlite")
    (again,) = load(tmp_path / "runs.sqlite")
    assert again.frame["verdict"].tolist() == ["baseline", "undecided"]
    assert hows(again) == ["less"]


class Counted:
    """An iterator as users write it: what it counts goes on when it has ended."""

    def __init__(self, clock: FakeClock, ends: int, starts_again: bool = False) -> None:
        self.clock, self.ends, self.starts_again, self.n = clock, ends, starts_again, 0

    def __iter__(self) -> Counted:
        if self.starts_again:
            self.n = 0
        return self

    def __next__(self) -> int:
        self.n += 1
        if self.n > self.ends:
            raise StopIteration
        self.clock.work(1)
        return self.n


def run(body: str, make: Any, **names: Any) -> Comparison:
    """A body that works 20 us for each of 50 items, beside one that works for 500 us a call."""
    clock = FakeClock()

    def val(item: Any) -> Any:
        clock.work(20)
        return item

    bodies = {"a": "clock.work(500)", "b": f"clock.work(1)\n{body}"}
    names |= {"val": val, "q": make(map(val, range(50)))}
    return timed_long(clock, bodies, names=names, min_run_time=0.01)


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


def queue_of(made: Any) -> Any:
    for number in range(50):
        made.put_nowait(number)
    return made


class Masked:
    def __init__(self, it: Any) -> None:
        self.it = it

    @functools.cached_property
    def mask(self) -> int:
        return sum(self.it)


class Loader:
    """Takes one item a call, and begins anew where there are no more."""

    def __init__(self, _: Any) -> None:
        self.batches: Iterator[int] = iter([1])

    def take(self) -> int:
        for batch in self.batches:
            return batch
        self.batches = iter([1, 2])
        return 0


def power(it: Any) -> Any:
    return functools.lru_cache(lambda n: sum(it) + n)


def again(it: Any) -> Any:
    return functools.lru_cache(lambda n: n)


def first_of(it: Any) -> Any:
    return lambda calls=itertools.count(): next(calls) == 0  # noqa: B008


TOLD = [
    ("list(q)", lambda it: itertools.tee(it)[0]),
    ("list(q)", lambda it: itertools.takewhile(lambda x: True, it)),
    ("list(q)", lambda it: itertools.dropwhile(lambda x: False, it)),
    ("list(q)", lambda it: itertools.zip_longest(it, [1], fillvalue=0)),
    ("list(q)", lambda it: itertools.zip_longest([1], it)),
    ("list(q)", lambda it: zip(it, range(50), strict=True)),
    ("list(q)", enumerate),
    ("list(q)", lambda it: itertools.islice(it, 40)),
    ("list(q)", lambda it: itertools.chain([1], it)),
    ("list(islice(q, 10))", lambda it: it),  # lasts for some calls
    ("list(q)", lambda it: csv.DictReader(f"{n}" for n in it)),
    ("[val(n) for n in q]", lambda it: Counted(FakeClock(), 50)),  # what it counts goes on when it has ended
    ("for row in q: val(row)", cursor),
    ("[val(row) for row in q.fetchall()]", cursor),
    ("list(iter(q, None))", lambda it: it.__next__),
    ("q.total()", Slotted),
    ("while q: val(q.pop())", lambda it: collections.UserList(range(50))),
    ("while q: val(q.popitem())", lambda it: collections.ChainMap(dict.fromkeys(range(50)))),
    ("try:\n    while True: val(q())\nexcept IndexError: pass", lambda it: list(range(50)).pop),
    ("while not q.empty(): val(q.get_nowait())", lambda it: queue_of(queue.SimpleQueue())),
    ("while not q.empty(): val(q.get_nowait())", lambda it: queue_of(asyncio.Queue())),
    ("while q.sum() < 50: q += 1; val(0)", lambda it: np.zeros(1, int)),  # a position in an array
    ("while q.sum() < 50: q += 1; val(0)", lambda it: np.zeros((), int)),
    ("q(3)", power),
    ("q.mask", Masked),
    ("for batch in q: pass", lambda it: DataLoader(Streamed(it), batch_size=5)),
    ("for batch in q: pass", lambda it: DataLoader(torch.arange(9), sampler=Sampled(it))),
    ("for batch in q: pass", lambda it: DataLoader(ChainDataset([Streamed(it)]))),
    ("for batch in q: pass", lambda it: iter(DataLoader(Streamed(it)))),
]


@pytest.mark.parametrize(("body", "make"), TOLD)
def test_what_the_first_call_used_up_is_said_and_takes_the_verdict(body: str, make: Any) -> None:
    result = run(body, make, islice=itertools.islice)
    assert hows(result) == ["less"]
    assert result.frame["verdict"].tolist() == ["baseline", "undecided"]


QUIET = [
    ("next(q)", lambda it: itertools.tee(itertools.count())[0]),
    ("next(q)", lambda it: itertools.takewhile(lambda x: True, itertools.count())),
    ("next(q)", lambda it: itertools.cycle([1])),
    ("next(q)", lambda it: iter(range(10**9))),
    ("q = iter([1])\nlist(q)", lambda it: iter([])),  # one that the body makes, whatever the notebook calls so
    ("q.take()", Loader),
    ("sum(q)", lambda it: Counted(FakeClock(), 3, starts_again=True)),
    ("next(q)", lambda it: Counted(FakeClock(), 10**9)),
    ("q.ends", lambda it: Counted(FakeClock(), 0)),
    ("q.execute('select 1').fetchall()", lambda it: cursor()),
    ("q.execute('select 1').fetchall()", lambda it: sqlite3.connect(":memory:").cursor()),
    ("q.put(1)\nwhile not q.empty(): q.get()", lambda it: queue.SimpleQueue()),
    ("q(1)", lambda it: [].append),
    ("q(1)", lambda it: collections.deque(maxlen=3).append),
    ("q.fill(0); q += 1", lambda it: np.ones(9)),
    ("q[0] = 7", lambda it: np.ones(9)),
    ("q += 1", lambda it: np.ones(9)),
    ("q.sort()", lambda it: np.arange(9)[::-1].copy()),
    ("q.append(1); q.pop()", lambda it: collections.UserList(range(3))),
    ("q['a'] = 1", lambda it: collections.ChainMap({}, {"a": 2})),
    ("len(q)", lambda it: "text"),
    ("q(3)", again),  # a cached helper within real work
    ("clock.work(500 if q() else 10)", first_of),  # a first call that is slow, as torch's are
    ("for batch in q: val(batch)", lambda it: DataLoader(torch.arange(20), batch_size=10)),
]


@pytest.mark.parametrize(("body", "make"), QUIET)
def test_ordinary_bodies_over_these_say_nothing(body: str, make: Any) -> None:
    result = run(f"{body}\nval(0)", make)
    assert not hows(result)
    assert result.frame["verdict"].tolist() == ["baseline", "faster"]


def test_one_that_an_earlier_run_used_up_is_said_too() -> None:
    it = iter([1])
    assert list(it) == [1]
    assert hows(timed(FakeClock(), {"": "clock.work(1)\nlist(it)"}, names={"it": it})) == ["before"]
    anew = "try: y = next(it)\nexcept StopIteration: it = iter('abc'); y = next(it)\nclock.work(1)"
    assert hows(timed(FakeClock(), {"": anew}, names={"it": it})) == []


def test_restore_hands_out_iterators_that_can_be_copied_and_leaves_the_users() -> None:
    clock, it, gen = FakeClock(), iter([10, 20]), (i for i in [1])
    names = {"it": it, "gen": gen}
    bodies = {"it": "for us in it:\n    clock.work(us)", "gen": "clock.work(1)\nlist(gen)"}
    result = timed(clock, bodies, names=names, restore=True)
    assert result.frame["median"][0] == pytest.approx(30e-6)
    assert hows(result) == ["less"]
    assert list(it) == [10, 20]


def test_restore_rewinds_files() -> None:
    clock, file = FakeClock(), io.StringIO("x" * 30)
    result = timed(clock, {"": "clock.work(1 + len(file.read()))"}, names={"file": file}, restore=True)
    assert result.frame["median"][0] == pytest.approx(31e-6)
    assert not used_up(result)
    assert file.tell() == 0


@pytest.mark.parametrize("order", [("fill", "empty"), ("empty", "fill")])
def test_work_that_another_alternative_makes_for_a_first_call_is_not_that_of_a_block(order: tuple[str, str]) -> None:
    clock, q = FakeClock(), collections.deque(range(50))
    bodies = {"fill": "clock.work(20)\nq.extend(range(50))"}
    bodies["empty"] = "clock.work(1)\nwhile q: clock.work(q.pop() * 0 + 9)"
    result = timed(clock, {name: bodies[name] for name in order}, names={"q": q})
    assert [(d.facts["how"], d.facts["rows"]) for d in used_up(result)] == [("less", [order.index("empty")])]


def memo(clock: FakeClock, cache: dict[int, int]) -> Any:
    def slow(n: int) -> int:
        clock.work(1)
        if n not in cache:
            clock.work(500)
            cache[n] = n
        return cache[n]

    return slow


def test_an_alternative_that_finds_the_memo_filled_by_another_is_void_too() -> None:
    clock = FakeClock()
    bodies = {"plain": "clock.work(500)", "a": "slow(3)", "b": "slow(3)\nclock.work(2)"}
    result = timed(clock, bodies, names={"slow": memo(clock, {})})
    assert result.frame["verdict"].tolist() == ["baseline", "undecided", "undecided"]


def test_a_memo_that_setup_filled_is_what_the_cell_asks_for() -> None:
    clock = FakeClock()
    bodies = {"slow": "slow(3)", "plain": "clock.work(500)"}
    result = timed(clock, bodies, setup=["slow(3)"], names={"slow": memo(clock, {})})
    assert result.frame["verdict"].tolist() == ["baseline", "slower"]
    assert not used_up(result)


def test_a_result_that_is_stored_under_one_name_is_not_a_dict_that_grows() -> None:
    out: dict[str, int] = {}
    assert timed(FakeClock(), {"": "out['y'] = 1\nclock.work(10)"}, names={"out": out}).warnings == []


def test_a_first_call_that_nothing_explains_is_a_doubt() -> None:
    clock = FakeClock()

    def work(state: Any = itertools.count()) -> None:  # noqa: B008
        clock.work(2e6 if next(state) == 0 else 10)

    result = timed(clock, {"": "work()"}, names={"work": work})
    (doubt,) = (each for each in result.warnings if each.kind == "other-work")
    assert "the first call took 2.00 s, later ones less than 20.0 µs, and nothing seen explains it" in doubt.text


def test_a_doubt_about_the_first_call_takes_no_verdict_away() -> None:
    clock, state = FakeClock(), itertools.count()
    names = {"work": lambda: clock.work(2e6 if next(state) == 0 else 10)}
    result = timed(clock, {"a": "work()", "b": "clock.work(20)"}, names=names)
    assert [each.kind for each in result.warnings] == ["other-work"]
    assert result.frame["verdict"].tolist() == ["baseline", "slower"]


def test_a_first_call_that_imports_is_explained() -> None:
    clock, name = FakeClock(), "torchbench_magic_made_up"

    def work() -> None:
        clock.work(10 if name in sys.modules else 2e6)
        sys.modules.setdefault(name, types.ModuleType(name))

    try:
        assert not used_up(timed(clock, {"": "work()"}, names={"work": work}))
    finally:
        sys.modules.pop(name, None)


def test_rows_are_right_where_points_are_joined() -> None:
    clock = FakeClock()
    bodies = {"a": Body("clock.work(n)"), "b": Body("clock.work(1)\nlist(it)")}
    plan = Plan(threads=(1,), min_run_time=0.01)
    names = {"clock": clock}
    result = compare_bodies(Task(
        bodies,
        setup=[Body("it = iter([1]) if n > 15 else []")],
        namespace=names,
        plan=plan,
        clocks=clock.clocks,
        points=sweep_points(["n=[10, 20]"], names),
    ))
    assert used_up(result)[0].facts["rows"] == [3]
    assert result.frame["verdict"].tolist() == ["baseline", "faster", "baseline", "undecided"]
    assert pd.notna(result.frame["ratio"]).all()


def failed(bodies: dict[str, str], names: dict[str, Any], **plan: Any) -> tuple[BaseException, str]:
    """The exception of a run, and what is said of it: as its text, or under it."""
    with pytest.raises(Exception) as caught:  # noqa: PT011  # which one, the caller looks at
        timed(FakeClock(), {name: f"{body}\nclock.work(1)" for name, body in bodies.items()}, names=names, **plan)
    notes = getattr(caught.value, "__notes__", [])
    assert len(notes) <= 1
    return caught.value, notes[0] if notes else str(caught.value)


class Own:
    """An iterator that does not tell whether it has items left."""

    def __init__(self) -> None:
        self.at = 0

    def __next__(self) -> int:
        self.at += 1
        if self.at > 3:
            raise StopIteration
        return self.at


def supplies() -> dict[str, Any]:
    loader = torch.utils.data.DataLoader([*range(40)], batch_size=4)
    weight = torch.ones(3, requires_grad=True)
    made = {"listed": iter([0] * 500), "batches": iter(loader), "gen": (n for n in range(50)), "numbers": [1, 2, 3]}
    graphs = {"loss": (weight * weight).sum(), "weight": weight}
    return {**made, **graphs, "text": io.StringIO("a\nb\nc\n"), "own": Own()}


@pytest.mark.parametrize(
    ("body", "error", "said", "way"),
    [
        ("next(batches)", StopIteration, "`batches` was used up after 10 calls and has no items left", "`next(iter("),
        ("next(gen)", StopIteration, "`gen` was used up after 50 calls", "in the code"),
        ("next(listed)", StopIteration, "`listed` was used up after 500 calls", "or give `--restore`"),
        ("next(text)", StopIteration, "`text` was read to its end after 3 calls", "Open it in the code"),
        ("numbers.pop()", IndexError, "`numbers` was emptied after 3 calls", "or give `--restore`"),
        ("loss.backward()", RuntimeError, "The graph was used up by its first backward pass", "`retain_graph=True`"),
        ("torch.autograd.grad(loss, weight)", RuntimeError, "The graph was used up", "time forward and backward"),
    ],
)
@pytest.mark.parametrize("plan", [{}, {"number": 1, "repeat": 600}, {"number": 600}])
def test_what_earlier_calls_used_up_is_named_where_a_later_one_fails(
    body: str, error: Any, said: str, way: str, plan: dict[str, Any]
) -> None:
    caught, text = failed({"": body}, {**supplies(), "torch": torch}, **plan)
    assert isinstance(caught, error)
    assert text.startswith(said)
    assert way in text
    assert "\n" not in text


def test_restore_is_no_advice_where_it_was_given() -> None:
    for body in ("next(batches)", "next(gen)"):
        _, text = failed({"": body}, supplies(), restore=True, repeat=60)
        assert "was used up after" in text
        assert "--restore" not in text


def test_what_another_alternative_used_up_is_named_too() -> None:
    caught, text = failed({"a": "next(batches)", "b": "next(gen)"}, supplies())
    assert isinstance(caught, StopIteration)
    assert text.startswith("`batches` was used up and has no items left.")
    for plan in ({}, {"check": True}):
        _, text = failed({"a": "loss.backward()\n1", "b": "loss.backward()\n1"}, supplies(), **plan)
        assert text.startswith("The graph was used up by its first backward pass")


@pytest.mark.parametrize("body", ["next(own)", "own.at += 1; [1, 2, 3][own.at]"])
def test_a_later_call_that_fails_where_the_first_worked_says_so_beside_the_users_error(body: str) -> None:
    _, text = failed({"": body}, supplies())
    assert text.startswith("The first call worked; a later call in the timing loop failed.")


def test_a_number_that_went_on_past_the_end_is_named() -> None:
    _, text = failed({"": "[1, 2, 3, 4, 5, 6][at]; at += 1"}, {"at": 0})
    assert text.endswith("in the code itself. `--restore` puts `at` back before each call.")


def test_a_graph_that_is_there_is_not_accused() -> None:
    names = supplies() | {"torch": torch}
    names["loss"].backward()
    _, text = failed({"": "loss.item(); numbers.pop()"}, names)
    assert text.startswith("`numbers` was emptied")
    change = "weight.data.add_(1); loss.backward(retain_graph=True); weight.detach().add_(1)"
    caught, text = failed({"": change}, supplies())
    assert "inplace operation" in str(caught)
    assert "The graph" not in text


@pytest.mark.parametrize("body", ["next(iter([]))", "[next(gen) for _ in range(60)]", "loss.backward();" * 2])
def test_a_first_call_that_fails_by_itself_is_the_users_error_alone(body: str) -> None:
    caught, _ = failed({"": body}, supplies())
    assert not hasattr(caught, "__notes__")
    assert "used up" not in str(caught)


def test_a_first_call_that_fails_is_the_users_error_alone() -> None:
    with pytest.raises(IndexError) as caught:
        timed(FakeClock(), {"": "[].pop()"})
    assert not hasattr(caught.value, "__notes__")


def test_looking_asks_nothing_of_an_object_that_stands_for_another() -> None:
    class Proxy:
        __slots__ = ()

        @property
        def __class__(self) -> Any:  # type: ignore[override]
            raise RuntimeError("working outside of a context")

        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("working outside of a context")

    Proxy.__module__ = "__main__"
    proxy = Proxy()
    assert [one.label for one in search(["proxy"], ["x"], {"proxy": proxy}).items.values()] == ["proxy"]
    assert (is_used_up(proxy), at_end(proxy)) == (None, None)


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


# ---- who is meant ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of_rows", "whose"),
    [
        ([("a", "x ran once"), ("b", "")], " of `a`"),
        ([("a", "x ran once"), ("b", "y ran once"), ("c", "")], " of `a` and `b`"),
        ([("a", ""), ("b", "x ran once"), ("a", ""), ("b", "x ran 9 times")], " of `b`"),
        ([("a", "x ran once"), ("b", "y"), ("c", "z")], ""),
        ([(None, "x ran once")], ""),
    ],
)
def test_what_was_seen_of_several_rows_is_one_doubt_that_names_the_alternatives(
    of_rows: list[tuple[str | None, str]], whose: str
) -> None:
    subjects = [
        Subject(stmt="f()", description=name, used_up=(("less", text),) if text else ()) for name, text in of_rows
    ]
    (doubt,) = doubts_of_subjects(subjects)
    assert doubt.text.startswith(f"Later calls{whose} did not do the work of the first: x ran once")
    assert doubt.facts["rows"] == [row for row, (_, text) in enumerate(of_rows) if text]
    assert len(said(subjects)) == 1


@pytest.mark.parametrize("how", ["before", "less"])
def test_nobody_is_told_to_give_restore_who_gave_it(how: str) -> None:
    subjects = [Subject(stmt="f()", used_up=((how, "x"),))]
    (doubt,), (beside,) = doubts_of_subjects(subjects), doubts_of_subjects(subjects, restore=True)
    assert "`--restore`" in doubt.action
    assert "give `--restore`" not in beside.action
    assert "`--restore` works" not in beside.action
