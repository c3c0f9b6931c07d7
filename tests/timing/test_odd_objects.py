"""Objects and modes whose own code raises, lies or watches: a cell that only names them is timed as any other."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack, is_in_torch_dispatch_mode

from torchbench_magic.cell_body import Body
from torchbench_magic.levers.trial import try_levers
from torchbench_magic.process.settings import inside_modes, outside_modes, preserved_state
from torchbench_magic.timing.plan import Plan
from torchbench_magic.timing.task import Task

from .fake_clock import FakeClock, timed


class Refused(Exception):
    """No exception that anything would raise but these objects."""


def refuse(*_: Any, **__: Any) -> Any:
    raise Refused


class WithoutClass:
    __class__ = property(refuse)  # type: ignore[assignment]


class CalledTensor:
    __class__ = property(lambda self: torch.Tensor)  # type: ignore[assignment]


class CalledClass:
    __class__ = property(lambda self: type)  # type: ignore[assignment]


class OddDict(dict):  # type: ignore[type-arg]
    __len__ = __iter__ = __getitem__ = items = keys = values = copy = refuse


class OddList(list):  # type: ignore[type-arg]
    __iter__ = __getitem__ = copy = refuse

    def __len__(self) -> int:
        return -1  # noqa: PLE0303


class OfFunctions(torch.Tensor):
    __torch_function__ = classmethod(refuse)  # type: ignore[assignment]


class Wrapper(torch.Tensor):
    """Has no memory of its own."""

    __torch_dispatch__ = classmethod(refuse)
    __torch_function__ = torch._C._disabled_torch_function_impl


class Bare(torch.nn.Module):
    """Its own ``__init__`` calls no other: it has none of the attributes of a module."""

    def __init__(self) -> None:
        pass


def dead() -> Any:
    gone = Bare()
    proxy = weakref.proxy(gone)
    del gone
    gc.collect(0)
    return proxy


ODD = {
    "dead proxy": dead,
    "no class": WithoutClass,
    "says it is a tensor": CalledTensor,
    "says it is a class": CalledClass,
    "dict": lambda: OddDict(a=torch.ones(2)),
    "list": lambda: OddList([torch.ones(2)]),
    "function handler": lambda: torch.ones(3).as_subclass(OfFunctions),
    "dispatch handler": lambda: torch.Tensor._make_wrapper_subclass(Wrapper, (3,)),
    "bare module": Bare,
}


@pytest.mark.parametrize("restore", [False, True])
@pytest.mark.parametrize("kind", ODD)
def test_a_cell_that_only_names_an_odd_object_is_timed(kind: str, restore: bool) -> None:
    odd = ODD[kind]()
    names = {"odd": odd, "held": [odd], "by_name": {"odd": odd}}
    bodies = {n: f"odd, held, by_name\nclock.work({n})" for n in ("10", "20")}
    result = timed(FakeClock(), bodies, names=names, number=1, repeat=6, restore=restore, check=False)
    assert result.frame["median"].tolist() == pytest.approx([10e-6, 20e-6])


class Lazy:
    """Makes what it stands for when it is asked for its class, as proxies do."""

    made = 0

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # type: ignore[override]
        type(self).made += 1
        return int


@pytest.mark.parametrize("restore", [False, True])
def test_a_proxy_is_not_asked_for_its_class(restore: bool) -> None:
    names = {"lazy": Lazy(), "held": [Lazy()], "by_name": {"lazy": Lazy()}}
    timed(FakeClock(), {"": "lazy, held, by_name\nclock.work(10)"}, names=names, number=1, repeat=6, restore=restore)
    assert Lazy.made == 0


@pytest.mark.parametrize(
    ("code", "error"),
    [("odd.x", ReferenceError), ("len(items)", Refused), ("t + 1", Refused), ("isinstance(odd, int)", ReferenceError)],
)
def test_what_the_code_itself_asks_raises_as_it_is(code: str, error: type[Exception]) -> None:
    names = {"odd": dead(), "items": OddDict(), "t": ODD["function handler"]()}
    with pytest.raises(error):
        timed(FakeClock(), {"": code}, names=names)


def test_a_cell_with_odd_objects_is_tried(counting: Counting) -> None:
    kinds = ("no class", "says it is a class", "function handler")
    names = {"torch": torch, "odd": {kind: ODD[kind]() for kind in kinds}, "own": ODD["function handler"]()}
    counting.seen.clear()
    cell = "odd, own, torch.ones(2)\nclock.work(10)"
    clock = FakeClock()
    plan = Plan(levers=("inference_mode",), min_run_time=0.05, threads=(1,), seed=0)
    task = Task({"": Body(cell, "<cell>")}, namespace={"clock": clock, **names}, plan=plan, clocks=clock.clocks)
    assert try_levers(task).frame["description"].tolist() == ["as it is", "inference_mode"]
    assert {*counting.seen} == {"aten.ones.default"}


def test_odd_objects_in_a_result_are_compared_by_what_they_hold() -> None:
    names = {"odd": {kind: ODD[kind]() for kind in ("no class", "says it is a class", "function handler")}}
    bodies = {name: f"clock.work({name})\nodd" for name in ("10", "20")}
    made = timed(FakeClock(), bodies, names=names, number=1, repeat=6, check=True)
    assert "unlike-results" not in _doubts(made)


class Counting(TorchDispatchMode):
    """Counts what it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(op))
        return op(*args, **(kwargs or {}))


