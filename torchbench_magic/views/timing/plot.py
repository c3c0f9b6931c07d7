"""A comparison with matplotlib: time along a sweep axis or against threads, on logarithmic axes; or the samples, a row
per measurement, all on one scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from torchbench_magic import units
from torchbench_magic.errors import InputError, OptionError
from torchbench_magic.results.timing.comparison import Comparison
from torchbench_magic.results.timing.scaling import THREADS, Curve, crossovers, times_along

from ..drawing.axes import CURVE_HUES, literal, new_axes
from .comparison_facts import alternative_name, placed_name
from .curves import axis_of, fixed_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot"]

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
