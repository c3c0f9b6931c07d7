"""How near ops come to what the machine can do: each judged, by one more call, page faults apart."""

from __future__ import annotations

import math
import mmap
import statistics
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from torchbench_magic.process.contention import LOAD_KINDS, ProcessUse, read_use
from torchbench_magic.process.interrupts import NO_PROGRESS, Progress
from torchbench_magic.process.machine import cpu_quota, memory_limit
from torchbench_magic.process.peak_performance import Peaks, peaks_here, with_bandwidth_now
from torchbench_magic.profiling.op_arguments import RecordedCall, parsed_call
from torchbench_magic.profiling.op_benchmark import code_of
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.recording_cost import MICROSECONDS
from torchbench_magic.timing.changes import read_memory

from .op_work import (
    DISPATCHES,
    FASTER,
    FAULTED_TIME,
    LARGE_FRESH,
    MOVES_ONLY,
    NEAR,
    SERIAL,
    OpWork,
    accounts_for,
    class_of,
    moved_by,
)
from .table import Efficiency, OpEfficiency

# ---- judged_ops ------------------------------------------------------------------------------------------------------

_KEPT = 500
"""Rows that are kept, the most seconds first."""
_MATTERS = 0.01
"""Of the wall time: what takes less is not called once more."""
_MOST_CALLED = 10
_LONGEST_CALL = 0.5  # seconds
_LONGEST_CALLS = 3.0  # seconds of all of them, by the time that they took in the run
_EACH_CALLED = 3  # times, of one that takes long
_OF_MEMORY = 0.25
"""Of the memory that is left: a call whose inputs and outputs take more is not made."""
_MEMORY = 2 << 30  # bytes that are taken to be left where the system does not tell
_MOST_OF = 0.5
"""Of a line's time in torch that one class must have for the line to be of it."""
_LEAF = 0.5
"""Of an op's time, spent in itself: below, it is the sum of the ops that it calls, and they have classes."""
_KEYS = ["op", "input_shapes", "input_dtypes", "input_strides", "source_id", "line", "thread"]

_Call = tuple[str, str, str, str]  # op, shapes, dtypes, strides


def with_efficiency(profile: Profile, spent: ProcessUse | None, progress: Progress = NO_PROGRESS) -> Profile:
    """The profile with ``.efficiency``, and the classes of ``.ops`` and ``.lines``.

    Args:
        spent: what the process used between entering and leaving the body; None where that is not known.
    """
    import torch

    peaks = peaks_here(profile.num_threads or torch.get_num_threads(), progress)
    return judged(profile, with_bandwidth_now(peaks), spent)


def judged(profile: Profile, peaks: Peaks, spent: ProcessUse | None = None) -> Profile:
    """As `with_efficiency`, by these peaks."""
    recorded = _recorded(profile)
    found = list(_rows(profile, peaks, recorded))
    spent = spent if spent is not None else ProcessUse()
    called = {
        each.row: more
        for each in _to_call(found, profile.wall_time)
        if (call := recorded.get(each.call)) is not None and (more := once_more(call, peaks.threads)) is not None
    }
    held_up = _was_held_up(profile)
    is_fault = any(accounts_for(more.faults, row.fresh) for row, more in called.items())
    cost = cost_of_fault(peaks.threads) if is_fault else math.nan
    faults = {each.row: faults_in_call(each.row, called.get(each.row), cost) for each in found}
    found = [_with_calls(each, called, peaks, spent.worker_share, held_up, faults[each.row]) for each in found]
    rows = sorted((each.row for each in found), key=lambda row: -row.seconds * row.calls)
    made = Efficiency(
        peaks=peaks,
        rows=tuple(rows[:_KEPT]),
        coverage=_coverage(profile, found),
        page_faults=spent.faults,
        system_time=spent.system,
        worker_share=spent.worker_share,
        notes=tuple(_notes(profile, peaks, spent)),
    )
    return replace(profile, efficiency=made, ops=_ops(profile.ops, found), lines=_lines(profile.lines, found))


