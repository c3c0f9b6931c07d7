"""Share of the machine's peak: a clause, columns, and the roofline as static SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from torchbench_magic import units
from torchbench_magic.process.peak_performance import Peaks
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.show.document import Phrase, clipped
from torchbench_magic.show.drawing import AxisScale, figure, scale_of, svg_text
from torchbench_magic.show.page_data import attribute
from torchbench_magic.show.palette import CURVE_HUES, GREY, letters, theme
from torchbench_magic.show.table import BuiltColumn, Cell, Column, float_or_none, frame_rows, texts

from .table import Efficiency, OpEfficiency

# ---- of_roof ---------------------------------------------------------------------------------------------------------

_LEAST = 0.1  # of the time in torch: what the sentence names
_CLASSES_NAMED = 2
_MOST_OF_TIME = 0.5  # of a group's time: then it has that class
_WORDS = {
    "compute": "computes near this machine's peak",
    "memory": "is limited by memory bandwidth",
    "page-fault": "is page faults",
    "overhead": "is call overhead",
    "serial": "runs on one thread",
    "below-roof": "is far below what this machine can do",
    "slow-float16": "computes in float16, slow on this machine",
    "slow-bfloat16": "computes in bfloat16, slow on this machine",
}


def efficiency_clause(profile: Profile) -> Iterator[Phrase]:
    """``; of the time in torch 45 % is page faults, 20 % is far below what this machine can do``."""
    found = profile.efficiency
    if found is None:
        return
    every = profile.ops[~profile.ops["op"].isin(profile.ranges)]
    total = float(every["self_cpu_time"].sum())
    if not total or not found.rows:
        return
    by_kind: dict[str, float] = {}
    for row in found.rows:
        for kind, seconds in _parts(row, found):
            by_kind[kind] = by_kind.get(kind, 0.0) + seconds * row.calls
    shares = sorted(((seconds / total, kind) for kind, seconds in by_kind.items()), reverse=True)
    said = [f"{units.percent(min(part, 1.0))} % {_WORDS[kind]}" for part, kind in shares if part >= _LEAST]
    if said:
        yield Phrase(f"; of the time in torch {', '.join(said[:_CLASSES_NAMED])}")
    elif not found.coverage > _LEAST:
        yield Phrase("; how close its operations come to this machine's peaks is unknown")


def _parts(row: OpEfficiency, found: Efficiency) -> Iterator[tuple[str, float]]:
    """(kind of `_WORDS`, seconds of one call): of an op that page faults hold up they are a part."""
    kind = row.kind
    if kind == "page-fault" and 0 < row.fault_seconds < row.seconds:
        rest = row.seconds - row.fault_seconds
        yield kind, row.fault_seconds
        if row.is_bounded and row.roof < _MOST_OF_TIME * rest:
            yield "below-roof", rest
    elif kind == "compute" and found.peaks.is_slow(row.dtype):
        yield f"slow-{row.dtype}", row.seconds
    elif kind:
        yield kind, row.seconds


def efficiency_columns(profile: Profile, ops: pd.DataFrame, by: Sequence[str]) -> list[BuiltColumn]:
    """The class of each group of ``ops`` and the share of the roof that it reached; none without ``--efficiency``."""
    if profile.efficiency is None:
        return []
    found = _reached(ops, by)

    def of(record: Mapping[str, Any]) -> tuple[str, float]:
        return found.get(tuple(_key(record[name]) for name in by), ("", math.nan))

    return [
        texts("efficiency_class", "class", 12, lambda record: of(record)[0], quiet=True),
        BuiltColumn(Column("fraction_of_peak", "of roof", "%", "number"), lambda record: _percent(of(record)[1])),
    ]


def line_columns(profile: Profile) -> list[BuiltColumn]:
    """The same of a line."""
    if profile.efficiency is None:
        return []
    return [
        texts("efficiency_class", "class", 12, lambda record: _text(record["efficiency_class"]), quiet=True),
        BuiltColumn(
            Column("fraction_of_peak", "of roof", "%", "number"), lambda record: _percent(record["fraction_of_peak"])
        ),
    ]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _percent(value: Any) -> Cell:
    share = float_or_none(value)
    return Cell() if share is None else Cell(units.percent(share), share)


def _key(value: Any) -> Any:
    return "" if value is None or value is pd.NA or value != value else value


def _reached(ops: pd.DataFrame, by: Sequence[str]) -> dict[tuple[Any, ...], tuple[str, float]]:
    """Group -> (the class that has half of its time, the share of the roof over that time)."""
    times: dict[tuple[Any, ...], dict[str, float]] = {}
    reached: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
    for record in frame_rows(ops):
        key = tuple(_key(record[name]) for name in by)
        own, kind = float(record["self_cpu_time"]), _text(record["efficiency_class"])
        by_kind = times.setdefault(key, {})
        by_kind[kind] = by_kind.get(kind, 0.0) + own
        share = float_or_none(record["fraction_of_peak"])
        if share is not None:
            reached.setdefault(key, []).append((share, own))
    found = {}
    for key, by_kind in times.items():
        kind = max(by_kind, key=lambda each: by_kind[each])
        whole, parts = sum(by_kind.values()), reached.get(key, [])
        weight = sum(own for _, own in parts)
        is_told = bool(kind) and by_kind[kind] >= _MOST_OF_TIME * whole
        share = sum(part * own for part, own in parts) / weight if is_told and weight > 0 else math.nan
        found[key] = (kind if is_told else "", share)
    return found


def efficiency_footer(profile: Profile) -> str:
    """What the columns say, what the peaks are, and what is not available here; empty without ``--efficiency``."""
    found = profile.efficiency
    if found is None:
        return ""
    peaks, threads = found.peaks, found.peaks.threads
    parts = [
        f"{name} {rate / 1e9:.3g}" for name, count, rate in peaks.flops if count == threads and not math.isnan(rate)
    ]
    rates = [(size, rate) for size, count, rate in peaks.bandwidth if count == threads and not math.isnan(rate)]
    with_them = f"with {threads} thread{'' if threads == 1 else 's'}"
    told = f"classes are known for {units.percent(found.coverage)} % of the time in torch"
    meant = "the shortest time this machine needs for an operation's FLOP and bytes (each byte once), over its time"
    said = [f"Of roof: {meant}; {told}."]
    if parts:
        said.append(f"Peaks {with_them}, GFLOP/s: {', '.join(parts)}.")
    if rates:
        shown = [f"{rate / 1e9:.3g} at {units.bytes_text(size)}" for size, rate in sorted(rates)]
        said.append(f"Bandwidth, GB/s: {', '.join(shown)}, the last two measured now.")
    return " ".join([*said, *found.notes])


# ---- roofline --------------------------------------------------------------------------------------------------------
# The roofline of a profile, as static SVG: operations against the peaks of this machine.
#
# Left, FLOP/s against FLOP per byte, under the roof of arithmetic and of main memory; right, bytes/s against the
# working set, under the measured bandwidth. A dot is an operation on a line, as large as its share of the time; what it
# is stands in its tooltip, and the largest have their names beside them. Both axes are logarithmic. Text is escaped;
# colours are the notebook's variables, with fallbacks for both themes.

_WIDTH, _HEIGHT = 300, 170  # px of the plotted ground
_AROUND = (44, 26, 16, 34)  # left of it, above, right and below
_MOST_DOTS = 16  # dots of a panel, the most time first
_DOTS_NAMED = 3
_NAME = 22  # characters
_RADIUS = (2.5, 7.0)
_APART = 12  # px between two names
_HUES = dict(
    zip(("other", "compute", "page-fault", "memory", "serial", "below-roof"), CURVE_HUES, strict=True)
)  # overhead is no dot: it has no roof

_STYLE = (
    "<style>"
    + theme(
        ".tb-roof",
        ("bg", "ink0", "ink1", "ink2", "rule1", "rule2"),
        "display:flex;flex-wrap:wrap;gap:4px 12px;margin:8px 0",
    )
    + ".tb-roof svg{overflow:visible;flex:none}"
    + letters(".tb-roof", ".i1")
    + ".tb-roof .tk{stroke:var(--rule2)}.tb-roof .ax{stroke:var(--rule1)}"
    ".tb-roof .rf{fill:none;stroke:var(--ink2);stroke-width:1.5}"
    ".tb-roof circle{fill:color-mix(in srgb,var(--c) 84%,var(--ink0));stroke:var(--bg)}</style>"
)


@dataclass(frozen=True)
class _Dot:
    """An operation on a line, at (x, y) of the axes."""

    row: OpEfficiency
    x: float
    y: float

    @property
    def seconds(self) -> float:
        return self.row.seconds * self.row.calls


def roofline_svg(profile: Profile) -> str | None:
    """The picture as markup; None without ``--efficiency``, and where nothing can be drawn."""
    found = profile.efficiency
    if found is None:
        return None
    rows = [row for row in found.rows if row.kind not in ("", "overhead") and row.bytes > 0]
    computing = [_Dot(row, row.intensity, row.flops / row.seconds) for row in rows if row.flops > 0]
    moving = [_Dot(row, row.bytes, row.bytes / row.seconds) for row in rows if not row.flops > 0]
    panels = [_computing(profile, found.peaks, computing), _moving(profile, found.peaks, moving)]
    drawn = [panel for panel in panels if panel]
    return f'{_STYLE}<div class="tb-roof">{"".join(drawn)}</div>' if drawn else None


def _computing(profile: Profile, peaks: Peaks, dots: Sequence[_Dot]) -> str:
    """FLOP/s against FLOP per byte, with a roof for each dtype that is there."""
    dots = _largest(dots)
    dram = max(((size, rate) for size, at, rate in peaks.bandwidth if at == peaks.threads), default=(0, math.nan))[1]
    roofs = {dtype: rate for dtype in {dot.row.dtype for dot in dots} if (rate := peaks.flops_of(dtype)) > 0}
    if not dots or not roofs or not dram > 0:
        return ""
    ridges = [rate / dram for rate in roofs.values()]
    x = scale_of([*(dot.x for dot in dots), *ridges, min(ridges) / 8, max(ridges) * 8])
    y = scale_of([*(dot.y for dot in dots), *roofs.values(), min(roofs.values()) / 20])
    parts = [_axes(x, y, "FLOP per byte", "GFLOP/s", 1e9, 1.0)]
    for dtype, rate in sorted(roofs.items()):
        start = max(x.low, y.low / dram)
        spots = [(start, min(start * dram, rate)), (rate / dram, rate), (x.high, rate)]
        parts.append(_roof(x, y, [spot for spot in spots if x.low <= spot[0] <= x.high]))
        parts.append(svg_text(_WIDTH - 2, _place(y, rate) - 4, dtype, "end"))
    parts.append(_dots(profile, x, y, dots))
    return figure((_WIDTH, _HEIGHT), _AROUND, "FLOP/s against FLOP per byte, under this machine's roof", parts)


def _moving(profile: Profile, peaks: Peaks, dots: Sequence[_Dot]) -> str:
    """Bytes/s against the working set, under the measured bandwidth."""
    dots = _largest(dots)
    known = [(float(size), rate) for size, at, rate in sorted(peaks.bandwidth) if at == peaks.threads and rate > 0]
    if not dots or not known:
        return ""
    x = scale_of([*(dot.x for dot in dots), *(size for size, _ in known)])
    y = scale_of([*(dot.y for dot in dots), *(rate for _, rate in known), min(rate for _, rate in known) / 10])
    ends = [(x.low, known[0][1]), *known, (x.high, known[-1][1])]
    parts = [_axes(x, y, "bytes that a call moves, MiB", "GB/s", 1e9, float(1 << 20)), _roof(x, y, ends)]
    for name, size in peaks.caches:
        if x.low < size < x.high:
            at = x.place(size) * _WIDTH
            parts.append(f'<line class="tk" x1="{at:.1f}" x2="{at:.1f}" y1="0" y2="{_HEIGHT}"/>')
            parts.append(svg_text(at + 3, _HEIGHT - 4, name, "start"))
    parts.append(_dots(profile, x, y, dots))
    return figure((_WIDTH, _HEIGHT), _AROUND, "bytes/s against the working set, under this machine's bandwidth", parts)


def _largest(dots: Iterable[_Dot]) -> list[_Dot]:
    return sorted(dots, key=lambda dot: -dot.seconds)[:_MOST_DOTS]


def _axes(x: AxisScale, y: AxisScale, below: str, beside: str, size: float, unit: float) -> str:
    """Rules and words; values of y are written over ``size``, those of x over ``unit``."""
    out = [svg_text(-_AROUND[0], -12, beside, "start")]
    for value in y.ticks:
        at = _place(y, value)
        out.append(f'<line class="tk" x1="0" x2="{_WIDTH}" y1="{at:.1f}" y2="{at:.1f}"/>')
        out.append(svg_text(-6, at + 4, _short(value / size), "end"))
    out.append(f'<line class="ax" stroke="{GREY}" x1="0" x2="{_WIDTH}" y1="{_HEIGHT}" y2="{_HEIGHT}"/>')
    written = [value for value in scale_of([x.low / unit, x.high / unit]).ticks if x.low <= value * unit <= x.high]
    out += [svg_text(x.place(value * unit) * _WIDTH, _HEIGHT + 15, _short(value), "middle") for value in written]
    out.append(svg_text(_WIDTH / 2, _HEIGHT + 30, below, "middle"))
    return "".join(out)


def _short(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else units.count(round(value))


def _place(y: AxisScale, value: float) -> float:
    return (1 - y.place(value)) * _HEIGHT


def _roof(x: AxisScale, y: AxisScale, spots: Iterable[tuple[float, float]]) -> str:
    points = " ".join(f"{x.place(at) * _WIDTH:.1f},{_place(y, value):.1f}" for at, value in spots)
    return f'<polyline class="rf" fill="none" stroke="{GREY}" points="{points}"/>'


def _dots(profile: Profile, x: AxisScale, y: AxisScale, dots: Sequence[_Dot]) -> str:
    out, names = [], []
    top = max(dot.seconds for dot in dots)
    taken: list[tuple[float, float]] = []
    for number, dot in enumerate(dots):
        across, down = x.place(dot.x) * _WIDTH, _place(y, dot.y)
        radius = _RADIUS[0] + (_RADIUS[1] - _RADIUS[0]) * math.sqrt(dot.seconds / top)
        hue = _HUES.get(dot.row.kind, _HUES["other"])
        said = _said(profile, dot)
        out.append(
            f'<circle cx="{across:.1f}" cy="{down:.1f}" r="{radius:.1f}" fill="{hue}" style="--c:{hue}">'
            f"<title>{attribute(said)}</title></circle>"
        )
        if number < _DOTS_NAMED and all(abs(down - b) >= _APART or abs(across - a) > 120 for a, b in taken):
            taken.append((across, down))
            right = across < _WIDTH * 0.6
            name = clipped(dot.row.op.removeprefix("aten::"), _NAME)
            side = across + radius + 3 if right else across - radius - 3
            names.append(svg_text(side, down + 4, name, "start" if right else "end", "i1"))
    return "".join([*reversed(out), *names])


def _said(profile: Profile, dot: _Dot) -> str:
    row = dot.row
    source = profile.sources.get(row.source_id or "")
    where = f"{source.label}:{row.line}" if source is not None else "no line"
    share = units.percent(row.fraction)
    return f"{row.op} at {where}: {row.kind}, {share} % of the roof, {units.seconds_text(dot.seconds)}"
