"""What autograd and optimizers keep beside the values of tensors goes along to another process, or is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from torchbench_magic.errors import CountError
from torchbench_magic.process.send import FOR_TIMING, pack_variables, unpack_variables


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
        torch.set_default_device(None)


def test_of_a_tensor_that_a_function_holds_the_function_is_not_blamed() -> None:
    held = torch.ones(2, requires_grad=True) * 2
    with pytest.raises(CountError, match=r"`f` \(function\) .*: a tensor that it holds is a result of autograd"):
        there(f=lambda: held.sum())
    with pytest.raises(CountError, match=r"`held` \(torch.Tensor\) .*: it is a result of autograd"):
        there(held=held)
