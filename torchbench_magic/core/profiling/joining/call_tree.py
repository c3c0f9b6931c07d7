"""The call tree of a run: lines, functions, modules and ops, each below what called it.

A thread has a stack of three kinds of things at any moment: frames of recorded code, each on its current line; calls
of modules; ops and ranges. What was entered later is deeper. So a thing stands below the line that its caller was on
when it was entered, and a range that stays open while its frame goes on to other lines stands below each of them: then
every moment stands below the line that it stands on in ``.lines``, and both add up alike.

Ops and moments are many, places in the tree few: numpy finds the different ones, Python looks at each once.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..recording.module_calls import ModuleRecord
from ..torch_events.events import Events, Ints
from .attribution import Joined
from .device_time import DeviceTime
from .nested_spans import Things, input_count, things_of
from .op_modules import Caused, caused_frames, modules_of_ops
from .thread_join import ThreadJoin
from .tree_frames import FUNCTION, MODULE, OP, Places

__all__ = ["CallTree", "call_tree"]

_NO_FUNCTION = frozenset({"<module>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})  # they are their line


@dataclass(frozen=True)
class CallTree:
    """The tree in columns; a parent comes before its children, these in the order of their first start.

    Attributes:
        parent: int64 [frames], -1 for the root of a thread.
        kind: int64 [frames], index in `KINDS`.
        label: int64 [frames]: a thread's number, a code's, a line tree node, a module's name, or
            ``name * inputs + input`` of an op.
        node: int64 [frames], the node of the line tree that it stands on.
        calls, own, torch: int64 [frames], ns; ``own`` is all time of the frame itself, ``torch`` that in ops.
        backward, module_backward: int64 [frames], ns of backward passes that it caused: as lines have it, and as
            modules do (`op_modules`).
        device: int64 [frames], ns of kernels that it launched itself; None without any.
        allocated, freed: int64 [frames], bytes in the frame itself; None where not recorded.
        op_module: int64 [ops], the name of the module that an op ran in, or, in a backward pass, that caused it; -1
            for none.
        inputs: how many different inputs there are.
    """

    parent: Ints
    kind: Ints
    label: Ints
    node: Ints
    calls: Ints
    own: Ints
    torch: Ints
    backward: Ints
    module_backward: Ints
    device: Ints | None
    allocated: Ints | None
    freed: Ints | None
    op_module: Ints
    module_names: tuple[str, ...]
    inputs: int

    def __len__(self) -> int:
        return len(self.parent)


def call_tree(
    joined: Joined, modules: ModuleRecord, on_device: DeviceTime | None = None, memory: Events | None = None
) -> CallTree:
    """Build the tree. ``memory`` holds the memory events of the body where they were recorded."""
    names = tuple(dict.fromkeys(modules.names))
    number = {name: at for at, name in enumerate(names)}
    label_of = np.array([number[name] for name in modules.names], dtype=np.int64)
    has_function = [code.co_name not in _NO_FUNCTION for code in joined.codes] + [False]  # the last is NO_LINE's
    places = Places(joined.tree, has_function)
    for thread in joined.threads:
        places.at(-1, thread.segments.root)
    frame_of_op = np.zeros(len(joined.ops), dtype=np.int64)
    sums = _Sums()
    every = [(thread, things_of(joined, thread, modules, label_of)) for thread in joined.threads]
    for thread, things in every:
        frame = np.full(len(things.op), -1, dtype=np.int64)
        for level in things.levels():
            outer = things.nesting.parent[level]
            around = places.all_at(np.where(outer >= 0, frame[outer], -1), things.node[level])
            frame[level] = places.children(around, things.kind[level], things.label[level], things.node[level])
        is_op = things.op >= 0
        frame_of_op[things.op[is_op]] = frame[is_op]
        sums.add("calls", frame, np.ones(len(frame), dtype=np.int64))
        sums.first(frame, things.start)
        _add_time(sums, places, joined, thread, things, frame)
        _add_line_calls(sums, places, thread, things, frame)
        if memory is not None:
            _add_bytes(sums, places, thread, things, frame, memory)
    for thread, things in every:
        _add_caused(sums, joined, thread, things, caused_frames(joined, things, frame_of_op, places))
    if on_device is not None:
        sums.add("device", frame_of_op, on_device.op)
        outside = on_device.node - np.bincount(joined.node, on_device.op, len(joined.tree)).astype(np.int64)
        some = np.flatnonzero(outside)
        sums.add("device", places.all_at(np.full(len(some), -1), some), outside[some])
    of_ops = modules_of_ops(joined, [things for _, things in every])
    absent = {"device"} if on_device is None else set[str]()
    absent |= {"allocated", "freed"} if memory is None else set()
    return _laid_out(places, sums, absent, of_ops, names, input_count(joined))


class _Sums:
    """Sums by frame, while the number of frames still grows."""

    def __init__(self) -> None:
        self._parts: dict[str, list[tuple[Ints, Ints]]] = {}
        self._starts: list[tuple[Ints, Ints]] = []

    def add(self, name: str, frame: Ints, values: Ints) -> None:
        self._parts.setdefault(name, []).append((frame, values))

    def first(self, frame: Ints, start: Ints) -> None:
        self._starts.append((frame, start))

    def total(self, name: str, size: int) -> Ints:
        sums = np.zeros(size, dtype=np.int64)
        for frame, values in self._parts.get(name, []):
            sums += np.bincount(frame, weights=values, minlength=size).astype(np.int64)  # exact below 2**53
        return sums

    def starts(self, size: int) -> Ints:
        found = np.full(size, np.iinfo(np.int64).max)
        for frame, start in self._starts:
            np.minimum.at(found, frame, start)
        return found


def _add_time(
    sums: _Sums, places: Places, joined: Joined, thread: ThreadJoin, things: Things, frame: Ints
) -> None:
    """Each moment on the frame that is innermost then; it is torch's as in the join."""
    ops, segments = joined.ops, thread.segments
    if thread.number and not len(segments.start):  # its ops stand on lines of another thread
        mine = things.op[things.op >= 0]
        own = frame[things.op >= 0]
        sums.add("own", own, joined.self_time[mine])
        sums.add("torch", own, joined.self_time[mine] * ~ops.is_range[mine])
        return
    slices = things.slices
    node = np.append(segments.node, segments.root)[slices.segment].astype(np.int64)
    where = places.all_at(np.append(frame, -1)[slices.op], node)
    innermost, called_back = _innermost(thread, things)
    is_op = np.append(things.kind == OP, False)[innermost]
    sums.add("own", where, slices.length)
    sums.add("torch", where, slices.length * (is_op & ~called_back))
    sums.first(where, slices.end - slices.length)


