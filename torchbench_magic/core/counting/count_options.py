"""The plan of a count: what the options ask for, after they were read; typed and frozen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Counting", "Form"]

Form = Literal["function", "module"]


@dataclass(frozen=True)
class Counting:
    """Instructions are to be counted besides.

    Attributes:
        number: calls that are counted.
        form: "function", the loop that is timed, or "module", as torch's collector counts.
    """

    number: int = 100
    form: Form = "function"
