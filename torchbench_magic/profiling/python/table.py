"""``Profile.python``: the sampled stacks as a tree of functions, torch's time beside Python's."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import CodeType

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from torchbench_magic import units
from torchbench_magic.array_types import Ints
from torchbench_magic.profiling.attribution import Joined
from torchbench_magic.profiling.call_tree import FUNCTION
from torchbench_magic.profiling.call_tree_tables import inclusive
from torchbench_magic.profiling.device_times import joined_stretches, overlap
from torchbench_magic.profiling.join import JoinedRun
from torchbench_magic.profiling.schema import PYTHON_COLUMNS, frame_of
from torchbench_magic.profiling.sources import ProfiledBody
from torchbench_magic.result_base import Doubt

from .sampler import SampledPlace, SampleRecord

# ---- sampled_time ----------------------------------------------------------------------------------------------------
# How long each sample stands for, and how much of that was in torch.
#
# There are two kinds of samples, see `python.sampler`. In a *stretch* nothing was called and nothing returned:
# all of it belongs to the sample's own stack, and how much of it was in torch's ops is known exactly. Between stretches
# anything may have run: what ran when a sample was *due* stands for the time since the due moment before it, as in any
# sampling, and it was in torch or it was not. Time in stretches is no part of that.

_EDGE = 20_000
"""Ns round the ends of an op in which a sample says nothing of it: clocks differ by 2 us, and a call returns a little
after the op in it has ended."""


def without_callers(starts: Ints, ends: Ints, moments: Ints) -> NDArray[np.bool_]:
    """bool [ops]: no sample was taken inside. Samples are taken as Python calls and returns: an op with one in it runs
    Python itself (a backward function, a hook), and what is torch's of its time are the ops in it."""
    first = np.searchsorted(moments, starts + _EDGE, side="right")
    last = np.searchsorted(moments, ends - _EDGE, side="left")
    return first >= last


def active_before(moments: Ints, begin: int, end: int, left_out: Sequence[tuple[int, int]] = ()) -> Ints:
    """Ns of [begin, end), without the stretches ``left_out``, that lie before each moment."""
    edges, level, total = [begin], [0], 0
    for start, stop in sorted(left_out):
        start, stop = max(start, edges[-1]), min(stop, end)
        if stop > start:
            total += start - edges[-1]
            edges += [start, stop]
            level += [total, total]
    edges.append(max(end, edges[-1]))
    level.append(total + edges[-1] - edges[-2])
    return _interpolated(moments, np.array(edges), np.array(level))


def sampled_times(
    moments: Ints, begins: Ints, dues: Ints, spans: tuple[Ints, Ints], active: Callable[[Ints], Ints]
) -> tuple[Ints, Ints]:
    """(ns that each sample stands for, ns of that in torch).

    Args:
        moments: the start of sampling, then each sample; Unix ns.
        begins: of each sample that is a stretch its beginning, else 0.
        dues: of each of the others the moment at which it was due, else 0.
        spans: (starts, ends) of the ops that count as torch's, in any order; they may lie in one another.
        active: ns of the run before each of some moments, see `active_before`.
    """
    is_stretch = begins > 0
    whole = np.zeros(len(begins), dtype=np.int64)
    whole[is_stretch] = active(moments[1:][is_stretch]) - active(begins[is_stretch])
    stretched = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(whole)])[:-1][~is_stretch]  # before each due
    until = active(dues[~is_stretch]) - stretched
    whole[~is_stretch] = np.diff(until, prepend=active(moments[:1]))
    starts, ends = joined_stretches(*spans)
    torch = np.zeros_like(whole)
    if len(starts):
        place = np.searchsorted(starts, dues, side="right") - 1
        inside = ~is_stretch & (place >= 0) & (dues < ends[place])
        torch[inside] = whole[inside]
        exact = overlap(begins[is_stretch], moments[1:][is_stretch], starts, ends)
        torch[is_stretch] = np.minimum(exact, whole[is_stretch])
    return whole, torch


def waited(idle: Ints, room: Ints, is_stretch: NDArray[np.bool_]) -> Ints:
    """Ns of idleness that each sample takes: a stretch what it has room for, from the sample before it to its end; what
    is left was between stretches, and the next sample there has it.

    Args:
        idle: between each two samples.
        room: ns of each sample that may have been idle.
    """
    taken, left = np.zeros_like(idle), 0
    for at, (more, most, alone) in enumerate(zip(idle.tolist(), room.tolist(), is_stretch.tolist(), strict=True)):
        there = max(more, 0) + (0 if alone else left)
        taken[at] = min(there, most)
        left = left + there - int(taken[at]) if alone else 0
    return taken


