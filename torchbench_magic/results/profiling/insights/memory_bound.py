"""``memory-bound-run``: operations that one after the other read what the one before wrote, and do little else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from torchbench_magic import units

from ...insights import CodeLine, Cure, Insight
from ..efficiency import Efficiency, OpEfficiency
from ..profile import Profile
from .line_uses import recorded_lines
from .operators import trusted_efficiency
from .wording import LEAST_SECONDS, LEAST_SHARE, places_text, stake_text

__all__ = ["memory_bound_run"]

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
            found.append(_insight(efficiency, run, times, (seconds, recorded.wall, profile.wall_time), places))
    return found


def _insight(
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
            "This is attention: one fused operation does all of it without the intermediate tensor.",
            "torch.nn.functional.scaled_dot_product_attention(q, k, v)",
            "sdpa",
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
