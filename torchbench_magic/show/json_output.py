"""A result as JSON: the envelope that all share, and values as strict JSON has them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from numbers import Integral, Real
from typing import Any

import pandas as pd

from torchbench_magic.errors import OptionError
from torchbench_magic.process.environment import Environment
from torchbench_magic.result_base import Doubt, Insight, show

from .document import clipped, plain

# ---- plain_values ----------------------------------------------------------------------------------------------------
# Values as strict JSON has them: no NaN and no infinity, no numpy, texts of others of bounded length.

LONGEST_TEXT = 400
"""Characters of one text: names, messages and lines of code of others; a longer one ends in `…`."""
_DIGITS = 6  # of a figure: the interval of none is narrower


def finite_number(value: object) -> float | int | None:
    """A finite number of six digits; None for NaN, an infinity, NA and what is no number."""
    if value is None or value is pd.NA or isinstance(value, str):
        return None
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real) and math.isfinite(value):
        return float(f"{float(value):.{_DIGITS}g}")
    return None


def plain_value(value: object, longest: int = LONGEST_TEXT) -> Any:
    """The same as JSON can hold it; what it has no form for as its kind's name."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return clipped(value, longest)
    if isinstance(value, Real) or value is pd.NA:
        return finite_number(value)
    if isinstance(value, Mapping):
        return {clipped(str(name), longest): plain_value(part, longest) for name, part in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return [plain_value(part, longest) for part in value]
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:  # a scalar of numpy
        return plain_value(value.item(), longest)
    return f"<{type(value).__name__}>"


def rows_of(frame: pd.DataFrame, names: Iterable[str], most: int) -> list[dict[str, Any]]:
    """The first rows of a table, of the columns ``names``."""
    wanted = [name for name in names if name in frame]
    return [{name: plain_value(row[name]) for name in wanted} for row in frame[wanted].head(most).to_dict("records")]


def strict_json(value: object) -> str:
    """JSON in ASCII: every character of others that is not is an escape, and so is ``<``, so that it may stand in a
    page, a log or a terminal."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


# ---- insight_values --------------------------------------------------------------------------------------------------
# Insights as JSON has them, in a profile as in the difference of two.


def insights_as_json(insights: Iterable[Insight]) -> list[dict[str, Any]]:
    return [
        {
            "kind": each.kind,
            "text": clipped(each.text, LONGEST_TEXT),
            "seconds": finite_number(each.seconds),
            "share": finite_number(each.share),
            "bytes": each.nbytes,
            "places": [clipped(place.label, 80) for place in each.places],
            "evidence": plain_value(each.evidence, 80),
            "cures": [{"text": cure.text, "code": cure.code, "lever": cure.lever} for cure in each.cures],
        }
        for each in insights
    ]


# ---- envelope --------------------------------------------------------------------------------------------------------
# The envelope of every result's JSON: what it says, what is doubtful, where it ran, how to repeat it; bounded in size.
#
# The layout is `VERSION` 1; ``result-1.schema.json`` beside this module describes it, and so does the page on JSON of
# the documentation. A member that is added needs no new version, one that goes or changes its meaning does.

FORMAT, VERSION = "torchbench_magic", 1
FEW, FEW_BYTES = 6, 4096
"""A comparison of so many measurements takes no more than so many bytes: a comment of a pull request, a prompt."""
MOST_BYTES = 16_384
"""Of any other result."""
LEAST_BYTES = 2048  # below it not even the envelope fits
_ENVIRONMENT = ("python", "torch", "system", "cpu", "usable_cores", "num_threads", "accelerator", "commit", "variables")
_LISTS = (("doubts", 3), ("insights", 3))  # with what is kept of them before figures are left out
_SHORT = 60
"""Characters of a text where room is needed, and a quarter of those of what repeats the result."""


def to_json(result: Any, *, max_bytes: int | None = None) -> str:
    """See `Shown.to_json`."""
    facts: dict[str, Any] = show(result, "facts")
    rows = facts.get("alternatives")
    few = rows is not None and len(rows) <= FEW
    most: Any = max_bytes if max_bytes is not None else FEW_BYTES if few else MOST_BYTES
    if isinstance(most, bool) or not isinstance(most, int) or most < LEAST_BYTES:
        raise OptionError(f"max_bytes: give a whole number of at least {LEAST_BYTES}")
    return _fitted(_around(result, facts), most)


def _around(result: Any, facts: dict[str, Any]) -> dict[str, Any]:
    from torchbench_magic import __version__

    doubts: Iterable[Doubt] = facts.pop("doubts", None) or [
        each for each in getattr(result, "warnings", ()) if isinstance(each, Doubt)
    ]
    environment = getattr(result, "environment", None)
    return {
        "format": FORMAT,
        "version": VERSION,
        "kind": type(result).__name__,
        "made_by": f"torchbench_magic {__version__}",
        "sentence": clipped(plain(show(result, "document").sentence), LONGEST_TEXT),
        "partial": bool(getattr(result, "partial", False)),
        "doubts": [
            {name: clipped(getattr(each, name), LONGEST_TEXT) for name in ("kind", "text", "action")} for each in doubts
        ],
        "insights": insights_as_json(getattr(result, "insights", ())),
        "environment": _environment(environment),
        "repeat": facts.pop("repeat", None),
        **facts,
        "left_out": {},
    }


def _environment(environment: object) -> dict[str, Any] | None:
    if isinstance(environment, str):  # of a diagnosis
        return {"line": clipped(environment, LONGEST_TEXT)} if environment else None
    if not isinstance(environment, Environment):
        return None
    known = {item.name: getattr(environment, item.name) for item in fields(environment) if item.name in _ENVIRONMENT}
    return {"line": environment.footer(), **plain_value({k: v for k, v in known.items() if v not in (None, "", {})})}


# ---- the size ---------------------------------------------------------------------------------------------------


def _fitted(made: dict[str, Any], most: int) -> str:
    """As JSON of at most ``most`` bytes; what was left out for it is counted in ``left_out``.

    First goes what explains, then what repeats, then rows from the end of the longest table.
    """
    text = strict_json(made)
    for step in (_without_evidence, _with_few_entries, _without_variables, _with_short_texts):
        if len(text) <= most:
            return text
        step(made)
        text = strict_json(made)
    while len(text) > most and _with_fewer_rows(made):
        text = strict_json(made)
    return text if len(text) <= most else strict_json(_bare(made))


def _count(made: dict[str, Any], name: str, how_many: int) -> None:
    made["left_out"][name] = made["left_out"].get(name, 0) + how_many


def _without_evidence(made: dict[str, Any]) -> None:
    for each in made["insights"]:
        if each["evidence"]:
            _count(made, "evidence", 1)
            each["evidence"] = {}


def _with_few_entries(made: dict[str, Any]) -> None:
    for name, kept in _LISTS:
        if len(made[name]) > kept:
            _count(made, name, len(made[name]) - kept)
            made[name] = made[name][:kept]


def _without_variables(made: dict[str, Any]) -> None:
    if variables := (made["environment"] or {}).pop("variables", None):
        _count(made, "variables", len(variables))


def _with_short_texts(made: dict[str, Any]) -> None:
    """But for the sentence. What repeats the result is left out as a whole where it is long: half a cell cannot be
    run."""

    def cut(value: Any) -> Any:
        if isinstance(value, str) and len(value) > _SHORT:
            _count(made, "texts", 1)
            return clipped(value, _SHORT)
        if isinstance(value, dict):
            return {name: cut(part) for name, part in value.items()}
        return [cut(part) for part in value] if isinstance(value, list) else value

    if len(strict_json(made["repeat"])) > 4 * _SHORT:
        _count(made, "texts", 1)
        made["repeat"] = None
    for name in made.keys() - {"sentence", "left_out", "repeat"}:
        made[name] = cut(made[name])


def _tables(made: dict[str, Any]) -> dict[str, list[Any]]:
    """The lists of records in it that are not empty."""
    lists = {name: value for name, value in made.items() if isinstance(value, list)}
    return {name: rows for name, rows in lists.items() if rows and isinstance(rows[0], dict)}


def _with_fewer_rows(made: dict[str, Any]) -> bool:
    """A tenth fewer rows in the table that takes most; False where each is down to one."""
    tables = {name: rows for name, rows in _tables(made).items() if len(rows) > 1}
    if tables:
        name = max(tables, key=lambda each: len(strict_json(tables[each])))
        keep = len(made[name]) * 9 // 10
        _count(made, name, len(made[name]) - keep)
        made[name] = made[name][:keep]
    return bool(tables)


def _bare(made: dict[str, Any]) -> dict[str, Any]:
    """What is left of a result whose names alone do not fit."""
    tables = _tables(made)
    left_out = made["left_out"] | {name: len(rows) for name, rows in tables.items()}
    bare = {"sentence": clipped(made["sentence"], _SHORT), "environment": None, "repeat": None, "left_out": left_out}
    return {**made, **{name: [] for name in tables}, **bare}