@pytest.fixture
def counting() -> Iterator[Counting]:
    with Counting() as mode:
        yield mode


def _doubts(made: Any) -> dict[str, str]:
    return {doubt.kind: doubt.text for doubt in made.warnings}


@pytest.mark.parametrize("restore", [False, True])
def test_a_mode_of_the_session_sees_the_code_and_nothing_that_measures_it(counting: Counting, restore: bool) -> None:
    names = {"x": torch.ones(10), "g": torch.Generator(), "torch": torch}
    counting.seen.clear()
    made = timed(FakeClock(), {"": "x.neg()\nclock.work(10)"}, names=names, number=1, repeat=6, restore=restore)
    assert {*counting.seen} == {"aten.neg.default"}
    assert f"dispatch mode {__name__}.Counting" in _doubts(made)["hooks"]
    assert _get_current_dispatch_mode_stack() == [counting]


def test_a_mode_that_results_are_checked_under_sees_the_code_alone(counting: Counting) -> None:
    names = {"x": torch.ones(10)}
    counting.seen.clear()
    bodies = {name: f"clock.work({name})\n-x" for name in ("10", "20")}
    timed(FakeClock(), bodies, names=names, number=1, repeat=6, check=True)
    assert {*counting.seen} == {"aten.neg.default"}


def test_a_cell_in_fake_mode_is_timed_and_the_mode_is_told() -> None:
    with FakeTensorMode():
        made = timed(FakeClock(), {"": "torch.ones(3) + 1\nclock.work(10)"}, names={"torch": torch}, number=1, repeat=6)
        with preserved_state():
            pass
    assert "dispatch mode torch._subclasses.fake_tensor.FakeTensorMode" in _doubts(made)["hooks"]


def test_a_fake_mode_that_the_code_leaves_on_ends_with_the_cell() -> None:
    code = "FakeTensorMode().__enter__()\ntorch.ones(3) + 1\nclock.work(10)"
    names = {"torch": torch, "FakeTensorMode": FakeTensorMode}
    made = timed(FakeClock(), {"": code}, names=names, number=1, repeat=6)
    assert "runs with dispatch mode torch._subclasses.fake_tensor.FakeTensorMode" in _doubts(made)["changes-state"]
    assert type(torch.ones(1)) is torch.Tensor
    assert not is_in_torch_dispatch_mode(include_infra_modes=False), "by which the compiler of torch 2.8 goes"


