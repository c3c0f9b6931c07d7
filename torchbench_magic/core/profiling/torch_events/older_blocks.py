"""Blocks that torch's CPU allocator gave out before a profile, made known to what reports memory to the profiler.

torch's CPU allocator remembers the size of a block only while a profiler records memory; the freeing of an older
block goes unreported, or is reported with the size that a block at the same address once had in an earlier
profile. So the storages of the tensors that live as a profile begins are entered into the reporter's table
(``c10::ProfiledCPUMemoryReporter::New``, as the allocator itself would have done), and what is left of them is taken
out again at its end. Device allocators report every freeing themselves. The reporter is reached by private symbols of
C++: `c10_symbols` says what is assumed, and what happens without them.

Tensors are found through Python's garbage collector, and from them their gradients. A block that only C++ holds (what
autograd saved and no Python name reaches) is not found: its freeing stays unseen.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, cast

from .c10_symbols import memory_reporter

__all__ = ["OlderBlocks", "living_blocks", "without_overrides"]


def living_blocks() -> dict[int, int]:
    """Address -> bytes of the CPU storages that a tensor known to Python holds."""
    import torch

    found: dict[int, int] = {}
    every = gc.get_objects()
    kinds = {kind for kind in set(map(type, every)) if issubclass(kind, torch.Tensor)}
    tensors = itertools.compress(every, map(kinds.__contains__, map(type, every)))  # a second for millions of objects
    with without_overrides():
        for tensor in itertools.chain.from_iterable(map(_parts, tensors)):
            with contextlib.suppress(RuntimeError, NotImplementedError, ValueError):  # fake, meta, wrapped
                # one that a compiler left behind is said to be on the CPU, and warns when it is asked
                if tensor.device.type == "cpu" and type(tensor).__name__ != "FakeTensor":
                    storage = tensor.untyped_storage()
                    if storage.nbytes() and storage.data_ptr():
                        found[storage.data_ptr()] = storage.nbytes()
    return found


def without_overrides() -> AbstractContextManager[Any]:
    """Within it what a tensor's subclass overrides does not run; without torch's private name it may."""
    import torch

    plain: Any = getattr(torch._C, "DisableTorchFunctionSubclass", contextlib.nullcontext)
    return cast("AbstractContextManager[Any]", plain())


def _parts(tensor: Any) -> Iterator[Any]:
    """The tensor, its gradient, and of a sparse one the tensors it is made of."""
    import torch

    each: Any
    todo = [tensor]
    with contextlib.suppress(RuntimeError, NotImplementedError):
        if tensor.is_leaf and tensor.grad is not None:
            todo.append(tensor.grad)
    for each in todo:
        try:
            layout = each.layout
        except (RuntimeError, NotImplementedError):
            continue
        if layout is torch.strided:
            yield each
        elif layout is torch.sparse_coo:
            yield each._indices()
            yield each._values()
        elif layout in (torch.sparse_csr, torch.sparse_bsr):
            yield from (each.crow_indices(), each.col_indices(), each.values())
        elif layout in (torch.sparse_csc, torch.sparse_bsc):
            yield from (each.ccol_indices(), each.row_indices(), each.values())


class OlderBlocks:
    """Enters living blocks into the reporter while a profiler that records memory runs.

    Attributes:
        nbytes: bytes of the blocks that were entered.
        known: whether older blocks could be entered; where not, their freeing is in no table.
    """

    def __init__(self) -> None:
        self.nbytes = 0
        self._entered: dict[int, int] = {}
        self._reporter = memory_reporter()

    @property
    def known(self) -> bool:
        return self._reporter is not None

    def enter(self) -> None:
        """Right after the profiler's start: the events of this come before the body's."""
        if self._reporter is None:
            return
        self._entered = living_blocks()
        self.nbytes = sum(self._entered.values())
        for address, nbytes in self._entered.items():
            self._reporter[0](address, nbytes)

    def leave(self) -> None:
        """Right before the profiler's stop. An entry that stayed would give a later block at its address its size."""
        if self._reporter is None:
            return
        for address in self._entered.keys() | living_blocks().keys():
            self._reporter[1](address)
        self._entered = {}
