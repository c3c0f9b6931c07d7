"""Tensors, and what autograd and optimizers keep beside them, on their way to another process.

A pickled tensor is its values. Code also works on its gradient, its hooks and attributes that were set on it, and an
optimizer has hooks of its own: a step on parameters without gradients does nothing. Hooks of all modules, and modes
that were entered, belong to the process: code is not sent without them.

Private to torch: ``Tensor._backward_hooks``, ``_post_accumulate_grad_hooks``, the names of the hooks of optimizers and
of all modules, the stacks of modes. Where one is not there, none of its kind is known.
"""

from __future__ import annotations

import copyreg
import sys
from typing import Any

import torch

from .pickled_objects import CannotTravel

__all__ = ["check_process_state", "reduced_optimizer", "reduced_tensor"]

_BESIDE = ("_backward_hooks", "_post_accumulate_grad_hooks")


def reduced_tensor(obj: torch.Tensor) -> tuple[Any, ...]:
    """How to pickle a strided tensor or parameter: the place of its storage, and what it has beside its values."""
    seen = (tuple(obj.shape), obj.stride(), obj.storage_offset())
    marks = (obj.requires_grad, type(obj) is torch.nn.Parameter, obj.is_conj(), obj.is_neg())
    made = _rebuilt, (obj.untyped_storage(), obj.dtype, *seen, *marks)
    beside = {name: hooks for name in _BESIDE if (hooks := getattr(obj, name, None))}
    if obj.is_leaf and obj.grad is not None:
        beside["grad"] = obj.grad
    own = {name: value for name, value in vars(obj).items() if not name.startswith("_dynamo")}
    return (*made, (own, beside), None, None, _put_beside) if own or beside else made


def _rebuilt(
    storage: Any,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    offset: int,
    requires_grad: bool,
    is_parameter: bool,
    is_conj: bool,
    is_neg: bool,
) -> torch.Tensor:
    tensor: torch.Tensor = torch.empty(0, dtype=dtype).set_(storage, offset, shape, stride)
    if is_conj:
        tensor = tensor.conj()
    if is_neg:
        tensor = torch._neg_view(tensor)
    if is_parameter:
        return torch.nn.Parameter(tensor, requires_grad=requires_grad)
    return tensor.requires_grad_(requires_grad)


def _put_beside(tensor: torch.Tensor, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
    own, beside = state
    vars(tensor).update(own)
    for name, value in beside.items():
        setattr(tensor, name, value)


def reduced_optimizer(obj: object) -> tuple[Any, ...] | None:
    """How to pickle an optimizer whose steps have hooks, which its own pickling leaves out; None for anything else."""
    kind = getattr(sys.modules.get("torch.optim.optimizer"), "Optimizer", None)
    if kind is None or not issubclass(type(obj), kind) or type(obj).__getstate__ is not kind.__getstate__:
        return None
    hooks = {name: value for name, value in vars(obj).items() if name.endswith("_hooks") and value}
    state: Any = obj.__getstate__()
    return (copyreg.__newobj__, (type(obj),), state | hooks) if hooks else None  # type: ignore[attr-defined]


def check_process_state() -> None:
    """
    Raises:
        CannotTravel: what belongs to this process would be left out by code that runs in another.
    """
    modules = torch.nn.modules.module
    if any(value for name, value in vars(modules).items() if name.startswith("_global_") and name.endswith("_hooks")):
        raise CannotTravel("hooks of all modules (`register_module_forward_hook` and the like) are not sent")
    overrides, dispatch = torch.overrides, torch.utils._python_dispatch
    stacks: tuple[list[Any], ...] = (
        getattr(overrides, "_get_current_function_mode_stack", list)(),
        getattr(dispatch, "_get_current_dispatch_mode_stack", list)(),
    )
    for mode in (mode for stack in stacks for mode in stack):
        if type(mode).__name__ != "DeviceContext":  # of `torch.set_default_device`, which is a setting that is sent
            raise CannotTravel(f"the active mode {type(mode).__name__} is not sent")
    top = getattr(getattr(torch._C, "_autograd", None), "_top_saved_tensors_default_hooks", None)
    if top is not None and top(True) is not None:
        raise CannotTravel("active `saved_tensors_hooks` are not sent")
