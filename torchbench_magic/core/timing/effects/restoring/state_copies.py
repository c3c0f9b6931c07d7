"""Copies of the state that timed code reaches, from which it is put back in place: values, gradients, their holders,
whether modules train.

The copy goes back into the same tensor and the same dict: another buffer can differ in speed by up to 11 %, and what
the user's names and the optimizer refer to stays what it was. Whether a tensor changed is told by its in-place version
where the code's operations count it; some do not (running statistics of a batch norm, state of a fused optimizer,
whatever goes through ``.data``): these are found by comparing values, where there is time for it.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any

from .array_copies import ArrayCopies
from .generator_copies import GeneratorCopies
from .held_state import HeldState
from .sparse_values import hold_equal_entries, is_coo, put_entries

__all__ = ["StateCopies", "hold_equal_values", "version"]

_ABSENT = object()


@dataclass
class _Kept:
    """One tensor as it was: ``data`` shares its memory, ``copy`` holds its values."""

    label: str
    tensor: Any
    data: Any
    copy: Any
    at: int
    version: int
    has_grad: bool
    requires_grad: bool
    grad: Any = None
    is_uncounted: bool = False


@dataclass
class StateCopies:
    """The state as it is now; `restore` puts it back.

    Attributes:
        late: labels of the tensors that were seen to change only by `restore_all` at the end, after blocks that had
            found them changed.
        unrestored: labels of those that changed and cannot be written to, with their values.
    """

    held: HeldState
    late: list[str] = field(default_factory=list)
    unrestored: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._kept: list[_Kept] = []
        grads: list[tuple[str, Any]] = []
        for label, tensor in self.held.tensors.values():
            self._keep(label, tensor)
            if self._kept[-1].grad is not None:
                grads.append((f"{label}.grad", self._kept[-1].grad))
        for label, grad in grads:
            if id(grad) not in self.held.tensors:
                self._keep(label, grad)
        self._holders = [(held, held.copy()) for _, held in self.held.holders.values()]
        self._modes = [(inside, inside["training"]) for inside in self.held.modes.values()]
        self._arrays = ArrayCopies(self.held.roots)
        self._generators = GeneratorCopies(self.held.roots)

    def _keep(self, label: str, tensor: Any) -> None:
        has_grad = tensor.is_leaf and tensor.requires_grad
        kept = _Kept(
            label, tensor, tensor.detach(), _copy(tensor), _address(tensor), version(tensor), has_grad,
            tensor.requires_grad,
        )  # fmt: skip
        kept.grad = tensor.grad if has_grad else None
        self._kept.append(kept)

    def restore(self) -> None:
        """Put back what is known to have changed: outside the clocks, before each block."""
        import torch

        with torch.no_grad():
            for held, items in self._holders:
                if held or items:
                    _put_items(held, items)
            for inside, mode in self._modes:
                inside["training"] = mode
            for kept in self._kept:
                self._put_object(kept)
                if kept.is_uncounted or version(kept.tensor) != kept.version:
                    self._put_values(kept)
        self._arrays.restore()

    def restore_all(self, *, is_last: bool = False) -> None:
        """The same, and compare the values of the rest: those found changed are put back from now on."""
        self.restore()
        for kept in self._kept:
            if not kept.is_uncounted and kept.copy is not None and not hold_equal_values(kept.tensor, kept.copy):
                kept.is_uncounted = True
                if is_last and kept.label not in self.unrestored:
                    self.late.append(kept.label)
                self._put_values(kept)
        self._generators.restore_all()
        self._arrays.restore_all(is_last=is_last)
        if is_last:
            self.late += [label for label in self._arrays.late if label not in self.late]
        self.unrestored += [label for label in self._arrays.unrestored if label not in self.unrestored]

    @property
    def have_drawn(self) -> bool:
        """Whether a random generator of the code's own was drawn from when all was put back."""
        return self._generators.have_drawn

    def changed(self) -> dict[str, tuple[Any, Any]]:
        """Label -> (before, now) of the tensors, gradients and arrays that are not as they were; None where there was
        none. ``now`` is the object itself, ``before`` its copy."""
        found = self._arrays.changed()
        for kept in self._kept:
            if kept.copy is not None and not hold_equal_values(kept.tensor, kept.copy):
                found[kept.label] = (kept.copy, kept.tensor)
            if kept.has_grad and kept.tensor.grad is not kept.grad:
                found[f"{kept.label}.grad"] = (kept.grad, kept.tensor.grad)
        return found

    def _put_object(self, kept: _Kept) -> None:
        """The memory, the gradient and the flag of a tensor, where code gave it others."""
        tensor = kept.tensor
        if _address(tensor) != kept.at or tensor.shape != kept.data.shape or tensor.dtype != kept.data.dtype:
            tensor.data = kept.data
        if tensor.requires_grad is not kept.requires_grad and tensor.is_leaf:
            tensor.requires_grad_(kept.requires_grad)
        if kept.has_grad and tensor.grad is not kept.grad:
            tensor.grad = kept.grad

    def _put_values(self, kept: _Kept) -> None:
        import torch

        if kept.copy is None:
            self._unrestored(kept)
            return
        try:
            if is_coo(kept.copy):
                put_entries(kept.tensor, kept.copy)
            elif kept.tensor.is_inference():
                with torch.inference_mode():
                    _once(kept.tensor).copy_(_once(kept.copy))
            else:
                with torch.no_grad():  # through .data: the version counts only what the code changes
                    _once(kept.tensor.data).copy_(_once(kept.copy))
        except RuntimeError:  # memory that several elements share, or a kind of tensor that is not written to
            self._unrestored(kept)
        kept.version = version(kept.tensor)

    def _unrestored(self, kept: _Kept) -> None:
        if kept.label not in self.unrestored:
            self.unrestored.append(kept.label)
        kept.version = version(kept.tensor)