def _add_caused(sums: _Sums, joined: Joined, thread: ThreadJoin, things: Things, caused: Caused) -> None:
    """Each moment of a backward pass, to what caused it; lines and modules differ in moments of called back Python."""
    if thread.number and not len(thread.segments.start):
        top = np.flatnonzero(things.op >= 0)
        length = joined.self_time[things.op[top]]
        own = np.ones(len(top), dtype=bool)
    else:
        top, length = things.slices.op, things.slices.length
        innermost, called_back = _innermost(thread, things)
        own = ~called_back | np.append(joined.ops.is_range, False)[np.append(things.op, -1)[innermost]]
    for_lines, for_modules = np.append(caused.for_lines, -1)[top], np.append(caused.for_modules, -1)[top]
    some = (for_lines >= 0) & own
    sums.add("backward", for_lines[some], length[some])
    some = for_modules >= 0
    sums.add("module_backward", for_modules[some], length[some])


def _innermost(thread: ThreadJoin, things: Things) -> tuple[Ints, NDArray[np.bool_]]:
    """Of each slice: the innermost op or range (-1: none), and whether Python runs that it called back."""
    slices, segments = things.slices, thread.segments
    innermost = np.append(_innermost_op(things), -1)[slices.op]
    depth = np.append(segments.depth, 0)[slices.segment]
    return innermost, depth > np.append(things.depth, 0)[innermost]


