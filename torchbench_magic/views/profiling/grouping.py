"""What a row of the table of operations stands for: an operation, with its shapes, line, module or stack."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pandas as pd

from torchbench_magic.errors import InputError, OptionError
from torchbench_magic.results.profiling.frames.stack_groups import ops_by_stack
from torchbench_magic.results.profiling.profile import Profile

__all__ = ["GROUPINGS", "Grouping", "grouping_of"]

_DEPTH = 5  # frames of a stack unless said otherwise, as torch's examples have it
_BY = {
    "op": ("op",),
    "shape": ("op", "input_shapes"),
    "line": ("op", "cell", "file", "line"),
    "module": ("op", "module"),
    "stack": ("op", "stack"),
}
GROUPINGS = tuple(_BY)


@dataclass(frozen=True)
class Grouping:
    """How rows are formed.

    Attributes:
        by: one of `GROUPINGS`.
        depth: frames of a stack that count.
    """

    by: str = "op"
    depth: int = _DEPTH

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns whose values make a row."""
        return _BY[self.by]

    @property
    def shown(self) -> str:
        """The column beside the operation's name that tells rows apart, where no other column does; else empty."""
        return self.by if self.by in ("module", "stack") else ""

    def rows(self, profile: Profile) -> pd.DataFrame:
        """The rows of ``.ops`` to be summed, with the columns of the grouping.

        Raises:
            InputError: what is grouped by was not recorded.
        """
        if self.by == "shape" and not profile.options.shapes:
            raise InputError("shapes were not recorded: use --shapes to group by shape")
        return ops_by_stack(profile.frames, self.depth) if self.by == "stack" else profile.ops


def grouping_of(text: str | None) -> Grouping:
    """Read ``op``, ``shape``, ``line``, ``module``, ``stack`` or ``stack:N``; None is ``op``.

    Raises:
        OptionError: anything else; the message lists what there is.
    """
    if text is None:
        return Grouping()
    found = re.fullmatch(rf"({'|'.join(GROUPINGS)})|stack:([1-9]\d{{0,3}})", text)
    if found is None:
        raise OptionError(f"group_by {text!r} is unknown; use {', '.join(GROUPINGS)} or stack:N")
    return Grouping(found[1] or "stack", int(found[2]) if found[2] else _DEPTH)
