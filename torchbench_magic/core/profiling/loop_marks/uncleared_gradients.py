"""Which optimizers step on gradients that nothing has cleared since their last step.

Of each optimizer one gradient is looked at, before and after each backward pass: as long as it is the same memory with
the same version (the count of writes that torch keeps of a tensor), nobody has cleared it, by whatever means. A write
between two passes is taken for clearing, so that code that changes gradients itself is left alone. Writes through
``.data`` are in no version: so a few of its numbers have to be the same too, on the CPU, where a look waits for
nothing. They are read from its memory: an operation of torch would be in the profile.
No reference to a gradient is kept: a cleared one is freed as ever.

An optimizer whose gradients were cleared once is left alone as long as the same line of code steps it: what is asked is
whether a loop never clears them, and looks cost some 10 us of a step, whose work leaves the processor's caches cold.
"""

from __future__ import annotations

import contextlib
import ctypes
import weakref
from dataclasses import dataclass
from typing import Any

__all__ = ["UnclearedGradients"]

_Look = tuple[int, int, bytes]

_MOST = 64  # optimizers: one for each parameter is another kind of loop


@dataclass(slots=True)
class _Watched:
    """An optimizer that has stepped, and one of its parameters.

    Attributes:
        seen: (address, version, a few numbers) of that one's gradient.
        is_kept: nothing has cleared it since the last step; ``is_added_to``: and a backward pass has added to it.
    """

    optimizer: weakref.ref[Any]
    parameter: weakref.ref[Any]
    seen: _Look | None
    is_kept: bool = True
    is_added_to: bool = False


class UnclearedGradients:
    """Told of backward passes and of optimizers' steps, on the thread of the loop.

    Attributes:
        watched: as long as it is empty, nobody needs to tell of backward passes.
        depth: of backward passes within each other; who calls them counts it.
        left_alone: numbers of optimizers with where they are stepped (a code's id and the place in it); nobody needs to
            tell of these.
    """

    def __init__(self) -> None:
        self.watched: dict[int, _Watched] = {}  # by id of the optimizer
        self.left_alone: set[tuple[int, int, int]] = set()
        self.depth = 0

    def backward_begins(self) -> None:
        if self.depth:
            return
        for each in self.watched.values():
            each.is_kept = each.is_kept and each.seen is not None and _seen(each.parameter()) == each.seen

    def backward_ends(self) -> None:
        if self.depth:
            return
        for each in self.watched.values():
            now = _seen(each.parameter())
            if now is not None and each.seen is not None and now[0] == each.seen[0]:
                each.is_added_to = each.is_added_to or now[1] > each.seen[1]
            each.seen = now

    def stepped(self, optimizer: Any, key: tuple[int, int, int]) -> bool:
        """An optimizer has made a step. Whether nothing had cleared its gradients since the one before.

        Args:
            key: the optimizer's number and where it is stepped, none of `left_alone`.
        """
        if self.depth:  # within the backward pass, parameter by parameter
            return False
        known = self.watched.get(id(optimizer))
        if known is None or known.optimizer() is not optimizer:
            self._watch(optimizer)
            return False
        found, now = known.is_kept and known.is_added_to, _seen(known.parameter())
        if not known.is_kept:
            del self.watched[id(optimizer)]
            self.left_alone.add(key)
        elif now is None:  # of another parameter, then
            self._watch(optimizer)
        else:
            known.seen, known.is_kept, known.is_added_to = now, True, False
        return found

    def _watch(self, optimizer: Any) -> None:
        self.watched.pop(id(optimizer), None)
        if len(self.watched) >= _MOST:
            self.watched = {key: each for key, each in self.watched.items() if each.optimizer() is not None}
        with contextlib.suppress(Exception):  # a user's optimizer may be anything
            with_gradient = [
                each for group in optimizer.param_groups for each in group["params"] if each.grad is not None
            ]
            by_numbers = (each for each in with_gradient if any(_numbers(each.grad)))  # zeros do not tell
            parameter = next(by_numbers, with_gradient[0] if with_gradient else None)
            if parameter is not None and len(self.watched) < _MOST:
                references = weakref.ref(optimizer), weakref.ref(parameter)
                self.watched[id(optimizer)] = _Watched(*references, _seen(parameter))


def _seen(parameter: Any) -> _Look | None:
    """(address, version, a few numbers) of a parameter's gradient; None where it has none, or one that has no memory.
    No numbers of a device's tensors, which would have to be waited for."""
    try:
        gradient = parameter.grad
        return None if gradient is None else (gradient.data_ptr(), gradient._version, _numbers(gradient))
    except Exception:  # noqa: BLE001  # the parameter is gone; a wrapper of tensors has no address
        return None


def _numbers(gradient: Any) -> bytes:
    """The first, the middle and the last; empty where they cannot be read at no cost."""
    import torch

    if type(gradient) is not torch.Tensor or not gradient.is_cpu or not gradient.is_contiguous():
        return b""
    size, count, address = gradient.element_size(), gradient.numel(), gradient.data_ptr()
    if not address or not count or (gradient.storage_offset() + count) * size > gradient.untyped_storage().nbytes():
        return b""
    return b"".join(ctypes.string_at(address + at * size, size) for at in (0, count // 2, count - 1))
