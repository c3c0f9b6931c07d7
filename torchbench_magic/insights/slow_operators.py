"""Insights about operations: `slow-dtype`, `shape`, `page-fault`, `below-roof` and `memory-bound-run`."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from torchbench_magic import units
from torchbench_magic.process.peak_performance import BUSY
from torchbench_magic.profiling.efficiency.table import Efficiency, OpEfficiency
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.result_base import CodeLine, Cure, Insight

from .evidence import LEAST_SECONDS, LEAST_SHARE, places_text, recorded_lines, stake_text

# ---- operators -------------------------------------------------------------------------------------------------------
# Insights about single operations, with ``--efficiency``: `slow-dtype`, `shape`, `page-fault` and `below-roof`.
#
# What is at stake is what the first cure can reach: for `page-fault` what the faults take, for the others the time at
# this machine's roof. They are silent where the peaks
# were measured while others used the machine: an op is then held against too low a roof, or against none.

_FAR = 0.5
"""Of the roof, as `profiling.efficiency.op_work.NEAR`."""


@dataclass(frozen=True)
class _AtLine:
    """The rows of one op on one line that are meant, and what is at stake.

    Attributes:
        seconds: at stake.
    """

    op: str
    rows: tuple[OpEfficiency, ...]
    where: CodeLine
    seconds: float

    @property
    def top(self) -> OpEfficiency:
        return max(self.rows, key=lambda row: row.seconds * row.calls)


def trusted_efficiency(profile: Profile) -> Efficiency | None:
    """What the insights rest on; None without ``--efficiency``, and where the peaks were measured on a busy machine."""
    found = profile.efficiency
    return None if found is None or found.peaks.contended > BUSY else found


def slow_dtype(profile: Profile) -> list[Insight]:
    """Products in a dtype that this processor computes at less than half the peak of float32 (fp16 mostly).

    At stake: their time above what they would take at the peak of float32. Silent where that peak is not known.
    """
    efficiency = trusted_efficiency(profile)
    if efficiency is None:
        return []
    peaks = efficiency.peaks
    wide = peaks.flops_of("float32")

    def stake(row: OpEfficiency) -> float:
        return row.seconds - row.flops / wide if row.flops > 0 and peaks.is_slow(row.dtype) else 0.0

    found = []
    for at, wall in _at_lines(profile, stake):
        own = peaks.flops_of(at.top.dtype)
        text = (
            f"`{at.where}` multiplies in {at.top.dtype}, which this processor does at {own / 1e9:.3g} GFLOP/s at most,"
            f" float32 at {wide / 1e9:.3g}: {stake_text(at.seconds, wall, profile.wall_time)}."
        )
        half = peaks.flops_of("bfloat16")
        cures = [Cure("Compute in float32 on this processor: `.float()` once, before the loop.", "x = x.float()")]
        if half > wide:
            said = f"bfloat16, at {half / 1e9:.3g} GFLOP/s, is even faster, with 3 digits instead of 7."
            cures.append(Cure(said, "x = x.bfloat16()", "bf16"))
        found.append(_op_insight("slow-dtype", at, wall, text, tuple(cures)))
    return found


def shape(profile: Profile) -> list[Insight]:
    """Products far below their roof one of whose sizes is narrow (the gist's bmm with N = 13).

    At stake: their time above the roof. Silent for a product that is held up by page faults, ran on one thread, or is
    small in all sizes (`insights.overhead`).
    """

    def stake(row: OpEfficiency) -> float:
        return _usual(row) - row.roof if row.kind == "below-roof" and row.narrow is not None else 0.0

    found = []
    for at, wall in _at_lines(profile, stake):
        narrow = at.top.narrow
        assert narrow is not None
        name, size = narrow
        percent = units.percent(at.top.roof / _usual(at.top))
        text = (
            f"`{at.where}` runs `{at.op}` on {_short(at.top.input_shapes)}, with {name} = {size}, at {percent} % of"
            f" this machine's peak: {stake_text(at.seconds, wall, profile.wall_time)}."
        )
        cures = (
            Cure(f"Compare it with `%%timer` with {name} padded to a multiple of 16, which fills vector registers."),
            Cure(
                "Compare ways to write it with `%%timer`: the other operand first, several such products that share an"
                " operand as one, `einsum`. Their gain was not measured.",
            ),
        )
        found.append(_op_insight("shape", at, wall, text, cures))
    return found


def page_fault(profile: Profile) -> list[Insight]:
    """Ops that write into fresh memory which the system gives page by page, each time.

    glibc returns blocks above 32 MiB to the system as they are freed (mallopt(3), M_MMAP_THRESHOLD), smaller ones from
    the end of its heap. At stake: what the page faults of a line's ops take, with giving the pages back. Where an op is
    far below its roof for another reason too, `below_roof` tells that beside it, without these seconds.
    """

    def stake(row: OpEfficiency) -> float:
        return row.fault_seconds if row.kind == "page-fault" else 0.0

    by_line: dict[CodeLine, list[_AtLine]] = {}
    for at, _ in _at_lines(profile, stake, least_share=0.0):
        by_line.setdefault(at.where, []).append(at)
    recorded = recorded_lines(profile)
    wall = recorded.base
    found = []
    for several in by_line.values():
        seconds = min(sum(at.seconds for at in several), recorded.wall)
        if seconds < max(LEAST_SECONDS, LEAST_SHARE * wall):
            continue
        at = replace(several[0], seconds=seconds)
        row, more = at.top, len(several) - 1
        others = f" and part of {more} other operation{'' if more == 1 else 's'}" if more else ""
        share = units.percent(min(row.fault_seconds / row.seconds, 1.0))
        at_stake = stake_text(at.seconds, wall, profile.wall_time)
        text = (
            f"`{at.where}` spends {share} % of `{at.op}`{others} on page faults: {units.count(round(row.faults))} a"
            f" call of `{at.op}`, for the {units.bytes_text(row.fresh)} that it writes into fresh memory: {at_stake}."
        )
        found.append(_op_insight("page-fault", at, wall, text, tuple(_cures_of_faults(at))))
    return found


def _cures_of_faults(at: _AtLine) -> Iterator[Cure]:
    name = at.op.removeprefix("aten::").lstrip("_")
    has_out = not name.endswith("backward") and "backward_" not in name  # torch has no function of that name
    yield Cure(
        "Reuse memory: work in place if the input is not needed, or use `out=` with a tensor created once.",
        f"torch.{name}(..., out=out)" if has_out else "",
    )
    yield Cure(
        "Make the allocator keep freed memory: set these before Python starts.",
        "MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=268435456",
    )


def below_roof(profile: Profile) -> list[Insight]:
    """Other ops far below the roof: products, convolutions, and ops that only move bytes.

    Page faults are no part of it: of an op that they hold up the rest is told, where that is far below the roof by
    itself. Silent for narrow products (`shape`), for an op whose arithmetic is not counted, and for one whose bytes
    fit into the last cache unless its FLOPs are counted: they may have come from main memory.
    """
    efficiency = trusted_efficiency(profile)
    if efficiency is None:
        return []
    caches = efficiency.peaks.caches
    last = max((size for _, size in caches), default=math.inf)

    def stake(row: OpEfficiency) -> float:
        is_sure = row.flops > 0 or row.bytes > 2 * last
        if not is_sure or row.narrow is not None:
            return 0.0
        if row.kind == "page-fault" and not (row.is_bounded and row.roof < _FAR * _rest(row)):
            return 0.0
        return _rest(row) - row.roof if row.kind in ("below-roof", "serial", "page-fault") else 0.0

    found = []
    for at, wall in _at_lines(profile, stake):
        row = at.top
        against = "arithmetic" if row.side == "compute" else "bandwidth"
        besides = ", its page faults aside," if row.kind == "page-fault" else ""
        alone = ", on one thread" if row.kind == "serial" else ""
        at_stake = stake_text(at.seconds, wall, profile.wall_time)
        text = (
            f"`{at.where}` runs `{at.op}`{besides} at {units.percent(row.roof / _rest(row))} % of what this machine's"
            f" {against} allows{alone}: {at_stake}."
        )
        found.append(_op_insight("below-roof", at, wall, text, _cures_below(row)))
    return found


def _cures_below(row: OpEfficiency) -> tuple[Cure, ...]:
    cures = []
    if row.side == "memory":
        cures.append(Cure("Give it tensors in the memory order in which they are read: `contiguous` once, before the"
            " loop.",
                          lever="contiguous"))  # fmt: skip
    if row.kind == "serial":
        cures.append(Cure("This operation runs on one thread here: run several in parallel, or use another one."))
    if not cures:
        cures.append(Cure("Larger tensors per call get closer to the peak; compare sizes with `%%timer`."))
    return tuple(cures)


# ---- what they share ------------------------------------------------------------------------------------------------


def _at_lines(
    profile: Profile,
    stake: Callable[[OpEfficiency], float],
    least_share: float = LEAST_SHARE,
) -> Iterator[tuple[_AtLine, float]]:
    """Each op on each line of the cell's own thread that has enough at stake, with the wall time; the most first."""
    efficiency, recorded = trusted_efficiency(profile), recorded_lines(profile)
    if efficiency is None or recorded.wall <= 0:
        return
    labels = {use.key: use.where for use in recorded.lines}
    rows: dict[tuple[str, CodeLine], list[OpEfficiency]] = {}
    seconds: dict[tuple[str, CodeLine], float] = {}
    for row in efficiency.rows:
        where = labels.get((row.source_id or "", row.line or 0))
        more = stake(row) * row.calls if where is not None else 0.0
        if where is not None and more > 0:
            rows.setdefault((row.op, where), []).append(row)
            seconds[row.op, where] = seconds.get((row.op, where), 0.0) + more
    for key in sorted(seconds, key=lambda each: -seconds[each]):
        if seconds[key] >= max(LEAST_SECONDS if least_share else 0.0, least_share * recorded.wall):
            at_stake = min(seconds[key], recorded.wall)
            yield _AtLine(key[0], tuple(rows[key]), key[1], at_stake), recorded.base


def _op_insight(kind: str, at: _AtLine, wall: float, text: str, cures: tuple[Cure, ...]) -> Insight:
    row = at.top
    evidence: dict[str, object] = {
        "operation": at.op,
        "calls": sum(each.calls for each in at.rows),
        "seconds_per_call": row.seconds,
        "seconds_at_the_roof": row.roof if not math.isnan(row.roof) else 0.0,
        "GFLOP_per_second": row.flops / row.seconds / 1e9 if row.flops > 0 else 0,
        "bytes_per_call": units.bytes_text(row.bytes) if row.bytes > 0 else "",
        "input_shapes": row.input_shapes,
        "dtype": row.dtype,
    }
    return Insight(kind, at.seconds, at.seconds / wall, text, evidence, (at.where,), cures)


def _usual(row: OpEfficiency) -> float:
    """Seconds of a call as far as the op itself takes them: what it takes longer in the run than when it is called
    again has other reasons (cold caches, page faults) that no other shape or layout takes away."""
    return min(row.seconds, row.again) if row.again > 0 else row.seconds


def _rest(row: OpEfficiency) -> float:
    """As `_usual`, without its page faults."""
    return (row.seconds if row.kind == "page-fault" else _usual(row)) - row.fault_seconds


def _short(shapes: str) -> str:
    """``[64, 512, 512] [64, 512, 13]`` of the text of the tables."""
    try:
        parts: Iterable[object] = ast.literal_eval(shapes)
    except (ValueError, SyntaxError):
        return shapes
    return " ".join(str(part) for part in parts if part)


# ---- memory_bound ----------------------------------------------------------------------------------------------------
# ``memory-bound-run``: operations that one after the other read what the one before wrote, and do little else.

FEWEST = 2
"""Ops in a run: fusing needs two."""
_PRODUCTS = frozenset({"aten::bmm", "aten::baddbmm", "aten::mm", "aten::addmm"})
_ATTENTION = ("softmax",)


@dataclass(frozen=True)
class _Run:
    """Ops that followed each other once.

    Attributes:
        rows: in their order.
    """

    rows: tuple[OpEfficiency, ...]

    @property
    def saved(self) -> float:
        """Bytes that need not be moved where they are one: what each but the last writes, and the next one reads."""
        return sum(2 * row.written for row in self.rows[:-1])

    @property
    def working_set(self) -> float:
        return sum(row.bytes for row in self.rows)

    @property
    def is_attention(self) -> bool:
        names = [row.op for row in self.rows]
        return names[0] in _PRODUCTS and any(word in name for name in names for word in _ATTENTION)

    @property
    def seconds(self) -> float:
        """Of that moving, at the rate that each op had, and of the page faults of what is written between.

        Attention as one operation writes none of the outputs, the last one included: of its ops that move bytes,
        nothing but arithmetic is left, on what the caches hold.
        """
        if self.is_attention:
            return sum(row.seconds if _moves(row) else _above(row) for row in self.rows)
        total = 0.0
        for row, after in zip(self.rows, self.rows[1:], strict=False):
            total += row.fault_seconds
            if _moves(row):
                total += _moving(row) * min(row.written / row.bytes, 1.0)
            if _moves(after):
                total += _moving(after) * min(row.written / after.bytes, 1.0)
        return total


def _above(row: OpEfficiency) -> float:
    """Seconds of a product that are not its own work: its page faults, or what it is above the roof where they hold it
    up."""
    above = row.seconds - row.roof if row.kind == "page-fault" and row.roof > 0 else 0.0
    return max(row.fault_seconds, above)


def _moving(row: OpEfficiency) -> float:
    """Seconds of an op without its page faults."""
    return max(row.seconds - row.fault_seconds, 0.0)


def memory_bound_run(profile: Profile) -> list[Insight]:
    """One for each chain of ops on whole tensors larger than the second cache, told by its lines.

    A chain: each op takes as an input a tensor of the shape that the op before it made, on the same line or on one that
    reads the name that the other line made; at most small ops (views) stand between, and all but a product at its
    beginning are bound by memory. At stake: the moving of what lies between, at the rates that the ops had, and its
    page faults. What fits into the second cache is silent: it is read from there.
    """
    efficiency = trusted_efficiency(profile)
    if efficiency is None or profile.trace is None:
        return []
    recorded = recorded_lines(profile)
    if recorded.wall <= 0:
        return []
    labels = {use.key: use.where for use in recorded.lines}
    counted: dict[tuple[OpEfficiency, ...], int] = {}
    for run in _runs(profile, efficiency):
        counted[run.rows] = counted.get(run.rows, 0) + 1
    found = []
    for rows, times in counted.items():
        run = _Run(rows)
        seconds = min(run.seconds * times, recorded.wall)
        if seconds < max(LEAST_SECONDS, LEAST_SHARE * recorded.wall):
            continue
        places = tuple(
            dict.fromkeys(labels[key] for row in rows if (key := (row.source_id or "", row.line or 0)) in labels)
        )
        if places:
            found.append(
                _memory_bound_insight(efficiency, run, times, (seconds, recorded.base, recorded.measured), places)
            )
    return found


def _memory_bound_insight(
    efficiency: Efficiency, run: _Run, times: int, at_stake: tuple[float, float, float], places: tuple[CodeLine, ...]
) -> Insight:
    seconds, wall, measured = at_stake
    names = [row.op.removeprefix("aten::").lstrip("_") for row in run.rows]
    caches = efficiency.peaks.caches
    against = ", ".join(f"{name} holds {units.bytes_text(size)}" for name, size in caches[1:])
    runs = "runs" if len(places) == 1 else "run"
    faults = " nor wait for page faults" if any(row.fault_seconds > 0 for row in run.rows[:-1]) else ""
    text = (
        f"{places_text(places)} {runs} {' / '.join(names)} one after the other, each on"
        f" {units.bytes_text(run.rows[0].written)} that the one before wrote: fused, they need not move"
        f" {units.bytes_text(run.saved)}{faults}: {stake_text(seconds, wall, measured)}."
    )
    evidence: dict[str, object] = {
        "times": times,
        "working_set": units.bytes_text(run.working_set),
        "caches": against,
        "bytes_that_fusing_saves": units.bytes_text(run.saved * times),
        "seconds_of_the_run": sum(row.seconds for row in run.rows),
        "seconds_of_page_faults": sum(row.fault_seconds for row in run.rows),
    }
    return Insight("memory-bound-run", seconds, seconds / wall, text, evidence, places, tuple(_cures(run, names)))


def _cures(run: _Run, names: Sequence[str]) -> Iterator[Cure]:
    if run.is_attention:
        yield Cure(
            "This looks like attention: one operation may do all of it without the intermediate tensor. Compare"
            " both with `%%timer --check`.",
            "torch.nn.functional.scaled_dot_product_attention(q, k, v)",
        )
    yield Cure("Compile the calling function with `torch.compile`: it fuses them into one operation.", lever="compile")
    if any(name in ("mul", "div") for name in names):
        yield Cure("Scale the smaller operand before the product, or by it: `baddbmm(..., beta=0, alpha=scale)`.")
    yield Cure("If the previous result is no longer needed, work in place: `add_`, `div_`, `relu_`.")


def _moves(row: OpEfficiency) -> bool:
    """Whether moving bytes is what an op spends its time on."""
    return row.kind == "memory" or (row.kind == "page-fault" and row.side == "memory")


def _runs(profile: Profile, efficiency: Efficiency) -> Iterator[_Run]:
    """The chains of the cell's own thread in the order of time, the longest ones."""
    least = efficiency.peaks.cache("L2")
    waiting: list[OpEfficiency] = []
    for row in _in_order(profile, efficiency):
        is_next = waiting and row not in waiting and _moves(row) and waiting[-1].written > least
        if is_next and _takes(row, waiting[-1]) and _reads(profile, row, waiting[-1]):
            waiting.append(row)
            continue
        if len(waiting) >= FEWEST:
            yield _Run(tuple(waiting))
        waiting = [row] if _moves(row) or row.op in _PRODUCTS else []
    if len(waiting) >= FEWEST:
        yield _Run(tuple(waiting))


def _in_order(profile: Profile, efficiency: Efficiency) -> Iterator[OpEfficiency]:
    """The ops that are no mere calls, as they ran in the cell's own thread."""
    trace = profile.trace
    assert trace is not None
    rows: Mapping[tuple[str, str, str, str, int], OpEfficiency] = {
        (row.op, row.input_shapes, row.input_dtypes, row.source_id or "", row.line or 0): row
        for row in efficiency.rows
        if row.thread == 0 and row.kind not in ("", "overhead") and row.bytes > 0
    }
    events, nodes = trace.events, trace.nodes
    is_own = trace.is_kind("op") & np.isin(
        events["track"].to_numpy(), [at for at, track in enumerate(trace.tracks) if track.thread == 0]
    )
    own = events[is_own & (events["inputs"].to_numpy() >= 0) & (events["node"].to_numpy() >= 0)]
    sources, lines = nodes["source"].to_numpy(), nodes["line"].to_numpy()
    known: dict[tuple[int, int, int], OpEfficiency | None] = {}
    for name, inputs, node in zip(own["name"].tolist(), own["inputs"].tolist(), own["node"].tolist(), strict=True):
        key = (name, inputs, node)
        if key not in known:
            shapes, dtypes, _ = trace.inputs[inputs]
            source = trace.sources[sources[node]] if sources[node] >= 0 else ""
            known[key] = rows.get((trace.names[name], shapes, dtypes, source, int(lines[node])))
        found = known[key]
        if found is not None:
            yield found


def _takes(row: OpEfficiency, before: OpEfficiency) -> bool:
    """Whether one of its inputs has the shape that the op before made."""
    if not before.output or before.output == "[]":
        return False
    try:
        shapes = ast.literal_eval(row.input_shapes)
    except (ValueError, SyntaxError):
        return False
    return any(str(shape) == before.output for shape in shapes)


def _reads(profile: Profile, row: OpEfficiency, before: OpEfficiency) -> bool:
    """Whether the line of an op reads what the line of the one before made, as far as its text tells."""
    if ";" in _text(profile, row) + _text(profile, before):  # which of the statements is not known
        return False
    if (row.source_id, row.line) == (before.source_id, before.line):
        return True
    if row.source_id != before.source_id:
        return False
    made = _MAKES.match(_text(profile, before))
    names = re.findall(r"[A-Za-z_]\w*", made.group(1)) if made else []
    after = re.sub(r"^[^=(]*[^=!<>(]=(?!=)", "", _text(profile, row))
    return any(re.search(rf"\b{name}\b", after) for name in names)


_MAKES = re.compile(r"\s*([A-Za-z_]\w*(?:\s*,\s*[A-Za-z_]\w*)*)\s*(?:[-+*/@]?=(?!=)|\.\w+_\()")
"""``s = ...``, ``a, b = ...``, ``s /= 8``, ``s.div_(8)``: the names that a line makes or changes."""


def _text(profile: Profile, row: OpEfficiency) -> str:
    source = profile.sources.get(row.source_id or "")
    return source.line(row.line) if source is not None and row.line is not None else ""
