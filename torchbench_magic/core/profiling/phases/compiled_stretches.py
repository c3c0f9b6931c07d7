"""What a loop's compiled functions leave untold."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from torchbench_magic.core.compiler.dynamo import is_compiled
from torchbench_magic.results.doubts import Doubt
from torchbench_magic.units import count

from ..loop_marks.marks import BACKWARD, COMPILED, OPTIMIZER, WIDTH, LoopMarks
from .spans import Span, spans_of
from .step_bounds import asked_steps

__all__ = ["calls_without_phases", "compiled_phases", "compiled_steps"]


def calls_without_phases(record: Sequence[int]) -> int:
    """How many calls of compiled code began outside of every phase: a compiled module is a forward pass, and what
    compiled code calls compiled is part of it."""
    return len(_calls(record))


def compiled_steps(marks: LoopMarks, spans: Sequence[Span]) -> list[tuple[int, int]] | None:
    """(begin, end) of each step of a loop whose forward pass, backward pass and optimizer are one compiled function;
    None for any other loop.

    Each call of it runs a backward pass, which compiled code leaves out, and none is run elsewhere; no step of an
    optimizer is seen. A step ends where the loop asks for its next input: where a call ends is not known.

    Args:
        spans: by their beginning, heads of loops included.
    """
    backward = [span for span in spans_of(marks.record) if span.phase == BACKWARD and not span.is_inner]
    codes = [marks.book.places[span.place][0] if span.place >= 0 else None for span in backward]
    if not backward or any(span.phase == OPTIMIZER for span in spans):
        return None
    if not all(code is not None and is_compiled(code) for code in codes):
        return None
    calls = _calls(marks.record)
    begins = [span.begin for span in backward]
    edges = [bisect_right(begins, moment) for moment in (*calls, max(begins))]
    if edges[0] or any(before == after for before, after in pairwise(edges)):
        return None
    return asked_steps(spans, [backward[at - 1].end for at in edges[1:]]) or None


def _calls(record: Sequence[int]) -> list[int]:
    """When each of these calls began."""
    moments = [record[at] for at in range(0, len(record) - WIDTH + 1, WIDTH) if record[at + 1] == COMPILED]
    if not moments:
        return []
    spans = [span for span in spans_of(record) if not span.is_inner]
    begins = [span.begin for span in spans]

    def is_outside(moment: int) -> bool:
        at = bisect_right(begins, moment) - 1
        return at < 0 or spans[at].end < moment

    return list(filter(is_outside, moments))


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
