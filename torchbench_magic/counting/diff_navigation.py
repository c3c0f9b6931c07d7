"""Steps of a reader through counts, and the patterns that they are made of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from torchbench_magic.errors import InputError
from torchbench_magic.show.document import clipped

from .diff import CountsDiff


def matching(pattern: str, texts: Sequence[str]) -> list[bool]:
    """Which texts the pattern is found in, without regard to case.

    Raises:
        InputError: it is no pattern.
    """
    known = _compiled(pattern, re.IGNORECASE)
    return [known.search(text) is not None for text in texts]


def replaced(pattern: str, to: str, texts: Sequence[str]) -> list[str]:
    r"""The texts with ``to`` in place of what the pattern matches; ``\1`` is its first group, as in ``re.sub``.

    Raises:
        InputError: it is no pattern, or ``to`` names a group that is not there.
    """
    known = _compiled(pattern)
    try:
        return [known.sub(to, text) for text in texts]
    except (re.error, IndexError) as error:
        raise InputError(f"not a usable replacement: {error}") from None


def _compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    try:
        return re.compile(pattern, flags)
    except (re.error, OverflowError, RecursionError) as error:
        raise InputError(f"not a usable pattern: {error}") from None


# ---- exploration -----------------------------------------------------------------------------------------------------
# The steps a reader applies to a difference of counts (filter, denoise, ...); each can be undone by itself.

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
            InputError: the pattern is none.
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
