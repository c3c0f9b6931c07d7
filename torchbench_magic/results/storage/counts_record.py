"""Instruction counts as plain JSON and tables of typed columns, and back: what a store keeps of them.

The header says what each count is of; the tables hold one row a function and one row an arc. A function of no cost is
not kept, as callgrind's reader keeps none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from ..counting.call_graph import CallEdge, CallGraph
from ..counting.counts import Counted, CountKey, Counts, stats_of

if TYPE_CHECKING:
    from torch.utils.benchmark.utils.valgrind_wrapper.timer_interface import CallgrindStats

__all__ = ["from_record", "to_record"]

_SPEC = ("stmt", "setup", "global_setup", "label", "sub_label", "description", "env", "num_threads")
_COSTS = {
    "count": "int64",
    "layout": "int64",
    "part": object,
    "function": object,
    "exclusive": "int64",
    "inclusive": "int64",
}
_CALLS = {"count": "int64", "part": object, "caller": object, "callee": object, "calls": "int64", "inclusive": "int64"}
_PARTS = ("statement", "empty")


def to_record(counts: Counts) -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
    """Header and tables.

    ``counts``: ``count`` is a position in the header's ``keys``; ``layout`` 0 is the count itself, those from 1 on were
    counted in shifted heaps; ``part`` is the statement or the empty loop. ``calls``: arcs, of layout 0.
    """
    costs: list[tuple[object, ...]] = []
    calls: list[tuple[object, ...]] = []
    known = []
    for at, one in enumerate(counts.counted.values()):
        for layout, stats in enumerate((one.stats, *one.shifted)):
            costs += [(at, layout, *row) for row in _costs(stats)]
        if one.calls is not None:
            for part, arcs in zip(_PARTS, (one.calls.statement, one.calls.empty), strict=True):
                calls += [(at, part, *arc) for arc in arcs]
        known.append(one.calls is not None)
    header = {
        "form": counts.form,
        "elapsed": counts.elapsed,
        "keys": [list(key) for key in counts.counted],
        "specs": [{name: getattr(one.stats.task_spec, name) for name in _SPEC} for one in counts.counted.values()],
        "number": [one.stats.number_per_run for one in counts.counted.values()],
        "debug_symbols": [one.stats.built_with_debug_symbols for one in counts.counted.values()],
        "shifted": [len(one.shifted) for one in counts.counted.values()],
        "has_calls": known,
    }
    return header, {"counts": _table(costs, _COSTS), "calls": _table(calls, _CALLS)}


def from_record(header: Mapping[str, Any], tables: Mapping[str, pd.DataFrame]) -> Counts:
    """Undo `to_record`.

    Raises:
        KeyError, TypeError, ValueError: it is damaged.
    """
    costs = dict(iter(tables["counts"].groupby(["count", "layout", "part"], sort=False)))
    arcs = dict(iter(tables["calls"].groupby(["count", "part"], sort=False)))
    found: dict[CountKey, Counted] = {}
    for at, key in enumerate(header["keys"]):
        number, symbols = header["number"][at], header["debug_symbols"][at]
        if not (isinstance(number, int) and number > 0 and isinstance(symbols, bool)):
            raise ValueError("a count of no calls")
        layouts = range(header["shifted"][at] + 1)
        stats = [_stats(costs, at, layout, number, symbols, header["specs"][at]) for layout in layouts]
        graph = None
        if header["has_calls"][at]:
            statement, empty = (tuple(_calls(arcs.get((at, part)))) for part in _PARTS)
            graph = CallGraph(statement, empty, number)
        found[_key(key)] = Counted(stats[0], tuple(stats[1:]), graph)
    return Counts(found, str(header["form"]), float(header["elapsed"]))


def _key(parts: list[Any]) -> CountKey:
    description, sub_label, threads, *result = parts
    if not (all(text is None or isinstance(text, str) for text in (description, sub_label)) and threads >= 1):
        raise ValueError("a key that is none")
    if result:
        return description, sub_label, threads, str(result[0])
    return description, sub_label, threads


def _costs(stats: CallgrindStats) -> Iterator[tuple[object, ...]]:
    both = (
        (stats.stmt_exclusive_stats, stats.stmt_inclusive_stats),
        (stats.baseline_exclusive_stats, stats.baseline_inclusive_stats),
    )
    for part, (own, inclusive) in zip(_PARTS, both, strict=True):
        a, b = ({function: count for count, function in some} for some in (own, inclusive))
        for function in dict.fromkeys([*a, *b]):
            yield part, function, a.get(function, 0), b.get(function, 0)


def _table(rows: list[tuple[object, ...]], types: Mapping[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=list(types)).astype(dict(types))


def _stats(
    costs: Mapping[Any, pd.DataFrame], at: int, layout: int, number: int, symbols: bool, spec: Mapping[str, Any]
) -> CallgrindStats:
    if set(spec) != set(_SPEC):
        raise ValueError("a task that is not described")

    def counts(part: str) -> dict[str, dict[str, int]]:
        rows = costs.get((at, layout, part), pd.DataFrame(columns=list(_COSTS)))
        costing = ((kind, rows[rows[kind] != 0]) for kind in ("exclusive", "inclusive"))
        return {kind: dict(zip(some["function"].tolist(), some[kind].tolist(), strict=True)) for kind, some in costing}

    return stats_of(counts("statement"), counts("empty"), number, debug_symbols=symbols, **spec)


def _calls(rows: pd.DataFrame | None) -> Iterator[CallEdge]:
    if rows is not None:
        columns = (rows[name].tolist() for name in ("caller", "callee", "calls", "inclusive"))
        yield from (CallEdge(*row) for row in zip(*columns, strict=True))
