"""All insights of a profile: what each kind finds, the most at stake first."""

from __future__ import annotations

from collections.abc import Callable

from ...insights import Insight
from ..profile import Profile
from .compile_kinds import COMPILE_KINDS, compile_silenced_by
from .constant import constant
from .copies import copies
from .memory_bound import memory_bound_run
from .operators import below_roof, page_fault, shape, slow_dtype
from .outside_torch import numpy, python
from .overhead import overhead
from .processor_kinds import PROCESSOR_KINDS, processor_silenced_by
from .silenced import silenced_by

__all__ = ["KINDS", "STANDS_WITH_COST", "insights_of"]

KINDS: dict[str, Callable[[Profile], list[Insight]]] = {
    "constant": constant,
    "copies": copies,
    "slow-dtype": slow_dtype,
    "memory-bound-run": memory_bound_run,
    "page-fault": page_fault,
    "shape": shape,
    "below-roof": below_roof,
    "numpy": numpy,
    "python": python,
    "overhead": overhead,
}
"""Those that name one cause before those that name many: of two about the same seconds the first stays. Operations
that become one write no memory between, so that its page faults go with it."""

STANDS_WITH_COST = frozenset({"overhead"})
"""Kinds that speak where recording took most of the time: then there were about as many events as microseconds, and
that they are small is what `overhead` says. It tells them by their number and takes the cost of recording off; the
shares that the others rest on are spoiled."""

_SAME = 0.5
"""Of the seconds of the more general one: from which on two insights about one line are about the same time."""


def insights_of(profile: Profile) -> tuple[Insight, ...]:
    """See `Profile.insights`."""
    kept: list[Insight] = []
    compiled: list[Insight] = []
    if not compile_silenced_by(profile):
        compiled = [each for kind in COMPILE_KINDS.values() for each in kind(profile)]
    if not processor_silenced_by(profile):
        kept = [each for kind in PROCESSOR_KINDS.values() for each in kind(profile)]
    if silenced_by(profile):
        return _in_order([*compiled, *kept])
    for name, kind in KINDS.items():
        if profile.profiler_cost != "most" or name in STANDS_WITH_COST:
            kept += [each for each in kind(profile) if not _is_said(each, kept)]
    return _in_order([*compiled, *kept])  # what compiling took is no time of the lines' own: neither hides the other


def _in_order(found: list[Insight]) -> tuple[Insight, ...]:
    return tuple(sorted(found, key=lambda each: -each.seconds))


def _is_said(insight: Insight, kept: list[Insight]) -> bool:
    """Whether those kept, about its lines, have half of its seconds already."""
    said = sum(each.seconds for each in kept if set(each.places) & set(insight.places))
    return said >= _SAME * insight.seconds
