"""A comparison as curves: static SVG without a script, and with matplotlib."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from torchbench_magic import units
from torchbench_magic.errors import InputError, OptionError
from torchbench_magic.show.document import clipped
from torchbench_magic.show.drawing import AxisScale, figure, literal, new_axes, scale_of, svg_text
from torchbench_magic.show.palette import CODE_FONT, CURVE_HUES, GREY, letters, theme

from .columns_view import alternative_name, fixed_text, placed_name
from .comparison import Comparison
from .scaling import THREADS, Crossover, Curve, crossovers, main_axis, times_along

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# ---- curves ----------------------------------------------------------------------------------------------------------
# A comparison as curves: time along a sweep axis, or against threads, as static SVG with no script.
#
# Both axes are logarithmic. Each alternative has a hue, a shape and its name at the end of its line; a filled mark is
# decided, a hollow one undecided. Text is escaped; colours are the notebook's variables, with fallbacks for both
# themes.

MOST_PANELS = 4
MOST_LINES = 6
_WIDTH, _HEIGHT = 252, 168  # px of the plotted ground
_LEFT, _TOP, _RIGHT, _BOTTOM = 52, 34, 118, 34  # px round it; names of lines stand at the right
_MOST_MARKS = 60  # points of a line; of more, the line alone is drawn
_MOST_SPOTS = 500  # of a line
_NAME = 14  # characters of a name at the end of its line
_APART = 13  # px between two such names
_ROLES = ("base", "torch", "python", "memory", "backward", "more")
_SHAPES = ("square", "dot", "triangle", "diamond", "dot", "square")

_STYLE = (
    "<style>"
    + theme(
        ".tb-curves",
        ("bg", "ink0", "ink1", "ink2", "rule1", "rule2"),
        "display:flex;flex-wrap:wrap;gap:4px 12px;margin:8px 0",
    )
    + ".tb-curves svg{overflow:visible;flex:none}"
    + letters(".tb-curves", ".i1")
    + f".tb-curves .nm{{font-family:{CODE_FONT}}}"
    ".tb-curves .tk{stroke:var(--rule2)}.tb-curves .ax{stroke:var(--rule1)}"
    ".tb-curves .id{fill:none;stroke:var(--ink2);stroke-dasharray:2 3}"
    ".tb-curves .over{fill:var(--ink2);opacity:.09}"
    ".tb-curves .l{fill:none;stroke:var(--h);stroke-width:1.5}.tb-curves .c{stroke:var(--h);stroke-width:1.5}"
    ".tb-curves .m{fill:var(--h);stroke:var(--h);stroke-width:1.5}.tb-curves .m.o{fill:var(--bg)}"
    ".tb-curves g{--h:color-mix(in srgb,var(--c,#000) 84%,var(--ink0))}"
    + "".join(f".tb-curves .{role}{{--c:{hue}}}" for role, hue in zip(_ROLES, CURVE_HUES, strict=True))
    + "</style>"
)


def curves_svg(comparison: Comparison) -> str | None:
    """The curves of a comparison as markup, or None where there is nothing to draw along."""
    axis = axis_of(comparison)
    if axis is None:
        return None
    panels: dict[Any, list[Curve]] = {}
    for curve in times_along(comparison, axis):
        if len(curve.points) > 1:
            panels.setdefault(curve.fixed, []).append(curve)
    if not panels:
        return None
    swaps = crossovers(comparison, axis) if axis != THREADS else []
    drawn = [
        _panel(comparison, axis, lines, [swap for swap in swaps if swap.fixed == fixed])
        for fixed, lines in list(panels.items())[:MOST_PANELS]
    ]
    left = len(panels) - len(drawn)
    more = f"<p><small>{units.count(left)} more: use .plot()</small></p>" if left else ""
    return f'{_STYLE}<div class="tb-curves">{"".join(drawn)}</div>{more}'


def axis_of(comparison: Comparison) -> str | None:
    """What a picture of this comparison runs along: its main sweep axis, else the thread count, else nothing."""
    axis = main_axis(comparison)
    if axis is None and comparison.frame[THREADS].nunique() > 1:
        return THREADS
    return axis


@dataclass(frozen=True)
class _Place:
    """Axes of a panel: seconds and values -> px of its ground."""

    x: AxisScale
    y: AxisScale

    def at(self, value: float, seconds: float) -> tuple[float, float]:
        return self.x.place(value) * _WIDTH, (1 - self.y.place(seconds)) * _HEIGHT


def _panel(comparison: Comparison, axis: str, lines: Sequence[Curve], swaps: Sequence[Crossover]) -> str:
    points = [point for line in lines for point in line.points]
    unit = units.smallest_scale([point.median for point in points])
    cores = comparison.environment.usable_cores
    ideal = _ideal(lines[0], cores) if axis == THREADS and len(lines) == 1 else []
    place = _Place(
        scale_of([point.at for point in points], at_values=True),
        scale_of([point.median for point in points] + [seconds for _, seconds in ideal]),
    )
    name = "threads" if axis == THREADS else axis
    title = fixed_text(lines[0].fixed)
    parts = [_ticks(place, unit), _labels(name, unit.unit, title)]
    if axis == THREADS:
        parts.append(_cores(place, cores))
    if ideal:
        path = _points(place.at(*spot) for spot in ideal)
        line = f'<polyline class="id" fill="none" stroke="{GREY}" points="{path}">'
        parts.append(f"{line}<title>ideal on {cores} cores</title></polyline>")
    parts.append(_swaps(place, swaps))
    shown = list(enumerate(lines[:MOST_LINES], start=int(len(lines) == 1)))  # a lone line is no baseline
    parts += [_line(comparison, place, line, nth) for nth, line in shown]
    parts.append(_names(comparison, place, shown, len(lines) - len(shown)))
    said = f"time against {name}" + (f", {title}" if title else "")
    return figure((_WIDTH, _HEIGHT), (_LEFT, _TOP, _RIGHT, _BOTTOM), said, parts)


def _ticks(place: _Place, unit: units.Scale) -> str:
    out = []
    for seconds in place.y.ticks:
        y = (1 - place.y.place(seconds)) * _HEIGHT
        text = _value(seconds / unit.size)
        out.append(f'<line class="tk" x1="0" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        out.append(svg_text(-8, y + 4, text, "end"))
    out.append(f'<line class="ax" stroke="{GREY}" x1="0" x2="{_WIDTH}" y1="{_HEIGHT}" y2="{_HEIGHT}"/>')
    labels = [(place.x.place(value) * _WIDTH, _value(value)) for value in place.x.ticks]
    stride = next(n for n in range(1, len(labels) + 1) if _fits(labels[::n]))
    out += [svg_text(x, _HEIGHT + 16, text, "middle") for x, text in labels[::stride]]
    return "".join(out)


def _fits(labels: Sequence[tuple[float, str]]) -> bool:
    """Whether no label touches the next; a digit is about 6 px wide."""
    return all(b[0] - a[0] > 3.2 * (len(a[1]) + len(b[1])) + 6 for a, b in pairwise(labels))


def _labels(axis: str, unit: str, title: str) -> str:
    out = svg_text(-8, -10, unit, "end") + svg_text(_WIDTH, _HEIGHT + 30, clipped(axis, 24), "end")
    return out + (svg_text(0, -20, clipped(title, 50), "start", "i1") if title else "")


def _cores(place: _Place, cores: int) -> str:
    """The ground beyond the usable cores."""
    x = place.x.place(cores) * _WIDTH
    if not 0 <= x < _WIDTH:
        return ""
    return (
        f'<rect class="over" fill="{GREY}33" x="{x:.1f}" y="0" width="{_WIDTH - x:.1f}" height="{_HEIGHT}"/>'
        f'<line class="ax" stroke="{GREY}" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{_HEIGHT}"/>'
        + svg_text(min(x, _WIDTH - 40), -6, f"{cores} usable core{'' if cores == 1 else 's'}", "middle", "i1")
    )


def _ideal(line: Curve, cores: int) -> list[tuple[float, float]]:
    """Twice the threads in half the time, up to the cores: (threads, seconds)."""
    first, last = line.points[0], line.points[-1].at
    bend = max(first.at, min(cores, last))
    return [(at, first.median * first.at / min(at, bend)) for at in (first.at, bend, last)]


def _swaps(place: _Place, swaps: Sequence[Crossover]) -> str:
    """A dashed line at each place; those that lie close share one label."""
    out: list[str] = []
    labels: list[tuple[float, list[str]]] = []
    for swap in sorted(swaps, key=lambda swap: swap.at):
        x, value = place.x.place(swap.at) * _WIDTH, units.number(swap.at, digits=2)
        out.append(f'<line class="id" stroke="{GREY}" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{_HEIGHT}"/>')
        if labels and x - labels[-1][0] < 80:
            labels[-1][1].append(value)
        else:
            labels.append((x, [value]))
    for x, values in labels:
        text = f"{clipped(swaps[0].axis, 12)} ≈ {', '.join(dict.fromkeys(values))}"
        out.append(svg_text(x, -6, text, "end" if x > 0.7 * _WIDTH else "middle", "i1"))
    return "".join(out)


def _line(comparison: Comparison, place: _Place, line: Curve, nth: int) -> str:
    verdicts = comparison.frame["verdict"]
    thinned = line.points[:: 1 + len(line.points) // _MOST_SPOTS]
    spots = [place.at(point.at, point.median) for point in thinned]
    out = [f'{_group(nth)}<polyline class="l" fill="none" points="{_points(spots)}"/>']
    for point, (x, y) in zip(thinned, spots, strict=True) if len(spots) <= _MOST_MARKS else ():
        if point.low > 0 and point.high > 0:
            top, bottom = (place.at(point.at, end)[1] for end in (point.high, point.low))
            if bottom - top > 8:  # narrower than its mark needs no whisker
                ends = f'y1="{max(top, 0):.1f}" y2="{min(bottom, _HEIGHT):.1f}"'
                out.append(f'<line class="c" x1="{x:.1f}" x2="{x:.1f}" {ends}/>')
        verdict = verdicts.iloc[point.row]
        out.append(_mark(x, y, _SHAPES[nth], hollow=pd.notna(verdict) and verdict == "undecided"))
    return "".join([*out, "</g>"])


def _group(nth: int) -> str:
    """The beginning of what is drawn of an alternative, in its colour."""
    return f'<g class="{_ROLES[nth]}" fill="{CURVE_HUES[nth]}" stroke="{CURVE_HUES[nth]}">'


def _mark(x: float, y: float, shape: str, *, hollow: bool) -> str:
    kind = 'm o" fill="none' if hollow else "m"
    if shape == "dot":
        return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="2.6"/>'
    if shape == "square":
        return f'<rect class="{kind}" x="{x - 2.3:.1f}" y="{y - 2.3:.1f}" width="4.6" height="4.6"/>'
    corners: Mapping[str, list[tuple[float, float]]] = {
        "triangle": [(x, y - 3.4), (x + 3.2, y + 2.4), (x - 3.2, y + 2.4)],
        "diamond": [(x, y - 3.6), (x + 3.2, y), (x, y + 3.6), (x - 3.2, y)],
    }
    return f'<polygon class="{kind}" points="{_points(corners[shape])}"/>'


def _names(comparison: Comparison, place: _Place, lines: Sequence[tuple[int, Curve]], more: int) -> str:
    """The name of each line at its end, moved apart where ends lie close."""
    ends = [(place.at(line.points[-1].at, line.points[-1].median)[1], nth, line) for nth, line in lines]
    out, last = [], -1e9
    for y, nth, line in sorted(ends, key=lambda end: end[0]):
        last = max(y, last + _APART)
        name = clipped(alternative_name(comparison, line.points[0].row), _NAME)
        out.append(f"{_group(nth)}{_mark(_WIDTH + 10, last, _SHAPES[nth], hollow=False)}</g>")
        out.append(svg_text(_WIDTH + 18, last + 4, name, "start", "i1 nm"))
    if more:
        out.append(svg_text(_WIDTH + 18, last + _APART + 4, f"{more} more", "start"))
    return "".join(out)


def _value(value: float) -> str:
    if value and abs(value - round(value)) < 1e-9 * abs(value):
        return units.count(round(value))
    return f"{value:.6g}".replace("-", "\u2212")


def _points(spots: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)


# ---- plot ------------------------------------------------------------------------------------------------------------
# A comparison with matplotlib: time along a sweep axis or against threads, on logarithmic axes; or the samples, a row
# per measurement, all on one scale.

_MARKERS = "so^Dvp"
_LINES = ("-", "--", "-.", ":")

# of the distribution
_MOST_ROWS = 40
_BINS = 60
_WIDE = 5.0  # largest over smallest time from which the scale is logarithmic
_HIGH = 0.85  # of a row, for its largest bin


def plot(comparison: Comparison, *, kind: str = "scaling", axis: str | None = None, ax: Axes | None = None) -> Axes:
    """See `Comparison.plot`: hollow marks are undecided, dashed verticals mark where two swap places."""
    if kind == "distribution":
        return _plot_samples(comparison, ax)
    if kind != "scaling":
        raise OptionError(f"kind {kind!r} is unknown; use scaling or distribution")
    axis = _checked(comparison, axis)
    found = times_along(comparison, axis)
    ax = ax if ax is not None else new_axes()
    fixed = list(dict.fromkeys(curve.fixed for curve in found))
    names = list(dict.fromkeys(curve.description for curve in found))
    unit = units.smallest_scale([point.median for curve in found for point in curve.points])
    for curve in found:
        hue = names.index(curve.description) + (len(names) == 1)  # a lone statement is no baseline
        _draw(ax, comparison, curve, unit, hue, fixed.index(curve.fixed))
    for nth, swap in enumerate(crossovers(comparison, axis) if axis != THREADS else ()):
        ax.axvline(swap.at, color="0.5", linestyle=":", linewidth=1)
        ax.annotate(
            f"{axis} ≈ {units.number(swap.at, digits=2)}".replace("$", r"\$"),
            (swap.at, 1),
            xycoords=("data", "axes fraction"),
            xytext=(3, -10 - 11 * (nth % 4)),  # neighbours do not cover each other
            textcoords="offset points",
            fontsize="small",
        )
    _dress(ax, comparison, axis, unit, [point.at for curve in found for point in curve.points])
    return ax


def _checked(comparison: Comparison, axis: str | None) -> str:
    """The name of the axis, if there are numbers along it."""
    there = [*comparison.axes, THREADS]
    chosen = axis if axis is not None else axis_of(comparison)
    if chosen is None:
        raise InputError(
            "no axis to plot: measure with --sweep or at several thread counts (-t 1,2), or draw the samples: "
            "kind='distribution'"
        )
    if chosen not in there:
        raise InputError(f"axis {chosen!r} is not in this comparison; its axes: {', '.join(there)}")
    if not pd.api.types.is_numeric_dtype(comparison.frame[chosen]) or comparison.frame[chosen].dtype == bool:
        raise InputError(f"axis {chosen!r} has no numbers: choose another axis")
    return chosen


def _draw(ax: Axes, comparison: Comparison, curve: Curve, unit: units.Scale, hue: int, dash: int) -> None:
    rows = [point.row for point in curve.points]
    at = np.array([point.at for point in curve.points])
    times = np.array([point.median for point in curve.points]) / unit.size
    ends = np.array([(point.low, point.high) for point in curve.points]).T / unit.size
    spread = np.nan_to_num(np.abs(ends - times))
    said = [comparison.frame["verdict"].iloc[row] for row in rows]
    style: dict[str, Any] = {"color": CURVE_HUES[hue % len(CURVE_HUES)], "linestyle": _LINES[dash % len(_LINES)]}
    name = ", ".join(text for text in (alternative_name(comparison, rows[0]), fixed_text(curve.fixed)) if text)
    ax.errorbar(at, times, yerr=spread, label=literal(name), linewidth=1.5, **style)
    marks: dict[str, Any] = {"marker": _MARKERS[hue % len(_MARKERS)], "color": style["color"], "linestyle": "none"}
    hollow = np.array([pd.notna(verdict) and verdict == "undecided" for verdict in said])
    ax.plot(at[~hollow], times[~hollow], markersize=5, **marks)
    ax.plot(at[hollow], times[hollow], markersize=5, fillstyle="none", **marks)


def _dress(ax: Axes, comparison: Comparison, axis: str, unit: units.Scale, places: list[float]) -> None:
    from matplotlib.ticker import LogFormatter

    ax.set_yscale("log")
    for formatted in (ax.yaxis.set_major_formatter, ax.yaxis.set_minor_formatter):
        formatted(LogFormatter(minor_thresholds=(2, 0.5)))
    if min(places) > 0:
        ax.set_xscale("log", base=2 if all(float(np.log2(place)).is_integer() for place in places) else 10)
    if axis == THREADS:
        cores = comparison.environment.usable_cores
        ax.axvspan(cores, max(*places, cores), color="0.5", alpha=0.12, linewidth=0, label=f"beyond {cores} cores")
        ax.set_xticks(sorted(set(places)), [f"{place:g}" for place in sorted(set(places))])
        ax.set_xticks([], minor=True)
    ax.set_xlabel("threads" if axis == THREADS else literal(axis))
    ax.set_ylabel(f"time of one call ({unit.unit})")
    ax.grid(visible=True, which="major", alpha=0.3)
    ax.legend(frameon=False)


def _plot_samples(comparison: Comparison, ax: Axes | None = None) -> Axes:
    """Histograms of the time of one call below each other, each with its median as a line.

    Bins are the same in all rows; the largest of a row is as high as the row. More than 40 rows are cut, and said.

    Raises:
        MissingTool: matplotlib is not installed.
        InputError: nothing was measured.
    """
    every = [np.asarray(comparison.call_times(row), dtype=np.float64) for row in range(len(comparison.subjects))]
    kept = [(row, times[np.isfinite(times) & (times > 0)]) for row, times in enumerate(every)]
    kept = [(row, times) for row, times in kept if len(times)]
    if not kept:
        raise InputError("nothing to plot: this comparison has no samples")
    shown = kept[:_MOST_ROWS]
    ax = ax if ax is not None else new_axes((6.4, 1.2 + 0.45 * len(shown)))
    unit = units.smallest_scale([float(np.median(times)) for _, times in shown])
    together = np.concatenate([times for _, times in shown]) / unit.size
    low, high = float(together.min()), float(together.max())
    is_log = high / low > _WIDE
    if low == high:
        low, high = low * 0.99, high * 1.01
    bins = np.geomspace(low, high, _BINS + 1) if is_log else np.linspace(low, high, _BINS + 1)
    names = list(dict.fromkeys(placed_name(comparison, row) for row, _ in shown))
    for place, (row, times) in enumerate(shown):
        counts, _ = np.histogram(times / unit.size, bins=bins)
        top = _HIGH * counts / max(int(counts.max()), 1)
        hue = CURVE_HUES[(names.index(placed_name(comparison, row)) + (len(names) == 1)) % len(CURVE_HUES)]
        ax.stairs(place - top, bins, baseline=place, fill=True, color=hue, alpha=0.7)  # the axis points down
        middle = float(np.median(times)) / unit.size
        ax.plot([middle, middle], [place, place - _HIGH], color="0.2", linewidth=1)
    ax.set_yticks(range(len(shown)), [_label(comparison, row, len(times)) for row, times in shown])
    ax.set_ylim(len(shown) - 0.9, -1)
    if is_log:
        ax.set_xscale("log")
    left = len(kept) - len(shown)
    ax.set_xlabel(f"time of one call ({unit.unit})" + (f"; {left} more measurements are not drawn" if left else ""))
    ax.grid(visible=True, axis="x", alpha=0.3)
    return ax


def _label(comparison: Comparison, row: int, samples: int) -> str:
    subject = comparison.subjects[row]
    threads = {each.num_threads for each in comparison.subjects}
    parts = [placed_name(comparison, row), subject.sub_label or ""]
    parts.append(f"{subject.num_threads} thread{'' if subject.num_threads == 1 else 's'}" if len(threads) > 1 else "")
    return f"{literal(', '.join(part for part in parts if part))}\n{samples} sample{'' if samples == 1 else 's'}"
