"""Which line an op, a moment on a device, a byte or a parallel region belongs to."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from types import CodeType
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from torchbench_magic.array_types import Ints
from torchbench_magic.profiling.memory.tracemalloc_record import HostMemory

from .call_tree_tables import inclusive
from .events import ON_DEVICE, Events
from .line_events import LineRecord
from .segments import NO_LINE, Codes, LineTree, Segments, ThreadJoin, ancestors, lay_over, nest, repeats, replay

# ---- gradients -------------------------------------------------------------------------------------------------------
# Which backward node made a gradient that is then accumulated into a parameter's ``.grad``.
#
# AccumulateGrad carries no sequence number. But autograd's queue gives it the highest priority, so it runs right after
# the node that completed the gradient (``torch/csrc/autograd/engine.cpp``, CompareNodeTaskTime). Of a parameter that is
# used several times that is the node of its first use, which comes last in the backward pass.

_ENGINE = "autograd::engine::evaluate_function: "
_ACCUMULATE = "torch::autograd::AccumulateGrad"


def nodes_before_gradients(ops: Events, parent: Ints) -> tuple[Ints, Ints]:
    """(ops in which the engine accumulates a gradient, of each the engine's op for the node that made it; -1: none).

    Args:
        parent: int64 [ops], the op that each runs in.
    """
    engine = ops.is_named(lambda name: name.startswith(_ENGINE))
    gradient = ops.is_named((_ENGINE + _ACCUMULATE).__eq__)
    found, made_in = np.flatnonzero(gradient), np.full(len(ops), -1, dtype=np.int64)
    beside = engine | np.isin(parent, np.unique(parent[engine]))
    for native in np.unique(ops.native[gradient]):
        before: dict[int, int] = {}  # op that the engine runs in -> its last node
        for op in np.flatnonzero(beside & (ops.native == native)).tolist():
            around = int(parent[op])
            if not engine[op]:
                before.pop(around, None)  # another backward pass
            elif gradient[op]:
                made_in[op] = before.get(around, -1)
            else:
                before[around] = op
    return found, made_in[found]


# ---- compiling -------------------------------------------------------------------------------------------------------
# The work of ``torch.compile`` itself, told apart from the code that it makes.
#
# While a function is compiled, torch traces it with tensors that hold nothing: hundreds of ops run that compute
# nothing. Together with the Python round them they are one range, ``compiling``, on the line whose call set it off.
# What the compiled code runs later is not in it.

COMPILING = "compiling"
COMPILED_REGION = "Torch-Compiled Region"  # begins torch's name for the range of a compiled frame that runs
# The compiler's own ranges, which torch records as ops: the whole, and each of its phases by itself. Torch 2.8 has no
# range of the whole, and records phases as any range.
_WHOLE, _PHASE = "dynamo", "(dynamo_timed)"


def gather_compiling(events: Events) -> Events:
    """The events, with all of one compilation as one range. Events of code that compiles nothing stay as they are."""
    is_op = events.is_op
    is_phase = events.is_named(lambda name: name.endswith(_PHASE))
    marked = events.is_named(_WHOLE.__eq__) & events.is_kind("cpu_op") | is_phase & is_op
    if not marked.any():
        return events
    inside = np.zeros(len(events), dtype=bool)
    for native in np.unique(events.native[marked]):
        mine = np.flatnonzero(is_op & (events.native == native))
        parent = nest(events.start[mine], events.end[mine]).parent
        for op, above in enumerate(parent.tolist()):  # a parent comes before its children
            if above >= 0:
                inside[mine[op]] = inside[mine[above]] or marked[mine[above]]
    outermost = marked & ~inside
    kinds = events.kinds if "user_annotation" in events.kinds else (*events.kinds, "user_annotation")
    named = replace(
        events,
        names=(*events.names, COMPILING),
        kinds=kinds,
        name=np.where(outermost, len(events.names), events.name),
        kind=np.where(outermost, kinds.index("user_annotation"), events.kind),
    )
    return named.where(~inside)


# ---- parallel regions ------------------------------------------------------------------------------------------------
# Work on torch's own threads, which nothing records the launch of.
#
# An op that runs in parallel (OpenMP's threads share its loop) may call ops on these threads. It waits for them: such
# an op stands on the line of the one op of another thread that spans it. What a scripted function forks may run on
# after the call that forked it, so its ops stand on no line, and a doubt says so.

FORKED = "<forked function>"
"""How torch (2.13) names a fork as it begins to run."""


def lines_of_parallel_regions(
    ops: Events, threads: Collection[ThreadJoin], tree: LineTree, node: Ints, apart: Collection[int]
) -> None:
    """Put the ops on no line, in ``node``, of threads without Python on the line of the op that spans them, if only
    one thread has one.

    A thread that ran a fork is left out, with all its ops, and so are those ``apart``, by their native ids: those that
    run Python, and those of the pool that runs forks.
    """
    forked = ops.is_named(FORKED.__eq__)
    without_python = [t for t in threads if t.number and not len(t.segments.start)]
    launching = [t for t in threads if t not in without_python and len(t.ops)]
    for thread in without_python:
        mine = thread.ops[node[thread.ops] == thread.segments.root]
        if not len(mine) or forked[thread.ops].any() or thread.segments.native_id in apart:
            continue
        around = np.stack([_spanning(ops, other, mine) for other in launching] or [np.full(len(mine), -1)])
        only = np.where((around >= 0).sum(axis=0) == 1, around.max(axis=0), -1)
        for line in np.unique(node[only[only >= 0]]).tolist():
            if tree.code[line] != NO_LINE:
                its = (only >= 0) & (node[only] == line)
                node[mine[its]] = tree.child(thread.segments.root, tree.code[line], tree.line[line])


def _spanning(ops: Events, thread: ThreadJoin, inner: Ints) -> Ints:
    """The innermost op of ``thread`` that runs as each of ``inner`` begins and until it has ended; -1 for none."""
    parent, moments = np.append(thread.nesting.parent, -1), thread.nesting.time
    found = np.append(thread.nesting.top, -1)[np.searchsorted(moments, ops.start[inner], side="right") - 1]
    its: Ints = np.append(thread.ops, -1)
    while (further := (found >= 0) & ((ops.end[its[found]] < ops.end[inner]) | ops.is_range[its[found]])).any():
        found = np.where(further, parent[found], found)
    spanning: Ints = its[found]
    return spanning


# ---- attribution -----------------------------------------------------------------------------------------------------
# Where an op is joined to its line: the line that was active when it started. Each moment of a thread is on one line.
#
# Op time is never summed over ops: they nest, and ``record_function`` ranges hold Python. A moment of a thread is
# torch's if the last thing that began and has not ended is an op, and Python's if it is a line (of a hook, or of a
# custom ``autograd.Function``, that an op called back) or a range.

T = TypeVar("T", bound=np.generic)
_BACKWARD = 1  # torch's RecordScope::BACKWARD_FUNCTION
_FORWARD = 0  # RecordScope::FUNCTION


@dataclass(frozen=True)
class Joined:
    """Ops and lines of a run, joined.

    Attributes:
        tree: the lines, and a root for each thread.
        codes: code objects by the numbers in the tree.
        ops: the ops, sorted by (start, -end).
        node: int64 [ops], the line of each op; a root where there is none.
        parent: int64 [ops], the op it runs in; -1 for a top-level one.
        self_time: int64 [ops], ns of the op without what it calls.
        made_by: int64 [ops], the forward op of a backward op; -1 for others, and for what recorded Python runs that
            a backward op called back.
        caused_by: int64 [ops], the forward line of a backward op; -1 for others.
        torch_time, python_time: int64 [nodes], ns on the line itself.
        threads: by number.
        begin, end: Unix ns of the stretch that the times add up to.
        left_out: of this, stretches that are no time of the cell's own thread.
    """

    tree: LineTree
    codes: tuple[CodeType, ...]
    ops: Events
    node: Ints
    parent: Ints
    self_time: Ints
    made_by: Ints
    caused_by: Ints
    torch_time: Ints
    python_time: Ints
    threads: tuple[ThreadJoin, ...]
    begin: int
    end: int
    left_out: tuple[tuple[int, int], ...] = ()

    @property
    def wall(self) -> int:
        """Ns that the times of the cell's own thread add up to."""
        inside = [(max(begin, self.begin), min(end, self.end)) for begin, end in self.left_out]
        return self.end - self.begin - sum(max(0, end - begin) for begin, end in inside)


@dataclass(frozen=True)
class RunThreads:
    """The threads of a run.

    Attributes:
        natives: native ids by thread number, the cell's own first.
        with_python: native ids of those that run Python; a thread that does not has the line of the thread that waits
            for it in ``backward``.
        of_pool: native ids of the threads of torch's pool, which may run forks.
        left_out: stretches that are no time of the cell's own thread; see `lay_over`.
    """

    natives: tuple[int, ...]
    with_python: frozenset[int] = frozenset()
    of_pool: frozenset[int] = frozenset()
    left_out: Sequence[tuple[int, int]] = ()


def join_ops_and_lines(
    ops: Events,
    record: LineRecord,
    codes: Codes,
    run_threads: RunThreads,
    span: tuple[int, int],
) -> Joined:
    """Join the ops that started in ``span``, [begin, end) in Unix ns, with the lines of their threads.

    Args:
        codes: the codes of ``record``, each under a file name that stands for its text.
    """
    tree, (begin, end) = LineTree(), span
    streams = {stream.native_id: stream for stream in record.streams}
    count = len(ops)
    node, parent = np.zeros(count, dtype=np.int64), np.full(count, -1, dtype=np.int64)
    depth = np.zeros(count, dtype=np.int64)
    self_time = np.zeros(count, dtype=np.int64)
    is_range = ops.is_range
    threads: list[ThreadJoin] = []
    slices_of: list[tuple[Ints, Ints, NDArray[np.bool_]]] = []
    for number, native in enumerate(run_threads.natives):
        if native in streams:
            lost_from = begin if number == 0 and not record.complete else 0
            segments = replay(streams[native], number, codes, tree, blind_from=record.full.get(native, lost_from))
        else:
            none = np.zeros(0, dtype=np.int64)
            segments = Segments(native, tree.root(number), none, none, none)
        mine = np.flatnonzero(ops.native == native)
        nesting = nest(ops.start[mine], np.minimum(ops.end[mine], end))
        at = segments.at(ops.start[mine])
        op_node, op_depth = _of(segments.node, at, segments.root), _of(segments.depth, at, 0)
        slices = lay_over(nesting, segments.start, begin, end, () if number else run_threads.left_out)
        threads.append(ThreadJoin(number, segments, mine, nesting, slices))
        running, in_op = slices.op, slices.op >= 0
        # under an op with fewer frames than now, Python runs that the op called back
        called_back = _of(segments.depth, slices.segment, 0) > _of(op_depth, running, 0)
        in_range = in_op & _of(is_range[mine], running, False)
        in_torch = in_op & ~in_range & ~called_back
        own = in_torch | in_range
        node[mine], depth[mine] = op_node, op_depth
        parent[mine] = _of(mine, nesting.parent, -1)
        self_time[mine] = sums(running[own], slices.length[own], len(mine))
        slices_of.append((_of(segments.node, slices.segment, segments.root), slices.length, in_torch))
    _lines_of_autograd_threads(ops, threads, tree, node, run_threads.with_python)
    lines_of_parallel_regions(ops, threads, tree, node, run_threads.with_python | run_threads.of_pool)
    torch_time, python_time = np.zeros(len(tree), dtype=np.int64), np.zeros(len(tree), dtype=np.int64)
    for at_node, length, in_torch in slices_of:
        torch_time += sums(at_node[in_torch], length[in_torch], len(tree))
        python_time += sums(at_node[~in_torch], length[~in_torch], len(tree))
    frameless = [thread for thread in threads if not len(thread.segments.start)]
    for thread in frameless:  # its ops stand on the lines of another thread, as computed above
        if thread.number:
            root = thread.segments.root
            python_time[root] = torch_time[root] = 0
            torch_time += sums(node[thread.ops], self_time[thread.ops] * ~is_range[thread.ops], len(tree))
    made_by = _made_by(ops, parent, depth)
    return Joined(
        tree=tree,
        codes=tuple(codes.objects),
        ops=ops,
        node=node,
        parent=parent,
        self_time=self_time,
        made_by=made_by,
        caused_by=_of(node, made_by, -1),
        torch_time=torch_time,
        python_time=python_time,
        threads=tuple(threads),
        begin=begin,
        end=end,
        left_out=tuple(run_threads.left_out),
    )


def without_repeats(ops: Events) -> Events:
    """The ops without those that torch's tables do not count either, see `profiling.segments.repeats`."""
    kept = np.ones(len(ops), dtype=bool)
    for native in np.unique(ops.native):
        mine = np.flatnonzero(ops.native == native)
        kept[mine] = ~repeats(nest(ops.start[mine], ops.end[mine]).parent, ops.name[mine])
    return ops if kept.all() else ops.where(kept)


def _of(values: NDArray[T], index: Ints, otherwise: int | bool) -> NDArray[T]:
    """``values[index]``, and ``otherwise`` where the index is -1."""
    return np.append(values, np.asarray(otherwise, dtype=values.dtype))[index]


def sums(index: Ints, weights: Ints, size: int) -> Ints:
    """Sums of ``weights`` by ``index``; exact, since ns and bytes stay below 2**53."""
    return np.bincount(index, weights=weights, minlength=size).astype(np.int64)


def _lines_of_autograd_threads(
    ops: Events, threads: list[ThreadJoin], tree: LineTree, node: Ints, python_threads: frozenset[int]
) -> None:
    """Ops of a thread without Python that does backward work: the line of the thread that waits for it."""
    thread_of_tid = {int(ops.tid[t.ops[0]]): t for t in threads if len(t.ops)}
    for thread in threads:
        native, mine = thread.segments.native_id, thread.ops
        if thread.number == 0 or len(thread.segments.start) or native in python_threads or not len(mine):
            continue
        forward = ops.fwd[mine][(ops.fwd[mine] > 0) & (ops.scope[mine] == _BACKWARD)]
        if not len(forward):
            continue
        waiting = thread_of_tid.get(int(np.bincount(forward).argmax()), threads[0])
        at = waiting.segments.at(ops.start[mine])
        lines = _of(waiting.segments.node, at, waiting.segments.root)
        for line in np.unique(lines).tolist():
            own = tree.child(thread.segments.root, tree.code[line], tree.line[line])
            node[mine[lines == line]] = own


def _made_by(ops: Events, parent: Ints, depth: Ints) -> Ints:
    """The forward op of each backward op.

    A backward node belongs to the last-started op with its forward thread and sequence number: torch shows the
    first, but an op such as ``aten::linear`` and the ``aten::addmm`` inside it carry the same number, and of
    ops that make no node the number is that of the next one. What runs inside a node inherits, but for what
    recorded Python runs that the node called back (a checkpoint's function, a ``backward`` of the user's, a hook):
    that stands on lines of its own. A gradient that is accumulated belongs to the op whose node made it.

    Args:
        depth: int64 [ops], recorded frames entered as each began.
    """
    made_by = np.full(len(ops), -1, dtype=np.int64)
    forward = np.flatnonzero((ops.seq >= 0) & (ops.scope == _FORWARD) & (ops.fwd == 0))
    nodes = np.flatnonzero((ops.seq >= 0) & (ops.fwd > 0))
    if not len(forward) or not len(nodes):
        return made_by
    threads, thread = np.unique(np.concatenate([ops.tid[forward], ops.fwd[nodes]]), return_inverse=True)
    _, number = np.unique(np.concatenate([ops.seq[forward], ops.seq[nodes]]), return_inverse=True)
    pairs = number * len(threads) + thread
    keys, wanted = pairs[: len(forward)], pairs[len(forward) :]
    order = np.argsort(keys, kind="stable")  # ops come by start
    at = np.searchsorted(keys[order], wanted, side="right") - 1
    found = (at >= 0) & (keys[order[at]] == wanted)
    made_by[nodes[found]] = forward[order][at[found]]
    gradients, makers = nodes_before_gradients(ops, parent)
    made_by[gradients] = np.append(made_by, -1)[makers]
    made = made_by.copy()
    for op, around in ancestors(parent):
        inherits = (made_by[op] < 0) & (made[around] >= 0) & (depth[op] <= depth[around])
        made_by[op[inherits]] = made[around[inherits]]
    return made_by


# ---- device_time -----------------------------------------------------------------------------------------------------
# Device time on the op and the line that launched it.
#
# A kernel runs microseconds to milliseconds after its launch, so never is its own time looked up: its correlation
# id leads to the op it was launched in, or to the runtime call that launched it, and that call's thread and time
# to the op and the line. The kernels of a graph that is replayed carry the id of the one call that replayed it.

LAUNCHES = ("cuda_runtime", "cuda_driver", "xpu_runtime", "xpu_driver", "privateuse1_runtime", "privateuse1_driver")


@dataclass(frozen=True)
class Launches:
    """Runtime calls within the body, and what ran on a device because of it.

    Attributes:
        call: int64 [calls], runtime calls, as indices of the events; in the order of time.
        call_op, call_node, call_thread: int64 [calls], innermost op, line and thread number at the call; -1 for no op.
        ran: int64 [ran], kernels, copies and fills, as indices of the events.
        op, node: int64 [ran], the op and the line that launched it; -1 where not known.
        by: int64 [ran], the runtime call that launched it, as an index of ``call``; -1 where it was not recorded.
    """

    call: Ints
    call_op: Ints
    call_node: Ints
    call_thread: Ints
    ran: Ints
    op: Ints
    node: Ints
    by: Ints


@dataclass(frozen=True)
class DeviceTime:
    """Ns of kernels and copies, by what launched them. Streams that run side by side are added up, as torch does.

    Attributes:
        op: int64 [ops], launched by the op itself.
        op_total: int64 [ops], with the ops it calls.
        node: int64 [nodes], launched on the line itself.
    """

    op: Ints
    op_total: Ints
    node: Ints


def find_launches(joined: Joined, events: Events) -> Launches:
    """Find what launched what. ``events`` are all events of the run; work launched outside the body is left out."""
    ops = joined.ops
    call = np.flatnonzero(events.is_kind(*LAUNCHES))
    thread, call_op, call_node = _active(joined, events.native[call], events.start[call])
    mine = thread >= 0
    call, thread, call_op, call_node = call[mine], thread[mine], call_op[mine], call_node[mine]
    ran = np.flatnonzero(events.is_kind(*ON_DEVICE))
    by = _index_of(events.corr[ran], events.corr[call])
    op = np.where(events.link[ran] > 0, _index_of(events.link[ran], ops.corr), -1)
    node = np.append(joined.node, -1)[op]
    through_call = (op < 0) & (by >= 0)
    op[through_call], node[through_call] = call_op[by[through_call]], call_node[by[through_call]]
    known = (node >= 0) | (by >= 0)
    return Launches(call, call_op, call_node, thread, ran[known], op[known], node[known], by[known])


def attribute_device_time(joined: Joined, events: Events, launches: Launches) -> DeviceTime | None:
    """Put what ran on a device on its op and line; None where nothing did."""
    if not len(launches.ran):
        return None
    took = events.end[launches.ran] - events.start[launches.ran]
    in_op, on_line = launches.op >= 0, launches.node >= 0
    by_op = sums(launches.op[in_op], took[in_op], len(joined.ops))
    by_node = sums(launches.node[on_line], took[on_line], len(joined.tree))
    total = inclusive(by_op.tolist(), joined.parent.tolist())
    return DeviceTime(by_op, np.array(total, dtype=np.int64), by_node)


def _index_of(wanted: Ints, ids: Ints) -> Ints:
    """Place in ``ids`` of each of ``wanted`` (of the last one, where an id comes twice); -1 where it is not there."""
    if not len(ids):
        return np.full(len(wanted), -1, dtype=np.int64)
    order = np.argsort(ids, kind="stable")
    at = np.searchsorted(ids[order], wanted, side="right") - 1
    return np.where((at >= 0) & (ids[order][at] == wanted), order[at], -1)


def _active(joined: Joined, native: Ints, moment: Ints) -> tuple[Ints, Ints, Ints]:
    """Number of the thread, innermost op (-1 for none) and line at each moment; all -1 outside the body."""
    thread, op, node = (np.full(len(native), -1, dtype=np.int64) for _ in range(3))
    inside = (moment >= joined.begin) & (moment < joined.end)
    for each in joined.threads:
        segments, nesting = each.segments, each.nesting
        mine = np.flatnonzero(inside & (native == segments.native_id))
        at = np.searchsorted(nesting.time, moment[mine], side="right") - 1
        top = np.append(nesting.top, -1)[at]
        thread[mine] = each.number
        op[mine] = np.append(each.ops, -1)[top]
        on_lines = np.append(segments.node, segments.root)[segments.at(moment[mine])]
        # a thread without Python, such as autograd's, has the line of the one that waits for it: that of its op
        node[mine] = on_lines if len(segments.start) else np.append(joined.node, segments.root)[op[mine]]
    return thread, op, node


# ---- bytes_on_lines --------------------------------------------------------------------------------------------------
# Bytes on the lines and ops that took them and gave them back: torch's, and those of Python and numpy.
#
# Only torch's allocators report to its profiler: what numpy or Python hold is read by `HostMemory`. Totals are
# relative to the start of the body. Lines and ops add devices up; `memory_timeline` keeps them apart.

_NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Bytes:
    """Bytes by node of the line tree and by op.

    Attributes:
        node_allocated, node_freed: int64 [nodes], on the line itself.
        node_peak: int64 [nodes], highest total while the line, or one it calls, was active.
        op_allocated, op_freed: int64 [ops], in the op itself.
        op_peak: int64 [ops], highest total while the op ran.
        events: the changes of memory, in the order of time.
        event_node, event_op: int64 [memory events], line and innermost op of each; -1 for no op.
    """

    node_allocated: Ints
    node_freed: Ints
    node_peak: Ints
    op_allocated: Ints
    op_freed: Ints
    op_peak: Ints
    events: Events
    event_node: Ints
    event_op: Ints


def highest(values: Ints, group: Ints, count: int) -> NDArray[np.float64]:
    """The largest value by group; NaN for a group in which nothing was ever active."""
    peak = np.full(count, _NEVER, dtype=np.int64)
    np.maximum.at(peak, group, values)
    return np.where(peak == _NEVER, np.nan, peak.astype(float))


def attribute_bytes(joined: Joined, memory: Events) -> Bytes:
    """Put each memory event on the line and into the innermost op that were active on its thread.

    ``memory`` holds the events of the body in the order of time. What a thread without lines and ops does is on no
    line of the cell's own thread.
    """
    tree, ops, begin, end = joined.tree, joined.ops, joined.begin, joined.end
    running_total = np.cumsum(memory.nbytes)
    of_node = np.full(len(memory), joined.threads[0].segments.root, dtype=np.int64)
    of_op = np.full(len(memory), -1, dtype=np.int64)
    node_peak, op_peak = np.full(len(tree), _NEVER, np.int64), np.full(len(ops), _NEVER, np.int64)
    for thread in joined.threads:
        segments, nesting = thread.segments, thread.nesting
        mine = memory.native == segments.native_id
        when = memory.start[mine]
        local = np.append(nesting.top, -1)[np.searchsorted(nesting.time, when, side="right") - 1]
        its_op = np.append(thread.ops, -1)[local]
        of_op[mine] = its_op
        on_lines = np.append(segments.node, segments.root)[segments.at(when)]
        # a thread without Python, such as autograd's, has the line of the one that waits for it: that of its op
        of_node[mine] = on_lines if len(segments.start) else np.append(joined.node, segments.root)[its_op]
        starts = np.concatenate([[begin], segments.start]) if thread.number == 0 else segments.start
        nodes_then = np.concatenate([[segments.root], segments.node]) if thread.number == 0 else segments.node
        np.maximum.at(node_peak, nodes_then, _peaks(starts, end, memory.start, running_total))
        if len(nesting.time):
            peaks = _peaks(nesting.time, end, memory.start, running_total)
            running = nesting.top >= 0
            np.maximum.at(op_peak, thread.ops[nesting.top[running]], peaks[running])
    _raise_callers(node_peak, tree)
    own_peak = op_peak.copy()
    for inside, around in ancestors(joined.parent):
        np.maximum.at(op_peak, around, own_peak[inside])
    given, taken = np.maximum(memory.nbytes, 0), np.maximum(-memory.nbytes, 0)
    in_op = of_op >= 0
    return Bytes(
        node_allocated=sums(of_node, given, len(tree)),
        node_freed=sums(of_node, taken, len(tree)),
        node_peak=node_peak,
        op_allocated=sums(of_op[in_op], given[in_op], len(ops)),
        op_freed=sums(of_op[in_op], taken[in_op], len(ops)),
        op_peak=op_peak,
        events=memory,
        event_node=of_node,
        event_op=of_op,
    )


def _peaks(starts: Ints, end: int, when: Ints, total: Ints) -> Ints:
    """Highest total in each stretch from one start to the next (the last ends at ``end``)."""
    totals = np.append(0, total)  # before the first event nothing has changed
    first = np.searchsorted(when, starts, side="right")  # index into totals of the value at the start
    last = np.searchsorted(when, np.append(starts[1:], end), side="left")
    peaks = totals[first]
    some = last > first
    if some.any():
        # reduceat over pairs (first + 1, last + 1): odd results are the gaps between stretches
        padded = np.append(totals, _NEVER)
        pairs = np.stack([first[some] + 1, last[some] + 1], axis=1).reshape(-1)
        peaks[some] = np.maximum(peaks[some], np.maximum.reduceat(padded, pairs)[::2])
    return peaks


@dataclass(frozen=True)
class HostBytes:
    """Python's and numpy's bytes by node of the line tree.

    Attributes:
        net: int64 [nodes], what was held more after the line than before, on the line itself.
        peak: int64 [nodes], highest total while the line, or one it calls, was active, above that at the start; the
            smallest int64 for a node that was never active.
    """

    net: Ints
    peak: Ints


def attribute_host_bytes(host: HostMemory, segments: Segments, tree: LineTree) -> HostBytes:
    """Put the readings on the lines of the cell's own thread, whose ``segments`` are given."""
    times, current, peak = host.readings()
    nodes = np.append(segments.node, segments.root).astype(np.int64)[segments.at(times)]
    net = np.zeros(len(tree), dtype=np.int64)
    np.add.at(net, nodes, np.diff(current))
    node_peak = np.full(len(tree), _NEVER, dtype=np.int64)
    np.maximum.at(node_peak, nodes, np.maximum(peak, current[:-1]) - current[0])
    _raise_callers(node_peak, tree)
    return HostBytes(net, node_peak)


def _raise_callers(node_peak: Ints, tree: LineTree) -> None:
    """Give each line at least the peak of the lines that it calls."""
    for child in range(len(tree) - 1, -1, -1):  # a parent comes before its children
        above = tree.parent[child]
        # a thread's root stands for the time on no line, not for all lines below it
        if above >= 0 and tree.parent[above] >= 0 and node_peak[child] > node_peak[above]:
            node_peak[above] = node_peak[child]