def _innermost_op(things: Things) -> Ints:
    """Of each thing, itself or the innermost op or range that it runs in; -1 for none."""
    found = np.where(things.op >= 0, np.arange(len(things.op)), -1)
    for level in things.levels():
        some = level[(found[level] < 0) & (things.nesting.parent[level] >= 0)]
        found[some] = found[things.nesting.parent[some]]
    return found


def _add_line_calls(sums: _Sums, places: Places, thread: ThreadJoin, things: Things, frame: Ints) -> None:
    """Calls of lines, and of functions: how often they were entered."""
    segments = thread.segments
    if segments.ran is None or not len(segments.start):
        return
    where, node = _moments(places, thread, things, frame, segments.start)
    parent, kind = np.array(places.parent), np.array(places.kind)
    while (deeper := kind[where] >= MODULE).any():  # the line that a range is open on
        where = np.where(deeper, parent[where], where)
    sums.add("calls", where, segments.ran)
    entered = np.diff(segments.depth, prepend=0) > 0
    above = parent[where]
    chosen = np.isin(node, node[entered]) & (above >= 0) & (kind[above] == FUNCTION)
    sums.add("calls", above[chosen], segments.ran[chosen])  # the calls of its first line are its own


def _add_bytes(
    sums: _Sums, places: Places, thread: ThreadJoin, things: Things, frame: Ints, memory: Events
) -> None:
    mine = memory.native == thread.segments.native_id
    where, _ = _moments(places, thread, things, frame, memory.start[mine])
    amount = memory.nbytes[mine]
    sums.add("allocated", where, np.maximum(amount, 0))
    sums.add("freed", where, np.maximum(-amount, 0))


def _moments(
    places: Places, thread: ThreadJoin, things: Things, frame: Ints, when: Ints
) -> tuple[Ints, Ints]:
    """The frame that is innermost at each moment, and the line that is active."""
    segments, nesting = thread.segments, things.nesting
    top = np.append(nesting.top, -1)[np.searchsorted(nesting.time, when, side="right") - 1]
    node = np.append(segments.node, segments.root)[segments.at(when)].astype(np.int64)
    return places.all_at(np.append(frame, -1)[top], node), node


def _laid_out(
    places: Places,
    sums: _Sums,
    absent: Collection[str],
    op_module: Ints,
    names: tuple[str, ...],
    inputs: int,
) -> CallTree:
    """The columns but for the ``absent`` ones, with the children of each frame in the order in which they began."""
    size, parent = len(places.parent), places.parent
    starts = sums.starts(size).tolist()
    below: list[list[int]] = [[] for _ in range(size)]
    for frame in range(size - 1, -1, -1):  # a child was made after its parent
        if parent[frame] >= 0:
            starts[parent[frame]] = min(starts[parent[frame]], starts[frame])
            below[parent[frame]].append(frame)
    order: list[int] = []
    waiting = [frame for frame in range(size - 1, -1, -1) if parent[frame] < 0]
    while waiting:
        frame = waiting.pop()
        order.append(frame)
        waiting += sorted(below[frame], key=lambda child: (-starts[child], -child))
    position = np.full(size + 1, -1, dtype=np.int64)
    position[order] = np.arange(size)

    def column(name: str) -> Ints:
        return sums.total(name, size)[order]

    return CallTree(
        parent=position[np.array(parent, dtype=np.int64)[order]],
        kind=np.array(places.kind, dtype=np.int64)[order],
        label=np.array(places.label, dtype=np.int64)[order],
        node=np.array(places.node, dtype=np.int64)[order],
        calls=column("calls"),
        own=column("own"),
        torch=column("torch"),
        backward=column("backward"),
        module_backward=column("module_backward"),
        device=column("device") if "device" not in absent else None,
        allocated=column("allocated") if "allocated" not in absent else None,
        freed=column("freed") if "freed" not in absent else None,
        op_module=op_module,
        module_names=names,
        inputs=inputs,
    )
