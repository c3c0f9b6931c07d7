"""A result as a record that can be stored: a JSON header and tables of typed columns, and back.

The header holds the result's fields as plain JSON. What JSON lacks is written with a tag: ``{"float": "nan"}``,
``{"tuple": [...]}``, ``{"map": {...}}``, and the records of `_RECORDS` under their class's name. Nothing else can be
named, so reading a file can make nothing else. `comparison_record` and `profile_record` make the records.

Beside the result itself the header repeats what a reader looks for first: identity, source_id, environment, options,
torch's version and the machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import pandas as pd

from ..doubts import Doubt
from ..machine.contention import Contention
from ..machine.core_verdicts import CoreUse
from ..machine.engine_place import EnginePlace
from ..machine.environment import Environment
from ..machine.peaks import Peaks
from ..profiling.efficiency import Efficiency, OpEfficiency
from ..profiling.profile import ProfileOptions
from ..profiling.schedule import Schedule
from ..profiling.source_texts import Source
from ..profiling.trace import Track
from ..ranks.rank_profiles import Straggler
from ..timing.proof.trial import Trial
from ..timing.subject import Subject

__all__ = ["VERSIONS", "Record", "decoded", "encoded", "state_of"]

_RECORDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *(Contention, CoreUse, Doubt, Efficiency, EnginePlace, Environment, OpEfficiency, Peaks),
        *(ProfileOptions, Schedule, Source, Straggler, Subject, Track, Trial),
    )
}
_TAGS = {"float", "tuple", "map", *_RECORDS}

VERSIONS = {"Comparison": 1, "Profile": 1, "RankProfile": 1}
"""Kind of record -> version of its layout; a field that is added needs no new one, a changed meaning does."""


@dataclass(frozen=True)
class Record:
    """One result, ready to be written.

    Attributes:
        kind: name of the result's class.
        version: of the layout of this kind.
        header: plain JSON.
        tables: name -> table of numbers and texts.
        saved: when it was written, UTC; empty for one that is not yet.
    """

    kind: str
    version: int
    header: dict[str, Any]
    tables: dict[str, pd.DataFrame]
    saved: str = ""


def state_of(header: Mapping[str, Any], kind: type) -> dict[str, Any]:
    """The fields of ``kind`` that the header holds, each of the type that is declared for it.

    Raises:
        TypeError: one is of another type.
    """
    state = {name: decoded(value) for name, value in header.items() if name in _hints(kind)}
    for name, value in state.items():
        if not _fits(value, _hints(kind)[name]):
            raise TypeError(f"{name} is a {type(value).__name__}")
    return state


@cache
def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {item.name: hints[item.name] for item in fields(kind)}


def _fits(value: object, hint: Any) -> bool:
    """Whether a value is of a declared type, down to the items of tuples."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in (object, Any):
        return True
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in arguments)
    if origin is Literal:
        return value in arguments
    if origin is tuple and isinstance(value, tuple):
        every = [arguments[0]] * len(value) if arguments[1:] == (...,) else list(arguments)
        return len(every) == len(value) and all(map(_fits, value, every))
    if origin is not None:
        return isinstance(value, origin)
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, int | float) if hint is float else isinstance(value, hint)


def encoded(value: Any) -> Any:
    """``value`` as plain JSON. What is neither data nor one of our records becomes its text."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, list):
        return [encoded(item) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [encoded(item) for item in value]}
    if isinstance(value, Mapping):
        return {"map": {str(name): encoded(item) for name, item in value.items()}}
    if type(value).__name__ in _RECORDS:
        return {type(value).__name__: {item.name: encoded(getattr(value, item.name)) for item in fields(value)}}
    return " ".join(repr(value).split())


def decoded(value: Any) -> Any:
    """Undo `encoded`.

    Raises:
        ValueError: a tag that is none of ours.
    """
    if isinstance(value, list):
        return [decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    tag, content = next(iter(value.items()), ("", {}))
    if tag not in _TAGS or len(value) != 1:
        raise ValueError(f"no such tag: {tag!r}")
    if tag in _RECORDS:
        kind = _RECORDS[tag]
        return kind(**state_of(content, kind))
    readers: dict[str, Callable[[Any], Any]] = {
        "float": float,
        "tuple": lambda items: tuple(decoded(item) for item in items),
        "map": lambda items: {name: decoded(item) for name, item in items.items()},
    }
    return readers[tag](content)
