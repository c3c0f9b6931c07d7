"""What a comparison adds to the envelope: verdicts, the interval of each ratio, and the cell that repeats it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from torchbench_magic.results.timing.comparison import Comparison
from torchbench_magic.results.timing.identity import source_id
from torchbench_magic.results.timing.values_read import changing_variables

from ..timing.comparison_facts import alternative_name, doubts_in_order
from ..timing.levers_tried import levers_recommended
from ..timing.repeat_cell import repeat_cell
from .plain_values import finite_number, plain_value

__all__ = ["facts"]

_LONGEST_NAME = 100
_FIGURES = (
    *("median", "iqr", "cpu_clock_median", "ratio", "ratio_low", "ratio_high"),
    *("instructions", "instructions_ratio"),
    *("max_difference", "compile_time", "break_even"),
)


def facts(comparison: Comparison) -> dict[str, Any]:
    frame = comparison.frame
    recommended = levers_recommended(comparison)
    words = Counter(word for word in frame["verdict"].dropna() if word != "baseline")
    return {
        "clock": comparison.clock,
        "margin": comparison.margin,
        "elapsed": finite_number(comparison.elapsed),
        "verdicts": dict(sorted(words.items())),
        "alternatives": [
            _row(comparison, at, row) | ({"recommended": recommended[at]} if at in recommended else {})
            for at, row in enumerate(frame.to_dict("records"))
        ],
        "doubts": doubts_in_order(comparison),
        "repeat": _repeat(comparison),
    }


def _row(comparison: Comparison, at: int, row: dict[Any, Any]) -> dict[str, Any]:
    subject = comparison.subjects[at]
    base = comparison.base_row(at)
    row_ = {
        "name": plain_value(alternative_name(comparison, at), _LONGEST_NAME),
        "sub_label": plain_value(subject.sub_label, _LONGEST_NAME),
        "env": plain_value(subject.env, _LONGEST_NAME),
        "axes": {plain_value(str(name), _LONGEST_NAME): plain_value(value, 60) for name, value in subject.axes},
        "threads": subject.num_threads,
        "device": subject.device,
        "verdict": row["verdict"] if isinstance(row["verdict"], str) else None,
        "baseline": None if base is None else plain_value(alternative_name(comparison, base), _LONGEST_NAME),
        "method": row["method"] if isinstance(row["method"], str) else None,
        "samples": int(row["samples"]),
        "source_id": source_id(subject.before, subject.stmt),
        **{name: finite_number(row.get(name)) for name in _FIGURES},
        "result": subject.trial.result or None if subject.trial is not None else None,
    }
    return {name: value for name, value in row_.items() if value not in (None, {})} | {"verdict": row_["verdict"]}


def _repeat(comparison: Comparison) -> dict[str, Any]:
    needs = changing_variables(value for each in comparison.subjects for value in each.given_values or ())
    needs |= dict(item for subject in comparison.subjects for item in subject.given)
    return {
        "cell": repeat_cell(comparison),
        "needs": {str(name): plain_value(what, 80) for name, what in needs.items()},
        "seed": comparison.seed,
    }
