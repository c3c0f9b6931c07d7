"""What a lever is: when it applies, what it changes for a copy of the names, and what may change in the result."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, Protocol

__all__ = ["Change", "DoesNotApply", "Lever", "Site"]


class DoesNotApply(Exception):
    """A lever does not apply to a cell; the text says why."""


@dataclass(frozen=True)
class Site:
    """A cell as levers find it: its setup has run, and it was called.

    Attributes:
        names: what the cell finds, as its setup left it; not to be changed.
        home: the notebook's own names, which its functions read.
        used: names that the body itself uses.
        reads: variable -> value, of what the body and the functions that it may call read.
        functions: of the notebook, that it may call.
        tree: of the body.
        mentioned: names of globals and attributes in all of that code.
        tensors: label -> tensor, of all that it reaches, those of modules and optimizers included.
        trains: a call of it computes gradients.
        draws: a call of it draws random numbers.
        threads: torch's, that the baseline runs with.
        call_seconds: of a warm call.
    """

    names: Mapping[str, Any]
    home: Mapping[str, Any]
    used: frozenset[str]
    reads: Mapping[str, Any]
    functions: tuple[FunctionType, ...]
    tree: ast.Module
    mentioned: frozenset[str]
    tensors: Mapping[str, Any] = field(default_factory=dict)
    trains: bool = False
    draws: bool = False
    threads: int = 1
    call_seconds: float = 0.0

    def of_kind(self, kind: type) -> dict[str, Any]:
        """The variables that hold an instance of a class."""
        return {name: value for name, value in self.reads.items() if isinstance(value, kind)}

    @property
    def device(self) -> str:
        """Type of the accelerator that its tensors are on; "cpu" where they are on none."""
        return next((t.device.type for t in self.tensors.values() if t.device.type != "cpu"), "cpu")

    def has_dtype(self, *dtypes: Any) -> bool:
        """Whether one of its tensors is of one of these."""
        return any(tensor.dtype in dtypes for tensor in self.tensors.values())


@dataclass(frozen=True)
class Change:
    """What a lever does to one cell.

    Attributes:
        names: variable -> what the cell is to find in its place.
        finish: given all names of the copy, functions of the notebook made anew over it, to change the last of them.
        around: makes the context that every call runs in; None for none.
        before: sets a setting of the process; called outside of the clocks.
        body: another tree of the body, of the same meaning; None for its own.
        drops: variables that the body does not bind any more.
        precision: the dtype (of torch) at whose tolerance results are compared; None is that of the results.
        compiles: what is compiled at the first call, in words; empty for nothing.
        how: what to write in the cell to have it.
        changed: what was changed before the clock started, in words; empty for nothing.
    """

    names: Mapping[str, Any] = field(default_factory=dict)
    finish: Callable[[dict[str, Any]], None] | None = None
    around: Callable[[], Any] | None = None
    before: Callable[[], None] | None = None
    body: ast.Module | None = None
    drops: frozenset[str] = frozenset()
    precision: Any = None
    compiles: str = ""
    how: str = ""
    changed: str = ""


class Lever(Protocol):
    """One lever; its instances hold what was asked of it, such as a number of threads.

    Attributes:
        name: as it is asked for, and as the alternative is called.
    """

    @property
    def name(self) -> str: ...

    def change(self, site: Site) -> Change:
        """What it does to the cell.

        Raises:
            DoesNotApply: it does nothing there, and why.
        """
