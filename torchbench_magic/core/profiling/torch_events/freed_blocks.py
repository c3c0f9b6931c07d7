"""Finds the allocation of each free. Kineto's memory events do not hold addresses; the nodes of its tree do."""

from __future__ import annotations

from array import array
from collections import defaultdict
from itertools import chain, compress, count
from operator import not_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .torch_profiler import tree_types

__all__ = ["Ints", "number_blocks"]

Ints = NDArray[np.int64]

_AT_ONCE = 256  # roots whose trees are read together: the processor still holds what it just touched
_NAME = "[memory]"  # torch's name of an allocation or a freeing


def number_blocks(results: Any, start: Ints, nbytes: Ints) -> tuple[Ints, Ints, bool]:
    """A number for the block of each memory event: an allocation and the event that frees it share it; -1: not known.

    Also the address of each block, 0 where it is not known, and whether all are known to be on the CPU, which the tree
    tells sooner than the events do.

    Args:
        results: ``kineto_results``.
        start, nbytes: int64 [n], of the memory events, in any order.
    """
    blocks, addresses = np.full(len(start), -1, dtype=np.int64), np.zeros(len(start), dtype=np.int64)
    times, sizes, address, given, devices = _memory_nodes(results)
    if len(times) != len(start) or not len(times):
        return blocks, addresses, False
    mine, theirs = np.lexsort((nbytes, start)), np.lexsort((sizes, times))
    if (start[mine] != times[theirs]).any() or (nbytes[mine] != sizes[theirs]).any():
        return blocks, addresses, False
    blocks[mine] = _pairs(address[theirs], nbytes[mine] > 0)
    addresses[mine] = given[address[theirs]]
    return blocks, addresses, {device.type for device in devices} <= {"cpu"}


def _pairs(address: Ints, is_allocation: NDArray[np.bool_]) -> Ints:
    """For each change of memory, in order of time, the number of its allocation: its own if it is one, else that of the
    change before it at the same address; -1 where that is no allocation."""
    order = np.argsort(address, kind="stable")
    given = is_allocation[order]
    goes_on = np.append(False, address[order][1:] == address[order][:-1])
    freed = ~given & goes_on & np.append(False, given[:-1])
    found = np.where(given, order, np.where(freed, np.append(-1, order[:-1]), -1))
    numbers = np.empty_like(found)
    numbers[order] = found
    return numbers


def _memory_nodes(results: Any) -> tuple[Ints, Ints, Ints, Ints, set[Any]]:
    """Moments, bytes and addresses (numbered) of the allocations and freeings in the tree, the address of each number,
    and their devices (which are not asked for where there is none but the CPU)."""
    import torch

    only_cpu = not torch.accelerator.is_available()
    types = tree_types()
    if types is None:
        none = np.zeros(0, dtype=np.int64)
        return none, none, none, none, set()
    node, of_memory = types  # unbound getters in C loops: a tree has as many nodes as there are events
    name, children = node.name.fget, node.children.fget
    times, sizes, address = array("q"), array("q"), array("q")
    places: defaultdict[int, int] = defaultdict(count().__next__)
    devices: set[Any] = set()
    roots = results.experimental_event_tree() if results is not None else []
    for at in range(0, len(roots), _AT_ONCE):
        level = roots[at : at + _AT_ONCE]
        while level:
            below = list(map(children, level))
            leaves = list(compress(level, map(not_, below)))  # a change of memory is one
            changes = list(compress(leaves, map(_NAME.__eq__, map(name, leaves))))
            fields = list(map(node.extra_fields.fget, changes))
            if not {of_memory}.issuperset(map(type, fields)):  # a range of the user's has that name
                changes = [each for each, has in zip(changes, fields, strict=True) if type(has) is of_memory]
                fields = list(map(node.extra_fields.fget, changes))
            times.extend(map(node.start_time_ns.fget, changes))
            sizes.extend(map(of_memory.alloc_size.fget, fields))
            address.extend(map(places.__getitem__, map(of_memory.ptr.fget, fields)))
            if not only_cpu:
                devices.update(map(of_memory.device.fget, fields))
            level = list(chain.from_iterable(below))
    first, second, third = (np.frombuffer(each, dtype=np.int64) for each in (times, sizes, address))
    by_number = np.fromiter(places, np.uint64, len(places)).astype(np.int64)
    return first, second, third, by_number, devices
