"""A profile as a record that can be stored, and back: its tables and the columns of its trace, nothing recomputed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import pandas as pd

from torchbench_magic.errors import StoreError

from ..machine.concurrency import TIMELINE_COLUMNS, Concurrency
from ..profiling.columns import PROFILE_TABLES, frame_of
from ..profiling.profile import Profile
from ..profiling.trace import TRACE_TABLES, Trace
from ..timing.identity import machine_of
from .records import VERSIONS, Record, encoded, state_of

__all__ = ["profile_fingerprint", "profile_of", "profile_record"]

_APART = ("trace", "concurrency", "cycles")
"""Fields that have tables of their own."""


def profile_record(profile: Profile) -> Record:
    """The record of a profile: one JSON header, and each table under its name (those of the trace as
    ``trace.events``)."""
    trace, environment, cores = profile.trace, profile.environment, profile.concurrency
    held = {item.name: getattr(profile, item.name) for item in fields(profile)}
    tables = {name: value for name, value in held.items() if isinstance(value, pd.DataFrame)}
    cycles = [profile_record(cycle) for cycle in profile.cycles]
    header = {
        "identity": [["profile", profile.source_id, profile.num_threads]],
        "source_id": [profile.source_id],
        "torch": environment.torch if environment is not None else None,
        "machine": list(machine_of(environment)) if environment is not None else None,
        **_encoded(profile, {*tables, "trace", "concurrency", "cycles", "saved"}),
        "trace": None if trace is None else _encoded(trace, set(TRACE_TABLES)),
        "concurrency": None if cores is None else _encoded(cores, {"timeline"}),
        "cycles": [cycle.header for cycle in cycles],
    }
    for number, cycle in enumerate(cycles):
        tables |= {f"cycles.{number}.{name}": table for name, table in cycle.tables.items()}
    if trace is not None:
        tables |= {f"trace.{name}": getattr(trace, name) for name in TRACE_TABLES}
    if cores is not None:
        tables["concurrency.timeline"] = cores.timeline
    return Record("Profile", VERSIONS["Profile"], header, tables)


def _encoded(record: Any, left_out: set[str]) -> dict[str, Any]:
    return {item.name: encoded(getattr(record, item.name)) for item in fields(record) if item.name not in left_out}


def profile_of(record: Record) -> Profile:
    """The profile of a record.

    Raises:
        StoreError: it is damaged.
    """
    try:
        header = {name: value for name, value in record.header.items() if name not in _APART}
        state = state_of(header, Profile)
        own = {item.name for item in fields(Profile)}
        tables: dict[str, Any] = {
            name: _as_declared(table, PROFILE_TABLES[name]) if name in PROFILE_TABLES else table
            for name, table in record.tables.items()
            if name in own
        }
        cycles = tuple(profile_of(cycle) for cycle in _cycles(record))
        parts: dict[str, Any] = {"trace": _trace_of(record), "concurrency": _concurrency_of(record), "cycles": cycles}
        return Profile(**tables, **parts, **state, saved=record.saved)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise StoreError(f"a stored {record.kind} is damaged ({error})") from None


def _cycles(record: Record) -> Iterator[Record]:
    for number, header in enumerate(record.header.get("cycles") or []):
        prefix = f"cycles.{number}."
        tables = {name.removeprefix(prefix): t for name, t in record.tables.items() if name.startswith(prefix)}
        yield Record(record.kind, record.version, header, tables, record.saved)


def _trace_of(record: Record) -> Trace | None:
    header = record.header.get("trace")
    if header is None:
        return None
    tables: dict[str, Any] = {name: record.tables[f"trace.{name}"] for name in TRACE_TABLES}  # it checks them itself
    return Trace(**tables, **state_of(header, Trace))


def _concurrency_of(record: Record) -> Concurrency | None:
    header = record.header.get("concurrency")
    if header is None:
        return None
    timeline = _as_declared(record.tables["concurrency.timeline"], TIMELINE_COLUMNS)
    return Concurrency(timeline=timeline, **state_of(header, Concurrency))


def _as_declared(table: pd.DataFrame, columns: Mapping[str, str]) -> pd.DataFrame:
    """The stored columns in the types that are declared for them; a column that came later holds nothing."""
    return frame_of(columns, {name: table[name] for name in columns if name in table})


def profile_fingerprint(profile: Profile) -> str:
    """Recognises this very run, wherever it is stored: by its text, when it ran, and the time of each line and op."""
    begin = 0 if profile.trace is None else profile.trace.begin
    said = f"{profile.source_id} {profile.num_threads} {profile.wall_time!r} {begin}"
    digest = hashlib.sha1(said.encode(), usedforsecurity=False)
    for table, names in ((profile.lines, ("wall_time", "self_cpu_time", "python_time")), (profile.ops, ("cpu_time",))):
        for name in names:
            digest.update(np.ascontiguousarray(table[name].to_numpy(np.float64)).tobytes())
    return digest.hexdigest()[:20]
