"""Who holds which storage: found from names, without running the user's code, and holding nothing."""

from __future__ import annotations

import collections
import functools
import gc
import itertools
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.torch_versions import shows_what_graphs_save
from torchbench_magic.cell_body import CellText
from torchbench_magic.profiling.memory.holders import HeldBlock, Holdings, find_holders, last_value

CELL = {"__name__": "__main__"}


@pytest.fixture(autouse=True)
def no_last_error() -> Iterator[None]:
    """pytest keeps the last failure's frames there."""
    names = ("last_exc", "last_value", "last_traceback", "last_type")
    kept = {name: getattr(sys, name) for name in names if hasattr(sys, name)}
    for name in kept:
        delattr(sys, name)
    yield
    for name in names:
        if name in kept:
            setattr(sys, name, kept[name])
        elif hasattr(sys, name):
            delattr(sys, name)


def after(code: str, **names: Any) -> dict[str, Any]:
    """The namespace after a cell ran."""
    made: dict[str, Any] = {**CELL, "torch": torch, "functools": functools, "collections": collections, **names}
    exec(compile(code, "<cell>", "exec"), made)
    return made


def holder_of(namespace: dict[str, Any], tensor: torch.Tensor, **how: Any) -> HeldBlock | None:
    address = tensor.untyped_storage().data_ptr()
    found = find_holders(namespace, most_seconds=60, **how)  # the modules of all other tests are searched too
    return next((each for each in found.blocks if each.address == address), None)


