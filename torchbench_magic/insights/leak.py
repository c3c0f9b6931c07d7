"""``leak``: bytes that grow with each step, and those that are kept on purpose."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from torchbench_magic import units
from torchbench_magic.profiling.memory.allocations import peak_of
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.statements import StatementPlace, parsed_text, place_in
from torchbench_magic.profiling.steps import highest_cycle
from torchbench_magic.profiling.trace import Trace
from torchbench_magic.result_base import CodeLine, Cure, Insight

from .evidence import line_named, places_text

# ``leak``: bytes that grow with each step, and bytes that only a notebook's own books keep; with who holds them.

LEAST_BYTES = 1 << 20
"""A loss for each of 100,000 steps is less: nobody runs out of memory by it."""
LEAST_OF_ALL = 0.05
"""Of all bytes that tensors took at the peak, as the least share of the time is for other kinds."""
_CONTAINERS = frozenset({"list", "dict", "deque", "set"})
_EMPTIED = _CONTAINERS | {"closure", "default"}
_BY_ITSELF = ("output", "history", "traceback")


@dataclass
class _Held:
    """What one holder keeps of what grows."""

    says: str = ""
    kind: str = ""
    name: str = ""
    through_graph: bool = False
    limit: int | None = None
    nbytes: int = 0
    blocks: int = 0
    runs: int = 0
    lines: dict[CodeLine, int] = field(default_factory=lambda: defaultdict(int))


def leak(profile: Profile) -> list[Insight]:
    """One for each holder of bytes that grow through a loop, and for each output, or stored traceback, that alone keeps
    tensors.

    Growth is told by the blocks of a line that are alive at moments of its loop, or of its own allocations
    where the loop is that line (`growing_lines`), the holder by the
    search after the run (``Profile.holders``). Silent: below `LEAST_BYTES` and below `LEAST_OF_ALL` of the peak; where
    growth stops (a full cache, the optimizer's state of the first step, a buffer at its limit); for a ``deque`` with a
    ``maxlen`` and for a container that the code empties too (``pop``, ``clear``, ``del``); for one tensor that grows
    (``y = torch.cat([y, x])``); where nothing of a graph is kept, for results that the same cell collects in a
    container that it makes, or reads after the loop. That an output or traceback alone holds something is only said
    where the search ended by itself.
    """
    shown = highest_cycle(profile.cycles) if profile.cycles else profile
    if shown.memory is None or shown.memory.empty:
        return []
    found = [*_growing(shown), *_kept_by_itself(shown)]
    return sorted(found, key=lambda each: -each.nbytes)


def _least(profile: Profile, device: str) -> float:
    """Bytes from which on something is said."""
    assert profile.memory is not None
    before = profile.bytes_before if device == "cpu" and profile.bytes_before == profile.bytes_before else 0.0
    return max(LEAST_BYTES, LEAST_OF_ALL * (peak_of(profile.memory, device).bytes + before))


# ---- what grows -------------------------------------------------------------------------------------------------


def _growing(profile: Profile) -> Iterator[Insight]:
    by_holder: dict[tuple[str, str], _Held] = {}
    of_block = _holder_of_block(profile)
    for line in growing_lines(profile):
        chains = _chains(of_block[block] for block in line.blocks if block in of_block)
        for block, nbytes in zip(line.blocks, line.bytes_of, strict=True):
            row = of_block.get(block)
            if row is not None and row["kind"] in ("variable", "attribute"):
                row = chains.get(row["name"], row)
            says = row["holder"] if row is not None else ""
            held = by_holder.setdefault((line.device, says), _Held(says))
            if row is not None:
                held.kind, held.name = row["kind"], row["name"]
                held.through_graph = held.through_graph or bool(row["through_graph"])
                held.limit = None if pd.isna(row["limit"]) else int(row["limit"])
            held.nbytes += nbytes
            held.blocks += 1
            held.runs = max(held.runs, line.runs)
            held.lines[line.where] += nbytes
    for (device, _), held in by_holder.items():
        if held.nbytes >= _least(profile, device) and not _is_on_purpose(profile, held):
            yield _of_growth(profile, held)


def _holder_of_block(profile: Profile) -> dict[int, dict[Any, Any]]:
    holders = profile.holders
    if holders is None:
        return {}
    rows = holders[holders["block"].notna()]
    return {int(row["block"]): row for row in rows.to_dict("records")}


def _chains(rows: Iterable[dict[Any, Any]]) -> dict[str, dict[Any, Any]]:
    """By the variable that a chain begins with, a block of it: what the variable and its first links hold belongs to
    it."""
    return {row["name"]: row for row in rows if row["kind"] == "chain"}


def _is_on_purpose(profile: Profile, held: _Held) -> bool:
    if held.limit is not None and held.kind != "cache":
        return True
    if not held.runs and not held.through_graph and held.kind not in _EMPTIED:
        return True  # a statement with a loop in it may make what is kept: the layers of a model
    if held.blocks < FEWEST_RUNS and not held.through_graph:
        return True  # one tensor that the code makes longer
    if held.kind not in _EMPTIED:
        return False
    place = held.says.partition("`")[2].partition("`")[0]
    trees = [tree for source in profile.sources.values() if (tree := parsed_text(source.text)) is not None]
    if any(is_emptied(tree, place) for tree in trees):
        return True
    own = profile.sources.get(profile.source_id or "")
    tree = parsed_text(own.text) if own is not None else None
    if tree is None or held.through_graph or held.kind not in _CONTAINERS:
        return False
    return is_made_in(tree, place) or is_read_after_its_loop(tree, place)


def _of_growth(profile: Profile, held: _Held) -> Insight:
    places = tuple(sorted(held.lines, key=lambda line: -held.lines[line]))
    whole, keeps = units.bytes_text(held.nbytes), f"keep{'s' if len(places) == 1 else ''}"
    each = f"{units.bytes_text(held.nbytes / held.runs)} more with each of {held.runs} runs" if held.runs else ""
    text = f"{places_text(places)} {keeps} {each or 'more with each turn of the loop in it'}"
    if held.says:
        text += f": {held.says} holds {whole} at the end"
        if held.through_graph and held.kind != "graph":
            text += ", with the autograd graph of each tensor"
        text += "." if held.limit is None else f", of at most {units.count(held.limit)} results."
    else:
        none = "no variable, output or traceback holds them (a library, a thread or a reference cycle may)"
        why = "the search ended before it found what holds them" if _is_cut(profile) else none
        text += f", {whole} at the end; {why}."
    evidence: dict[str, object] = {
        "bytes_kept": held.nbytes,
        **({"bytes_per_run": held.nbytes / held.runs, "runs": held.runs} if held.runs else {}),
        "blocks": held.blocks,
        "held_by": held.says.replace("`", "") or "not found",
        "kind_of_holder": held.kind or "not found",
    }
    return Insight("leak", 0.0, 0.0, text, evidence, places, _cures(held), held.nbytes)


def _is_cut(profile: Profile) -> bool:
    return profile.holders is None or any(doubt.kind == "holders-in-part" for doubt in profile.warnings)


def _cures(held: _Held) -> tuple[Cure, ...]:
    numbers = Cure("Accumulate numbers, not tensors with their graph: `.item()`, or `.detach()` to stay on the device.")
    if held.kind == "graph":
        return (Cure(numbers.text, f"{held.name} = {held.name}.detach()" if held.name else None),)
    ends = {
        "cache": Cure("Give the cache a limit (`lru_cache(maxsize=8)`), or empty it: `cache_clear()`."),
        "hook": Cure(
            "Remove the hook when it is done: `handle.remove()`, with the handle that registering it returned."
        ),
        "closure": Cure("It lives as long as the function: empty it after each use, or pass it in."),
        "default": Cure(
            "A default argument is created once and shared by all calls: use `None`, and create it inside."
        ),
        "chain": Cure(
            "Cut the chain where what came before is no longer needed.",
            f"{place} = None" if (place := held.says.partition("`")[2].partition("`")[0]) else None,
        ),
    }
    cures = [numbers] if held.through_graph else []
    if held.kind in ends:
        return (*cures, ends[held.kind])
    return (
        *cures,
        Cure("Keep only what you need later: a number, a mean, or the last few in `collections.deque(maxlen=...)`."),
    )


# ---- what a notebook keeps by itself ------------------------------------------------------------------------------


def _kept_by_itself(profile: Profile) -> Iterator[Insight]:
    holders = profile.holders
    if holders is None or _is_cut(profile):
        return
    hidden = holders[holders["kind"].isin(_BY_ITSELF)]
    for (device, says, kind), rows in hidden.groupby(["device", "holder", "kind"], sort=False):
        nbytes = int(rows["bytes"].sum())
        if nbytes < _least(profile, str(device)):
            continue
        text = f"Only {says} keeps {units.bytes_text(nbytes)} after the cell."
        evidence: dict[str, object] = {
            "bytes_kept": nbytes,
            "blocks": len(rows),
            "of_this_cell": int(rows["block"].notna().sum()),
            "held_by": str(says).replace("`", ""),
            "kind_of_holder": str(kind),
        }
        yield Insight("leak", 0.0, 0.0, text, evidence, (), (_CURE_BY_ITSELF[str(kind)],), nbytes)


_CURE_BY_ITSELF = {
    "output": Cure(
        "End such a cell with `;` or assign its value, and drop the outputs that are kept:", "%reset -f out"
    ),
    "history": Cure("Drop what IPython keeps of earlier outputs:", "%reset -f out"),
    "traceback": Cure("Replace it by a small error: run this in a separate cell.", "1 / 0"),
}


# ---- growing_lines ---------------------------------------------------------------------------------------------------

FEWEST_RUNS = 5
"""Of a line: with fewer steps a few blocks that stay are no growth yet."""
_MANY_RUNS = 16
_STEADY = 0.4
"""Of the even growth: the least that each stretch of the loop must add. A cache that is full, state that the first
step makes, and a buffer that has reached its limit add nothing in the last stretches; blocks of equal size, one a run,
add the whole."""

_Key = tuple[str, int, int]


@dataclass(frozen=True)
class GrowingLine:
    """A line whose blocks add up.

    Attributes:
        where: the line that allocates them.
        runs: of the line that repeats it; 0 of a line that is a loop by itself, whose turns nobody counts.
        blocks: numbers of those that are alive at the end.
        bytes_of: bytes of each of them.
    """

    where: CodeLine
    device: str
    runs: int
    blocks: tuple[int, ...]
    bytes_of: tuple[int, ...]


def growing_lines(profile: Profile) -> Iterator[GrowingLine]:
    """Lines whose bytes rise through all of a loop and are there at the end."""
    memory, trace = profile.memory, profile.trace
    if memory is None or trace is None or memory.empty or not len(trace.segments):
        return
    known = memory[memory["block"].notna() & memory["change"].notna()]
    made = known[(known["change"] > 0) & known["line"].notna()]
    left = made[~made["block"].isin(known.loc[known["change"] < 0, "block"])]
    key: Any
    for key, kept in left.groupby(["device", "source_id", "line", "thread"], sort=False):
        device, source_id, line, thread = key
        repeating = _repeating(trace, (str(source_id), int(line), int(thread)))
        mine = made[(made["device"] == device) & (made["source_id"] == source_id) & (made["line"] == line)]
        moments = _moments_of_runs(trace, repeating)
        if moments is None and len(mine) >= _MANY_RUNS and _is_loop(place_in(profile.sources.get(source_id), line)):
            moments, repeating = np.sort(mine["time"].to_numpy(np.float64)), -1
        if moments is None:
            continue
        if _rises(known[known["block"].isin(mine.loc[mine["thread"] == thread, "block"])], moments):
            blocks, sizes = kept["block"].astype("int64").tolist(), kept["change"].astype("int64").tolist()
            where = line_named(profile, str(source_id), int(line))
            yield GrowingLine(where, str(device), _runs(profile, trace, repeating), tuple(blocks), tuple(sizes))


def _repeating(trace: Trace, key: _Key) -> int:
    """The node of the line that repeats this one: the outermost that ran often enough, itself included; -1 where there
    is none. A function that fills a cache runs less and less often; the line that calls it does not."""
    nodes = trace.nodes
    parent, calls = nodes["parent"].to_numpy(), nodes["calls"].to_numpy()
    source = nodes["source"].to_numpy()
    if key[0] not in trace.sources:
        return -1
    is_line = (source == trace.sources.index(key[0])) & (nodes["line"].to_numpy() == key[1])
    repeating = -1
    for at in np.flatnonzero(is_line & (nodes["thread"].to_numpy() == key[2])).tolist():
        found = -1
        while at >= 0 and source[at] >= 0:
            found = at if calls[at] >= FEWEST_RUNS else found
            at = int(parent[at])
        if found >= 0 and (repeating < 0 or calls[found] > calls[repeating]):
            repeating = found
    return repeating


def _is_loop(place: StatementPlace | None) -> bool:
    """Whether a line holds all of a loop: `for x in xs: total += f(x)`, `sum(f(x) for x in xs)`."""
    nodes = (node for each in (place.statements if place is not None else ()) for node in ast.walk(each))
    loops = (n for n in nodes if isinstance(n, (ast.For, ast.While, ast.GeneratorExp, ast.ListComp, ast.DictComp)))
    return any(n.lineno == n.end_lineno for n in loops)


def _moments_of_runs(trace: Trace, node: int) -> NDArray[np.float64] | None:
    """Seconds at which the line of a node ran; None for -1, and where that was not often enough."""
    if node < 0:
        return None
    segments = trace.segments
    starts = segments["start"].to_numpy()[segments["node"].to_numpy() == node]
    if len(starts) < FEWEST_RUNS:
        return None
    # a run has a segment for each stretch that the line itself is active in: they are about as many in each run
    some = np.linspace(0, len(starts) - 1, int(trace.nodes["calls"].iloc[node])).round().astype(int)
    return np.asarray(starts[some] / 1e9, dtype=np.float64)


def _runs(profile: Profile, trace: Trace, node: int) -> int:
    """How often the line of a node ran; of the head of a loop at the top the iterations: it runs once more to end."""
    nodes = trace.nodes
    if node < 0:
        return 0
    place = place_in(profile.sources.get(trace.sources[int(nodes["source"].iloc[node])]), int(nodes["line"].iloc[node]))
    calls = int(nodes["calls"].iloc[node])
    if place is None or place.repeated_by is not None:
        return calls
    return calls - any(isinstance(each, ast.For | ast.AsyncFor | ast.While) for each in place.statements)


def _rises(changes: pd.DataFrame, moments: NDArray[np.float64]) -> bool:
    """Whether what is alive of these blocks rises in each part of the loop, and is there at the end."""
    order = np.argsort(changes["time"].to_numpy(), kind="stable")
    times = changes["time"].to_numpy()[order]
    totals = np.append(0, np.cumsum(changes["change"].to_numpy(np.int64)[order]))
    parts = 8 if len(moments) >= _MANY_RUNS else 4
    ends = moments[np.linspace(0, len(moments), parts + 1)[1:-1].astype(int)]
    alive = totals[np.append(np.searchsorted(times, ends, side="right"), len(totals) - 1)]
    at_end = int(alive[-1])
    return at_end > 0 and bool((np.diff(alive, prepend=0) >= _STEADY * at_end / parts).all())


# ---- kept_on_purpose -------------------------------------------------------------------------------------------------
# What the text of the code says of a container: whether it is emptied too, and whether what it holds is used later.

_EMPTIES = frozenset({"pop", "popleft", "popitem", "clear", "remove", "discard"})


def is_emptied(tree: ast.Module, name: str) -> bool:
    """Whether items of ``name`` are taken out somewhere: `name.pop(0)`, `del name[0]`, `name = name[-10:]`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _EMPTIES:
            if _is_name(node.func.value, name):
                return True
        elif isinstance(node, ast.Delete):
            if any(isinstance(each, ast.Subscript) and _is_name(each.value, name) for each in node.targets):
                return True
        elif (
            isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript) and _is_name(node.value.value, name)
        ) and any(_is_name(each, name) for each in node.targets):
            return True
    return False


