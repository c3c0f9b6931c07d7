"""`Counts`: instructions per function, who called whom, and the tree for a flame graph."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pandas as pd

from torchbench_magic import result_base
from torchbench_magic.errors import InputError

if TYPE_CHECKING:
    from torch.utils.benchmark.utils.valgrind_wrapper.timer_interface import CallgrindStats, FunctionCounts

# ---- functions -------------------------------------------------------------------------------------------------------
# What a function of a count is: its file and library, whose it is, and its name without the paths of a build.

Group = Literal["torch", "Python", "allocator and lookup", "other"]

GROUPS: tuple[Group, ...] = ("torch", "Python", "other", "allocator and lookup")

_ALLOCATOR = re.compile(
    r"^_?(int_)?(malloc|free|calloc|realloc|memalign|posix_memalign|aligned_alloc)(_consolidate)?('\d+)?$"
    r"|^(malloc_consolidate|unlink_chunk.*|_mid_memalign.*|sysmalloc.*|systrim.*|tcache_.*|arena_get.*|checked_request.*)$"
    r"|^operator (new|delete)\b|^je_|^_?Py(Object|Mem)_(Raw)?(Malloc|Free|Calloc|Realloc)$|^_PyMem_|^alloc_perturb$"
    r"|^pymalloc_|^address_in_range|^(new|insert_to_usedpool|allocate_from_new_pool)"
    r"|^(__)?memcmp|^lookdict|^unicodekeys_lookup|^dictkeys_|^_Py_dict_lookup|^_PyDict_(GetItem|LookupIndex|Lookup)"
    r"|^PyDict_GetItem|^_PyType_Lookup|^find_name_in_mro|^unicode_(eq|hash)|^_?PyUnicode_(Eq|.*Hash)"
)
_TORCH = re.compile(r"/(libtorch\w*|libc10\w*|libshm|libgomp\S*|libmkl\S*|libiomp5?)\.so|/torch/|\b(aten|c10)/|^torch/")
_PYTHON = re.compile(r"/(lib)?python[\d.]*(\.so[\d.]*)?$|/(Python|Objects|Modules|Parser)/[^:]*:|/lib-dynload/")

_STANDARD = tuple(
    (re.compile(pattern), to)
    for pattern, to in (
        (r"^.+build/\.\./", "build/../"),
        (r"^.+/build/aten/", "build/aten/"),
        (r"^.+/Python/", "Python/"),
        (r"^.+/Objects/", "Objects/"),
        (r"\s\[.+\]$", ""),
    )
)


def standardized(function: str) -> str:
    for pattern, to in _STANDARD:
        function = pattern.sub(to, function)
    return function


def parts_of(function: str) -> tuple[str, str, str]:
    """``file:function [library]`` taken apart; a part that is not there is empty."""
    text, bracket, library = function.rpartition(" [")
    if not bracket or not library.endswith("]"):
        text, library = function, " "
    file = re.match(r"([^:]*):(?!:)", text)  # to the first colon that is not one of `::`
    return ("", text, library[:-1]) if file is None else (file[1], text[file.end() :], library[:-1])


def group_of(function: str) -> Group:
    _, name, library = parts_of(function)
    if _ALLOCATOR.match(name):
        return "allocator and lookup"
    if _TORCH.search(f"{library}") or _TORCH.search(function.rpartition(" [")[0].partition("::")[0]):
        return "torch"
    if _PYTHON.search(library) or _PYTHON.search(function.partition(" [")[0]):
        return "Python"
    return "other"


# ---- call_graph ------------------------------------------------------------------------------------------------------
# Who called whom while a statement was counted: the arcs of callgrind's file, and what two of them differ by.
#
# An arc knows how often one function called another and how many instructions these calls took, those of everything
# further down included. callgrind keeps no whole stacks: by which way a caller itself was reached is not in its file.

Side = Literal["callers", "callees"]

_FRAME = ("caller", "callee", "calls", "inclusive", "file", "library")
_NEIGHBOURS = ("function", "file", "library", "baseline_calls", "calls", "baseline_count", "count", "delta")


class CallEdge(NamedTuple):
    """All calls of one function by another; both are ``file:function [library]``, costs are totals over a count.

    ``calls`` is 0 where it is not known.
    """

    caller: str
    callee: str
    calls: int
    inclusive: int


@dataclass(frozen=True, eq=False)
class CallGraph:
    """The calls of one count.

    Attributes:
        statement, empty: of the statement's dump and of the empty loop's.
        number: calls of the statement that were counted.
    """

    statement: tuple[CallEdge, ...]
    empty: tuple[CallEdge, ...]
    number: int

    @cached_property
    def net(self) -> dict[tuple[str, str], tuple[int, int]]:
        """(caller, callee) -> (calls, instructions) over all calls of the statement, the empty loop's taken out."""
        found: dict[tuple[str, str], tuple[int, int]] = {}
        for sign, calls in ((1, self.statement), (-1, self.empty)):
            for one in calls:
                often, cost = found.get(one[:2], (0, 0))
                found[one[:2]] = often + sign * one.calls, cost + sign * one.inclusive
        return {arc: known for arc, known in found.items() if known != (0, 0)}

    @cached_property
    def beside(self) -> dict[Side, dict[str, list[tuple[str, int, int]]]]:
        """Function -> (neighbour, calls, instructions) of its callers, and of its callees."""
        found: dict[Side, dict[str, list[tuple[str, int, int]]]] = {"callers": {}, "callees": {}}
        for (caller, callee), (calls, cost) in self.net.items():
            found["callers"].setdefault(callee, []).append((caller, calls, cost))
            found["callees"].setdefault(caller, []).append((callee, calls, cost))
        return found

    def arc_names(self, functions: Iterable[str]) -> set[str]:
        """The names under which functions call and are called.

        Lines that were inlined into a function are counted under its name and their own file; its calls are not. So a
        text that has no arcs is looked for by function and library.
        """
        found = set()
        for text in functions:
            if text in self.beside["callers"] or text in self.beside["callees"]:
                found.add(text)
            else:
                found |= self._homes.get(parts_of(text)[1:], set())
        return found

    @cached_property
    def _homes(self) -> dict[tuple[str, ...], set[str]]:
        found: dict[tuple[str, ...], set[str]] = defaultdict(set)
        for name in (name for arc in self.net for name in arc):
            found[parts_of(name)[1:]].add(name)
        return dict(found)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row an arc, the costliest first: ``caller callee calls inclusive file library``.

        Calls and instructions per call of the statement, the empty loop's taken out; ``file`` and ``library`` are
        the callee's. ``calls`` is 0 where it is not known: calls that were still running when the count ended, C++.
        """
        rows = []
        for (caller, callee), (calls, cost) in sorted(self.net.items(), key=lambda item: (-item[1][1], item[0])):
            file, name, library = parts_of(callee)
            rows.append((parts_of(caller)[1], name, calls / self.number, cost / self.number, file, library))
        return pd.DataFrame(rows, columns=list(_FRAME))


def callers_or_callees(
    base: CallGraph,
    other: CallGraph,
    of: Collection[str],
    side: Side,
    shown: Callable[[str], str] = lambda name: name,
) -> pd.DataFrame:
    """Callers or callees of some functions in two counts, largest change first.

    Args:
        base, other: of the baseline, and of the other.
        of: full names of the functions.
        side: which neighbours.
        shown: the name that a neighbour gets; those that get one name are added up.

    Returns:
        ``function file library baseline_calls calls baseline_count count delta``: how often, and the inclusive
        instructions of these calls, per call of the statement.
    """
    found: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0, 0.0])
    homes: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for at, graph in enumerate((base, other)):
        for neighbour, calls, cost in _arcs(graph, of, side):
            row = shown(neighbour)
            found[row][at] += calls
            found[row][2 + at] += cost
            file, _, library = parts_of(neighbour)
            homes[row].add((file, library))
    rows = []
    for name, (calls_before, calls, before, count) in found.items():
        places = homes[name]
        file, library = places.pop() if len(places) == 1 else ("", "")
        rows.append((parts_of(name)[1], file, library, calls_before, calls, before, count, count - before))
    rows.sort(key=lambda row: (-abs(row[7]), -row[6], row[0]))
    return pd.DataFrame(rows, columns=list(_NEIGHBOURS))


def _arcs(graph: CallGraph, of: Collection[str], side: Side) -> Iterator[tuple[str, float, float]]:
    for mine in graph.arc_names(of):
        for neighbour, calls, cost in graph.beside[side].get(mine, ()):
            yield neighbour, calls / graph.number, cost / graph.number


# ---- instruction_tree ------------------------------------------------------------------------------------------------
# callgrind's file has arcs, not stacks. The tree is what gprof2dot draws from the same file, unfolded: what a function
# costs is shared among its callers in proportion to what each of them paid for calling it, on every way alike. That is
# an assumption where a function does other work for other callers, and exact where it has one caller. Functions that
# call each other in a circle (Python's interpreter and the calls it makes) are one frame, as in gprof: inside a circle
# the inclusive costs of arcs count the same instructions many times.

_LEAST = 0.0005  # of the whole: what costs less is not a frame of its own
_DEEPEST = 200

Arcs = Mapping[tuple[str, str], tuple[int, int]]


@dataclass(frozen=True)
class Frame:
    """One box: instructions per call of the statement.

    Attributes:
        name: the function; of a circle, the costliest of its functions and how many more there are.
        file, library, group: whose it is.
        total: with everything below it.
        own: without.
        calls: how often its parent called it, per call of the statement; 0 where that is not known.
        children: the costliest first.
    """

    name: str
    file: str
    library: str
    group: str
    total: float
    own: float
    calls: float = 0.0
    children: tuple[Frame, ...] = ()


def tree_of(own: Mapping[str, int], graph: CallGraph, name: str) -> Frame:
    """The tree of one count.

    Args:
        own: ``file:function [library]`` -> its own instructions over all calls, the empty loop's taken out.
        graph: its arcs.
        name: of the root, whose total is the sum of ``own``.
    """
    folded: dict[str, int] = defaultdict(int)
    for function, cost in own.items():
        home = graph.arc_names([function])
        folded[home.pop() if len(home) == 1 else function] += cost
    return _Unfolding(folded, graph.net, graph.number).root(name)


class _Unfolding:
    def __init__(self, own: Mapping[str, int], arcs: Arcs, number: int) -> None:
        self._number = number
        self._whole = max(sum(own.values()), 0)
        names = dict.fromkeys([*own, *(name for arc in arcs for name in arc)])
        circles = _circles(names, arcs)
        self._members = {members[0]: members for members in circles}
        home = {name: members[0] for members in circles for name in members}
        self._own: dict[str, int] = defaultdict(int)
        for function, cost in own.items():
            self._own[home[function]] += cost
        self._own_of = own
        self._down: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
        self._paid: dict[str, int] = defaultdict(int)
        for (caller, callee), (calls, cost) in arcs.items():
            one, two = home[caller], home[callee]
            if one == two or cost <= 0:
                continue
            before = self._down[one].get(two, (0, 0))
            self._down[one][two] = before[0] + calls, before[1] + cost
            self._paid[two] += cost

    def _spent(self, function: str) -> int:
        """Its own instructions and those of its calls."""
        return max(self._own[function], 0) + sum(cost for _, cost in self._down[function].values())

    def root(self, name: str) -> Frame:
        """What nobody who was counted paid for stands at the top; frames around the whole count are left out."""
        spent = {function: self._spent(function) for function in self._members}
        tops = {f: cost - self._paid[f] for f, cost in spent.items() if cost > self._paid[f]}
        scale = min(1.0, self._whole / sum(tops.values())) if tops else 1.0
        children = [self._frame(f, cost * scale, 0, 0) for f, cost in tops.items() if self._is_seen(cost * scale)]
        total = self._whole / self._number
        while len(children) == 1 and len(children[0].children) == 1 and children[0].own < 0.5:
            children = list(children[0].children)  # a frame around the whole count: the way to the code, none of it
        own = total - sum(child.total for child in children)
        return Frame(name, "", "", "other", total, max(own, 0.0), children=_sorted(children))

    def _is_seen(self, cost: float) -> bool:
        return cost >= _LEAST * self._whole

    def _frame(self, function: str, weight: float, calls: float, depth: int) -> Frame:
        """``weight`` instructions of a function over all calls, shared out as all of its instructions are."""
        spent = self._spent(function)
        share = weight / spent if spent else 0.0
        children = []
        if depth < _DEEPEST:
            for callee, (often, cost) in self._down[function].items():
                if self._is_seen(cost * share):
                    children.append(self._frame(callee, cost * share, often * share, depth + 1))
        members = self._members[function]
        if len(members) > 1:
            mine = ((m, max(self._own_of.get(m, 0), 0) * share) for m in members)
            children += [self._named((m,), cost, cost, 0.0, ()) for m, cost in mine if self._is_seen(cost)]
        below = sum(child.total for child in children) * self._number
        return self._named(members, weight, max(weight - below, 0.0), calls, _sorted(children))

    def _named(
        self, members: tuple[str, ...], weight: float, own: float, calls: float, below: tuple[Frame, ...]
    ) -> Frame:
        first = max(members, key=lambda member: self._own_of.get(member, 0))
        file, name, library = parts_of(first)
        if len(members) > 1:
            name = f"{name} and {len(members) - 1} more that call each other"
        n = self._number
        return Frame(name, file, library, group_of(first), weight / n, own / n, calls / n, below)


def _sorted(frames: list[Frame]) -> tuple[Frame, ...]:
    return tuple(sorted(frames, key=lambda frame: (-frame.total, frame.name)))


def _circles(names: Mapping[str, None], arcs: Arcs) -> list[tuple[str, ...]]:
    """Functions that call each other, in the order of the names; one that is in no circle is by itself."""
    import networkx  # torch needs it too

    graph = networkx.DiGraph(list(arcs))
    graph.add_nodes_from(names)
    at = {name: number for number, name in enumerate(names)}
    return [tuple(sorted(members, key=at.__getitem__)) for members in networkx.strongly_connected_components(graph)]


# ---- counts ----------------------------------------------------------------------------------------------------------

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
        """Who called whom: ``.frame``, one row for each two functions.

        Raises:
            InputError: nothing is called so, or its calls are not known (it was not counted here).
        """
        calls = self._one(key).calls
        if calls is None:
            raise InputError("this count has no record of callers: count it with %%timer --callgrind")
        return calls

    def tree(self, key: CountKey | str | None = None) -> Frame:
        """The instructions of one statement as a tree, its empty loop taken out; see `tree_of`.

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
        return result_base.show(self, "flamegraph", key=key)

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