def idle_times(moments: Ints, wanted: Ints) -> Ints:
    """Ns between each two moments in which a thread surely wanted no processor.

    At each moment the wall clock is read first, and systems give the processor to others at the end of just such a
    call: that wait is in what was wanted, and not yet on the wall clock. So what one stretch has too little the next
    has too much, and idle is only what exceeds all that there was before.

    Args:
        moments: by the wall clock.
        wanted: ns that the thread had run or waited for a core until then, shape as ``moments``.
    """
    return np.diff(np.maximum.accumulate(moments - wanted))


def _interpolated(moments: Ints, edges: Ints, level: Ints) -> Ints:
    """`numpy.interp` of whole numbers, exactly: between two edges the level rises by one a ns, or not at all."""
    at = np.clip(np.searchsorted(edges, moments, side="right") - 1, 0, len(edges) - 1)
    beyond = np.minimum(at + 1, len(edges) - 1)
    risen = np.clip(moments - edges[at], 0, level[beyond] - level[at])
    return np.asarray(level[at] + risen, dtype=np.int64)


# ---- sampled_functions -----------------------------------------------------------------------------------------------

AWAITING = "(while the cell awaits)"
"""What the event loop runs then: the cell's own tasks and those of others."""
_OURS = frozenset({"torchbench_magic", "IPython", "ipykernel", "pyinstrument"})
"""What runs the cell, and no part of it; what it calls stands below its caller."""
_FEW = 20  # intervals: of fewer a share says little
_SLACK = 2  # intervals: the last call or return is as a rule less than one before the end


@dataclass
class _Row:
    """A function in its place in the tree; ``recorded`` numbers the path of recorded functions that leads to it, where
    the function is one of them (else None)."""

    parent: int
    place: SampledPlace | None
    library: str
    path: int
    recorded: int | None = None


@dataclass
class _Paths:
    """Paths of recorded functions, numbered: 0 is the empty one."""

    index: dict[tuple[int, int], int] = field(default_factory=dict)

    def below(self, path: int, code: CodeType) -> int:
        return self.index.setdefault((path, id(code)), len(self.index) + 1)


def sampled_functions(
    record: SampleRecord,
    run: JoinedRun,
    body: ProfiledBody,
    label: str,
    codes: Sequence[CodeType],
    texts: Sequence[CodeType] = (),
) -> pd.DataFrame:
    """One row per place in the tree, columns of `PYTHON_COLUMNS`; callees in the order of their total time. None where
    the run is shorter than what lies between two samples.

    Args:
        label: of what was profiled: the root.
        codes: the code objects whose lines were recorded, by the numbers in the run's tree.
        texts: the same with the lines that they have in their texts (`CodeSources.codes`); without them as they say.
    """
    if not record.moments or run.joined.wall < record.interval:
        return frame_of(PYTHON_COLUMNS, {})
    paths = _Paths()
    rows, row_of_stack = _rows(record, body, paths, frozenset(map(id, codes)))
    whole, torch = _times(record, run.joined)
    waiting = _waiting(record, run.joined, whole, torch)
    after = np.array(record.moments, dtype=np.int64) > run.joined.end  # at the return of the body itself
    at = np.where(after, 0, row_of_stack[np.array(record.stacks, dtype=np.int64)])
    inside = whole > 0  # not before the body began, nor between two recorded steps
    samples, self_time, self_torch, self_waiting = (
        np.bincount(at, values, len(rows)) for values in (inside.astype(np.float64), whole, torch, waiting)
    )
    wall = run.joined.wall
    missing = wall - float(self_time.sum())
    # the samples are of the whole run if what is missing of it is less than what lies between two
    if record.complete and missing <= _SLACK * record.interval and self_time.sum() > 0:
        scale = wall / self_time.sum()
        self_time, self_torch, self_waiting = self_time * scale, self_torch * scale, self_waiting * scale
    else:
        self_time[0] += missing
    parents = [row.parent for row in rows]
    total, in_torch, waited, seen = (
        np.array(inclusive(values.tolist(), parents)) for values in (self_time, self_torch, self_waiting, samples)
    )
    known = 1.0 if len(record.wanted) else float("nan")
    calls = _calls(run, codes, rows, paths)
    order = [row for row in _largest_first(parents, total) if seen[row] or row == 0]
    new = {row: number for number, row in enumerate(order)}
    first_lines = {id(ran): code.co_firstlineno for ran, code in zip(codes, texts, strict=False)}
    shown = [_shown(rows[row].place, body, label, first_lines) for row in order]
    return frame_of(
        PYTHON_COLUMNS,
        {
            "parent": [new[parents[row]] if row else -1 for row in order],
            **{name: [each[name] for each in shown] for name in shown[0]},
            "library": [rows[row].library for row in order],
            "calls": [calls[row] for row in order],
            "samples": seen[order].astype(np.int64),
            "total_time": total[order] / 1e9,
            "self_time": self_time[order] / 1e9,
            "torch_time": in_torch[order] / 1e9,
            "python_time": (total - in_torch - waited)[order] / 1e9,
            "waiting_time": known * waited[order] / 1e9,
            "self_torch_time": self_torch[order] / 1e9,
            "self_waiting_time": known * self_waiting[order] / 1e9,
        },
    )


