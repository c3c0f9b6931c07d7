"""From line events to the line that is active at any moment of a thread, and the ops nested over it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType

import numpy as np
from numpy.typing import NDArray

from torchbench_magic.array_types import Ints
from torchbench_magic.process.dynamo_internals import is_compiled

from .file_texts import Statements
from .line_events import LEAVE, RESUMED, SUSPEND, Stream, entered_code

NO_LINE = -1
_INLINE = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})  # 3.11 gives them their own frame
_PARTS = _INLINE - {"<genexpr>"}


class LineTree:
    """Calling-context tree of lines: a node is a line as called from its parent line.

    Each thread has a root (code NO_LINE), which stands for the time on no line. A child comes after its parent.
    """

    def __init__(self) -> None:
        self.parent: list[int] = []
        self.thread: list[int] = []
        self.code: list[int] = []
        self.line: list[int] = []
        self.calls: list[int] = []
        self.index: dict[tuple[int, int, int], int] = {}

    def __len__(self) -> int:
        return len(self.parent)

    def root(self, thread: int) -> int:
        return self._append(-1, thread, NO_LINE, 0)

    def child(self, parent: int, code: int, line: int) -> int:
        """The node of ``line`` of ``code`` below ``parent``."""
        node = self.index.get((parent, code, line))
        if node is None:
            node = self.index[parent, code, line] = self._append(parent, self.thread[parent], code, line)
        return node

    def _append(self, parent: int, thread: int, code: int, line: int) -> int:
        self.parent.append(parent)
        self.thread.append(thread)
        self.code.append(code)
        self.line.append(line)
        self.calls.append(0)
        return len(self.parent) - 1


@dataclass(frozen=True)
class Segments:
    """The line of a thread over time: ``node[i]`` is active from ``start[i]`` to ``start[i + 1]``.

    Attributes:
        native_id: the thread.
        root: its root in the tree.
        start: int64 [n], Unix ns, ascending.
        node: int64 [n].
        depth: int64 [n], how many recorded frames are entered.
        ran: int64 [n], by how much the calls of the node grew as the segment began; None where that is not known.
    """

    native_id: int
    root: int
    start: NDArray[np.int64]
    node: NDArray[np.int64]
    depth: NDArray[np.int64]
    ran: NDArray[np.int64] | None = None

    def at(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Index of the segment active at each time; -1 before the first."""
        return np.searchsorted(self.start, times, side="right") - 1

    def events_of(self, nodes: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Of each of so many nodes: how many events of lines and of ends of frames, and how many of beginnings of
        frames, it paid for.

        The line that runs as a frame begins or ends waits until that is written down; of a line event the line before
        waits for one half, and the line itself for the other.
        """
        before = np.append(self.root, self.node[:-1]) if len(self.node) else self.node
        change = np.diff(self.depth, prepend=0)
        is_line, ends, begins = change == 0, change < 0, change > 0
        halves = np.concatenate([before[is_line], self.node[is_line], before[ends], before[ends]])
        return np.bincount(halves, minlength=nodes) / 2, np.bincount(before[begins], minlength=nodes) / 1.0


@dataclass(frozen=True)
class _Code:
    """What the replay needs to know of one code object."""

    definition: int  # line that entering stands on; 0: the first line that runs
    counts_entry: bool
    counts_lines: bool
    text: Statements
    is_part: bool = False  # a comprehension that runs where it stands, within its statement
    is_compiled: bool = False  # made by torch.compile: all of it is on the `def` line


def _read_code(code: CodeType, statements: Statements) -> _Code:
    if code.co_name == "<module>":
        return _Code(0, False, True, statements)
    line = statements.definition.get(code.co_firstlineno, code.co_firstlineno)
    if is_compiled(code):  # of the rest of a function, its first line is the one that broke the graph
        return _Code(line, True, False, statements, is_compiled=True)
    inline, is_part = code.co_name in _INLINE, code.co_name in _PARTS
    counts_entry = bool(code.co_flags & inspect.CO_OPTIMIZED) and not inline
    return _Code(line, counts_entry, not inline, statements, is_part)


@dataclass(frozen=True)
class Codes:
    """What is known of the code whose marks are followed.

    Attributes:
        objects: by the numbers that the marks have.
        statements: by file name.
        suspends: numbers of the codes with a top-level await.
        moved: of a code, the lines of its text by those that it counts, where they differ.
    """

    objects: Sequence[CodeType]
    statements: Mapping[str, Statements]
    suspends: frozenset[int] = frozenset()
    moved: Mapping[int, Mapping[int, int]] = field(default_factory=dict)


def replay(stream: Stream, thread: int, codes: Codes, tree: LineTree, *, blind_from: int = 0) -> Segments:
    """Follow the marks of one thread with a stack of frames.

    ``calls`` of a node counts runs of its line: again and again in a loop, but once for a statement over several
    lines, and once for a comprehension or a loop written on one line. A ``def`` line counts its definition and
    each call. The lines of ``codes.suspends`` (codes with a top-level await) stay active while their frame is
    suspended: what other tasks do in the meantime stands below the awaiting line. ``blind_from``: Unix ns
    from which on, after the last mark, nobody saw what ran (0: never); it stands on no line. Code that
    ``torch.compile`` made stands on the ``def`` line of its function, or on the line that broke the graph: the lines of
    a function are one piece then.
    """
    known_of, suspends = codes.statements, codes.suspends
    notes = [_read_code(each, known_of.get(each.co_filename, Statements())) for each in codes.objects]
    events = np.array(stream.record, dtype=np.int64)
    events = events[: len(events) // 2 * 2].reshape(-1, 2)
    root = tree.root(thread)
    calls, child = tree.calls, tree.child
    nodes: list[int] = []
    counted: list[int] = []  # calls of the node, with those of the event
    stack: list[tuple[int, int, int, int, int, set[int]]] = []
    note_node, note_count = nodes.append, counted.append
    code, base, here = NO_LINE, root, root  # code of the frame, node of its caller, node now
    last, statement, ran = 0, 0, set[int]()  # last line, statement of it if long, lines of it that ran
    deepest, before = root, LEAVE
    marks = events[:, 1].tolist()
    for mark in _moved(marks, codes.moved) if codes.moved else marks:
        if mark > 0 and notes[code].is_compiled:
            here = child(base, code, notes[code].definition)
        elif mark > 0:
            resumed = mark >= RESUMED
            line = mark - RESUMED if resumed else mark
            if resumed and notes[code].counts_entry:
                calls[here] -= 1  # that it was entered again was no call
            here = child(base, code, line)
            if before < SUSPEND and not notes[code].definition:
                nodes[-1] = here  # entering a module's frame stands on its first line: it has no def
                counted[-1] = calls[here]
            if code != NO_LINE and not resumed and notes[code].counts_lines:
                text = notes[code].text
                first = text.first.get(line, 0)
                if first and first == statement:
                    if line not in ran:
                        ran.add(line)
                        calls[here] += 1
                elif line != last and not line < last <= text.with_end.get(line, 0):
                    calls[here] += 1
                    ran = {line}
                statement = first
            elif stack and not resumed and notes[code].is_part:
                first = notes[code].text.first.get(line, 0)
                if first and first == stack[-1][4] and line not in stack[-1][5] | ran:
                    ran.add(line)  # a line of the statement that the frame around does not come to itself
                    calls[here] += 1
            last = line
        elif mark >= SUSPEND:
            if mark == SUSPEND and before != SUSPEND:
                deepest = here  # of frames that suspend together the innermost comes first
            left, ended_on = code, last
            if stack:
                code, base, here, last, statement, ran = stack.pop()
            if not stack:
                last = ended_on  # a trailing expression is code of its own, on the same line or not
                if left in suspends:
                    here = deepest if mark == SUSPEND else root
        else:
            stack.append((code, base, here, last, statement, ran))
            code = entered_code(mark)
            note = notes[code]
            base = root if code in suspends and len(stack) == 1 else here
            last, statement, ran = note.definition or last * (len(stack) == 1), 0, set()
            here = child(base, code, note.definition) if note.definition else base
            if note.counts_entry:
                calls[here] += 1
        before = mark
        note_node(here)
        note_count(calls[here])
    starts, depths = events[:, 0], _depths(events[:, 1])
    if blind_from and nodes:
        starts = np.append(starts, max(starts[-1], blind_from))
        nodes.append(root)
        depths = np.append(depths, 0)
        counted.append(0)
    return Segments(
        stream.native_id,
        root,
        np.ascontiguousarray(starts),
        np.array(nodes, dtype=np.int64),
        depths,
        _growth(np.array(nodes, dtype=np.int64), np.array(counted, dtype=np.int64), calls),
    )


def _moved(marks: list[int], moved: Mapping[int, Mapping[int, int]]) -> Iterator[int]:
    """The marks with the lines of the text; ``moved`` as in `Codes`."""
    frames: list[Mapping[int, int]] = []
    none: Mapping[int, int] = {}
    for mark in marks:
        if mark < SUSPEND:
            frames.append(moved.get(entered_code(mark), none))
        elif mark <= 0:
            del frames[-1:]
        elif frames and frames[-1]:
            resumed = RESUMED if mark >= RESUMED else 0
            mark = resumed + frames[-1].get(mark - resumed, mark - resumed)
        yield mark


def _depths(marks: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many recorded frames are entered after each mark; to leave one that nobody saw entered leaves none."""
    change = (marks < SUSPEND).astype(np.int64) - ((marks == LEAVE) | (marks == SUSPEND))
    depth = np.cumsum(change)
    return depth - np.minimum(np.minimum.accumulate(depth), 0) if len(depth) else depth


def _growth(node: NDArray[np.int64], counted: NDArray[np.int64], calls: list[int]) -> NDArray[np.int64]:
    """What each event added to the calls of its node; what was taken back later is taken from the last of them."""
    order = np.argsort(node, kind="stable")
    sorted_node, sorted_count = node[order], counted[order]
    first = np.append(True, sorted_node[1:] != sorted_node[:-1]) if len(node) else np.zeros(0, dtype=bool)
    grown = np.diff(sorted_count, prepend=0)
    grown[first] = sorted_count[first]
    last = np.append(first[1:], True) if len(node) else first
    grown[last] += np.array(calls, dtype=np.int64)[sorted_node[last]] - sorted_count[last]
    growth = np.empty_like(grown)
    growth[order] = grown
    return growth


# ---- nesting ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Nesting:
    """Which op contains which, and which is the innermost at any moment.

    Attributes:
        parent: int64 [n], the op that each op runs in; -1 for a top-level one.
        time: int64 [m], the moments at which the innermost op changes, ascending.
        top: int64 [m], the innermost op from ``time[i]`` on; -1 where no op runs.
    """

    parent: Ints
    time: Ints
    top: Ints


def nest(start: Ints, end: Ints) -> Nesting:
    """Nest intervals of one thread that are sorted by (start, -end).

    Ops of a thread nest properly. Ranges of interleaved tasks need not: one that ends after the one it started in ends
    with it.
    """
    parents: list[int] = []
    times: list[int] = []
    tops: list[int] = []
    running: list[tuple[int, int]] = []  # (end, op)
    for op, (begin, finish) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        while running and running[-1][0] <= begin:
            ended, _ = running.pop()
            times.append(ended)
            tops.append(running[-1][1] if running else -1)
        parents.append(running[-1][1] if running else -1)
        times.append(begin)
        tops.append(op)
        running.append((min(finish, running[-1][0]) if running else finish, op))
    while running:
        ended, _ = running.pop()
        times.append(ended)
        tops.append(running[-1][1] if running else -1)
    return Nesting(*(np.array(values, dtype=np.int64) for values in (parents, times, tops)))


def ancestors(parent: Ints) -> Iterator[tuple[Ints, Ints]]:
    """(ops, of each the op that it runs in), then the same with the one round that, until none is left."""
    each = np.flatnonzero(parent >= 0)
    above = parent[each]
    while len(each):
        yield each, above
        further = parent[above]
        inside = further >= 0
        each, above = each[inside], further[inside]


def repeats(parent: Ints, name: Ints) -> NDArray[np.bool_]:
    """Ops that are the only one in an op of their own name: one call, of two overloads.

    ``aten::sum()`` runs ``aten::sum(dim)``, for one; torch's tables take such a pair as one
    (``EventList._remove_dup_nodes``).
    """
    found = np.zeros(len(parent), dtype=bool)
    children = np.bincount(parent[parent >= 0], minlength=len(parent))
    stands_for: dict[int, int] = {}
    for op in np.flatnonzero((parent >= 0) & (name[parent] == name)).tolist():  # outer ones come first
        outer = stands_for.get(int(parent[op]), int(parent[op]))
        if children[outer] == 1:
            found[op] = True
            stands_for[op] = outer
            children[outer] = children[op]
    return found


@dataclass(frozen=True)
class Slices:
    """The stretch from ``begin`` to ``end`` cut wherever the line or the innermost op changes.

    Attributes:
        length: int64 [k], ns; they add up to ``end - begin``, without what is left out.
        end: int64 [k], the moment at which each ends.
        op: int64 [k], innermost op; -1 for none.
        segment: int64 [k], segment of the thread's lines; -1 before the first.
    """

    length: Ints
    op: Ints
    segment: Ints
    end: Ints


def lay_over(
    nesting: Nesting, segment_start: Ints, begin: int, end: int, left_out: Sequence[tuple[int, int]] = ()
) -> Slices:
    """Cut [begin, end) at the changes of the innermost op and of the line.

    Args:
        left_out: stretches that are nobody's, (from, to) in the order of time, none in another.
    """
    op_moments, line_moments = len(nesting.time), len(segment_start)
    times = np.concatenate([nesting.time, segment_start, np.array([begin], dtype=np.int64)])
    order = np.argsort(times, kind="stable")
    times = times[order]
    # how many op changes, and how many line changes, have come by each cut
    ops = np.cumsum(order < op_moments) - 1
    segments = np.cumsum((order >= op_moments) & (order < op_moments + line_moments)) - 1
    inside = np.clip(np.append(times, end), begin, end)
    length = np.diff(inside - _out_before(inside, left_out))
    kept = length > 0
    top = np.append(nesting.top, -1)[ops[kept]] if op_moments else np.full(int(kept.sum()), -1)
    return Slices(length[kept], top.astype(np.int64), segments[kept].astype(np.int64), inside[1:][kept])


def _out_before(moments: Ints, left_out: Sequence[tuple[int, int]]) -> Ints:
    """How much of the stretches comes before each moment."""
    if not left_out:
        return np.zeros(len(moments), dtype=np.int64)
    begins, ends = np.array(left_out, dtype=np.int64).T
    whole = np.append(0, np.cumsum(ends - begins))
    at = np.searchsorted(begins, moments, side="right") - 1
    inside = np.minimum(moments, ends[at]) - begins[at]
    return np.where(at >= 0, whole[at] + inside, 0)


# ---- thread_join -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ThreadJoin:
    """One thread of the run.

    Attributes:
        number: as in the tables; 0 is the cell's own.
        segments: its lines over time.
        ops: indices of its ops in ``Joined.ops``.
        nesting: of these ops (indices into ``ops``).
        slices: the stretch of the run, cut where the line or the innermost op changes.
    """

    number: int
    segments: Segments
    ops: Ints
    nesting: Nesting
    slices: Slices
