"""The parts of sentences that several kinds of insights share."""

from __future__ import annotations

from torchbench_magic import units

from ...insights import CodeLine

__all__ = ["LEAST_SECONDS", "LEAST_SHARE", "places_text", "stake_text"]

LEAST_SHARE = 0.05
"""Of the wall time: below it nothing is said. Single runs differ by a few per cent (see `timing.intervals`), and who
saves less than that would not see it."""
_ADDED = 0.95
"""Of the measured time, without recording: from there on the difference is not seen."""
LEAST_SECONDS = 1e-3
"""At stake, in seconds: what takes less in all is a run too short to say where its time goes."""


def stake_text(seconds: float, wall: float, measured: float = 0.0) -> str:
    """``up to 95 ms (73 % of the time)``, or ``(90 % of the at most 40 ms that it takes without recording)``.

    Args:
        wall: what the seconds are a part of.
        measured: the wall time that is shown; where recording added to it, the sentence says what its per cent are of.
    """
    of = "time"
    if measured > 0 and wall < _ADDED * measured:
        of = f"at most {units.seconds_text(wall, digits=2)} that it takes without recording"
    return f"up to {units.seconds_text(seconds, digits=2)} ({units.percent(seconds / wall)} % of the {of})"


def places_text(places: tuple[CodeLine, ...]) -> str:
    """```In[3]:4` and 2 more lines``."""
    rest = len(places) - 1
    more = "" if not rest else " and 1 more line" if rest == 1 else f" and {rest} more lines"
    return f"`{places[0]}`{more}"