def _times(record: SampleRecord, joined: Joined) -> tuple[Ints, Ints]:
    """(ns, ns of it in torch) that each sample stands for, of the time of the run."""
    moments = np.array([record.began, *record.moments], dtype=np.int64)
    ops = joined.ops
    mine = (ops.native == joined.threads[0].segments.native_id) & ~ops.is_range
    mine[mine] = without_callers(ops.start[mine], ops.end[mine], moments)
    begins, dues = np.array(record.begins, dtype=np.int64), np.array(record.dues, dtype=np.int64)
    return sampled_times(moments, begins, dues, (ops.start[mine], ops.end[mine]), _active(joined))


def _active(joined: Joined) -> Callable[[Ints], Ints]:
    return partial(active_before, begin=joined.begin, end=joined.end, left_out=joined.left_out)


def _waiting(record: SampleRecord, joined: Joined, whole: Ints, torch: Ints) -> Ints:
    """Ns of each sample outside torch in which the thread surely wanted no processor; 0 where its clock is too coarse.

    What it did not want of a stretch it may have lacked in torch (waiting for torch's own threads), or in what is no
    part of the run: so much is taken off.
    """
    if not len(record.wanted):
        return np.zeros_like(whole)
    moments = np.array([record.began, *record.moments], dtype=np.int64)
    outside = np.diff(moments) - np.diff(_active(joined)(moments))
    idle = idle_times(moments, np.array(record.wanted, dtype=np.int64)) - outside - torch
    return waited(idle, whole - torch, np.array(record.begins, dtype=np.int64) > 0)


def _rows(
    record: SampleRecord, body: ProfiledBody, paths: _Paths, recorded: frozenset[int]
) -> tuple[list[_Row], NDArray[np.int64]]:
    """The rows that the stacks make, and the row of each stack; row 0 is the root."""
    rows = [_Row(-1, None, "", 0)]
    row_of: list[int] = []
    index: dict[tuple[int, int], int] = {}
    own = frozenset(map(id, body.own))
    beside = _without_body(record, own) if own else frozenset[int]()
    waiting = -1
    for stack, (below, number) in enumerate(zip(record.parents, record.functions, strict=True)):
        place = record.places[number]
        above = row_of[below] if below >= 0 else 0
        is_ours = place.module.partition(".")[0] in _OURS
        if stack in beside and above == 0 and not is_ours:
            if not body.suspends or below >= 0:  # what this package calls before and after the body
                row_of.append(0)
                continue
            if waiting < 0:
                waiting = len(rows)
                rows.append(_Row(0, SampledPlace(AWAITING, ""), "python", 0))
            above = waiting
        is_body = above == 0 and place.code is not None and id(place.code) in own
        if is_body or is_ours:
            row_of.append(above)
            continue
        row = index.get((above, number))
        if row is None:
            row = index[above, number] = len(rows)
            rows.append(_row(above, place, rows[above], paths, recorded))
        row_of.append(row)
    return rows, np.array(row_of, dtype=np.int64)


def _without_body(record: SampleRecord, own: frozenset[int]) -> frozenset[int]:
    """The stacks in which, and above which, the body does not run: before and after it, and while it is suspended."""
    runs = [False] * len(record.parents)
    for stack, number in enumerate(record.functions):
        code, below = record.places[number].code, record.parents[stack]
        runs[stack] = (below >= 0 and runs[below]) or (code is not None and id(code) in own)
    for stack in range(len(runs) - 1, -1, -1):  # below a frame of the body the loop that runs it stands
        if runs[stack] and record.parents[stack] >= 0:
            runs[record.parents[stack]] = True
    return frozenset(stack for stack, does in enumerate(runs) if not does)


