"""torch's `Compare`, filled from a comparison, with its known faults mended.

torch 2.13 raises where descriptions or some of the environments are None, where a median is zero or nothing was
sampled; and it shows one number for two runs: measurements that share every name are merged whatever their times,
and of two that share names but not code the later one hides the first. Here each keeps a row of its own, marked
``(run 2)``. Everything else, colours and significant figures included, is torch's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pandas as pd
from torch.utils.benchmark import Compare as TorchCompare
from torch.utils.benchmark import Measurement

from ..results.comparison import Comparison
from ..results.together import AXIS
from . import bundle, compare_tables, markdown

__all__ = ["Compare", "compare"]

UNLIKE = 0.25
"""Repetitions whose medians differ by more are not merged: torch's limit of "significant environmental influence"."""
_NAMES = ("label", "sub_label", "description", "env", "num_threads", "run")
_FIGURES = ("median", "iqr", "mean", "samples", "stmt")
_NUMBERS = dict.fromkeys(("num_threads", "run", "samples"), "int64") | dict.fromkeys(_FIGURES[:3], "float64")
_SMALLEST = 1e-9
"""Shorter times are shown as a nanosecond, the clock's own step: torch's units end there, and zero has no logarithm."""


class Compare(TorchCompare):
    """A ``torch.utils.benchmark.Compare`` that never merges unlike runs and never raises on a missing name.

    Its text is torch's wherever torch has one. Besides, it shows itself as a table in a notebook.
    """

    @property
    def frame(self) -> pd.DataFrame:
        """One row for each measurement of the table, replicates merged, in the order they were given.

        ``label sub_label description env num_threads run median iqr mean samples stmt``: names as they were given (None
        where there is none), ``run`` from 1 on for unlike runs of one name, times in seconds of one call.
        """
        given = _replicates(m for m in self._results if m.raw_times)
        rows = []
        for group, nth in zip(given, _runs(given), strict=True):
            spec, (whole,) = group[0].task_spec, Measurement.merge(group)
            names = (spec.label, spec.sub_label, spec.description, spec.env, spec.num_threads, nth)
            rows.append((*names, whole.median, whole.iqr, whole.mean, len(whole.raw_times), spec.stmt))
        frame = pd.DataFrame(rows, columns=[*_NAMES, *_FIGURES], dtype=object)
        return frame.astype(_NUMBERS)

    def to_markdown(self) -> str:
        """A table for each label, as GitHub markdown, with the figures of the text."""
        return "\n".join(map(markdown.render, self._documents())) or "nothing was measured\n"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        documents = self._documents()
        shown = bundle.bundle(*documents) if documents else {}
        return {**shown, "text/plain": str(self)}

    def _documents(self) -> list[compare_tables.Document]:
        rows = _renamed(_replicates(m for m in self._results if m.raw_times))
        settings = (self._colorize, self._trim_significant_figures, self._highlight_warnings)
        return [compare_tables.document(group, *settings) for group in self._group_by_label(rows).values()]

    def _render(self) -> list[str]:
        rows = _renamed(_replicates(m for m in self._results if m.raw_times))
        if not rows:
            return ["nothing was measured\n"]
        return [self._layout(group) for group in self._group_by_label(rows).values()]


def compare(comparison: Comparison) -> Compare:
    """The comparison's measurements as a Compare; of results side by side, a row for each."""
    return Compare(
        [_placed(m, dict(s.axes)) for m, s in zip(comparison.measurements, comparison.subjects, strict=True)]
    )


def _placed(measurement: Measurement, axes: Mapping[str, object]) -> Measurement:
    """The measurement, with the name of its result in the row's name."""
    if AXIS not in axes:
        return measurement
    spec = replace(measurement.task_spec, sub_label=f"{_row_name(measurement)} ({axes[AXIS]})")
    return replace(measurement, task_spec=spec)


def _row_name(measurement: Measurement) -> str:
    spec = measurement.task_spec
    return spec.sub_label or " ".join(spec.stmt.split()) or "[Unknown]"


def _replicates(measurements: Iterable[Measurement]) -> list[list[Measurement]]:
    """Measurements of one task, taken together where their medians are alike; in the order they were given."""
    groups: list[list[Measurement]] = []
    for measurement in measurements:
        for group in groups:
            if group[0].task_spec == measurement.task_spec and _alike(group[0].median, measurement.median):
                group.append(measurement)
                break
        else:
            groups.append([measurement])
    return groups


def _alike(one: float, other: float) -> bool:
    return abs(one - other) <= UNLIKE * min(one, other) or one == other


def _place(group: Sequence[Measurement]) -> tuple[object, ...]:
    """Where torch's table puts it."""
    spec = group[0].task_spec
    return spec.label, spec.env, spec.num_threads, _row_name(group[0]), spec.description


def _runs(groups: Sequence[Sequence[Measurement]]) -> list[int]:
    """For each group, how many there were of its place until then, itself included."""
    taken: dict[tuple[object, ...], int] = {}
    found = []
    for group in groups:
        place = _place(group)
        taken[place] = taken.get(place, 0) + 1
        found.append(taken[place])
    return found


def _renamed(groups: Sequence[Sequence[Measurement]]) -> list[Measurement]:
    """One measurement a group, with the names that torch's table needs, and a name of its own for each cell of it."""
    mixed = len({group[0].task_spec.env for group in groups}) > 1
    found = []
    for group, nth in zip(groups, _runs(groups), strict=True):
        spec, row = group[0].task_spec, _row_name(group[0])
        named = replace(
            spec,
            env="no env" if mixed and spec.env is None else spec.env,
            description=spec.description or "",
            sub_label=row if nth == 1 else f"{row} (run {nth})",
        )
        times = [max(time, _SMALLEST) for measurement in group for time in measurement.times]
        found.append(Measurement(number_per_run=1, raw_times=times, task_spec=named))
    return found