WAYS = {
    "a variable": ("y = t", "`y`", "variable"),
    "a list": ("kept = [1, t]", "the list `kept`", "list"),
    "a dict of lists": ("log = {'loss': [t]}", "the dict `log`", "dict"),
    "a deque": ("queue = collections.deque([t])", "the deque `queue`", "deque"),
    "an attribute": (
        "class Box:\n    pass\nbox = Box(); box.inner = Box(); box.inner.t = t",
        "`box.inner.t`",
        "attribute",
    ),
    "a slot": ("class Box:\n    __slots__ = ('t',)\nbox = Box(); box.t = t", "`box`", "variable"),
    "a class": ("class Box:\n    items = [t]\nbox = Box()", "the list `Box.items`", "list"),
    "a class without an instance": ("class Box:\n    items = [t]", "the list `Box.items`", "list"),
    "a cache of a method": (
        "class Box:\n    @functools.lru_cache\n    def f(self):\n        return t\nBox().f()",
        "the cache of `Box.f`",
        "cache",
    ),
    "a closure": (
        "def make(kept):\n    def f():\n        return kept\n    return f\nf = make([t])",
        "`kept` in the closure of `f`",
        "closure",
    ),
    "a default": ("def f(x, past=[t]):\n    pass", "the default argument `past` of `f`", "default"),
    "a keyword's default": ("def f(*, past=t):\n    pass", "the default argument `past` of `f`", "default"),
    "a cache": ("@functools.lru_cache(maxsize=None)\ndef f(n):\n    return t\nf(1)", "the cache of `f`", "cache"),
    "a cache with a limit": (
        "@functools.lru_cache(maxsize=4)\ndef f(n):\n    return t\nf(1)",
        "the cache of `f`",
        "cache",
    ),
    "a hook": (
        """\
net = torch.nn.Sequential(torch.nn.ReLU())
def make(kept):
    return lambda *_: kept.append(1)
h = net[0].register_forward_hook(make([t])); del h""",
        "a hook of `net.0`",
        "hook",
    ),
    "a partial": ("f = functools.partial(print, t)", "`f`", "variable"),
    "a generator": ("def f():\n    held = t\n    yield\ng = f(); next(g)", "`g`", "variable"),
    "an array": ("a = t.numpy()", "`a`", "variable"),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_holder_is_named_as_the_reader_would_write_it(way: str) -> None:
    code, says, kind = WAYS[way]
    names = after(f"def start(t):\n    return t\nt = start(source.pop())\n{code}", source=[torch.rand(1000)])
    tensor = names.pop("t")
    if way.startswith("a cache") or way == "a generator":  # their code reads `t`; what they hold stays
        names["t"] = None
    found = holder_of(names, tensor)
    assert found is not None
    assert (says in found.holder, found.kind) == (True, kind), found
    assert found.nbytes == 4000


@shows_what_graphs_save
def test_the_graph_of_a_tensor_holds_what_it_saved() -> None:
    names = after("w = torch.rand(1000, requires_grad=True)\ninner = w.sin()\ntotal = inner.sin().sum()")
    inner = names.pop("inner")
    found = holder_of(names, inner.detach())
    assert found is not None
    assert (found.holder, found.kind, found.through_graph) == ("the autograd graph of `total`", "graph", True)


def test_a_graph_that_backward_has_freed_holds_nothing() -> None:
    names = after(
        "w = torch.rand(1000, requires_grad=True)\ninner = w.sin()\ntotal = inner.exp().sum()\ntotal.backward()"
    )
    inner = names.pop("inner")
    assert holder_of(names, inner.detach()) is None


def test_a_torch_that_does_not_show_what_graphs_save_is_named_where_there_is_a_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torchbench_magic.profiling.memory import holders

    monkeypatch.setattr(holders, "_reads_what_was_saved", lambda: False)  # as torch 2.9
    (said,) = find_holders(after("x = torch.rand(9, requires_grad=True)\ntotal = x.sin().sum()")).left_out
    assert said.startswith("what autograd graphs have saved")
    assert find_holders(after("x = torch.rand(9)")).left_out == ()


@shows_what_graphs_save
def test_a_graph_as_long_as_a_training_is_followed_to_its_end() -> None:
    code = "x = torch.rand(50, requires_grad=True)\ntotal = 0\nfor i in range(3000):\n    total = total + (x * i).sin()"
    found = find_holders(after(code), most_seconds=60)
    kept = [each for each in found.blocks if each.through_graph and each.name == "total"]
    assert len(kept) >= 3000, "what each sine has saved"
    assert {each.holder for each in kept} == {"the autograd graph of `total`"}


def test_objects_that_each_hold_the_one_before_are_a_chain() -> None:
    made = (
        "class Node:\n    def __init__(self, t, before):\n        self.t, self.before = t, before\n"
        "last = None\nfor i in range(20_000):\n    last = Node(torch.rand(3), last)"
    )
    found = [each for each in find_holders(after(made), most_seconds=60).blocks if each.name == "last"]
    assert len(found) == 20_000
    names = [(each.holder, each.kind) for each in found]
    assert names[:3] == [(f"`last.{'before.' * at}t`", "attribute") for at in range(3)]
    assert set(names[3:]) == {("the chain of `last.before`", "chain")}


def test_a_wrapper_in_a_wrapper_is_no_chain() -> None:
    made = "class W:\n    def __init__(self, inner):\n        self.inner = inner\nw = W(W(W(torch.rand(3))))"
    assert {each.kind for each in find_holders(after(made)).blocks if each.name == "w"} == {"attribute"}


def test_roles_are_told() -> None:
    names = after(
        "net = torch.nn.BatchNorm1d(500)\nopt = torch.optim.Adam(net.parameters())\n"
        "net(torch.rand(8, 500)).sum().backward()\nopt.step()"
    )
    net, opt = names["net"], names["opt"]
    state = opt.state[net.weight]["exp_avg"]
    assert [
        getattr(holder_of(names, each), "role", None) for each in (net.weight, net.running_mean, net.weight.grad, state)
    ] == [
        "parameter",
        "buffer",
        "gradient",
        "optimizer state",
    ]


def test_a_parameter_that_keys_an_optimizers_state_is_no_state() -> None:
    names = after("p = [torch.nn.Parameter(torch.rand(500))]\nopt = torch.optim.SGD(p, 0.1, momentum=0.9)\n"
                  "p[0].sum().backward()\nopt.step()\nheld = p.pop()\ndel held")  # only the optimizer leads to it
    (parameter,) = names["opt"].state
    buffer = names["opt"].state[parameter]["momentum_buffer"]
    assert [getattr(holder_of(names, each), "role", None) for each in (parameter, buffer, parameter.grad)] == [
        "parameter", "optimizer state", "gradient",
    ]  # fmt: skip


def test_a_limit_is_told() -> None:
    names = after("buffer = collections.deque(maxlen=7); buffer.append(torch.rand(10))")
    assert [each.limit for each in find_holders(names).blocks if each.name == "buffer"] == [7]


def test_an_output_is_the_holder_of_what_no_variable_leads_to() -> None:
    names = after("y = torch.rand(10)")
    lost = torch.rand(20)
    names["_oh"] = {3: names["y"], 4: lost}
    names |= {"Out": names["_oh"], "_": lost, "_4": lost, "_3": names["y"]}
    assert [(each.holder, each.kind) for each in find_holders(names).blocks] == [
        ("`y`", "variable"),
        ("`Out[4]`", "output"),
    ]


def test_the_value_of_the_last_expression_will_be_an_output() -> None:
    value = torch.rand(10)
    found = holder_of({**CELL}, value, last=last_value(value, CellText.of("x", "<cell>", 5)))
    assert found is not None
    assert (found.holder, found.kind) == ("`Out[5]` (the value of the cell's last expression)", "output")


def test_the_frames_of_the_last_error_are_holders() -> None:
    def fails() -> None:
        big = torch.rand(1000)
        addresses.append(big.untyped_storage().data_ptr())
        raise ValueError("no")

    addresses: list[int] = []
    try:
        fails()
    except ValueError as error:
        sys.last_value = error
    found = next(each for each in find_holders({**CELL}).blocks if each.address == addresses[0])
    assert found.kind == "traceback"
    assert found.holder == "`sys.last_value` (the frames of a ValueError)"


def test_the_search_holds_nothing_when_it_is_over() -> None:
    names = after("w = torch.rand(100, requires_grad=True)\ntotal = w.sin().exp().sum()\nkept = [torch.rand(100)]")
    watched = [weakref.ref(names["total"]), weakref.ref(names["kept"][0])]
    counts = sys.getrefcount(names["kept"])
    gc.disable()
    try:
        found = find_holders(names)
        now = sys.getrefcount(names["kept"])
        assert now == counts
        del names["total"], names["kept"]
        assert [each() for each in watched] == [None, None]
    finally:
        gc.enable()
    assert found.blocks


def test_no_code_of_the_user_runs() -> None:
    ran: list[str] = []

    class Odd:
        def __getattr__(self, name: str) -> Any:
            ran.append(name)
            raise RuntimeError

        @property
        def tensor(self) -> Any:
            ran.append("property")
            raise RuntimeError

        def __eq__(self, other: object) -> bool:
            ran.append("eq")
            return False

        __hash__ = None  # type: ignore[assignment]

    class Sub(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if watching:
                ran.append("torch_function")
            return super().__torch_function__(func, types, args, kwargs or {})

    class Table(dict[str, Any]):
        def items(self) -> Any:
            ran.append("items")
            return super().items()

    watching = False
    w = torch.rand(10, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: ("packed", t), lambda packed: ran.append("unpack")):
        out = w.sin()
    names = {**CELL, "odd": Odd(), "sub": torch.rand(10).as_subclass(Sub), "out": out, "table": Table(t=torch.rand(5))}
    watching = True
    found = find_holders(names)
    assert ran == []
    assert {"sub", "out", "table"} <= {each.name for each in found.blocks}


def test_what_was_not_searched_in_time_is_said() -> None:
    names = after("many = [[torch.rand(2)] for n in range(2000)]")
    clock = itertools.count(step=0.5)
    found = find_holders(names, clock=lambda: float(next(clock)), most_seconds=1.0)
    assert found.cut
    assert len(found.blocks) < 2000
    assert not find_holders(names, most_seconds=60).cut


def test_outputs_are_not_blamed_where_the_search_of_variables_was_cut_off() -> None:
    lost = torch.rand(20)
    names = after("many = [[torch.rand(2)] for n in range(2000)]") | {"_oh": {1: lost}}
    clock = itertools.count(step=0.5)
    found: Holdings = find_holders(names, clock=lambda: float(next(clock)), most_seconds=1.0)
    assert all(each.kind != "output" for each in found.blocks)


def test_names_of_users_cannot_break_the_sentence() -> None:
    class Box:
        pass

    box = Box()
    vars(box)["a`b\x1b[31m" + "c" * 100] = torch.rand(10)
    (found,) = [each for each in find_holders({**CELL, "box": box}).blocks if each.name == "box"]
    assert found.holder.count("`") == 2
    assert "\x1b" not in found.holder
    assert len(found.holder) < 60


def test_what_a_module_holds_is_a_parameter_though_a_graph_has_saved_it() -> None:
    made = "inner = torch.nn.Linear(50, 50)\nnet = [[[[inner]]]]\n"
    names = after(f"{made}x = torch.rand(3, 50, requires_grad=True)\ny = inner(x).exp()\ndel inner")
    weight = names["net"][0][0][0][0].weight
    found = holder_of(names, weight)
    assert found is not None
    assert (found.role, found.through_graph) == ("parameter", False)
