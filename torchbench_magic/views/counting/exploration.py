"""The steps a reader applies to a difference of counts (filter, denoise, ...); each can be undone by itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from torchbench_magic.results.counting.differences import CountsDiff

from ..document import clipped
from .patterns import matching, replaced

__all__ = ["Step", "after"]

StepKind = Literal["standardize", "denoise", "transform", "filter"]

_LONGEST = 40


@dataclass(frozen=True)
class Step:
    """One change. ``pattern`` and ``to`` are a regular expression and its replacement, where the kind has them."""

    kind: StepKind
    pattern: str = ""
    to: str = ""

    @property
    def words(self) -> str:
        """What its chip says."""
        if self.kind == "transform":
            return f"{clipped(self.pattern, _LONGEST)} to {clipped(self.to, _LONGEST) or 'nothing'}"
        return f"only {clipped(self.pattern, _LONGEST)}" if self.kind == "filter" else self.kind

    def applied(self, diff: CountsDiff) -> CountsDiff:
        """The difference after this step.

        Raises:
            InputError: the pattern is none, or takes too long on these names.
        """
        if self.kind == "standardize":
            return diff.standardize()
        if self.kind == "denoise":
            return diff.denoise()
        names = list(dict.fromkeys(diff.functions))
        if self.kind == "filter":
            kept = dict(zip(names, matching(self.pattern, names), strict=True))
            return diff.filter(lambda name: kept[name])
        new = dict(zip(names, replaced(self.pattern, self.to, names), strict=True))
        return diff.transform(lambda name: new[name])


def after(diff: CountsDiff, steps: Iterable[Step]) -> CountsDiff:
    """The difference after all steps, in order; errors as of `Step.applied`."""
    for step in steps:
        diff = step.applied(diff)
    return diff
