"""What a loop's compiled functions leave untold."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from torchbench_magic.results.doubts import Doubt
from torchbench_magic.units import count

from ..loop_marks.marks import COMPILED, WIDTH
from .spans import spans_of

__all__ = ["calls_without_phases", "compiled_phases"]


def calls_without_phases(record: Sequence[int]) -> int:
    """How many calls of compiled code began outside of every phase: a compiled module is a forward pass, and what
    compiled code calls compiled is part of it."""
    moments = [record[at] for at in range(0, len(record) - WIDTH + 1, WIDTH) if record[at + 1] == COMPILED]
    if not moments:
        return 0
    spans = [span for span in spans_of(record) if not span.is_inner]
    begins = [span.begin for span in spans]

    def is_outside(moment: int) -> bool:
        at = bisect_right(begins, moment) - 1
        return at < 0 or spans[at].end < moment

    return sum(map(is_outside, moments))


def compiled_phases(record: Sequence[int]) -> Doubt | None:
    """The time of compiled functions is in no phase of its own."""
    calls = calls_without_phases(record)
    if not calls:
        return None
    times = "1 call" if calls == 1 else f"{count(calls)} calls"
    return Doubt(
        "compiled-phases",
        f"Phases within compiled functions are not told apart ({times}): their time is in “other” or “loss”, and their "
        "forward passes and optimizer steps are not seen.",
        facts={"calls": calls},
    )
