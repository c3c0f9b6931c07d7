"""A result as JSON: the envelope that all share, and values as strict JSON has them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from numbers import Integral, Real
from typing import Any

import pandas as pd

from torchbench_magic.errors import OptionError
from torchbench_magic.process.environment import Environment
from torchbench_magic.results import Doubt, Insight, show

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
_TEXT_STEPS = (200, 100, 60)


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
    steps: list[Callable[[dict[str, Any]], bool]] = [_without_evidence, _with_few_entries, _without_variables]
    steps += [_with_shorter_texts(longest) for longest in _TEXT_STEPS]
    text = strict_json(made)
    for step in steps:
        if len(text) <= most:
            return text
        if step(made):
            text = strict_json(made)
    while len(text) > most and _with_fewer_rows(made):
        text = strict_json(made)
    if len(text) > most:
        _with_shorter_texts(24)(made)
        made["environment"] = made["environment"] and {"line": clipped(made["environment"]["line"], 100)}
        made["doubts"], made["insights"] = made["doubts"][:1], made["insights"][:1]
        text = strict_json(made)
    return text if len(text) <= most else strict_json(_bare(made))


def _count(made: dict[str, Any], name: str, how_many: int) -> None:
    made["left_out"][name] = made["left_out"].get(name, 0) + how_many


def _without_evidence(made: dict[str, Any]) -> bool:
    found = [each for each in made["insights"] if each["evidence"]]
    for each in found:
        each["evidence"] = {}
    if found:
        _count(made, "evidence", len(found))
    return bool(found)


def _with_few_entries(made: dict[str, Any]) -> bool:
    cut = False
    for name, kept in _LISTS:
        if len(made[name]) > kept:
            _count(made, name, len(made[name]) - kept)
            made[name], cut = made[name][:kept], True
    return cut


def _without_variables(made: dict[str, Any]) -> bool:
    environment = made["environment"] or {}
    if not environment.get("variables"):
        return False
    _count(made, "variables", len(environment.pop("variables")))
    return True


def _with_shorter_texts(longest: int) -> Callable[[dict[str, Any]], bool]:
    def step(made: dict[str, Any]) -> bool:
        count = 0

        def cut(value: Any) -> Any:
            nonlocal count
            if isinstance(value, str) and len(value) > longest:
                count += 1
                return clipped(value, longest)
            if isinstance(value, dict):
                return {name: cut(part) for name, part in value.items()}
            return [cut(part) for part in value] if isinstance(value, list) else value

        spared = ("sentence", "left_out", "format", "kind") if longest >= min(_TEXT_STEPS) else ("left_out",)
        for name in [name for name in made if name not in spared]:
            if name == "repeat" and made[name]:  # half a cell cannot be run
                count += _without_long_cell(made[name], 4 * longest)
            made[name] = cut(made[name]) if name != "repeat" else made[name]
        if count:
            made["left_out"]["texts"] = count
        return count > 0

    return step


def _without_long_cell(repeat: dict[str, Any], longest: int) -> int:
    """Drop the text that repeats it where that is longer; its source ids say which it was."""
    cut = 0
    for name, value in repeat.items():
        if isinstance(value, str) and len(value) > longest and name in ("cell", "command"):
            repeat[name], cut = None, cut + 1
        elif isinstance(value, list | dict) and len(strict_json(value)) > 2 * longest:
            repeat[name], cut = type(value)(), cut + 1
    return cut


def _tables(made: dict[str, Any]) -> dict[str, list[Any]]:
    """The lists of records in it that are not empty."""
    lists = {name: value for name, value in made.items() if isinstance(value, list)}
    return {name: rows for name, rows in lists.items() if rows and isinstance(rows[0], dict)}


def _with_fewer_rows(made: dict[str, Any]) -> bool:
    """A tenth fewer rows in the table that takes most; False where each is down to one."""
    tables = {name: rows for name, rows in _tables(made).items() if len(rows) > 1}
    if not tables:
        return False
    name = max(tables, key=lambda each: len(strict_json(tables[each])))
    rows = made[name]
    keep = max(1, min(len(rows) - 1, len(rows) * 9 // 10))
    _count(made, name, len(rows) - keep)
    made[name] = rows[:keep]
    return True


def _bare(made: dict[str, Any]) -> dict[str, Any]:
    """What is left of a result whose names alone do not fit."""
    tables = _tables(made)
    left_out = made["left_out"] | {name: len(rows) for name, rows in tables.items()}
    sentence = clipped(made["sentence"], 60)
    return {**made, **{name: [] for name in tables}, "sentence": sentence, "repeat": None, "left_out": left_out}
