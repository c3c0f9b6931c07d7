"""What pictures share: scales, axes, colours, bars and histograms, as static SVG and with matplotlib."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from torchbench_magic import units
from torchbench_magic.array_types import Floats
from torchbench_magic.errors import MissingTool
from torchbench_magic.printable import printable

from .document import clipped
from .page_data import attribute

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# ---- scales ----------------------------------------------------------------------------------------------------------

_MOST_TICKS = 6
_PAD = 0.06  # of the axis, beyond its outermost values
_MANTISSAS = ((1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9), (1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,))


@dataclass(frozen=True)
class AxisScale:
    """``place`` takes ``low`` to 0 and ``high`` to 1; ``ticks`` lie between."""

    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = True

    def place(self, value: float) -> float:
        low, high, value = (math.log(max(v, 1e-300)) if self.log else v for v in (self.low, self.high, value))
        return (value - low) / (high - low)


def scale_of(values: Sequence[float], *, at_values: bool = False) -> AxisScale:
    """The axis that holds ``values``: logarithmic where all are above 0, with a little room at both ends.

    ``at_values``: the values themselves are its ticks.
    """
    low, high = min(values), max(values)
    log = low > 0
    if low == high:
        low, high = (low / 1.5, high * 1.5) if log else (low - 1, high + 1)
    if log:
        room = (high / low) ** _PAD
        low, high = low / room, high * room
    else:
        low, high = low - (high - low) * _PAD, high + (high - low) * _PAD
    if at_values:
        ticks = tuple(sorted(set(values)))
    else:
        ticks = _log_ticks(low, high) if log else round_ticks(low, high)
    return AxisScale(low, high, ticks, log)


def _log_ticks(low: float, high: float) -> tuple[float, ...]:
    """Round values of each decade, as dense as six allow; every so many decades on a long axis."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for mantissas in _MANTISSAS:
        ticks = [m * 10.0**e for e in range(first, last + 1) for m in mantissas if low <= m * 10.0**e <= high]
        if len(ticks) <= _MOST_TICKS:
            return tuple(ticks) if len(ticks) > 1 else round_ticks(low, high)
    step = math.ceil(len(ticks) / _MOST_TICKS)
    return tuple(ticks[::step])


