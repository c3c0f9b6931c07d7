"""Samples as a small histogram round their own median: the shape of the noise, on one span for a whole table."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

__all__ = ["histogram", "span_of", "span_text"]

BINS = 30
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


def histogram(times: Floats, median: float, span: tuple[float, float]) -> tuple[object, ...]:
    """``(counts, more, centre)``: samples per bin, whether some lie beyond, the median's place in bins.

    Empty for fewer than two samples: a single one has no shape.
    """
    times = times[np.isfinite(times)]
    if len(times) < 2 or not 0 < median < np.inf:
        return ()
    low, high = span
    relative = times / median - 1
    counts, _ = np.histogram(relative, bins=BINS, range=span)
    return tuple(int(n) for n in counts), bool(np.any(relative > high)), -low / (high - low) * BINS