def is_made_in(tree: ast.Module, name: str) -> bool:
    """Whether this text makes ``name`` anew, outside of its loops: what it collects there is its result."""
    inside = {id(each) for loop in _loops(tree) for each in ast.walk(loop)}
    return any(
        isinstance(node, ast.Assign | ast.AnnAssign)
        and id(node) not in inside
        and any(_is_name(each, name) for each in (node.targets if isinstance(node, ast.Assign) else [node.target]))
        for node in ast.walk(tree)
    )


def is_read_after_its_loop(tree: ast.Module, name: str) -> bool:
    """Whether ``name`` is read below the last loop that it stands in."""
    loops = [loop for loop in _loops(tree) if any(_is_name(each, name) for each in ast.walk(loop))]
    ends = [loop.end_lineno or loop.lineno for loop in loops]
    return bool(ends) and any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load) and node.lineno > max(ends)
        for node in ast.walk(tree)
    )


def _loops(tree: ast.Module) -> list[ast.For | ast.AsyncFor | ast.While]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.For | ast.AsyncFor | ast.While)]


def _is_name(node: ast.AST, name: str) -> bool:
    """A variable; of an attribute (``log.steps``) any of that name, since a method calls its object ``self``."""
    if isinstance(node, ast.Attribute):
        return "." in name and node.attr == name.rpartition(".")[2]
    return isinstance(node, ast.Name) and node.id == name
