"""Samples as a small histogram round their own median: the shape of the noise, on one span for a whole table."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from torchbench_magic import units

__all__ = ["MOST_VALUES", "histogram", "span_of", "span_text", "values"]

BINS = 30
MOST_VALUES = 200
"""Samples of a row that travel with their histogram."""
SPANS = ((-0.015, 0.05), (-0.03, 0.1), (-0.06, 0.2), (-0.15, 0.5), (-0.3, 1.0), (-0.6, 2.0))

Floats = npt.NDArray[np.float64]


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
