"""A comparison as a record that can be stored, and back: its fields, its samples and its counts."""

from __future__ import annotations

import math
from dataclasses import fields

from torchbench_magic.errors import StoreError

from ..timing.comparison import Comparison
from ..timing.identity import identity_of, machine_of, source_id
from . import counts_record
from .records import VERSIONS, Record, encoded, state_of

__all__ = ["comparison_from_record", "comparison_record"]

_LEFT_OUT = {"samples", "saved", "unpaired", "history", "counts"}  # tables; facts of the store, of other results


def comparison_record(result: Comparison) -> Record:
    """The record of a comparison."""
    state = {item.name: getattr(result, item.name) for item in fields(result) if item.name not in _LEFT_OUT}
    header = {
        "identity": [list(identity_of(subject)) for subject in result.subjects],
        "source_id": [source_id(subject.before, subject.stmt) for subject in result.subjects],
        "torch": result.environment.torch,
        "machine": list(machine_of(result.environment)),
        **{name: encoded(value) for name, value in state.items()},
    }
    tables = {"samples": result.samples}
    if result.counts:
        header["counts"], counted = counts_record.to_record(result.counts)
        tables |= counted
    return Record("Comparison", VERSIONS["Comparison"], header, tables)


def comparison_from_record(record: Record) -> Comparison:
    """The comparison of a record.

    Raises:
        StoreError: it is damaged.
    """
    try:
        header = dict(record.header)
        counted = header.pop("counts", None)
        state = state_of(header, Comparison)
        if counted is not None:
            state["counts"] = counts_record.from_record(counted, record.tables)
        made = Comparison(samples=record.tables["samples"], **state, saved=record.saved)
        rows = made.samples["measurement"]
        if len(rows) and not (rows.min() >= 0 and rows.max() < len(made.subjects)):
            raise ValueError("samples of a measurement that is not there")
        if not 0 <= made.margin < math.inf:
            raise ValueError(f"a margin of {made.margin}")
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise StoreError(f"a stored {record.kind} is damaged ({error})") from None
    return made
