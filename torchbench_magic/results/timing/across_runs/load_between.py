"""What else the machine did during runs that are compared: a fact beside the ratio, and no part of any identity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchbench_magic.results.doubts import Doubt

from ...machine.contention import Contention, joined_contention, load_differences
from ..comparison import Comparison
from .unchanged_alternative import Home

__all__ = ["unlike_load"]


def unlike_load(made: Comparison, names: Sequence[str], homes: Sequence[Home]) -> Iterator[Doubt]:
    """For each two results whose rows are compared: that the load was not alike, and how.

    Args:
        made: the rows side by side.
        names: of the result of each row.
        homes: the whole result that each row was measured in, and its row there.
    """
    pairs: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for row, one in made.unpaired.items():
        if one.baseline is not None and names[one.baseline] != names[row]:
            pairs.setdefault((names[one.baseline], names[row]), []).append((one.baseline, row))
    for (before, now), rows in pairs.items():
        loads = [_of_rows([homes[at] for at in side]) for side in zip(*rows, strict=True)]
        if found := load_differences(*loads):
            text = f"From {before} to {now} the load of the machine changed: {'; '.join(found)}."
            yield Doubt("other-load", text, "", {"changes": found, "name": f"{before} {now}"})


def _of_rows(homes: Sequence[Home]) -> Contention | None:
    seen = (result.subjects[row].contention for result, row in homes)
    return joined_contention([one for one in seen if one is not None])
