"""The operations and modules of a profile as tables, and how places, names and shapes are written."""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from torchbench_magic import units
from torchbench_magic.errors import InputError, OptionError
from torchbench_magic.printable import printable
from torchbench_magic.profiling.efficiency.view import efficiency_columns
from torchbench_magic.show.document import clipped, of_result
from torchbench_magic.show.table import (
    BuiltColumn,
    Cell,
    Column,
    Group,
    Rest,
    Row,
    Table,
    built_table,
    cells_of,
    columns_of,
    counted,
    float_or_none,
    frame_rows,
    measured_columns,
    rest_of,
    share,
    texts,
)

from .call_tree_tables import ops_by_stack
from .profile import Profile
from .schema import OP_COLUMNS, combined_by

Record = dict[str, Any]
"""A row of a table, see `show.table.frame_rows`."""


def op_text(op: str) -> str:
    """The name as it is shown: the engine's own frames lose their long prefix, a kernel that torch.compile fused is
    named by the operations in it (``graph_0_cpp_fused_add_sin_0``: ``fused add_sin``), and so on."""
    if (fused := _FUSED.match(op)) is not None:
        return f"fused {fused['ops']}"
    if (graph := _GRAPH.match(op)) is not None:  # its hash says nothing to a reader
        return f"compiled graph {graph[1]}"
    return op.replace("autograd::engine::evaluate_function: ", "engine: ")


_FUSED = re.compile(r"(?:graph_\d+_)?(?:cpp|triton|mps|halide)_(?:\w+?_)?fused_(?P<ops>\w+?)(?:_\d+)?$")
_GRAPH = re.compile(r"## Call CompiledFxGraph (\w{6})")


def place(cell: Any, file: Any, line: Any) -> str:
    """``In[3]:4``, or ``model.py:4``."""
    source = f"In[{cell}]" if cell is not None and not pd.isna(cell) else str(file).rsplit("/", 1)[-1]
    return f"{source}:{line}"


def place_of(record: Any) -> str:
    """The place of a row that stands on a line; empty for one that stands on none."""
    return "" if pd.isna(record["line"]) else place(record["cell"], record["file"], record["line"])


def shapes_text(shapes: str) -> str:
    """``[[3, 4], []]`` as ``[3, 4] []``: the outer brackets say nothing."""
    inner = shapes[1:-1] if shapes.startswith("[") and shapes.endswith("]") else shapes
    return re.sub(r"\],\s*", "] ", inner)


def runs_text(numbers: Sequence[int]) -> str:
    """``2 … 4 and 7`` for 2, 3, 4, 7; two in a row are ``2 and 3``; of many runs the first two and the last."""
    breaks = [i for i, (a, b) in enumerate(itertools.pairwise(numbers), 1) if b != a + 1]
    parts = [numbers[i:j] for i, j in itertools.pairwise([0, *breaks, len(numbers)])]
    words = [
        word
        for part in parts
        for word in ([f"{part[0]} … {part[-1]}"] if len(part) > 2 else [str(number) for number in part])
    ]
    if len(words) > 4:
        words = [*words[:2], "…", words[-1]]
    return ", ".join(words[:-1]) + (" and " if len(words) > 1 else "") + words[-1]


# ---- chosen_keys -----------------------------------------------------------------------------------------------------
# What lines, operations, modules and functions are called when one is chosen: the same in every view of a profile.
#
# ``static/chosen.js`` hands these names from view to view, and what runs where, so that a table of lines marks the
# lines of an operation that was chosen in the flame graph.

_LONGEST = 400  # as of the keys of rows
MOST_LINKS = 5_000  # of what runs where: about 20 KB; an output has room for fewer
_KINDS = {"op": "op", "python": "op", "line": "line", "module": "module", "function": "frame"}  # ranges are ops


def chosen_key(kind: str, name: str) -> str:
    """``op:aten::mm``; empty for what cannot be chosen.

    Args:
        kind: of a row of ``Profile.frames``.
        name: whole, as its table has it; of a line, its `line_name`.
    """
    return f"{_KINDS[kind]}:{printable(clipped(name, _LONGEST))}" if name and kind in _KINDS else ""