@dataclass(frozen=True)
class _Judged:
    """A row, with what it was judged by.

    Attributes:
        strides: of its inputs, as text.
        own: seconds of its self time, over all calls.
        is_inside: it runs within an op whose FLOPs are counted with all that it calls, and is judged with that one.
    """

    row: OpEfficiency
    strides: str
    own: float
    is_bounded: bool = False
    is_inside: bool = False

    @property
    def call(self) -> _Call:
        return self.row.op, self.row.input_shapes, self.row.input_dtypes, self.strides


def _recorded(profile: Profile) -> Mapping[_Call, RecordedCall]:
    """The call that was seen most often of each op with one kind of inputs."""
    found: dict[_Call, RecordedCall] = {}
    for op, overload, shapes, dtypes, strides, scalars, _ in sorted(profile.calls, key=lambda call: -call[-1]):
        key = (op, shapes, dtypes, strides)
        if key not in found:
            found[key] = parsed_call(op, overload, shapes, dtypes, strides, scalars)
    return found


def _rows(profile: Profile, peaks: Peaks, recorded: Mapping[_Call, RecordedCall]) -> Iterable[_Judged]:
    ops = profile.ops[~profile.ops["op"].isin(profile.ranges) & profile.ops["input_shapes"].notna()]
    if ops.empty:
        return
    cost = (MICROSECONDS["op"] + MICROSECONDS["shapes"] + MICROSECONDS["allocation"] * profile.options.memory) / 1e6
    summed = ops.groupby(_KEYS, dropna=False, sort=False)[
        ["calls", "self_cpu_time", "cpu_time", "flops", "self_device_time"]
    ].sum(min_count=1)
    inside, held_up = _inside(profile), _was_held_up(profile)
    works: dict[_Call, OpWork | None] = {}
    for key, values in zip(summed.index, summed.itertuples(index=False), strict=True):
        op, shapes, dtypes, strides, source_id, line, thread = key
        calls, own, whole = int(values[0]), float(values[1]), float(values[2])
        flops = math.nan if pd.isna(values[3]) else float(values[3]) / calls
        on_device = not pd.isna(values[4]) and float(values[4]) > 0
        place = (None if pd.isna(source_id) else str(source_id), None if pd.isna(line) else int(line), int(thread))
        counted = not math.isnan(flops)
        taken = max(whole if counted else own, 0.0) / calls
        seconds = max(taken - cost, 0.1 * taken)
        row = OpEfficiency(op, shapes, dtypes, *place, calls, seconds, flops)
        if on_device:
            yield _Judged(row, strides, own)
            continue
        if (op, *place) in inside and not counted:
            yield _Judged(row, strides, own, is_inside=True)
            continue
        if not counted and own < _LEAF * whole and whole / calls - cost >= DISPATCHES * peaks.dispatch:
            yield _Judged(row, strides, own)
            continue
        work = None
        if seconds >= DISPATCHES * peaks.dispatch:
            call = (op, shapes, dtypes, strides)
            if call not in works:
                works[call] = moved_by(recorded[call]) if call in recorded else None
            work = works[call]
        is_bounded = not held_up and (counted or op.removeprefix("aten::") in MOVES_ONLY)
        yield _Judged(_classed(row, work, peaks, is_bounded), strides, own, is_bounded)


def _classed(row: OpEfficiency, work: OpWork | None, peaks: Peaks, is_bounded: bool) -> OpEfficiency:
    if work is None:
        kind = class_of(row.seconds, (math.nan, ""), peaks, is_bounded=False)
        return replace(row, kind=kind)
    roof, side = peaks.roof(row.flops, work.bytes, work.dtype)
    kind = class_of(row.seconds, (roof, side), peaks, is_bounded=is_bounded)
    return replace(
        row,
        bytes=work.bytes,
        written=work.written,
        fresh=work.fresh,
        output=work.output,
        dtype=work.dtype,
        roof=roof,
        side=side,
        kind=kind,
    )


def _was_held_up(profile: Profile) -> bool:
    """Whether others took the processor: times hold what threads waited, and being below a roof says nothing then."""
    return any(doubt.kind in LOAD_KINDS - {"clock"} for doubt in profile.warnings)