def version(tensor: Any) -> int:
    """In-place changes that were counted; 0 of inference tensors, which keep no count."""
    try:
        return int(tensor._version)
    except RuntimeError:
        return 0


def hold_equal_values(one: Any, other: Any) -> bool:
    """Whether two tensors hold the same; one that is not a number equals itself. What cannot be compared, such as some
    sparse tensors, is taken for the same: there the versions tell."""
    import torch

    try:
        if one.shape != other.shape or one.dtype != other.dtype:
            return False
        if is_coo(one) and is_coo(other):
            return hold_equal_entries(one, other)
        one, other = one.detach(), other.detach()
        if one.layout is torch.strided and _once(one).shape == _once(other).shape:
            one, other = _once(one), _once(other)
        return torch.equal(one, other) or bool(((one == other) | ((one != one) & (other != other))).all())
    except (RuntimeError, NotImplementedError, TypeError, AttributeError):  # the last of jagged ones, in torch itself
        return True


def _copy(tensor: Any) -> Any:
    """Its values; None where there are none (meta)."""
    if tensor.is_meta:
        return None
    tensor = tensor.detach()
    once = _once(tensor)
    return tensor.clone() if once is tensor else once.clone().expand(tensor.shape)


def _once(tensor: Any) -> Any:
    """A view of it that has each element once, where dimensions repeat theirs, as those of ``expand`` do."""
    import torch

    if tensor.layout is not torch.strided or tensor.is_nested:
        return tensor
    for at, (size, step) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if size > 1 and not step:
            tensor = tensor.narrow(at, 0, 1)
    return tensor


def _address(tensor: Any) -> int:
    if type(tensor).__name__ == "FakeTensor":
        return 0
    try:
        return int(tensor.data_ptr())
    except (RuntimeError, NotImplementedError):  # sparse, and others without one memory
        return 0


def _put_items(held: Any, items: Any) -> None:
    """Have a dict or a list hold the objects that it held; broken off in between, it lacks none of them."""
    if isinstance(held, list):
        if len(held) != len(items) or not all(map(operator.is_, held, items)):
            held[:] = items
        return
    for key, value in items.items():
        if held.get(key, _ABSENT) is not value:
            held[key] = value
    if len(held) != len(items):
        for key in [key for key in held if key not in items]:
            del held[key]
