"""Warnings as values: what is doubtful about a result, with the facts, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

__all__ = ["Doubt"]


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