def _inside(profile: Profile) -> set[tuple[str, str | None, int | None, int]]:
    """(op, source_id, line, thread) of ops that run within one whose FLOPs are counted."""
    counted = set(profile.ops.loc[profile.ops["flops"].notna(), "op"])
    frames = profile.frames
    names = ("parent", "kind", "name", "source_id", "line", "thread")
    columns = [frames[name].astype(object).where(frames[name].notna(), None).tolist() for name in names]
    under: list[bool] = []
    found = set()
    for parent, kind, name, source_id, line, thread in zip(*columns, strict=True):
        above = parent >= 0 and (under[parent] or (columns[1][parent] == "op" and columns[2][parent] in counted))
        is_under = bool(above and kind != "line")
        under.append(is_under)
        if is_under and kind == "op":
            found.add((name, source_id, None if line is None else int(line), int(thread)))
    return found


# ---- called once more -----------------------------------------------------------------------------------------------


def _to_call(found: Iterable[_Judged], wall: float) -> list[_Judged]:
    """The ops to look at again: those below their roof that matter, the most seconds first."""
    left = _memory_left()
    far = [
        each
        for each in found
        if each.row.kind not in ("overhead", "compute", "memory")
        and each.row.bytes <= _OF_MEMORY * left  # NaN of what is not known is not
        and each.row.seconds * each.row.calls >= _MATTERS * wall
        and each.row.seconds <= _LONGEST_CALL
    ]
    chosen, spent = [], 0.0
    for each in sorted(far, key=lambda each: -each.row.seconds * each.row.calls)[:_MOST_CALLED]:
        if spent + _EACH_CALLED * each.row.seconds <= _LONGEST_CALLS:
            spent += _EACH_CALLED * each.row.seconds
            chosen.append(each)
    return chosen


def _memory_left() -> float:
    """Bytes that may still be taken, of the machine and of the cgroup."""
    known, limit = read_memory(), memory_limit()
    if known is None:
        return _MEMORY
    own, available, _ = known
    return min(available, limit.value - own) if limit.is_set else available


def _with_calls(
    each: _Judged,
    called: Mapping[OpEfficiency, MoreCalls],
    peaks: Peaks,
    worker_share: float,
    held_up: bool,
    counted: tuple[float, float, float],
) -> _Judged:
    """With the class that more calls tell; of an op that was not called the run tells whether it was serial.

    One that writes into much memory of its own, and was not called or takes much less where that memory is there, may
    be held up by page faults of the run: it has no class. One that comes near its roof when it is called again is not
    far below it by what it is (caches that were cold, a slower processor): it has no class either.
    """
    row, more = each.row, called.get(each.row)
    if not math.isnan(row.bytes) and row.kind not in ("overhead", "compute", "memory"):
        faults, fault_seconds, fault_share = counted
        again = math.nan if more is None else more.seconds
        share = more.worker_share if more is not None else worker_share
        is_known = row.fresh < LARGE_FRESH or not (math.isnan(faults) or again <= FASTER * row.seconds)
        is_near = row.roof / again >= NEAR if again > 0 else False
        kind = class_of(
            row.seconds,
            (row.roof, row.side),
            peaks,
            is_bounded=each.is_bounded and is_known and not is_near,
            is_faulting=fault_share >= FAULTED_TIME,
            is_serial=is_known and share < SERIAL and not held_up,
        )
        row = replace(row, kind=kind, is_bounded=each.is_bounded)
        row = replace(row, faults=faults, fault_seconds=fault_seconds, again=again)
    return replace(each, row=row)


# ---- the tables -----------------------------------------------------------------------------------------------------


def _coverage(profile: Profile, found: Iterable[_Judged]) -> float:
    """Share of the time in ops that is in those with a class, or within one of them."""
    every = profile.ops[~profile.ops["op"].isin(profile.ranges)]
    total = float(every["self_cpu_time"].sum())
    known = sum(each.own for each in found if each.row.kind or each.is_inside)
    return min(known / total, 1.0) if total > 0 else math.nan