def round_ticks(low: float, high: float) -> tuple[float, ...]:
    """Multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / (_MOST_TICKS - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough)
    first = math.ceil(low / step)
    return tuple(step * k for k in range(first, math.floor(high / step) + 1))


# ---- svg -------------------------------------------------------------------------------------------------------------

_LEAST = 520  # px: narrower, the letters of the widest picture can hardly be read


def tenths(pixels: float) -> str:
    """To a tenth of a pixel; a whole number without its point."""
    return f"{pixels:.1f}".removesuffix(".0")


def svg_text(x: float, y: float, words: str, anchor: str, kind: str = "") -> str:
    """User text at a place; ``anchor`` is ``start``, ``middle`` or ``end``, ``kind`` a class."""
    named = f' class="{kind}"' if kind else ""
    anchored = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{tenths(x)}" y="{tenths(y)}"{anchored}{named}>{attribute(words)}</text>'


def figure(
    ground: tuple[int, int], around: tuple[int, int, int, int], said: str, parts: Iterable[str], more: str = ""
) -> str:
    """``parts`` on a plotted ground. What is drawn has its ``fill`` and ``stroke`` as attributes too. A front end that
    takes the svg away and leaves its words (JupyterLab, of a notebook that is not trusted) shows them in size 0. In a
    narrow place all of it is drawn smaller; below `_LEAST` it is scrolled.

    Args:
        ground: its width and height, px.
        around: px left of it, above, right and below.
        said: what assistive technology reads.
        more: other attributes of the element.
    """
    left, top, right, bottom = around
    width, height = left + ground[0] + right, top + ground[1] + bottom
    return (
        f'<span style=font-size:0><svg width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        f' style="max-width:100%;min-width:{min(width, _LEAST)}px;height:auto"'
        f' role="img"{more} fill="currentColor" font-family="sans-serif" font-size="11" '
        f'aria-label="{attribute(said)}"><g transform="translate({left},{top})">{"".join(parts)}</g></svg></span>'
    )


# ---- axes ------------------------------------------------------------------------------------------------------------
# What the plots with matplotlib have in common. matplotlib is imported when one is drawn.

_LONGEST = 60


def new_axes(inches: tuple[float, float] | None = None) -> Axes:
    """The Axes of a new figure.

    Raises:
        MissingTool: matplotlib is not installed.
    """
    try:
        from matplotlib import pyplot
    except ImportError:
        raise MissingTool("plots need matplotlib: pip install 'torchbench_magic[plot]'") from None
    _, ax = pyplot.subplots(layout="constrained", figsize=inches)
    return ax


def literal(text: str, longest: int = _LONGEST) -> str:
    """A name as matplotlib writes it as it stands: no formula between ``$``, no control characters, not endless."""
    return clipped(printable(text), longest).replace("$", r"\$")


# ---- histogram -------------------------------------------------------------------------------------------------------
# Samples as a small histogram round their own median: the shape of the noise, on one span for a whole table.

BINS = 30
MOST_VALUES = 200
"""Samples of a row that travel with their histogram."""
SPANS = ((-0.015, 0.05), (-0.03, 0.1), (-0.06, 0.2), (-0.15, 0.5), (-0.3, 1.0), (-0.6, 2.0))


def span_of(rows: Iterable[Floats]) -> tuple[float, float]:
    """The narrowest span (shares of the median) that holds nine samples in ten of all rows together."""
    known = [times[np.isfinite(times)] for times in rows]
    relative = [times / np.median(times) - 1 for times in known if len(times) and np.median(times) > 0]
    every = np.concatenate(relative) if relative else np.zeros(1)
    fitting = (span for span in SPANS if np.mean((every >= span[0]) & (every <= span[1])) >= 0.9)
    return next(fitting, SPANS[-1])


def span_text(span: tuple[float, float]) -> str:
    """``−6 … +20 %``."""
    return f"\u2212{-span[0] * 100:g} … +{span[1] * 100:g} %"


def histogram(times: Floats, median: float, span: tuple[float, float], most: int = MOST_VALUES) -> tuple[object, ...]:
    """``(counts, more, centre, samples)``: samples per bin, whether some lie beyond, the median's place in bins, and
    their `values`, ``most`` of them.

    Empty for fewer than two samples: a single one has no shape.
    """
    times = times[np.isfinite(times)]
    if len(times) < 2 or not 0 < median < np.inf:
        return ()
    low, high = span
    relative = times / median - 1
    counts, _ = np.histogram(relative, bins=BINS, range=span)
    centre = -low / (high - low) * BINS
    return tuple(int(n) for n in counts), bool(np.any(relative > high)), centre, values(times, most)


def values(times: Floats, most: int = MOST_VALUES) -> tuple[object, ...]:
    """``(unit, step, count, quartiles, outliers, first, differences...)``: what is behind a histogram.

    Values are sorted and counted in steps of the unit, five digits of the median: the first, then how far each is above
    the one before. Of more than ``most`` samples there are so many, evenly spaced in their order, the least and the
    largest among them. Quartiles are of all samples, interpolated, and so are the two numbers of outliers: below and
    above the quartiles by more than 1.5 times their distance (Tukey's fences).
    """
    times = np.sort(times)
    quartiles = np.quantile(times, (0.25, 0.5, 0.75))
    reach = 1.5 * (quartiles[2] - quartiles[0])
    outside = np.sum(times < quartiles[0] - reach), np.sum(times > quartiles[2] + reach)
    scale = units.smallest_scale([float(quartiles[1])])
    step = float(10.0 ** (math.floor(math.log10(quartiles[1] / scale.size)) - 4))
    chosen = times[np.unique(np.linspace(0, len(times) - 1, min(len(times), most)).round().astype(int))]
    counted = np.round(chosen / scale.size / step).astype(np.int64)
    shown = [round(float(each) / scale.size / step) for each in quartiles]
    differences = np.diff(counted, prepend=0).tolist()
    return scale.unit, step, len(times), tuple(shown), tuple(int(n) for n in outside), *differences