def line_name(profile: Profile, source_id: Any, line: Any, cell: Any = None, file: Any = None) -> str:
    """``In[3]:4``; of a source whose text is not known, by its cell or file."""
    source = None if pd.isna(source_id) else profile.sources.get(str(source_id))
    return f"{source.label}:{line}" if source is not None else place(cell, file, line)


def links(profile: Profile, most: int = MOST_LINKS) -> dict[str, Any] | None:
    """Which operation runs on which line, in which module: of each the ``names``, and a column ``at`` of places in it,
    -1 for none; one row per distinct combination, at most ``most``, those with the most time first. ``left_out``: how
    many more there are. None where no operation is known.
    """
    rows = list(times_of(frame_rows(profile.ops), "op", "source_id", "line", "cell", "file", "module"))
    if not rows:
        return None
    left_out = max(len(rows) - most, 0)
    columns: dict[str, list[str | None]] = {"op": [], "line": [], "module": []}
    for op, source_id, line, cell, file, module in rows[:most]:
        columns["op"].append(chosen_key("op", str(op)))
        where = None if line is None else line_name(profile, source_id, line, cell, file)
        columns["line"].append(None if where is None else chosen_key("line", where))
        columns["module"].append(None if module is None else chosen_key("module", str(module)))
    found: dict[str, Any] = {name: _indexed(name, keys) for name, keys in columns.items()}
    return found | {"left_out": left_out} if left_out else found


def _indexed(kind: str, keys: list[str | None]) -> dict[str, Any]:
    different = {key: at for at, key in enumerate(dict.fromkeys(key for key in keys if key is not None))}
    return {
        "names": [key.removeprefix(f"{kind}:") for key in different],
        "at": [-1 if key is None else different[key] for key in keys],
    }


# ---- grouping --------------------------------------------------------------------------------------------------------

_DEPTH = 5  # frames of a stack unless said otherwise, as torch's examples have it
_BY = {
    "op": ("op",),
    "shape": ("op", "input_shapes"),
    "line": ("op", "cell", "file", "line"),
    "module": ("op", "module"),
    "stack": ("op", "stack"),
}
GROUPINGS = tuple(_BY)


@dataclass(frozen=True)
class Grouping:
    """How rows are formed.

    Attributes:
        by: one of `GROUPINGS`.
        depth: frames of a stack that count.
    """

    by: str = "op"
    depth: int = _DEPTH

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns whose values make a row."""
        return _BY[self.by]

    @property
    def shown(self) -> str:
        """The column beside the operation's name that tells rows apart, where no other column does; else empty."""
        return self.by if self.by in ("module", "stack") else ""

    def rows(self, profile: Profile) -> pd.DataFrame:
        """The rows of ``.ops`` to be summed, with the columns of the grouping.

        Raises:
            InputError: what is grouped by was not recorded.
        """
        if self.by == "shape" and not profile.options.shapes:
            raise InputError("shapes were not recorded: use --shapes to group by shape")
        return ops_by_stack(profile.frames, self.depth) if self.by == "stack" else profile.ops


def grouping_of(text: str | None) -> Grouping:
    """Read ``op``, ``shape``, ``line``, ``module``, ``stack`` or ``stack:N``; None is ``op``.

    Raises:
        OptionError: anything else; the message lists what there is.
    """
    if text is None:
        return Grouping()
    found = re.fullmatch(rf"({'|'.join(GROUPINGS)})|stack:([1-9]\d{{0,3}})", text)
    if found is None:
        raise OptionError(f"group_by {text!r} is unknown; use {', '.join(GROUPINGS)} or stack:N")
    return Grouping(found[1] or "stack", int(found[2]) if found[2] else _DEPTH)


# ---- callers ---------------------------------------------------------------------------------------------------------

_MOST_CALLERS = 12


