"""One kind of state of the process: how it is read, put back, and told in words."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Kind", "Role", "on_off"]

Role = Literal["setting", "incidental", "generator"]


@dataclass(frozen=True)
class Kind:
    """One kind of state.

    Attributes:
        name: unique, as `ProcessState` and tests look it up.
        read: its value now; the value does not change afterwards.
        put: make a value that was read the present one.
        words: (value, the one it is told apart from) -> a noun phrase such as "grad mode off".
        same: whether two values are equal.
        role: "setting"; "incidental": modules change it while they are imported (torch's compiler sets variables of the
            environment), and count on it from then on; "generator": random numbers, which change with every draw.
    """

    name: str
    read: Callable[[], Any]
    put: Callable[[Any], object]
    words: Callable[[Any, Any], str]
    same: Callable[[Any, Any], bool] = operator.eq
    role: Role = "setting"


def on_off(name: str) -> Callable[[bool, bool], str]:
    """The words of a switch."""
    return lambda value, than: f"{name} {'on' if value else 'off'}"
