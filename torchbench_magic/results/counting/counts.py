"""Instruction counts: torch's own stats of each statement, and who called whom."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torchbench_magic.errors import InputError

from .. import _gateway
from .call_graph import CallGraph
from .instruction_tree import Frame, tree_of

if TYPE_CHECKING:
    from torch.utils.benchmark.utils.valgrind_wrapper.timer_interface import CallgrindStats, FunctionCounts

__all__ = ["CountKey", "Counted", "Counts", "stats_of", "taken_out"]

CountKey = tuple[str | None, str | None, int] | tuple[str | None, str | None, int, str]
"""(description, sub_label, thread count it was counted at); and of results side by side, the result's name."""


@dataclass(frozen=True)
class Counted:
    """One statement's counts.

    Attributes:
        stats: torch's type: totals over ``number_per_run`` calls, the empty loop apart in its baseline stats.
        shifted: the same statement counted in heaps that were shifted a little: what moves is not the code's doing.
        calls: who called whom; None where only torch's stats are known.
    """

    stats: CallgrindStats
    shifted: tuple[CallgrindStats, ...] = ()
    calls: CallGraph | None = None

    @property
    def instructions(self) -> float:
        """Of one call, the empty loop taken out."""
        stats = self.stats
        return (stats.stmt_exclusive_stats.sum() - stats.baseline_exclusive_stats.sum()) / stats.number_per_run


class Counts(Mapping[CountKey, "CallgrindStats | None"]):
    """(description, sub_label, num_threads) -> CallgrindStats; a description alone will do where it is unique.

    Args:
        counted: one for each statement that was counted.
        form: "function", the loop that is timed, or "module", as torch counts.
        elapsed: seconds that it took.
    """

    def __init__(
        self, counted: Mapping[CountKey, Counted] | None = None, form: str = "function", elapsed: float = 0.0
    ) -> None:
        self.counted = dict(counted or {})
        self.form, self.elapsed = form, elapsed

    def __getitem__(self, key: CountKey | str) -> CallgrindStats:
        return self.counted[self.key_of(key)].stats

    def __iter__(self) -> Iterator[CountKey]:
        return iter(self.counted)

    def __len__(self) -> int:
        return len(self.counted)

    def __repr__(self) -> str:
        shown = (f"{key!r}: {one.instructions:,.0f} a call" for key, one in self.counted.items())
        return f"Counts({{{', '.join(shown)}}})"

    def graph(self, key: CountKey | str) -> CallGraph:
        """Who called whom: ``.frame``, ``.callers(function)``, ``.callees(function)``.

        Raises:
            InputError: nothing is called so, or its calls are not known (it was not counted here).
        """
        calls = self._one(key).calls
        if calls is None:
            raise InputError("this count has no record of callers: count it with %%timer --callgrind")
        return calls

    def tree(self, key: CountKey | str | None = None) -> Frame:
        """The instructions of one statement as a tree, its empty loop taken out; see `instruction_tree`.

        Args:
            key: a description or a whole key; None where only one statement was counted.

        Raises:
            InputError: see `graph`; or several were counted and none is named.
        """
        if key is None:
            if len(self) != 1:
                raise InputError(
                    "nothing was counted: time the cell with --callgrind"
                    if not len(self)
                    else f"several statements were counted: name one of {', '.join(map(repr, self))}"
                )
            (key,) = self
        one = self._one(key)
        return tree_of(taken_out(one.stats), self.graph(key), self.key_of(key)[0] or "statement")

    def flamegraph(self, key: CountKey | str | None = None) -> Any:
        """A flame graph of one statement's instructions; arguments and errors as of `tree`."""
        return _gateway.show(self, "flamegraph", key=key)

    def _one(self, key: CountKey | str) -> Counted:
        try:
            return self.counted[self.key_of(key)]
        except KeyError as error:
            what = error.args[0]
            raise InputError(what if isinstance(what, str) else f"{what!r} was not counted") from None

    def key_of(self, key: CountKey | str) -> CountKey:
        """The whole key.

        Raises:
            KeyError: nothing, or more than one thing, was counted by that name.
        """
        if not isinstance(key, str):
            return key
        found = [known for known in self.counted if known[0] == key]
        if len(found) != 1:
            why = "was not counted" if not found else f"was counted {len(found)} times: give one of {found}"
            raise KeyError(f"{key!r} {why}")
        return found[0]

    def at(
        self, description: str | None, sub_label: str | None, num_threads: int, result: str | None = None
    ) -> CountKey | None:
        """The key of what was counted for a row: at its own thread count, else at the one thread that is the default.

        ``result`` is the name of the row's result, where results stand side by side.
        """
        for threads in (num_threads, 1):
            key: CountKey = (description, sub_label, threads)
            if result is not None:
                key = (description, sub_label, threads, result)
            if key in self.counted:
                return key
        return None

    def of_result(self, name: str) -> Counts:
        """The same under keys that name the result, so that those of several can stand side by side."""
        named: dict[CountKey, Counted] = {(*key[:3], name): one for key, one in self.counted.items()}
        return Counts(named, self.form, self.elapsed)

    def only(self, keys: Iterable[CountKey | None]) -> Counts:
        """Those of some keys."""
        wanted = set(keys)
        return Counts({key: one for key, one in self.counted.items() if key in wanted}, self.form, self.elapsed)

    @classmethod
    def joined(cls, parts: Iterable[Counts]) -> Counts:
        """Those of several runs as one."""
        whole, form, elapsed = dict[CountKey, Counted](), "function", 0.0
        for part in parts:
            whole |= part.counted
            elapsed += part.elapsed
            form = part.form if part.counted else form
        return cls(whole, form, elapsed)