def callers(profile: Profile, names: Collection[str], *, by_shape: bool, shapes: bool) -> dict[tuple[str, str], Table]:
    """(op, its shapes if ``by_shape`` else empty) -> where it is called, for ops that more than one row stands for."""
    mine = [row for row in frame_rows(profile.ops) if row["op"] in names and row["line"] is not None]
    more = {"modules": any(row["module"] is not None for row in mine), "memory": bool(numbers(mine, "allocated"))}
    found: dict[tuple[str, str], list[Record]] = {}
    for call in largest_first(grouped(mine, ["op", "input_shapes", "cell", "file", "line", "module"]), "cpu_time"):
        found.setdefault((str(call["op"]), str(call["input_shapes"]) if by_shape else ""), []).append(call)
    return {key: _table(key[0], calls, shapes=shapes, **more) for key, calls in found.items()}


def _table(name: str, calls: list[Record], *, modules: bool, memory: bool, shapes: bool) -> Table:
    time = units.spread_scale(numbers(calls, "cpu_time", "self_cpu_time"))
    scale = units.bytes_scale(numbers(calls, "allocated"))
    whole = sum(numbers(calls, "cpu_time"))
    built = [
        texts("line", f"{name} is called from", 36, lambda call: place(call["cell"], call["file"], call["line"])),
        *([texts("module", "module", 30, lambda call: str(call["module"]))] if modules else []),
        counted("calls", "calls"),
        measured_columns("self", "self", time, "self_cpu_time"),
        measured_columns("total", "total", time, "cpu_time"),
        share("total", lambda call: float(call["cpu_time"]) / whole if whole else 0.0),
        *([measured_columns("allocated", "allocated", scale)] if memory else []),
    ]
    if shapes:
        shape = lambda call: shapes_text(str(call["input_shapes"]))
        built.append(texts("input_shapes", "input shapes", 60, shape, quiet=True))
    rest = calls[_MOST_CALLERS:]
    left = units.seconds_text(sum(numbers(rest, "cpu_time")), digits=2)
    hidden = f"{units.count(len(rest))} more take {left}. All: {of_result(f'.where({name!r})')}" if rest else ""
    return built_table("callers of an operation", built, calls[:_MOST_CALLERS], hidden=hidden)


# ---- modules ---------------------------------------------------------------------------------------------------------

_MOST_MODULES = 40
_LEAST_SHARE = 1e-3
_INDENT = "\u00a0\u00a0"  # per level; a plain space would be lost in HTML


def modules_table(profile: Profile) -> Table | None:
    """A row per module, below the one that called it; None where none was called.

    Shown are the first 40 that take a thousandth of the wall time, forward and backward, and those that called them.
    """
    modules = profile.modules
    if modules.empty:
        return None
    cost = modules["forward_time"] + modules["backward_cpu_time"]
    rows = frame_rows(modules.assign(both=cost))
    large = frozenset(row for row in range(len(rows)) if cost[row] >= _LEAST_SHARE * profile.wall_time)
    chosen = list(_as_tree(rows, large))[:_MOST_MODULES]
    time = units.spread_scale([*modules["forward_time"], *modules["backward_cpu_time"]])
    has_backward = bool((modules["backward_cpu_time"] > 0).any())
    top = float(cost.max())

    def bar(module: dict[str, Any]) -> Cell:
        parts = (("torch", module["forward_time"]), ("backward", module["backward_cpu_time"]))
        drawn = tuple((hue, value / top) for hue, value in parts if value and top)
        return Cell(value=module["both"], picture=(drawn, ()) if drawn else ())

    def name(module: dict[str, Any]) -> Cell:
        return Cell(_INDENT * module["depth"] + str(module["name"]), flat=str(module["name"]))

    legend = (("torch", "forward"), ("backward", "backward it caused")) if has_backward else ()
    built = [
        BuiltColumn(Column("module", "module", kind="code", widest=60), name),
        counted("calls", "calls"),
        BuiltColumn(Column("bar", "", kind="bar", legend=legend), bar),
        measured_columns("forward", "forward", time, "forward_time"),
        measured_columns("self", "self", time, "self_time"),
        *([measured_columns("backward", "backward", time, "backward_cpu_time")] if has_backward else []),
        share("both", lambda module: module["both"] / profile.wall_time if profile.wall_time else 0.0),
    ]
    for label, field, scale in (
        ("device", "device_time", units.spread_scale),
        ("allocated", "allocated", units.bytes_scale),
    ):
        if modules[field].notna().any():
            built.append(
                measured_columns(label, label, scale([float_or_none(value) for value in modules[field]]), field)
            )
    said = f"{units.count(len(chosen))} of {units.count(len(modules))} modules. All rows: {of_result('.modules')}"
    hidden = said if len(chosen) < len(modules) else ""
    key = lambda module: str(module["name"])
    return built_table("modules", built, chosen, key, hidden=hidden, keyed="module")


