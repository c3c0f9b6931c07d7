"""Counts beside timings: alternatives counted after they were timed, which count is of which row, and which stand
against each other."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from torchbench_magic.cell_body import Body
from torchbench_magic.counting.callgrind_file import Costs
from torchbench_magic.counting.client import CodeFailed, NotStarted, the_server
from torchbench_magic.counting.count import count_instructions
from torchbench_magic.counting.counts import CallGraph, Counted, CountKey, Counts, stats_of
from torchbench_magic.counting.diff import CountsDiff, Pair, difference
from torchbench_magic.errors import BodyError, CountError, InputError, MissingTool
from torchbench_magic.process.interrupts import HeardProgress
from torchbench_magic.results import Doubt

from .plan import Counting
from .samples import Subject

if TYPE_CHECKING:
    from torch.utils.benchmark.utils.valgrind_wrapper.timer_interface import CallgrindStats

    from .comparison import Comparison
    from .point_run import PointRun

_RESULT = "result"  # the axis that names a row's result where results stand side by side (see `side_by_side`)
_SHIFTED = 2
"""Shifted heap layouts that a difference is tried in: each is one more count, about 0.3 s."""
_SLOWDOWN = 400  # valgrind's, generously: after so long there is something wrong
_PATIENCE = 120.0


# ---- counting what was timed -----------------------------------------------------------------------------------


def with_counts(timed: Comparison, run: PointRun, counting: Counting) -> tuple[Comparison, bool]:
    """The comparison with the counts of its alternatives; what could not be counted is among its warnings.

    Returns:
        it, and whether a Ctrl-C has ended the counting: then the counts are those until then.
    """
    task, began = run.task, time.monotonic()
    found: dict[CountKey, Counted] = {}
    said: list[Doubt] = []
    layouts = 1 + (_SHIFTED if len(task.bodies) > 1 else 0)
    jobs = [(threads, row, name) for threads in task.plan.threads or (1,) for row, name in enumerate(task.bodies)]
    uncounted: list[str] = []
    for at, (threads, row, name) in enumerate(jobs):
        subject = timed.subjects[row]
        timeout = _PATIENCE + _SLOWDOWN * counting.number * float(timed.frame["median"].iloc[row])
        try:
            job = run.code.job(name, threads, counting)
            progress = HeardProgress(task.progress)
            costs = count_instructions(job, the_server(), layouts=layouts, timeout=timeout, progress=progress)
        except (MissingTool, NotStarted) as error:
            missing = Doubt("not-counted", f"Instructions were not counted: {error}.")
            return replace(timed, warnings=[*timed.warnings, missing]), False
        except (BodyError, CountError) as error:
            said.append(_uncounted(name, task.bodies[name], error))
            continue
        except KeyboardInterrupt:
            uncounted = list(dict.fromkeys(name for _, _, name in jobs[at:]))
            said.append(_stopped(uncounted, is_lone=len(task.bodies) == 1))
            break
        stats = [_stats(subject, threads, counting.number, pair) for pair in costs]
        statement, empty = costs[0]
        calls = CallGraph(statement.calls, empty.calls, counting.number)
        found[subject.description, subject.sub_label, threads] = Counted(stats[0], tuple(stats[1:]), calls)
    counts = Counts(found, counting.form, time.monotonic() - began)
    return replace(timed, counts=counts, warnings=[*timed.warnings, *said]), bool(uncounted)


def _stopped(names: Sequence[str], *, is_lone: bool) -> Doubt:
    """What a Ctrl-C left uncounted."""
    which = "" if is_lone else f" of {' and '.join(f'`{name}`' for name in names)}"
    text = f"Interrupted while counting instructions: times are complete, the count{which} is missing."
    return Doubt("not-counted", text, "", {"names": list(names)})


def _uncounted(name: str, body: Body, error: BodyError | CountError) -> Doubt:
    """Which alternative was not counted, and why; an exception of its code with the line of the cell."""
    why = str(error)
    if isinstance(error, CodeFailed):
        lines = [line for file, line in error.frames if file == body.file]
        place = "" if not lines else f" at line {lines[-1]}"
        if lines and body.cell is not None:
            place = f" at In[{body.cell}]:{lines[-1]}"
        stage = "while its variables were being sent" if error.stage == "load" else "in the counting process"
        why = f"it raised {error}{place}, {stage}"
    return Doubt("not-counted", f"`{name}` was not counted: {why}.", "", {"name": name})


def _stats(subject: Subject, threads: int, number: int, pair: tuple[Costs, Costs]) -> CallgrindStats:
    statement, empty = ({"inclusive": costs.inclusive, "exclusive": costs.exclusive} for costs in pair)
    return stats_of(statement, empty, number, **subject.torch_fields | {"num_threads": threads})


# ---- rows ------------------------------------------------------------------------------------------------------


def key_of_row(counts: Counts, subject: Subject) -> CountKey | None:
    """Under what key a row was counted; None where it was not."""
    place = subject.description, subject.sub_label, subject.num_threads
    result = dict(subject.axes).get(_RESULT)
    found = counts.at(*place, result) if isinstance(result, str) else None
    found = found or counts.at(*place)
    return found if found is not None and counts.counted[found].stats.task_spec.env == subject.env else None


def instructions(counts: Counts, subjects: Sequence[Subject], row: int, base: int | None) -> dict[str, float]:
    """The columns ``instructions``, of one call with the empty loop taken out, and ``instructions_ratio``.

    The ratio is over the ``base`` row's; NaN where that was not counted, or not in the same way: the count of a call
    depends on how many are counted, and on the threads.
    """
    key = key_of_row(counts, subjects[row])
    if key is None:
        return {}
    own, ratio = counts.counted[key], math.nan
    base_key = None if base is None else key_of_row(counts, subjects[base])
    if base_key is not None:
        other = counts.counted[base_key]
        if _alike(own, other) and other.instructions > 0:
            ratio = own.instructions / other.instructions
    return {"instructions": own.instructions, "instructions_ratio": ratio}


def pairs(counts: Counts, subjects: Sequence[Subject], base_of: Callable[[int], int | None]) -> tuple[Pair, ...]:
    """(baseline, other) of every row that was counted as its baseline was, in the order of the rows."""
    found: dict[Pair, None] = {}
    for row, subject in enumerate(subjects):
        base, key = base_of(row), key_of_row(counts, subject)
        base_key = None if base is None else key_of_row(counts, subjects[base])
        if key is None or base_key is None or key == base_key:
            continue
        if _alike(counts.counted[key], counts.counted[base_key]):
            found[base_key, key] = None
    return tuple(found)


def _alike(one: Counted, other: Counted) -> bool:
    a, b = one.stats, other.stats
    return a.number_per_run == b.number_per_run and a.task_spec.num_threads == b.task_spec.num_threads


# ---- which two are compared ------------------------------------------------------------------------------------


def diff_of(
    counts: Counts, pairs: Sequence[Pair], name: str | CountKey | None, against: str | CountKey | None, inclusive: bool
) -> CountsDiff:
    """See `Comparison.diff`; ``pairs``: what stands against what without being told."""
    if not counts:
        raise InputError("nothing was counted: time the cell with --callgrind")
    try:
        base, key = _chosen(counts, pairs, name, against)
        one, two = counts.counted[base], counts.counted[key]
    except KeyError as error:
        what = error.args[0]
        raise InputError(what if isinstance(what, str) else f"{what!r} was not counted") from None
    made = difference(one, two, names_of_pair((base, key)), inclusive=inclusive, form=counts.form)
    return replace(made, keys=(base, key), source=counts, pairs=tuple(pairs))


def _chosen(counts: Counts, pairs: Sequence[Pair], name: str | CountKey | None, against: str | CountKey | None) -> Pair:
    """(baseline, other).

    Raises:
        KeyError: what is named was not counted, or more than once.
    """
    if name is None and against is None:
        if not pairs:
            raise InputError("there is nothing to compare: one alternative was counted")
        return pairs[0]
    if against is None:
        assert name is not None
        key = counts.key_of(name)
        base = next((base for base, other in pairs if other == key), None)
        if base is None:
            raise InputError(f"{name!r} has no counted baseline: give diff({name!r}, against=...)")
        return base, key
    if name is None:
        base = counts.key_of(against)
        near = next((key for key in counts if key != base and key[1:] == base[1:]), None)
        if near is None:
            raise InputError("there is nothing to compare: one alternative was counted")
        return base, near
    key = counts.key_of(name)
    same_place = (known for known in counts if known[0] == against and known[1:] == key[1:])
    return next(same_place, None) or counts.key_of(against), key


def names_of_pair(pair: Pair) -> tuple[str, str]:
    """What two counts are called: their descriptions; where these are the same, with what tells them apart."""
    base, other = pair
    one, two = base[0] or "statement", other[0] or "statement"
    if one != two:
        return one, two
    apart = [(a, b) for a, b in zip(base[1:], other[1:], strict=False) if a != b]
    return one + _marks(a for a, _ in apart), two + _marks(b for _, b in apart)


def _marks(parts: Iterable[object]) -> str:
    said = [f"{part} threads" if isinstance(part, int) else str(part) for part in parts if part is not None]
    return f" ({', '.join(said)})" if said else ""