def stats_of(
    statement: Mapping[str, Mapping[str, int]],
    empty: Mapping[str, Mapping[str, int]],
    number: int,
    *,
    debug_symbols: bool | None = None,
    **spec: Any,
) -> CallgrindStats:
    """A ``CallgrindStats`` of what callgrind counted.

    Args:
        statement, empty: ``{"inclusive": ..., "exclusive": ...}``, each ``file:function [library]`` -> instructions.
        number: calls.
        debug_symbols: whether torch was built with them; None: as this one was.
        spec: fields of torch's ``TaskSpec``.
    """
    import torch
    from torch.utils.benchmark.utils.common import TaskSpec
    from torch.utils.benchmark.utils.valgrind_wrapper.timer_interface import CallgrindStats, FunctionCounts

    if debug_symbols is None:
        build = re.search("BUILD_TYPE=(.+),", torch.__config__.show())
        debug_symbols = build is not None and build[1].split(",")[0] == "RelWithDebInfo"  # as torch has it

    def counts(costs: Mapping[str, int], inclusive: bool) -> FunctionCounts:
        return FunctionCounts._from_dict(dict(costs), inclusive)

    return CallgrindStats(
        task_spec=TaskSpec(**spec),
        number_per_run=number,
        built_with_debug_symbols=debug_symbols,
        baseline_inclusive_stats=counts(empty["inclusive"], True),
        baseline_exclusive_stats=counts(empty["exclusive"], False),
        stmt_inclusive_stats=counts(statement["inclusive"], True),
        stmt_exclusive_stats=counts(statement["exclusive"], False),
        stmt_callgrind_out=None,
    )


def taken_out(stats: CallgrindStats, inclusive: bool = False) -> dict[str, int]:
    """Function -> instructions over all calls, those of the empty loop taken out."""
    loop = stats.baseline_inclusive_stats if inclusive else stats.baseline_exclusive_stats
    counts: dict[str, int] = defaultdict(int)
    for count, function in stats.stats(inclusive=inclusive):
        counts[function] += count
    for count, function in loop:
        counts[function] -= count
    return {function: count for function, count in counts.items() if count}
