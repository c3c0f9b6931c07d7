"""What engines measured, in a comparison: which engine, how loaded its host was, its versions, why it did not."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from torchbench_magic import units
from torchbench_magic.results.machine.engine_place import EnginePlace
from torchbench_magic.results.timing.comparison import Comparison

from ..built_columns import BuiltColumn
from ..table import Cell, Column

__all__ = ["are_environments", "engine_columns", "engines_at_work", "unpaired_definition"]

_VERSIONS = {"torch": "torch", "python": "Python"}


def are_environments(comparison: Comparison) -> bool:
    """Whether engines measured the same, each as an environment of its own."""
    places = [subject.place for subject in comparison.subjects]
    return None not in places and len({subject.env for subject in comparison.subjects}) > 1


def engine_columns(comparison: Comparison) -> list[BuiltColumn]:
    """Columns of what is known of the engines; none where this process measured it all."""
    places = [subject.place for subject in comparison.subjects]
    known = [place for place in places if place is not None]
    if not known:
        return []
    found = []
    if not are_environments(comparison):  # else the column of environments names them
        found.append(_column("engine", "engine", places, lambda place: Cell(place.name)))
    found.append(_column("load", "load", places, _load, kind="number"))
    for name, header in _VERSIONS.items():
        if len({getattr(place.environment, name) for place in known if place.environment is not None}) > 1:
            found.append(_column(name, header, places, _version(name)))
    if any(place.why_not for place in known):
        found.append(_column("why_not", "not measured", places, lambda place: Cell(place.why_not, tone="quiet")))
    return found


def _column(name: str, header: str, places: list[EnginePlace | None], cell: Any, kind: Any = "text") -> BuiltColumn:
    def made(at: int, record: Any) -> Cell:
        place = places[at]
        shown: Cell = Cell() if place is None else cell(place)
        return shown

    return BuiltColumn(Column(name, header, kind=kind, widest=40), made)


def _load(place: EnginePlace) -> Cell:
    load = place.environment.load if place.environment is not None else math.nan
    return Cell() if math.isnan(load) else Cell(f"{load:.1f}", load)


def _version(name: str) -> Any:
    return lambda place: Cell(getattr(place.environment, name) if place.environment is not None else "")


def engines_at_work(comparison: Comparison) -> Iterator[str]:
    """``2 engines of 1 host, one of a host at a time``; nothing where this process measured it."""
    known = [subject.place for subject in comparison.subjects if subject.place is not None]
    places = {(place.host, place.engine) for place in known if not place.why_not}
    hosts = {host for host, _ in places}
    if len(places) == 1:
        ((host, engine),) = places
        yield f"measured on {EnginePlace(engine, host).name}"
    elif places:
        of = f"{len(hosts)} host{'s' if len(hosts) > 1 else ''}"
        yield f"measured on {units.count(len(places))} engines of {of}, one per host at a time"


def unpaired_definition(comparison: Comparison) -> str:
    """Where the ratios of rows of another time or machine come from."""
    if are_environments(comparison):
        return (
            " Engines measure one after the other or on different machines: ratios between them are unpaired and give"
            " no verdict unless the reproducibility of each time is known."
        )
    return (
        " Rows of different runs were measured at different times: their interval allows for machine"
        " drift."
    )