def _as_tree(modules: Sequence[dict[str, Any]], chosen: frozenset[int]) -> Iterator[dict[str, Any]]:
    """The chosen ones depth first, each with its ``depth``; those of one parent as they ran.

    Args:
        modules: rows of `Profile.modules`, each after the one that it names as its parent.
    """
    called: dict[int, list[int]] = defaultdict(list)
    for row, module in enumerate(modules):
        called[module["parent"]].append(row)

    def below(parent: int, depth: int) -> Iterator[dict[str, Any]]:
        for row in called[parent]:
            if row in chosen:
                yield modules[row] | {"depth": depth}
                yield from below(row, depth + 1)

    return below(-1, 0)


# ---- operations ------------------------------------------------------------------------------------------------------

_SUMS, _PEAKS = combined_by(OP_COLUMNS, "sum"), combined_by(OP_COLUMNS, "max")
_COLUMNS = ("op", *_SUMS, *_PEAKS)

SORT_KEYS = {
    **{name: name for name in _COLUMNS},
    "count": "calls",
    "operation": "op",
    "name": "op",
    "cpu_time_total": "cpu_time",
    "self_cpu_time_total": "self_cpu_time",
    **{
        f"{self}{device}_time{total}": f"{self}device_time"
        for self in ("", "self_")
        for device in ("device", "cuda", "xpu", "privateuse1")
        for total in ("", "_total")
    },
    **{
        f"{self}{device}_memory_usage": "allocated"
        for self in ("", "self_")
        for device in ("cpu", "device", "cuda", "xpu", "privateuse1")
    },
}
"""What ``sort_by`` may be: the columns of ``.ops``, and torch's names for them, old and new."""

