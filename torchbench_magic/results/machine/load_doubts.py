"""What is said of a machine that takes processor time away, in the same words for timings and profiles."""

from __future__ import annotations

from collections.abc import Iterator

from ..doubts import Doubt

__all__ = ["LOAD_KINDS", "STOLEN", "THROTTLED", "machine_doubts", "oversubscribed_text"]

STOLEN, THROTTLED, LOW_CLOCK = 0.03, 0.05, 0.8
LOAD_KINDS = frozenset({"busy", "oversubscribed", "steal", "throttled", "clock"})
"""Doubts about the machine during a stretch: of several stretches together they are made anew."""


def machine_doubts(steal: float, throttled: float, clock: float, steal_action: str) -> Iterator[Doubt]:
    """About the hypervisor, the container's quota and the processor's clock.

    Args:
        steal: cores that the hypervisor gave to others.
        throttled: share of the time in which the quota held the process back.
        clock: the processor's clock over its highest.
        steal_action: what to do about ``steal``.

    What is not known is NaN, and nothing is said of it.
    """
    if steal > STOLEN:
        text = f"The hypervisor took {steal:.2f} cores: this lengthens the times."
        yield Doubt("steal", text, steal_action, {"steal": steal})
    if throttled > THROTTLED:
        text = f"The container's CPU quota stopped the process {100 * min(throttled, 1):.0f} % of the time."
        yield Doubt("throttled", text, "Use fewer threads, or raise the quota.", {"throttled": throttled})
    if clock < LOW_CLOCK:
        text = f"The CPU ran at {100 * clock:.0f} % of its highest clock frequency: a rerun may be faster."
        yield Doubt("clock", text, "", {"clock": clock})


def oversubscribed_text(threads: str, cores: int) -> str:
    """``threads``: as they are written, such as ``4`` or ``4 and 8``."""
    return f"Oversubscribed: {threads} threads share {cores} usable cores."
