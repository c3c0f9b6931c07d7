"""Warnings as values: what is doubtful about a result, with the facts, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Doubt", "most_important_first", "with_doubts"]

_FIRST = frozenset(
    (
        *("partial", "not-counted", "not-stored", "not-stored-before", "resumed", "measured-again"),
        *("events-lost", "lines-lost", "no-lines", "clock-set", "fork-deadlock", "only-made"),
        *("compiled-away", "not-run", "no-steps"),
        *("engine-lost", "engine-left-out", "engines-left-out", "process-died"),
        *("rank-ended-early", "rank-not-back", "missing-ranks", "file-left-out"),
    )
)
"""Kinds that say that a result is not, or not all of, what was asked for."""
_LAST = frozenset(
    (
        *("bimodal", "clock", "cpu-clock", "lever", "medians", "normal-processes", "one-of-several", "this-kernel"),
        *("after-profile", "compiled-modules", "device-after", "private-cache", "several-hosts", "torch-threads"),
        "void-process",
    )
)
"""Kinds that explain a figure, and leave it as it is."""


@dataclass(frozen=True)
class Doubt:
    """One thing that spoils, or may spoil, a result.

    Attributes:
        kind: one word or a hyphenated pair, stable: tests and callers select by it.
        text: what, how much, what still stands, what does not, in this order; one line.
        action: the next step, with code in backticks; may be empty.
        facts: the numbers behind the text, in SI units.
    """

    kind: str
    text: str
    action: str = ""
    facts: Mapping[str, object] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "facts", MappingProxyType(dict(self.facts)))

    def __str__(self) -> str:
        return f"{self.text} {self.action}".rstrip()

    def __reduce__(self) -> tuple[type[Doubt], tuple[str, str, str, dict[str, object]]]:
        return Doubt, (self.kind, self.text, self.action, dict(self.facts))  # a mapping proxy does not pickle


def most_important_first(doubts: Iterable[Doubt]) -> list[Doubt]:
    """What is missing, what spoils a figure, what explains one; each in the order given."""
    return sorted(doubts, key=lambda doubt: 0 if doubt.kind in _FIRST else 2 if doubt.kind in _LAST else 1)


def with_doubts(frame: pd.DataFrame, doubts: Iterable[Doubt]) -> pd.DataFrame:
    """The frame with ``attrs["doubts"]``: a list with ``{"kind": ..., "text": ...}`` for each doubt.

    Plain values: pandas copies ``attrs`` with the frame, compares them where frames are joined (``concat`` keeps them
    where they are equal), and writes them into files as JSON.
    """
    frame.attrs["doubts"] = [{"kind": doubt.kind, "text": doubt.text} for doubt in doubts]
    return frame