def test_a_mode_that_the_setup_leaves_on_is_in_the_row_and_ends_with_the_cell() -> None:
    mode = Counting()
    names = {"mode": mode, "x": torch.ones(2)}
    made = timed(
        FakeClock(), {"": "x.neg()\nclock.work(10)"}, setup=["mode.__enter__()"], names=names, number=1, repeat=6
    )
    assert [subject.state for subject in made.subjects] == [(f"dispatch mode {__name__}.Counting",)]
    assert {*mode.seen} == {"aten.neg.default"}
    assert "hooks" not in _doubts(made)
    assert _get_current_dispatch_mode_stack() == []


def test_a_mode_that_the_code_takes_away_is_there_after_the_cell(counting: Counting) -> None:
    code = "if stack(): stack()[-1].__exit__(None, None, None)\nclock.work(10)"
    made = timed(FakeClock(), {"": code}, names={"stack": _get_current_dispatch_mode_stack}, number=1, repeat=6)
    assert "runs with no dispatch mode" in _doubts(made)["changes-state"]
    assert _get_current_dispatch_mode_stack() == [counting]


class Clinging(Counting):
    """Does not let itself be left."""

    def __exit__(self, *_: Any) -> None:
        raise Refused


def test_a_mode_whose_exit_raises_ends_all_the_same() -> None:
    timed(FakeClock(), {"": "Clinging().__enter__()\nclock.work(10)"}, names={"Clinging": Clinging}, number=1, repeat=6)
    assert _get_current_dispatch_mode_stack() == []
    assert not is_in_torch_dispatch_mode(include_infra_modes=False), "by which the compiler of torch 2.8 goes"


def test_within_each_other_the_innermost_counts(counting: Counting) -> None:
    own = torch.ones(3).as_subclass(OfFunctions)
    counting.seen.clear()
    with outside_modes(), outside_modes():
        torch.ones(2)
        own.add(1)
        with inside_modes(), inside_modes():
            torch.ones(2)
            with pytest.raises(Refused):
                own.add(1)
            with outside_modes():
                torch.ones(2)
            inner = Counting()
            inner.__enter__()
        torch.ones(2)
    assert len(counting.seen) == 1
    assert _get_current_dispatch_mode_stack() == [counting, inner]
    inner.__exit__(None, None, None)


@pytest.mark.parametrize("where", ["setup", "code", "session"])
@pytest.mark.parametrize("put", [sys.setprofile, sys.settrace])
def test_a_tracer_is_said_to_be_of_the_session_only_where_it_was_there_before(where: str, put: Any) -> None:
    def hook(*_: Any) -> None:
        pass

    sets, read = "put(hook)", {sys.setprofile: sys.getprofile, sys.settrace: sys.gettrace}[put]
    code, setup = f"{sets if where == 'code' else 'pass'}\nclock.work(10)", [sets] if where == "setup" else []
    before = read()
    if where == "session":
        put(hook)
    try:
        made = timed(FakeClock(), {"": code}, setup=setup, names={"put": put, "hook": hook}, number=1, repeat=6)
        left = read()
    finally:
        put(before)
    assert left is (hook if where == "session" else before)
    assert ("hooks" in _doubts(made)) is (where == "session" or before is not None)
    assert ("changes-state" in _doubts(made)) is (where == "code")
    assert [bool(subject.state) for subject in made.subjects] == [where != "session"]


def test_a_tensor_that_was_looked_at_can_be_resized() -> None:
    """NumPy would share its memory, which then cannot be."""
    y, out = torch.ones(4), torch.empty(0)
    timed(FakeClock(), {"": "clock.work(10); y.sum(); out.numel()"}, names={"y": y, "out": out})
    assert y.resize_(8).shape == (8,)
    assert torch.exp(torch.ones(5), out=out).shape == (5,)
