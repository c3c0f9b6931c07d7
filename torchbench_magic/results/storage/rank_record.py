"""The ranks of a job as a record that can be stored, and back: its tables, and the profile of each rank."""

from __future__ import annotations

import hashlib
from dataclasses import fields
from typing import Any

import numpy as np
import pandas as pd

from torchbench_magic.errors import StoreError

from ..ranks.rank_profiles import RankProfile
from .profile_record import profile_of, profile_record
from .records import VERSIONS, Record, encoded, state_of

__all__ = ["rank_fingerprint", "rank_record", "ranks_of"]

_TABLES = ("ranks", "ops", "clock_error", "timeline", "waits")
_APART = (*_TABLES, "profiles", "saved")


def rank_record(result: RankProfile) -> Record:
    """The record of a job: one JSON header, its tables, and those of each rank as ``profiles.0.lines``."""
    parts = [profile_record(each) for each in result.profiles]
    first = parts[0].header if parts else {}
    header = {
        "identity": [["ranks", first.get("source_id"), len(result.ranks)]],
        **{name: first.get(name) for name in ("source_id", "torch", "machine")},
        **{item.name: encoded(getattr(result, item.name)) for item in fields(result) if item.name not in _APART},
        "profiles": [part.header for part in parts],
    }
    tables: dict[str, pd.DataFrame] = {name: getattr(result, name) for name in _TABLES}
    for number, part in enumerate(parts):
        tables |= {f"profiles.{number}.{name}": table for name, table in part.tables.items()}
    return Record("RankProfile", VERSIONS["RankProfile"], header, tables)


def ranks_of(record: Record) -> RankProfile:
    """The job of a record.

    Raises:
        StoreError: it is damaged.
    """
    try:
        header = dict(record.header)
        parts = header.pop("profiles")
        state = state_of({name: value for name, value in header.items() if name not in _APART}, RankProfile)
        tables: dict[str, Any] = {name: _as_made(record.tables[name]) for name in _TABLES}
        profiles = []
        for number, each in enumerate(parts):
            prefix = f"profiles.{number}."
            own = {name.removeprefix(prefix): t for name, t in record.tables.items() if name.startswith(prefix)}
            profiles.append(profile_of(Record("Profile", VERSIONS["Profile"], each, own)))
        return RankProfile(**tables, **state, profiles=tuple(profiles), saved=record.saved)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise StoreError(f"a stored {record.kind} is damaged ({error})") from None


def _as_made(table: pd.DataFrame) -> pd.DataFrame:
    """Texts in the type that pandas gives to new ones."""
    return pd.DataFrame({c: table[c].tolist() if table[c].dtype == object else table[c] for c in table.columns})


def rank_fingerprint(result: RankProfile) -> str:
    """Recognises this very run, wherever it is stored: by when its ranks ran, and the times of each."""
    begun = [each.trace.begin for each in result.profiles if each.trace is not None]
    digest = hashlib.sha1(f"{begun} {result.span!r} {result.files}".encode(), usedforsecurity=False)
    for name in ("compute", "communication", "wait", "other"):
        digest.update(np.ascontiguousarray(result.ranks[name].to_numpy(np.float64)).tobytes())
    return digest.hexdigest()[:20]
