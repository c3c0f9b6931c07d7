"""The envelope of every result's JSON: what it says, what is doubtful, where it ran, how to repeat it; bounded in size.

The layout is `VERSION` 1; ``result-1.schema.json`` beside this module describes it, and so does the page on JSON of the
documentation. A member that is added needs no new version, one that goes or changes its meaning does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

from torchbench_magic.errors import OptionError
from torchbench_magic.results._gateway import show
from torchbench_magic.results.doubts import Doubt
from torchbench_magic.results.machine.environment import Environment

from ..document import clipped, plain
from .insight_values import insights_as_json
from .plain_values import LONGEST_TEXT, plain_value, strict_json

__all__ = ["FEW", "FEW_BYTES", "FORMAT", "LEAST_BYTES", "MOST_BYTES", "VERSION", "to_json"]

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
