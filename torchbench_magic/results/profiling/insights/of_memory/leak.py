"""``leak``: bytes that grow with each step, and bytes that only a notebook's own books keep; with who holds them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from torchbench_magic import units

from ....insights import CodeLine, Cure, Insight
from ...allocations import peak_of
from ...cycles import highest_cycle
from ...profile import Profile
from ..source_trees import parsed_text
from ..wording import places_text
from .growing_lines import FEWEST_RUNS, growing_lines
from .kept_on_purpose import is_cut, is_emptied, is_made_in, is_read_after_its_loop, is_walked

__all__ = ["LEAST_BYTES", "LEAST_OF_ALL", "leak"]

LEAST_BYTES = 1 << 20
"""A loss for each of 100,000 steps is less: nobody runs out of memory by it."""
LEAST_OF_ALL = 0.05
"""Of all bytes that tensors took at the peak, as the least share of the time is for other kinds."""
_CONTAINERS = frozenset({"list", "dict", "deque", "set"})
_EMPTIED = _CONTAINERS | {"closure", "default", "chain"}
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

    Growth is told by the blocks of a line that are alive at moments of its loop (`growing_lines`), the holder by the
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
    if held.blocks < FEWEST_RUNS and not held.through_graph:
        return True  # one tensor that the code makes longer
    if held.kind not in _EMPTIED:
        return False
    place = held.says.partition("`")[2].partition("`")[0]
    trees = [tree for source in profile.sources.values() if (tree := parsed_text(source.text)) is not None]
    if held.kind == "chain":
        link = place.rpartition(".")[2]
        return any(is_cut(tree, link) or is_walked(tree, link) for tree in trees)
    if any(is_emptied(tree, place) for tree in trees):
        return True
    own = profile.sources.get(profile.source_id or "")
    tree = parsed_text(own.text) if own is not None else None
    if tree is None or held.through_graph or held.kind not in _CONTAINERS:
        return False
    return is_made_in(tree, place) or is_read_after_its_loop(tree, place)


def _of_growth(profile: Profile, held: _Held) -> Insight:
    places = tuple(sorted(held.lines, key=lambda line: -held.lines[line]))
    whole, each = units.bytes_text(held.nbytes), units.bytes_text(held.nbytes / held.runs)
    text = f"{places_text(places)} keep{'s' if len(places) == 1 else ''} {each} more with each of {held.runs} runs"
    if held.says:
        text += f": {held.says} holds {whole} at the end"
        if held.through_graph and held.kind != "graph":
            text += ", with the autograd graph of each tensor"
        text += "." if held.limit is None else f", of at most {units.count(held.limit)} results."
    else:
        text += f", {whole} at the end; {_no_holder(profile)}."
    evidence: dict[str, object] = {
        "bytes_kept": held.nbytes,
        "bytes_per_run": held.nbytes / held.runs,
        "runs": held.runs,
        "blocks": held.blocks,
        "held_by": held.says.replace("`", "") or "not found",
        "kind_of_holder": held.kind or "not found",
    }
    return Insight("leak", 0.0, 0.0, text, evidence, places, _cures(held), held.nbytes)


def _no_holder(profile: Profile) -> str:
    if _is_cut(profile):
        return "the search ended before it found what holds them"
    return "no variable, output or traceback holds them (a library, a thread or a reference cycle may)"


def _is_cut(profile: Profile) -> bool:
    return profile.holders is None or any(doubt.kind == "holders-in-part" for doubt in profile.warnings)


def _cures(held: _Held) -> tuple[Cure, ...]:
    numbers = Cure("Accumulate numbers, not tensors with their graph: `.item()`, or `.detach()` to stay on the device.")
    if held.kind == "graph":
        example = f"{held.name} += loss.item()" if held.name.isidentifier() else None
        return (Cure(numbers.text, example),)
    ends = {
        "cache": Cure("Give the cache a limit (`lru_cache(maxsize=8)`), or empty it: `cache_clear()`."),
        "hook": Cure("Remove the hook when it is done: `handle.remove()`, with the handle that registering it"
        " returned."),
        "closure": Cure("It lives as long as the function: empty it after each use, or pass it in."),
        "default": Cure("A default argument is created once and shared by all calls: use `None`, and create it"
        " inside."),
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