def _row(above: int, place: SampledPlace, caller: _Row, paths: _Paths, recorded: frozenset[int]) -> _Row:
    top = place.module.partition(".")[0]
    if place.code is None and top in sys.stdlib_module_names:
        library = caller.library  # what it calls of Python itself is its own doing
    elif top == "__main__":
        library = ""
    else:
        library = "python" if top in sys.stdlib_module_names else top
    if place.code is None or id(place.code) not in recorded:
        return _Row(above, place, library, caller.path)
    path = paths.below(caller.path, place.code)
    return _Row(above, place, library, path, path)


def _calls(run: JoinedRun, codes: Sequence[CodeType], rows: Sequence[_Row], paths: _Paths) -> list[object]:
    """How often each row's function was called there: what the line events say of the path of recorded functions that
    leads to it, NA where several rows share that path (what was called between was not recorded)."""
    tree, lines = run.tree, run.joined.tree
    path_of: list[int] = []
    called: dict[int, int] = defaultdict(int)
    columns = (tree.parent.tolist(), tree.kind.tolist(), tree.label.tolist(), tree.calls.tolist(), tree.node.tolist())
    for parent, kind, label, calls, node in zip(*columns, strict=True):
        path = path_of[parent] if parent >= 0 else 0
        if kind == FUNCTION and lines.thread[node] == 0:
            path = paths.below(path, codes[label])
            called[path] += calls
        path_of.append(path)
    sharing: dict[int, int] = defaultdict(int)
    for row in rows:
        if row.recorded is not None:
            sharing[row.recorded] += 1
    return [called[row.recorded] if row.recorded in called and sharing[row.recorded] == 1 else pd.NA for row in rows]


def _largest_first(parents: Sequence[int], total: NDArray[np.float64]) -> Iterator[int]:
    """Rows depth first, those of one parent by their total time."""
    below: dict[int, list[int]] = defaultdict(list)
    for row, parent in enumerate(parents):
        below[parent].append(row)
    waiting = [0]
    while waiting:
        row = waiting.pop()
        yield row
        waiting += sorted(below[row], key=lambda each: total[each])


def _shown(
    place: SampledPlace | None, body: ProfiledBody, label: str, first_lines: Mapping[int, int]
) -> dict[str, object]:
    if place is None or place.code is None:
        name, module = (label, "") if place is None else (place.name, place.module)
        return {"function": name, "cell": pd.NA, "line": pd.NA, "file": None, "module": module}
    code = place.code
    cell, line = body.cells(code.co_filename), first_lines.get(id(code), code.co_firstlineno)
    return {
        "function": place.name,
        "cell": pd.NA if cell is None or cell.number is None else cell.number,
        "line": line if cell is None else cell.visible_line(line),
        "file": code.co_filename,
        "module": place.module,
    }


def doubts_of_sampling(record: SampleRecord, run: JoinedRun) -> list[Doubt]:
    """What is doubtful about the samples of a run."""
    wall, interval = run.joined.wall, record.interval
    every = units.seconds_text(interval / 1e9)
    if record.holder:
        text = f"No Python tree: another profiler ({record.holder}) holds Python's profile hook; stop it first."
        return [Doubt("python-hook-held", text, "", {"holder": record.holder})]
    if not record.complete:
        last = max(record.moments, default=record.began)
        seen = max(0.0, (last - run.joined.begin) / 1e9)
        text = (
            f"The Python tree covers only the first {units.seconds_text(seen)}: then the code took Python's profile"
            " hook for itself. The rest counts as the code's own time."
        )
        return [Doubt("python-hook-lost", text, "", {"seconds": seen})]
    took = units.seconds_text(wall / 1e9)
    facts: dict[str, object] = {"samples": len(record.moments), "interval": interval / 1e9}
    if not record.moments or wall < interval:
        text = f"No Python tree: the code took {took}, and the stack is sampled every {every}. Run it in a loop."
        return [Doubt("python-too-short", text, "", facts)]
    if wall < _FEW * interval:
        text = f"The Python tree is rough: the code took {took}, and the stack is sampled every {every}."
        return [Doubt("python-too-short", text, "", facts)]
    return []
