"""What is sent to another process: tensors with all that hangs on them, and the names that code looks for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from torchbench_magic.cell_body import Body
from torchbench_magic.counting.count import Job, _compiled
from torchbench_magic.errors import BodyError, CountError
from torchbench_magic.process import settings
from torchbench_magic.process.code import names_looked_up
from torchbench_magic.process.send import FOR_TIMING, pack_variables, unpack_variables
from torchbench_magic.timing.plan import Plan
from torchbench_magic.timing.sent_task import packed
from torchbench_magic.timing.task import Task

# ==== sent tensors ====================================================================================================
# What autograd and optimizers keep beside the values of tensors goes along to another process, or is refused.


def there(**names: Any) -> dict[str, Any]:
    """The variables as another process has them."""
    with pack_variables(list(names), names, purpose=FOR_TIMING) as parcel:
        return unpack_variables(parcel.data, parcel.storages, {})


def trained() -> tuple[torch.nn.Linear, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    model(torch.ones(4, 3)).sum().backward()
    return model, torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)


def test_gradients_go_along_so_that_a_step_does_its_work() -> None:
    model, opt = trained()
    got = there(model=model, opt=opt)
    assert torch.equal(got["model"].weight.grad, model.weight.grad)
    before = got["model"].weight.detach().clone()
    got["opt"].step()
    opt.step()
    assert not torch.equal(got["model"].weight, before)
    assert torch.equal(got["model"].weight, model.weight)


def test_views_of_a_gradient_stay_views_of_it() -> None:
    flat = torch.zeros(6)
    parameter = torch.nn.Parameter(torch.ones(6))
    parameter.grad = flat.view(6)
    got = there(flat=flat, parameter=parameter)
    got["flat"].fill_(3)
    assert got["parameter"].grad.tolist() == [3] * 6


def test_what_was_set_on_a_tensor_goes_along() -> None:
    leaf = torch.ones(2, requires_grad=True)
    leaf.scale = 3  # type: ignore[attr-defined]
    leaf.itself = leaf  # type: ignore[attr-defined]
    got = there(leaf=leaf)["leaf"]
    assert got.scale == 3
    assert got.itself is got


def test_hooks_of_tensors_go_along() -> None:
    seen: list[str] = []
    leaf = torch.ones(2, requires_grad=True)
    leaf.register_hook(lambda grad: seen.append("hook"))  # type: ignore[no-untyped-call]
    leaf.register_post_accumulate_grad_hook(lambda tensor: seen.append("after"))  # type: ignore[no-untyped-call]
    got = there(leaf=leaf, seen=seen)
    (got["leaf"] * 2).sum().backward()
    assert got["seen"] == ["hook", "after"]
    assert seen == []


def test_hooks_of_optimizers_go_along() -> None:
    _, opt = trained()
    seen: list[str] = []
    opt.register_step_pre_hook(lambda *_: seen.append("before"))
    opt.register_step_post_hook(lambda *_: seen.append("after"))
    got = there(opt=opt, seen=seen)
    got["opt"].step()
    assert got["seen"] == ["before", "after"]


@contextmanager
def hook_of_all_modules() -> Iterator[None]:
    handle = torch.nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        yield
    finally:
        handle.remove()


class Function(TorchFunctionMode):
    pass


class Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("entered", "said"),
    [
        (hook_of_all_modules, r"hooks of all modules \(`register_module_forward_hook` and the like\) are not sent"),
        (Function, "the active mode Function is not sent"),
        (Dispatch, "the active mode Dispatch is not sent"),
        (
            lambda: torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x),
            "active `saved_tensors_hooks` are not sent",
        ),
    ],
    ids=["hooks of all modules", "function mode", "dispatch mode", "saved tensors"],
)
def test_what_belongs_to_the_process_is_refused_with_the_way_out(
    entered: Callable[[], AbstractContextManager[Any]], said: str
) -> None:
    with entered(), pytest.raises(CountError, match=f"{said} to another process: do it in the setup, which runs in"):
        there(x=1)
    with entered():
        pack_variables([], {}).close()  # of a C++ snippet, which has nothing of Python's
    assert there(x=1) == {"x": 1}


def test_a_default_device_is_no_mode_that_is_refused() -> None:
    torch.set_default_device("cpu")
    try:
        assert there(x=1) == {"x": 1}
    finally:
        settings._put_device(None)


def test_of_a_tensor_that_a_function_holds_the_function_is_not_blamed() -> None:
    held = torch.ones(2, requires_grad=True) * 2
    with pytest.raises(CountError, match=r"`f` \(function\) .*: a tensor that it holds is a result of autograd"):
        there(f=lambda: held.sum())
    with pytest.raises(CountError, match=r"`held` \(torch.Tensor\) .*: it is a result of autograd"):
        there(held=held)


# ==== names looked up =================================================================================================
# Which names code may look for among the globals: not those of attributes, unless it can look by text.


@pytest.mark.usefixtures("closed")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x.mean()", {"x"}),
        ("import sys\nif x: sys.exit()", {"x", "sys"}),
        ("x.y.z = w.v", {"x", "w"}),
        ("def f(a):\n    return a.mean() + b.c\nf(1)", {"f", "b"}),
        ("class A:\n    n = N\n    def m(self): return self.q + M", {"__name__", "N", "M"}),
        ("[k.a for k in ks]", {"ks"}),
        ("del x", {"x"}),
        ("def f():\n    global g\n    del g\nf()", {"f", "g"}),
        ("from os import path as p", set()),
        ("getattr(x, 'mean')()", {"getattr", "x"}),
        ("eval('a + b.c')", {"eval", "a", "b", "c"}),
        ("builtins.eval('a')", {"builtins", "eval", "a"}),
        ("globals()['a'].mean()", {"globals", "a", "mean"}),
        ("import __main__\n__main__.a.b", {"__main__", "a", "b"}),
    ],
)
def test_attributes_are_no_variables(text: str, found: set[str]) -> None:
    assert names_looked_up(compile(text, "<cell>", "exec")) == found


NAMES: dict[str, Any] = {
    "x": torch.ones(3),
    "mean": (n for n in range(3)),
    "exit": open(os.devnull),  # noqa: SIM115  (what cannot be sent)
}


@pytest.fixture(scope="module")
def closed() -> Iterator[None]:
    yield
    NAMES["exit"].close()


CODE = "import sys\nif x.mean() < 0: sys.exit()"


@pytest.mark.usefixtures("closed")
def test_a_variable_called_as_an_attribute_does_not_keep_code_from_other_processes() -> None:
    task = Task({"one": Body(CODE, "<one>")}, setup=[Body("x.mean()", "<setup>")], plan=Plan(), namespace=NAMES)
    _, parcel = packed(task, [], awaits=False)
    parcel.__exit__(None, None, None)


@pytest.mark.usefixtures("closed")
@pytest.mark.parametrize("form", ["function", "module"])
def test_nor_from_being_counted(form: Any) -> None:
    job = Job(Body(CODE, "<one>"), NAMES, form=form, setup="x.mean()")
    _, used, words = _compiled(job)
    assert not {"mean", "exit"} & used
    with pack_variables(used, NAMES, words=words):
        pass


@pytest.mark.usefixtures("closed")
def test_a_variable_that_a_text_names_travels_and_is_refused_by_its_name() -> None:
    task = Task({"one": Body("eval('next(mean)')", "<one>")}, plan=Plan(), namespace=NAMES)
    with pytest.raises(BodyError, match=r"`mean` .*generator.* cannot be sent"):
        packed(task, [], awaits=False)