def _ops(ops: pd.DataFrame, found: Iterable[_Judged]) -> pd.DataFrame:
    by_key = {
        (*each.call, each.row.source_id or "", each.row.line or 0, each.row.thread): each.row
        for each in found
        if not each.is_inside
    }
    keys = zip(*(ops[name].astype(object).where(ops[name].notna(), None) for name in _KEYS), strict=True)
    rows = [by_key.get((*key[:4], key[4] or "", key[5] or 0, key[6])) for key in keys]
    moved = [
        pd.NA if row is None or math.isnan(row.bytes) else round(row.bytes * calls)
        for row, calls in zip(rows, ops["calls"], strict=True)
    ]
    return ops.assign(
        bytes=pd.Series(moved, dtype="Int64", index=ops.index),
        efficiency_class=pd.Series([row.kind or None if row else None for row in rows], dtype=object, index=ops.index),
        fraction_of_peak=[row.fraction if row is not None and row.kind else math.nan for row in rows],
    )


def _lines(lines: pd.DataFrame, found: Iterable[_Judged]) -> pd.DataFrame:
    """The class that has half of a line's time in torch and more; the roofs of its ops over their time."""
    by_kind: dict[tuple[str, int, int], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    reached: dict[tuple[str, int, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for each in found:
        row = each.row
        if row.source_id is None or row.line is None or not row.kind:
            continue
        key = (row.source_id, row.line, row.thread)
        by_kind[key][row.kind] += row.seconds * row.calls
        if row.roof > 0:
            reached[key][0] += row.roof * row.calls
            reached[key][1] += row.seconds * row.calls
    kinds: list[Any] = []
    fractions: list[float] = []
    for source_id, line, thread, whole in zip(
        lines["source_id"], lines["line"], lines["thread"], lines["self_cpu_time"], strict=True
    ):
        key = (str(source_id), 0 if pd.isna(line) else int(line), int(thread))
        times = by_kind.get(key, {})
        top = max(times, key=lambda kind: times[kind], default=None)
        total = max(sum(times.values()), 0.0 if pd.isna(whole) else float(whole))
        is_told = top is not None and times[top] >= _MOST_OF * total
        kinds.append(top if is_told else None)
        roof, seconds = reached.get(key, (0.0, 0.0))
        fractions.append(roof / seconds if seconds and is_told else math.nan)
    return lines.assign(efficiency_class=pd.Series(kinds, dtype=object, index=lines.index), fraction_of_peak=fractions)


# ---- what is not available ------------------------------------------------------------------------------------------


def _notes(profile: Profile, peaks: Peaks, spent: ProcessUse) -> Iterable[str]:
    yield from peaks.notes
    unknown = [name for name, _, rate in peaks.flops if math.isnan(rate)]
    if unknown:
        yield f"Unknown peaks, of which repeated measurements disagreed: {', '.join(dict.fromkeys(unknown))}."
    if any(math.isnan(rate) for *_, rate in peaks.bandwidth):
        yield "At some sizes repeated measurements of bandwidth disagreed: it is unknown there."
    if profile.ops["input_shapes"].isna().all() and len(profile.ops):
        yield "The inputs of the operations were not kept, so none has a class."
    if float(profile.ops["self_device_time"].fillna(0).sum()) > 0:
        yield "CPU only: operations on an accelerator have no class."
    if _was_held_up(profile):
        yield "Other processes delayed this run: which operations are far below the roof is unknown."
    if math.isnan(spent.faults):
        yield "Page faults of the run: not available here."
    quota = cpu_quota()
    if quota.is_set:
        yield f"A quota of {quota.value:.3g} cores: times include the pauses it causes, peaks do not."
    yield "Hardware counters: not read."


# ---- once_more -------------------------------------------------------------------------------------------------------
# One op called a few times more, after the run: do page faults hold it up, and how many threads work on it?
#
# It is called on fresh random inputs of the recorded sizes, strides and dtypes. Nothing of the user's is touched:
# random numbers go on as before.

_WARM = 2
"""Calls before any is looked at: the allocator then keeps what it will keep."""
_LEAST = 0.02
"""Seconds that are looked at: processor time is counted well enough then, and threads that still wait for the end of
an earlier op sleep."""
_MOST_CALLS = 1000


@dataclass(frozen=True)
class MoreCalls:
    """What one call did.

    Attributes:
        faults: minor page faults; NaN where the system does not count.
        worker_share: processor time of other threads over that of the calling one; NaN where not known.
        seconds: of the median call, with memory and caches that are warm.
    """

    faults: float
    worker_share: float
    seconds: float = math.nan


def once_more(recorded: RecordedCall, threads: int) -> MoreCalls | None:
    """Call it again with so many threads; None where it cannot be rebuilt or does not run on fresh inputs."""
    import torch

    if torch.get_default_dtype() != torch.float32 or torch.empty(0).device.type != "cpu":
        return None  # the code that makes inputs relies on them
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        setup, stmt = code_of(recorded)
        names: dict[str, Any] = {}
        with (
            torch.random.fork_rng(devices=[]),
            torch.no_grad(),
            torch.autocast("cpu", enabled=False),
            warnings.catch_warnings(action="ignore"),
        ):
            exec(compile(setup, "<op>", "exec"), names)
            code = compile(stmt, "<op>", "exec")
            return _looked_at(lambda: exec(code, names))
    except Exception:  # noqa: BLE001  # whatever an op raises on inputs that are not the user's: the profile is there
        return None
    finally:
        torch.set_num_threads(before)


def _looked_at(call: Callable[[], object]) -> MoreCalls:
    begin = time.perf_counter()
    for _ in range(_WARM):
        call()
        if time.perf_counter() - begin > _LEAST:
            break
    times: list[float] = []
    before, now = read_use(), time.perf_counter()
    until = now + _LEAST
    while not times or (now < until and len(times) < _MOST_CALLS):
        call()
        after = time.perf_counter()
        times.append(after - now)
        now = after
    used = read_use() - before
    return MoreCalls(used.faults / len(times), used.worker_share, statistics.median(times))


# ---- page_faults -----------------------------------------------------------------------------------------------------
# What page faults take: the cost of one on this machine, measured, and the seconds of an op's calls that they are.
#
# The processor time that the system reports as its own is sampled (a few ticks in the time that an op is looked at), so
# the same op had 0.2 to 0.5 of it from run to run. What filling fresh memory takes longer than filling memory that is
# there repeats within some per cent.

_BYTES = 16 << 20
"""Filled each time: more than caches of the second level hold, and a few milliseconds of faults."""
_TIMES = 8


def cost_of_fault(threads: int) -> float:
    """Seconds that one page fault adds where so many threads fill memory: the fault itself, and giving the page back.

    NaN where it cannot be measured: no anonymous memory, no count of faults, or none that were counted.
    """
    import torch

    if not hasattr(mmap, "MAP_PRIVATE") or math.isnan(read_use().faults):
        return math.nan
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        kept = torch.empty(_BYTES, dtype=torch.uint8, device="cpu").fill_(1)
        there, fresh, faults = [], [], []
        for _ in range(_TIMES):
            begin = time.perf_counter()
            kept.fill_(2)
            there.append(time.perf_counter() - begin)
            use, begin = read_use(), time.perf_counter()
            _fill_fresh()
            fresh.append(time.perf_counter() - begin)
            faults.append((read_use() - use).faults)
    except (OSError, RuntimeError):  # no memory left
        return math.nan
    finally:
        torch.set_num_threads(before)
    counted = statistics.median(faults)
    more = min(fresh) - min(there)  # the turns that others took least of
    return max(more, 0.0) / counted if counted else math.nan


def _fill_fresh() -> None:
    """As an allocator without free memory does for an output: taken from the system, filled, given back."""
    import torch

    with mmap.mmap(-1, _BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        filled = torch.frombuffer(memory, dtype=torch.uint8).fill_(2)
        del filled  # it holds the memory


def faults_in_call(row: OpEfficiency, more: MoreCalls | None, cost: float) -> tuple[float, float, float]:
    """(faults, seconds that they take, their share of the op's time) of one call; NaN faults where none were counted,
    or it is not known what they take.

    Args:
        more: calls of the op after the run; None without.
        cost: seconds of a fault; NaN: not known.
    """
    if more is None:
        return math.nan, 0.0, 0.0
    if math.isnan(more.faults) or not accounts_for(more.faults, row.fresh):
        return more.faults, 0.0, 0.0
    if math.isnan(cost):
        return math.nan, 0.0, 0.0
    of_call = more.seconds if more.seconds > 0 else row.seconds
    return more.faults, min(more.faults * cost, row.seconds), min(more.faults * cost / of_call, 1.0)
