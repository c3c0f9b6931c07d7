"""torch's `Compare`, filled from a comparison, with its known faults mended.

torch 2.13 raises where descriptions or some of the environments are None, where a median is zero or nothing was
sampled; and it shows one number for two runs in silence: measurements that share every name are merged whatever their
times, and of two that share names but not code the later one hides the first. Here the rows are torch's by default;
one that stands for unlike runs is marked ``*``, with a line under the table. `Compare.split_runs` gives each run a row
of its own, marked ``(run 2)``. Everything else, colours and significant figures included, is torch's.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
from torch.utils.benchmark import Compare as TorchCompare
from torch.utils.benchmark import Measurement

from torchbench_magic import units
from torchbench_magic.printable import printable
from torchbench_magic.show import markdown, renderers, torch_results
from torchbench_magic.show.document import Document, Phrase

from .comparison import Comparison
from .samples import AXIS

UNLIKE = 0.25
"""Repetitions whose medians differ by more are not merged: torch's limit of "significant environmental influence"."""
_NAMES = ("label", "sub_label", "description", "env", "num_threads", "run")
_FIGURES = ("median", "iqr", "mean", "samples", "stmt")
_NUMBERS = dict.fromkeys(("num_threads", "run", "samples"), "int64") | dict.fromkeys(_FIGURES[:3], "float64")
_SPLIT = "  .split_runs() gives each run a row of its own."
_SMALLEST = 1e-9
"""Shorter times are shown as a nanosecond, the clock's own step: torch's units end there, and zero has no logarithm."""


class Compare(TorchCompare):
    """A ``torch.utils.benchmark.Compare`` that marks a row of unlike runs and never raises on a missing name.

    Its text is torch's wherever all runs of a row are alike. Besides, it shows itself as a table in a notebook.
    """

    _splits = False

    def split_runs(self) -> None:
        """Give unlike runs of one name rows of their own, marked ``(run 2)``: runs of other code, and repetitions whose
        medians differ by over 25 %."""
        self._splits = True

    @property
    def frame(self) -> pd.DataFrame:
        """One row for each measurement of the table, replicates merged, in the order they were given; runs of other
        code, which the table hides unless it is split, are here too.

        ``label sub_label description env num_threads run median iqr mean samples stmt``: names as they were given (None
        where there is none), ``run`` from 1 on for unlike runs of one name, times in seconds of one call.
        """
        given = self._given()
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
        shown = renderers.bundle(*documents) if documents else {}
        return {**shown, "text/plain": str(self)}

    def _given(self) -> list[list[Measurement]]:
        return _replicates((m for m in self._results if m.raw_times), apart=self._splits)

    def _documents(self) -> list[Document]:
        settings = (self._colorize, self._trim_significant_figures, self._highlight_warnings)
        groups, notes = self._shown()
        made = [torch_results.document(group, *settings) for group in groups]
        if not made or not notes:
            return made
        return [*made[:-1], replace(made[-1], footer=(*made[-1].footer, *((Phrase(note),) for note in notes)))]

    def _render(self) -> list[str]:
        groups, notes = self._shown()
        if not groups:
            return ["nothing was measured\n"]
        return [*(self._layout(group) for group in groups), *(["\n".join(notes) + "\n"] if notes else [])]

    def _shown(self) -> tuple[list[Any], list[str]]:
        """The measurements of each label's table, and what is to be said of rows that stand for unlike runs."""
        given = self._given()
        if self._splits:
            return list(self._group_by_label(_renamed(given, _runs(given), {})).values()), []
        marks = _marks(given)
        rows = _renamed(given, [1] * len(given), marks)
        notes = [f"* {text}" for text in marks.values()]
        return list(self._group_by_label(rows).values()), [*notes, _SPLIT] if notes else []


def torch_compare(comparison: Comparison) -> Compare:
    """The comparison's measurements as a Compare; of results side by side, a row for each."""
    made = Compare(
        [_placed(m, dict(s.axes)) for m, s in zip(comparison.measurements, comparison.subjects, strict=True)]
    )
    made.split_runs()
    return made


def _placed(measurement: Measurement, axes: Mapping[str, object]) -> Measurement:
    """The measurement, with the name of its result in the row's name."""
    if AXIS not in axes:
        return measurement
    spec = replace(measurement.task_spec, sub_label=f"{_row_name(measurement)} ({axes[AXIS]})")
    return replace(measurement, task_spec=spec)


def _row_name(measurement: Measurement) -> str:
    spec = measurement.task_spec
    return spec.sub_label or " ".join(spec.stmt.split()) or "[Unknown]"


def _shown_name(name: str | None) -> str | None:
    return None if name is None else printable(name)


def _replicates(measurements: Iterable[Measurement], *, apart: bool) -> list[list[Measurement]]:
    """Measurements of one task, taken together; with ``apart`` only those of like medians. In the order given."""
    groups: list[list[Measurement]] = []
    for measurement in measurements:
        for group in groups:
            like = not apart or _alike(_median(group[0]), _median(measurement))
            if like and group[0].task_spec == measurement.task_spec:
                group.append(measurement)
                break
        else:
            groups.append([measurement])
    return groups


def _median(measurement: Measurement) -> float:
    return statistics.median(measurement.times)  # torch's own raises where it is zero


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


def _marks(groups: Sequence[Sequence[Measurement]]) -> dict[tuple[object, ...], str]:
    """Place -> what is to be said of the row there: it merges unlike repetitions, or hides runs of other code."""
    places: dict[tuple[object, ...], list[Sequence[Measurement]]] = {}
    for group in groups:
        places.setdefault(_place(group), []).append(group)
    found = {}
    for place, there in places.items():
        last, said = there[-1], []
        if len(there) > 1:
            hidden = ", ".join(units.seconds_text(_median(Measurement.merge(group)[0])) for group in there[:-1])
            said.append(f"the last of {len(there)} runs of unlike code; not shown: {hidden}")
        medians = [_median(measurement) for measurement in last]
        if not _alike(min(medians), max(medians)):
            ends = " to ".join(map(units.seconds_text, (min(medians), max(medians))))
            said.append(f"{len(last)} runs merged whose medians are unlike: {ends}")
        if said:
            column = last[0].task_spec.description
            found[place] = printable(f"{_row_name(last[0])}{f' ({column})' if column else ''}: {'; '.join(said)}")
    return found


def _renamed(
    groups: Sequence[Sequence[Measurement]], runs: Sequence[int], marks: Mapping[tuple[object, ...], str]
) -> list[Measurement]:
    """One measurement a group, with the names that torch's table needs, ``runs`` and ``marks`` in the row's name."""
    marked = {place[:4] for place in marks}  # a row, whatever its columns
    mixed = len({group[0].task_spec.env for group in groups}) > 1
    found = []
    for group, nth in zip(groups, runs, strict=True):
        spec, row = group[0].task_spec, _row_name(group[0])
        row = f"{row} *" if _place(group)[:4] in marked else row
        named = replace(
            spec,
            label=_shown_name(spec.label),
            env="no env" if mixed and spec.env is None else _shown_name(spec.env),
            description=_shown_name(spec.description) or "",
            sub_label=printable(row if nth == 1 else f"{row} (run {nth})"),
        )
        times = [max(time, _SMALLEST) for measurement in group for time in measurement.times]
        found.append(Measurement(number_per_run=1, raw_times=times, task_spec=named))
    return found
