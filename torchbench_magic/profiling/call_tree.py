"""The call tree of a run: lines, functions, modules and ops, each below what called it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from torchbench_magic.array_types import Ints

from .attribution import DeviceTime, Joined, nodes_before_gradients
from .events import Events
from .module_calls import ModuleRecord
from .segments import LineTree, Nesting, Slices, ThreadJoin, ancestors, lay_over, nest

KINDS = ("thread", "function", "line", "module", "op", "python")
THREAD, FUNCTION, LINE, MODULE, OP, RANGE = range(len(KINDS))


class Places:
    """The tree as it grows: finds, or makes, the frame for a stack."""

    def __init__(self, lines: LineTree, has_function: list[bool]) -> None:
        self.lines = lines
        self.level: list[int] = []  # of each line, how many lines are above it
        for above in lines.parent:  # a parent comes before its children
            self.level.append(self.level[above] + 1 if above >= 0 else 0)
        self.parent: list[int] = []
        self.kind: list[int] = []
        self.label: list[int] = []
        self.node: list[int] = []  # line tree node that the frame stands on
        self.thing: list[int] = []  # innermost frame of a module, op or range, itself included; -1 for none
        self._has_function = has_function
        self._index: dict[tuple[int, int, int], int] = {}
        self._known: dict[tuple[int, int], int] = {}

    def child(self, parent: int, kind: int, label: int, node: int) -> int:
        key = (parent, kind, label)
        found = self._index.get(key)
        if found is None:
            found = self._index[key] = len(self.parent)
            self.parent.append(parent)
            self.kind.append(kind)
            self.label.append(label)
            self.node.append(node)
            above = self.thing[parent] if parent >= 0 else -1
            self.thing.append(found if kind >= MODULE else above)
        return found

    def find(self, parent: int, kind: int, label: int) -> int | None:
        return self._index.get((parent, kind, label))

    def at(self, thing: int, node: int) -> int:
        """The frame of the moment at which ``thing`` (a frame; -1: none) is innermost and line ``node`` active."""
        lines, level, waiting = self.lines, self.level, []
        while (found := self._known.get((thing, node))) is None:
            waiting.append((thing, node))
            if thing >= 0 and level[node] <= level[self.node[thing]]:
                thing = self._outside(thing)  # entered in this frame, or in one that is left by now
            elif lines.parent[node] < 0:
                found = self.child(-1, THREAD, lines.thread[node], node)
                self._known[waiting.pop()] = found
                break
            else:
                node = lines.parent[node]
        for thing, node in reversed(waiting):
            if thing >= 0 and level[node] <= level[self.node[thing]]:
                found = self.child(found, self.kind[thing], self.label[thing], node)
            else:
                code = lines.code[node]
                if self._has_function[code]:
                    found = self.child(found, FUNCTION, code, lines.parent[node])
                found = self.child(found, LINE, node, node)
            self._known[thing, node] = found
        return found

    def _outside(self, thing: int) -> int:
        above = self.parent[thing]
        return self.thing[above] if above >= 0 else -1

    def all_at(self, things: Ints, nodes: Ints) -> Ints:
        """`at` for many moments."""
        width = len(self.lines) + 1
        different, index = np.unique((things + 1) * width + nodes, return_inverse=True)
        found = [self.at(int(key // width) - 1, int(key % width)) for key in different.tolist()]
        return np.array(found, dtype=np.int64)[index]

    def children(self, parents: Ints, kinds: Ints, labels: Ints, nodes: Ints) -> Ints:
        """`child` for many."""
        width = int(labels.max(initial=0)) + 1
        keys = (parents * len(KINDS) + kinds) * width + labels
        _, first, index = np.unique(keys, return_index=True, return_inverse=True)
        columns = (values[first].tolist() for values in (parents, kinds, labels, nodes))
        found = [self.child(*row) for row in zip(*columns, strict=True)]
        return np.array(found, dtype=np.int64)[index]


# ---- nested_spans ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Things:
    """Ops, ranges and module calls of one thread, by start.

    Attributes:
        op: index in ``Joined.ops``; -1 for a module call.
        kind, label, start: of each.
        node: the line it started on.
        depth: recorded frames entered as it started.
        nesting: which contains which.
        slices: the run cut where the line or the innermost of them changes.
        above: how many of them contain it.
    """

    op: Ints
    kind: Ints
    label: Ints
    start: Ints
    node: Ints
    depth: Ints
    nesting: Nesting
    slices: Slices
    above: Ints

    def levels(self) -> list[Ints]:
        """The things with none above them, with one, ..."""
        order = np.argsort(self.above, kind="stable")
        return np.split(order, np.flatnonzero(np.diff(self.above[order])) + 1) if len(order) else []


def input_count(joined: Joined) -> int:
    return len(joined.ops.inputs.texts) if joined.ops.inputs is not None else 1


def things_of(joined: Joined, thread: ThreadJoin, modules: ModuleRecord, label_of: Ints) -> Things:
    ops, mine, segments = joined.ops, thread.ops, thread.segments
    began, left, number = modules.calls(segments.native_id, joined.begin, joined.end)
    start = np.concatenate([ops.start[mine], began])
    end = np.concatenate([np.minimum(ops.end[mine], joined.end), left])
    order = np.lexsort((-end, start)) if len(began) else np.arange(len(start))
    label = ops.name[mine] * input_count(joined) + (ops.inputs.index[mine] if ops.inputs is not None else 0)
    kind = np.where(ops.is_range[mine], RANGE, OP)
    at = segments.at(start)
    node = np.append(segments.node, segments.root)[at]
    node[: len(mine)] = joined.node[mine]  # also of a thread without lines of its own
    nesting, slices = thread.nesting, thread.slices
    if len(began):
        nesting = nest(start[order], end[order])
        left_out = () if thread.number else joined.left_out
        slices = lay_over(nesting, segments.start, joined.begin, joined.end, left_out)
    above = np.zeros(len(order), dtype=np.int64)
    for inside, _ in ancestors(nesting.parent):
        above[inside] += 1
    return Things(
        op=np.concatenate([mine, np.full(len(began), -1)])[order].astype(np.int64),
        kind=np.concatenate([kind, np.full(len(began), MODULE)])[order].astype(np.int64),
        label=np.concatenate([label, label_of[number]])[order].astype(np.int64),
        start=start[order],
        node=node[order].astype(np.int64),
        depth=np.append(segments.depth, 0)[at][order],
        nesting=nesting,
        slices=slices,
        above=above,
    )


# ---- op_modules ------------------------------------------------------------------------------------------------------
# Of a backward pass: what caused each op and each moment, as modules count and as lines do. Else the module around it.
#
# A backward node can run Python: a checkpoint calls the forward function again, an ``autograd.Function`` has a
# ``backward`` of the user's, a hook is called. For lines, what has recorded lines of its own stands there and is not
# caused by another line besides (`profiling.attribution` leaves it out). For modules, a module that the pass calls
# again has that time itself, as backward time (`profiling.call_tree_tables`); all else that a node runs, with or
# without lines, is caused by the module of its forward op.


def modules_of_ops(joined: Joined, threads: Sequence[Things]) -> Ints:
    """int64 [ops], the label of the module; -1 for none."""
    found = np.full(len(joined.ops), -1, dtype=np.int64)
    for things in threads:
        _modules_of_thread(found, joined, things, None)
    forward = found.copy()
    for things in threads:
        _modules_of_thread(found, joined, things, forward)
    _modules_of_gradients(found, joined)
    return found


def _modules_of_thread(op_module: Ints, joined: Joined, things: Things, forward: Ints | None) -> None:
    """The module that each op ran in; with ``forward``, the module of each forward op, also that which caused it.

    What a backward node runs inherits, unless it runs modules itself (a checkpoint does).
    """
    ops, found = joined.ops, np.full(len(things.op), -1, dtype=np.int64)
    for level in things.levels():
        outer = things.nesting.parent[level]
        found[level] = np.where(outer >= 0, found[outer], -1)
        found[level] = np.where(things.kind[level] == MODULE, things.label[level], found[level])
        if forward is not None and len(ops):
            op = things.op[level]
            node = (op >= 0) & (ops.seq[op] >= 0) & (ops.fwd[op] > 0) & (joined.made_by[op] >= 0)
            caused = np.append(forward, -1)[np.where(node, joined.made_by[op], -1)]
            found[level] = np.where(caused >= 0, caused, found[level])
    is_op = things.op >= 0
    op_module[things.op[is_op]] = found[is_op]


def _modules_of_gradients(op_module: Ints, joined: Joined) -> None:
    """Give each gradient that is accumulated to the module whose backward node made it."""
    parent, caused = joined.parent, np.full(len(joined.ops), -1, dtype=np.int64)
    gradients, makers = nodes_before_gradients(joined.ops, parent)
    if not len(gradients):
        return
    op_module[gradients] = np.append(op_module, -1)[makers]
    of_gradients = np.zeros(len(joined.ops), dtype=bool)
    of_gradients[gradients] = True
    for each, outer in ancestors(parent):  # the outermost comes last
        of_gradient = of_gradients[outer]
        caused[each[of_gradient]] = outer[of_gradient]
    op_module[caused >= 0] = op_module[caused[caused >= 0]]


@dataclass(frozen=True)
class Caused:
    """Of each of a thread's things, the frame that caused the backward time in it; -1 for none.

    Attributes:
        for_lines: the frame of the forward op; where a checkpoint calls modules again, the frames of these modules.
        for_modules: the frame of the forward op; -1 in a module that the pass calls, until its own nodes.
    """

    for_lines: Ints
    for_modules: Ints


def caused_frames(joined: Joined, things: Things, frame_of_op: Ints, places: Places) -> Caused:
    """``frame_of_op``: the frame of each op of all threads."""
    count = len(things.op)
    made, lines, modules = (np.full(count + 1, -1, dtype=np.int64) for _ in range(3))  # the last: what is in nothing
    made_by, frames = np.append(joined.made_by, -1), np.append(frame_of_op, -1)
    for level in things.levels():
        outer, is_module = things.nesting.parent[level], things.kind[level] == MODULE
        maker = np.where(is_module, made[outer], made_by[things.op[level]])
        inherits = maker == made[outer]
        made[level] = maker
        lines[level] = np.where(inherits, lines[outer], frames[maker])
        modules[level] = np.where(inherits | (maker < 0), modules[outer], frames[maker])
        modules[level[is_module]] = -1
        for thing in level[is_module & (lines[level] >= 0)].tolist():
            lines[thing] = _called_again(places, int(lines[thing]), int(things.label[thing]))
    return Caused(lines[:-1], modules[:-1])


def _called_again(places: Places, frame: int, label: int) -> int:
    """The frame of the module as it was called forward, around ``frame`` or beside what is around it."""
    around = frame
    while around >= 0:
        if places.kind[around] == MODULE and places.label[around] == label:
            return around
        if (below := places.find(around, MODULE, label)) is not None:
            return below
        around = places.parent[around]
    return frame


# ---- call_tree -------------------------------------------------------------------------------------------------------
# A thread has a stack of three kinds of things at any moment: frames of recorded code, each on its current line; calls
# of modules; ops and ranges. What was entered later is deeper. So a thing stands below the line that its caller was on
# when it was entered, and a range that stays open while its frame goes on to other lines stands below each of them:
# then every moment stands below the line that it stands on in ``.lines``, and both add up alike.
#
# Ops and moments are many, places in the tree few: numpy finds the different ones, Python looks at each once.

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
            modules do (`modules_of_ops`).
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


def _add_time(sums: _Sums, places: Places, joined: Joined, thread: ThreadJoin, things: Things, frame: Ints) -> None:
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


def _add_bytes(sums: _Sums, places: Places, thread: ThreadJoin, things: Things, frame: Ints, memory: Events) -> None:
    mine = memory.native == thread.segments.native_id
    where, _ = _moments(places, thread, things, frame, memory.start[mine])
    amount = memory.nbytes[mine]
    sums.add("allocated", where, np.maximum(amount, 0))
    sums.add("freed", where, np.maximum(-amount, 0))


def _moments(places: Places, thread: ThreadJoin, things: Things, frame: Ints, when: Ints) -> tuple[Ints, Ints]:
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