_FLOP = tuple(units.Scale(f"{prefix}FLOP", size) for prefix, size in (("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9)))
_ON_NO_LINE = 1e-9  # of the self time: below, it is rounding
_MUCH = 0.1  # of the self time: then what is left out is not small
_DEFAULT_ROWS = 12
_MOST_MADE = 1_000  # rows of a table; the rest of all of them are columns, and nothing opens in them
MOST_REST = 4_000
"""Rows that an inline output holds beside those that it shows: about 100 KB."""
_WORDS = {
    "self_cpu_time": "self time",
    "cpu_time": "total time",
    "self_device_time": "device time",
    "device_time": "total device time",
    "op": "name",
    "allocated": "allocated bytes",
    "freed": "freed bytes",
}
STEP_RANGE = "ProfilerStep*"
"""What torch calls the range of a step: no operation, and its own time is that of the loop's Python."""
_BACKWARD = re.compile(r"^(autograd::|torch::autograd::|AccumulateGrad)|Backward\d*(: |$)")


def sort_column(key: str | None) -> str:
    """The column of ``.ops`` that ``key`` means; the self time if None.

    Raises:
        OptionError: no such key; the message lists those there are.
    """
    if key is None:
        return "self_cpu_time"
    if key not in SORT_KEYS:
        raise OptionError(f"sort_by {key!r} is unknown; use one of {', '.join(SORT_KEYS)}")
    return SORT_KEYS[key]


def is_backward(op: str) -> bool:
    """Whether this op is autograd's own frame of a backward pass, by its name."""
    return _BACKWARD.search(op) is not None


def grouped(ops: Iterable[Record], by: Sequence[str]) -> list[Record]:
    """Rows of ``.ops`` summed per group.

    Three columns say where they come from, largest self time first: ``places`` with (cell, file, line), ``shapes``
    with texts; ``shares`` has the parts of the self time on each of the places, 1 together with what is on no line.
    Text columns of ``by`` that are not known become empty.
    """
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for row in ops:
        values = ("" if row[name] is None and OP_COLUMNS.get(name) != "Int64" else row[name] for name in by)
        groups.setdefault(tuple(values), []).append(row)
    made = []
    for key, rows in groups.items():
        record: Record = dict(zip(by, key, strict=True))
        for names, combined in ((_SUMS, math.fsum), (_PEAKS, max)):
            record |= {name: _of_known(combined, [row[name] for row in rows]) for name in names}
        places = times_of(_in_order(rows, "cell", "file", "line"), "cell", "file", "line")
        shapes = times_of(_in_order(rows, "input_shapes"), "input_shapes")
        whole = record["self_cpu_time"] or math.nan
        shares = tuple(seconds / whole for seconds in places.values())
        made.append(record | {"places": (*places,), "shapes": tuple(text for (text,) in shapes), "shares": shares})
    return made


def _in_order(ops: Iterable[Record], *names: str) -> list[Record]:
    """Those of which the last of these columns is known, by all of them: of equal times the first stands first."""
    known = (row for row in ops if row[names[-1]] is not None)
    return sorted(known, key=lambda row: [(row[name] is None, row[name]) for name in names])


def times_of(ops: Iterable[Record], *names: str) -> dict[tuple[Any, ...], float]:
    """The distinct values of these columns with their self times, the largest first."""
    found: dict[tuple[Any, ...], float] = {}
    for row in ops:
        value = tuple(row[name] for name in names)
        found[value] = found.get(value, 0.0) + (float_or_none(row["self_cpu_time"]) or 0.0)
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def largest_first(records: Iterable[Record], column: str) -> list[Record]:
    """By a column; by name the first first. What is not known comes last, and what is alike in the order given."""
    if column == "op":
        return sorted(records, key=lambda record: str(record["op"]))
    number = lambda record: -math.inf if (value := float_or_none(record[column])) is None else value
    return sorted(records, key=number, reverse=True)


def numbers(records: Iterable[Mapping[str, Any]], *names: str) -> list[float]:
    """The known values of these columns."""
    return [value for name in names for row in records if (value := float_or_none(row[name])) is not None]


def _of_known(combined: Callable[[list[Any]], Any], values: Sequence[Any]) -> Any:
    """The sum, or whatever else, of the values that are known; where none is, as they are."""
    known = [value for value in values if float_or_none(value) is not None]
    return combined(known) if known else values[0]


def _lines_text(places: Sequence[tuple[Any, Any, Any]], shares: Sequence[float]) -> str:
    """``In[3]:4`` where all of it stands there, ``In[3]:4 (62 %) and 9 more``, ``no line (83 %) and 1 more``.

    Work on no line is one of the others. The share is that of the self time.
    """
    stands = [(place(*where), share) for where, share in zip(places, shares, strict=True)]
    left = 1 - sum(shares)
    if left > _ON_NO_LINE or not stands:
        stands = sorted([*stands, ("no line", left)], key=lambda each: -each[1])
    name, share = stands[0]
    if len(stands) == 1:
        return name
    part = f" ({round(100 * share)} %)" if share == share else ""
    return f"{name}{part} and {len(stands) - 1} more"


def operations(
    profile: Profile,
    *,
    sort_by: str | None = None,
    row_limit: int | None = None,
    group_by: str | None = None,
    most_rest: int | None = MOST_REST,
) -> Table:
    """The table of operations, largest first.

    Args:
        sort_by: one of `SORT_KEYS`; the self time if None.
        row_limit: at most so many rows; if None, the 20 first that matter. A negative one, as in torch, is no limit.
        group_by: one row per operation (``op``), and its ``shape``, ``line``, ``module`` or ``stack:N``.
        most_rest: rows that live forms have beside these, about; those with the largest of each column. None: all.

    Raises:
        OptionError: an unknown ``sort_by`` or ``group_by``.
        InputError: what is grouped by was not recorded.
    """
    column, grouping = sort_column(sort_by), grouping_of(group_by)
    ops = frame_rows(grouping.rows(profile))
    every = grouped((row for row in ops if row["op"] != STEP_RANGE), grouping.columns)
    known = bool(numbers(every, column) if column != "op" else every) or not every
    ordered = largest_first(every, column if known else "self_cpu_time")
    if row_limit is not None:
        shown = ordered[: row_limit if row_limit >= 0 else _MOST_MADE]
    else:
        shown = (ordered if sort_by is not None and known else _mattering(ordered))[:_DEFAULT_ROWS]
    built, rows = _rows(profile, shown, every, grouping)
    by = _WORDS.get(column, column) if known else "self time"
    hidden = _hidden(ordered, shown, "operations" if grouping.by == "op" else "rows", by)
    if not known:
        hidden = "; ".join(part for part in (f"{column} was not measured: sorted by self time", hidden) if part)
    return Table(
        "operations",
        columns_of(built),
        (Group(tuple(rows)),) if rows else (),
        hidden=hidden if rows else profile.none_ran,
        sorted_by={"self_cpu_time": "self", "cpu_time": "total", "op": "op"}.get(column, column) if known else "self",
        descending=column != "op",
        rest=_rest(built, ordered, shown, most_rest) if row_limit is None or row_limit < 0 else None,
        keyed="op",
    )


def _mattering(ordered: list[Record]) -> list[Record]:
    """Operations with a thousandth of the time, on the device too, or a hundredth of the largest's bytes."""
    total, device = (sum(numbers(ordered, name)) for name in ("self_cpu_time", "self_device_time"))
    largest = max(numbers(ordered, "allocated"), default=0.0)
    least = {"self_cpu_time": _LEAST_SHARE * total}
    least |= {"allocated": 0.01 * largest} if largest > 0 else {}
    least |= {"self_device_time": _LEAST_SHARE * device} if device > 0 else {}
    found = [op for op in ordered if any((float_or_none(op[name]) or 0.0) >= least[name] for name in least)]
    left = total - sum(numbers(found, "self_cpu_time"))
    return ordered if left > _MUCH * total else found  # of many small ones the largest say more than none


def _rest(built: Sequence[BuiltColumn], ordered: list[Record], shown: list[Record], most: int | None) -> Rest | None:
    """The other rows; of more than ``most`` those with the largest of each column."""
    left = _without(ordered, shown)
    known = {name: count for name in (*_SUMS, *_PEAKS) if (count := len(numbers(ordered, name)))}
    top = 0
    if most is not None and len(left) > most:
        top = most // len(known)
        first = [op for name, count in known.items() for op in largest_first(ordered, name)[: min(top, count)]]
        left = _without(left, _without(left, first))
    return rest_of(built, left, lambda record: str(record["op"]), len(ordered), top)


def _without(records: Iterable[Record], others: Iterable[Record]) -> list[Record]:
    them = frozenset(map(id, others))
    return [record for record in records if id(record) not in them]


def _hidden(ordered: list[Record], shown: list[Record], what: str, by: str) -> str:
    rest = len(ordered) - len(shown)
    if not rest:
        return ""
    left = sum(numbers(ordered, "self_cpu_time")) - sum(numbers(shown, "self_cpu_time"))
    took = f"take{'s' if rest == 1 else ''} {units.seconds_text(max(left, 0.0), digits=2)}"
    seen = units.count(len(shown)) if shown else "none"
    if shown and all(one is other for one, other in zip(shown, ordered, strict=False)):
        seen = f"the {seen} {'first' if by == 'name' else 'largest'} by {by}"
    counted = f"{seen} of {units.count(len(ordered))} {what}; the other {units.count(rest)} {took}"
    return f"{counted}. All rows: {of_result('.ops')}"


def _rows(
    profile: Profile, shown: list[Record], every: list[Record], grouping: Grouping
) -> tuple[list[BuiltColumn], list[Row]]:
    shapes, by_shape = profile.options.shapes and not grouping.shown, grouping.by == "shape"
    time = units.spread_scale(numbers(every, "cpu_time", "self_cpu_time"))
    opened = frozenset(str(op["op"]) for op in shown if grouping.by in ("op", "shape"))
    details = callers(profile, opened, by_shape=by_shape, shapes=shapes)
    top = max(numbers(every, "self_cpu_time"), default=0.0)
    built = [
        texts("op", "operation", 36, lambda record: op_text(str(record["op"]))),
        counted("calls", "calls"),
        measured_columns("self", "self", time, "self_cpu_time"),
        BuiltColumn(
            Column("bar", "", kind="bar", legend=_op_legend(profile, every)),
            lambda record: Cell(picture=_bar(profile, record, top)),
        ),
        share("self", lambda op: op["self_cpu_time"] / profile.wall_time if profile.wall_time else math.nan),
        measured_columns("total", "total", time, "cpu_time"),
    ]
    if any(device := numbers(every, "self_device_time")):
        built.append(measured_columns("self_device_time", "device", units.spread_scale(device)))
    if allocated := numbers(every, "allocated"):
        built.append(measured_columns("allocated", "allocated", units.bytes_scale(allocated)))
    if flops := numbers(every, "flops"):
        built += _work(units.smallest_scale([value for value in flops if value], _FLOP))
    built += efficiency_columns(profile, grouping.rows(profile), grouping.columns)
    if grouping.shown:
        name = grouping.shown
        built.append(texts(name, name, 60, lambda record: str(record[name]).replace("\n", " ← ")))
    else:
        has_lines = bool(profile.ops["line"].notna().any())
        built.append(texts("line", "line", 30, lambda op: _lines_text(op["places"], op["shares"]) if has_lines else ""))
    if shapes:
        built.append(texts("input_shapes", "input shapes", 40, _shapes, quiet=True))
    rows = []
    for record in shown:
        key = (str(record["op"]), str(record["input_shapes"]) if by_shape else "")
        rows.append(Row(cells_of(built, record), key=str(record["op"]), detail=details.get(key)))
    return built, rows


def _shapes(record: Mapping[str, Any]) -> str:
    texts = [shapes_text(str(shape)) for shape in record["shapes"]]
    return f"{texts[0]} and {len(texts) - 1} more" if len(texts) > 1 else "".join(texts)


def _work(scale: units.Scale) -> list[BuiltColumn]:
    """FLOP of an operation, and FLOP/s."""

    def work(record: Mapping[str, Any]) -> Cell:
        value = float_or_none(record["flops"])
        return Cell("" if value is None else units.number(value, scale), value)

    return [
        BuiltColumn(Column("flops", "work", scale.unit, "number"), work),
        BuiltColumn(Column("speed", "speed", "GFLOP/s", "number"), _speed),
    ]


def _speed(record: Mapping[str, Any]) -> Cell:
    """Work over the time of the operation with all that it calls, on the device where it ran there."""
    work = float_or_none(record["flops"])
    seconds = float_or_none(record["device_time"]) or float_or_none(record["cpu_time"])
    if work is None or not seconds:
        return Cell()
    return Cell(units.number(work / seconds / 1e9), work / seconds)


def _bar(profile: Profile, record: Mapping[str, Any], top: float) -> tuple[object, ...]:
    own = float(record["self_cpu_time"])
    return (((_meaning(profile, str(record["op"])), own / top),), ()) if top and own else ()


def _meaning(profile: Profile, op: str) -> str:
    return "python" if op in profile.ranges else "backward" if is_backward(op) else "torch"


def _op_legend(profile: Profile, ops: Iterable[Record]) -> tuple[tuple[str, str], ...]:
    """What the colours of the bars mean, where there is more than one."""
    there = {_meaning(profile, str(op["op"])) for op in ops}
    words = (("torch", "torch"), ("backward", "autograd's backward"), ("python", "record_function, mostly Python"))
    return tuple(key for key in words if key[0] in there) if len(there) > 1 else ()
