"""The difference of two instruction counts, function by function, and its algebra."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from torchbench_magic import result_base
from torchbench_magic.errors import InputError
from torchbench_magic.result_base import Shown

from .counts import (
    Counted,
    CountKey,
    Counts,
    Side,
    callers_or_callees,
    group_of,
    parts_of,
    standardized,
    taken_out,
)

if TYPE_CHECKING:
    from torch.utils.benchmark.utils.valgrind_wrapper.timer_interface import CallgrindStats, FunctionCounts

GroupBy = Literal["place", "function", "file", "library"]
BY: tuple[GroupBy, ...] = ("place", "function", "file", "library")

Pair = tuple[CountKey, CountKey]
"""(baseline, the other)."""

_COLUMNS = ("function", "file", "library", "baseline_count", "count", "delta", "noise", "group")


@dataclass(frozen=True)
class _Row:
    """One function: instructions over all calls, the empty loop taken out. ``noise`` is of the same kind.

    ``parts`` are the functions that were counted under this name.
    """

    function: str
    base: int
    count: int
    noise: int
    group: str
    library: str
    parts: tuple[str, ...]


@dataclass(frozen=True)
class Total:
    """Sums of a difference, instructions per call.

    Attributes:
        baseline, count: of the one and the other.
        delta: count - baseline, of the whole numbers: what noise alone makes is to be no more than it.
        noise: by how much shifted heap layouts move the delta.
    """

    baseline: float
    count: float
    delta: float
    noise: float

    @classmethod
    def of(cls, baseline: int, count: int, noise: float, number: int) -> Total:
        """From the counts of so many calls."""
        return cls(baseline / number, count / number, (count - baseline) / number, noise / number)


@dataclass(frozen=True, repr=False, eq=False)
class CountsDiff(Shown):
    """What one statement executes that another does not, per function.

    Attributes:
        names: (baseline, the other).
        number: calls that were counted.
        inclusive: each function counts with those it called; such rows do not add up.
        applied: the changes made since it was counted, in words.
        whole: sums of the two counts, all functions; None for inclusive counts.
        layouts: how many shifted heap layouts the noise is from; with 0 it is not known (NaN).
        debug_symbols: torch was built with them; without, its functions have no file.
        sides: the two counts it is of.
        keys, source, pairs: which of the comparison's counts they are, and what else can be compared there; None and
            empty for stats that were given.
    """

    names: tuple[str, str]
    number: int
    inclusive: bool = False
    applied: tuple[str, ...] = ()
    layouts: int = 0
    num_threads: int = 1
    form: str = "function"
    debug_symbols: bool = False
    whole: Total | None = None
    sides: tuple[Counted, Counted] | None = field(default=None, repr=False)
    keys: Pair | None = None
    source: Counts | None = field(default=None, repr=False)
    pairs: tuple[Pair, ...] = field(default=(), repr=False)
    _rows: tuple[_Row, ...] = field(default=(), repr=False)

    @classmethod
    def between(
        cls,
        baseline: CallgrindStats,
        other: CallgrindStats,
        names: tuple[str, str] | None = None,
        inclusive: bool = False,
    ) -> CountsDiff:
        """The difference of two of torch's stats, such as were pickled in two environments.

        Raises:
            InputError: they were counted with different numbers of calls.
        """
        specs = baseline.task_spec, other.task_spec
        found = names or (_name(specs[0].env, specs[0].description), _name(specs[1].env, specs[1].description))
        if found[0] == found[1]:
            found = "baseline", "other"
        return difference(Counted(baseline), Counted(other), found, inclusive=inclusive)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row a function, largest change first: ``function file library baseline_count count delta noise group``.

        Instructions per call, the empty loop taken out; ``delta`` is count - baseline_count, ``noise`` the most that
        shifted heap layouts moved it (NaN where none was tried).
        """
        rows = []
        for row in self._sorted:
            file, name, _ = parts_of(row.function)
            base, count = row.base / self.number, row.count / self.number
            noise = row.noise / self.number if self.layouts else float("nan")
            rows.append((name, file, row.library, base, count, (row.count - row.base) / self.number, noise, row.group))
        return pd.DataFrame(rows, columns=list(_COLUMNS))

    @cached_property
    def _sorted(self) -> list[_Row]:
        return sorted(self._rows, key=lambda r: (-abs(r.count - r.base), r.function))

    @property
    def functions(self) -> tuple[str, ...]:
        """The whole text of each row of ``frame``, as `transform` and `filter` are given it."""
        return tuple(row.function for row in self._sorted)

    @property
    def counts(self) -> FunctionCounts:
        """torch's ``FunctionCounts`` of the deltas: totals over ``number`` calls."""
        from torch.utils.benchmark.utils.valgrind_wrapper.timer_interface import FunctionCounts

        deltas: dict[str, int] = defaultdict(int)
        for row in self._rows:
            deltas[row.function] += row.count - row.base
        return FunctionCounts._from_dict(dict(deltas), self.inclusive)

    @property
    def total(self) -> Total:
        """Sums over the rows that are here now. ``noise`` is a bound: the rows need not move together."""
        noise = sum(row.noise for row in self._rows) if self.layouts else float("nan")
        return Total.of(sum(row.base for row in self._rows), sum(row.count for row in self._rows), noise, self.number)

    # ---- the algebra ------------------------------------------------------------------------------------------

    def transform(self, fn: Callable[[str], str]) -> CountsDiff:
        """Rename functions; those that get one name are added up. ``fn`` is given ``file:function [library]``."""
        return self._renamed(lambda row: fn(row.function), f"transform {_words(fn)}".strip())

    def filter(self, fn: Callable[[str], bool]) -> CountsDiff:
        """Keep the functions for which ``fn`` is true; it is given ``file:function [library]``."""
        kept = tuple(row for row in self._rows if fn(row.function))
        return replace(self, _rows=kept, applied=(*self.applied, f"filter {_words(fn)}".strip()))

    def denoise(self) -> CountsDiff:
        """Without the allocator and the lookup of names, which move with the layout of the heap."""
        kept = tuple(row for row in self._rows if row.group != "allocator and lookup")
        return replace(self, _rows=kept, applied=(*self.applied, "denoise"))

    def standardize(self) -> CountsDiff:
        """Without the library and the paths of a build, as ``CallgrindStats.as_standardized`` of torch."""
        return self._renamed(lambda row: standardized(row.function), "standardize")

    def group_by(self, by: GroupBy) -> CountsDiff:
        """Add up what shares a function's name (whatever its file), a file, or a library; "place" changes nothing.

        Raises:
            InputError: ``by`` is none of these.
        """
        if by not in BY:
            raise InputError(f"counts are grouped by {', '.join(BY)}, not by {by!r}")
        return self if by == "place" else self._renamed(lambda row: _share(row, by), f"by {by}")

    def _renamed(self, fn: Callable[[_Row], str], what: str) -> CountsDiff:
        merged: dict[str, list[_Row]] = defaultdict(list)
        for row in self._rows:
            merged[fn(row)].append(row)
        rows = tuple(_one(name, parts) for name, parts in merged.items())
        return replace(self, _rows=rows, applied=(*self.applied, what))

    # ---- who called whom --------------------------------------------------------------------------------------

    @property
    def has_calls(self) -> bool:
        """Whether `callers` and `callees` are known."""
        return self.sides is not None and all(side.calls is not None for side in self.sides)

    def callers(self, function: str) -> pd.DataFrame:
        """Who called a function; see `callees`."""
        return self._beside(function, "callers")

    def callees(self, function: str) -> pd.DataFrame:
        """What a function called: ``function file library baseline_calls calls baseline_count count delta``, the
        largest change first: calls in either statement, and the inclusive instructions of these calls, per call of it.

        Args:
            function: its name as in ``frame``, or ``file:function [library]`` where several have that name.

        Raises:
            InputError: there is no such function, or who called whom is not known (stats of torch alone).
        """
        return self._beside(function, "callees")

    def _beside(self, function: str, side: Side) -> pd.DataFrame:
        if self.sides is None or not self.has_calls:
            raise InputError("these counts have no record of callers: count with %%timer --callgrind")
        found = [row for row in self._rows if row.function == function] or [
            row for row in self._rows if parts_of(row.function)[1] == function
        ]
        if not found:
            raise InputError(f"no function is called {function!r}: see .frame for the names")
        base, other = (one.calls for one in self.sides)
        assert base is not None
        assert other is not None
        of = {part for row in found for part in row.parts}
        return callers_or_callees(base, other, of, side, lambda name: self._shown.get(name, name))

    @cached_property
    def _shown(self) -> dict[str, str]:
        return {part: row.function for row in self._rows for part in row.parts}

    # ---- shown ------------------------------------------------------------------------------------------------

    def flamegraph(self) -> Any:
        """A flame graph of the instructions of the alternative (``Comparison.counts.flamegraph`` has any).

        Raises:
            InputError: who called whom is not known of it.
        """
        return result_base.show(self, "flamegraph")


