"""Where an op is joined to its line: the line that was active when it started. Each moment of a thread is on one line.

Op time is never summed over ops: they nest, and ``record_function`` ranges hold Python. A moment of a thread is
torch's if the last thing that began and has not ended is an op, and Python's if it is a line (of a hook, or of a
custom ``autograd.Function``, that an op called back) or a range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import CodeType
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ..recording.streams import LineRecord
from ..torch_events.events import Events, Ints
from .forks import Forking, lines_of_forks, lines_of_parallel_regions
from .gradients import nodes_before_gradients
from .nesting import ancestors, lay_over, nest, repeats
from .segments import Codes, LineTree, Segments, replay
from .thread_join import ThreadJoin

__all__ = ["Joined", "RunThreads", "ThreadJoin", "join_ops_and_lines", "sums", "without_repeats"]

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
    forking: Forking | None = None,
) -> Joined:
    """Join the ops that started in ``span``, [begin, end) in Unix ns, with the lines of their threads.

    Args:
        codes: the codes of ``record``, each under a file name that stands for its text.
        forking: what is known of scripted forks; None: their ops stay on no line.
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
            blind = number == 0 and not record.complete
            segments = replay(streams[native], number, codes, tree, ends_blind=blind)
        else:
            segments = _no_segments(native, number, tree)
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
    if forking is not None:
        lines_of_forks(ops, threads, tree, node, forking)
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
    """The ops without those that torch's tables do not count either, see `nesting.repeats`."""
    kept = np.ones(len(ops), dtype=bool)
    for native in np.unique(ops.native):
        mine = np.flatnonzero(ops.native == native)
        kept[mine] = ~repeats(nest(ops.start[mine], ops.end[mine]).parent, ops.name[mine])
    return ops if kept.all() else ops.where(kept)


def _no_segments(native: int, number: int, tree: LineTree) -> Segments:
    none = np.zeros(0, dtype=np.int64)
    return Segments(native, tree.root(number), none, none, none)


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
