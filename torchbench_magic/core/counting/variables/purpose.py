"""What variables travel for, and how an error says so."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FOR_COUNTING", "FOR_TIMING", "Purpose"]


@dataclass(frozen=True)
class Purpose:
    """What variables travel for: how many bytes may, and the words of an error.

    Attributes:
        limit: bytes of tensors that may travel: they are copied twice.
        process: where they are sent to.
        on_device: the way out for a tensor that is not on the CPU, ``smaller`` for tensors that are too large, ``made``
            for whatever else cannot travel, with the name in braces, ``elsewhere`` for what is not a variable.
    """

    limit: int
    process: str
    on_device: str
    smaller: str
    made: str
    elsewhere: str


FOR_COUNTING = Purpose(
    1 << 30,
    "the counting process",
    "only code on the CPU can be counted: use .cpu()",
    "count on smaller ones: instructions per element are the same",
    "make `{}` inside the statement",
    "do it inside the statement",
)
FOR_TIMING = Purpose(
    1 << 30,
    "another process",
    "only what is on the CPU can be sent to another process: make it in the setup",
    "make them in the setup, which runs in each process",
    "make `{}` in the setup",
    "do it in the setup, which runs in each process",
)
