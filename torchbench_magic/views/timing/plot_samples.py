"""The distribution of samples with matplotlib: a row per measurement, all on one scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from torchbench_magic import units
from torchbench_magic.errors import InputError
from torchbench_magic.results.timing.comparison import Comparison

from ..drawing.axes import CURVE_HUES, literal, new_axes
from .comparison_facts import placed_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_samples"]

_MOST_ROWS = 40
_BINS = 60
_WIDE = 5.0  # largest over smallest time from which the scale is logarithmic
_HIGH = 0.85  # of a row, for its largest bin


def plot_samples(comparison: Comparison, ax: Axes | None = None) -> Axes:
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
        raise InputError("nothing to plot: this comparison holds no samples")
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