def _name(env: str | None, description: str | None) -> str:
    return ", ".join(part for part in (description, env) if part)


def _words(fn: Callable[..., object]) -> str:
    name = getattr(fn, "__name__", "")
    return "" if name == "<lambda>" else str(name)


def _share(row: _Row, by: GroupBy) -> str:
    file, name, _ = parts_of(row.function)
    if by == "function":
        return name
    library = row.library or "(no library)"
    return library if by == "library" or file in ("", "???") else file


def _one(name: str, parts: list[_Row]) -> _Row:
    groups, libraries = {part.group for part in parts}, {part.library for part in parts}
    return _Row(
        name,
        sum(part.base for part in parts),
        sum(part.count for part in parts),
        sum(part.noise for part in parts),  # a bound: they need not move together
        groups.pop() if len(groups) == 1 else "other",
        libraries.pop() if len(libraries) == 1 else "",
        tuple(name for part in parts for name in part.parts),
    )


def difference(
    base: Counted, other: Counted, names: tuple[str, str], *, inclusive: bool = False, form: str = "function"
) -> CountsDiff:
    """What ``other`` executes more than ``base``, function by function.

    Raises:
        InputError: they were counted with different numbers of calls: counts per call depend on it.
    """
    one, two = base.stats, other.stats
    if one.number_per_run != two.number_per_run:
        raise InputError(
            f"{names[0]} was counted over {one.number_per_run} calls and {names[1]} over {two.number_per_run}, and"
            " counts per call depend on that: count both with the same number"
        )
    a, b = taken_out(one, inclusive), taken_out(two, inclusive)
    pairs = list(zip(base.shifted, other.shifted, strict=False))
    moved = [(taken_out(x, inclusive), taken_out(y, inclusive)) for x, y in pairs]
    rows = []
    for function in sorted(a.keys() | b.keys()):
        delta = b.get(function, 0) - a.get(function, 0)
        noise = max((abs(y.get(function, 0) - x.get(function, 0) - delta) for x, y in moved), default=0)
        library = parts_of(function)[2]
        counts = a.get(function, 0), b.get(function, 0), noise
        rows.append(_Row(function, *counts, group_of(function), library, (function,)))
    whole = None
    if not inclusive:
        delta = sum(b.values()) - sum(a.values())
        shift = max((abs(sum(y.values()) - sum(x.values()) - delta) for x, y in moved), default=0)
        n = one.number_per_run
        whole = Total.of(sum(a.values()), sum(b.values()), shift if moved else float("nan"), n)
    return CountsDiff(
        names=names,
        number=one.number_per_run,
        inclusive=inclusive,
        layouts=len(moved),
        num_threads=two.task_spec.num_threads,
        form=form,
        debug_symbols=one.built_with_debug_symbols and two.built_with_debug_symbols,
        whole=whole,
        sides=(base, other),
        _rows=tuple(rows),
    )
