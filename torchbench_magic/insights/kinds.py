"""All kinds of insights (those of ranks: `cluster.rank_analysis`) in one list: looked for one by one, and sorted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from torchbench_magic.profiling.profile import Profile, processor_silenced_by, silenced_by
from torchbench_magic.result_base import Insight

from .compile import compile_silenced_by, compiling_took, fell_back, graph_break, recompiles
from .constant import constant, copies
from .cores import contended, gil_bound, lock_bound, oversubscribed, serial, throttled, waiting
from .leak import leak
from .optimizers import no_zero_grad, optimizer_loop
from .outside_torch import numpy, python
from .overhead import overhead
from .peak import peak
from .slow_operators import below_roof, memory_bound_run, page_fault, shape, slow_dtype
from .training import eval_mode, grad_unused, input_bound, loop_silenced_by, sync, transfer

_VOIDING = frozenset({"partial", "not-run", "no-steps", "events-lost", "events-dropped"})


def memory_silenced_by(profile: Profile) -> bool:
    """Whether what is known of memory is spoiled: by doubts about bytes, never by one about times."""
    return profile.partial or any(doubt.kind in _VOIDING for doubt in profile.warnings)


def lines_silenced_by(profile: Profile) -> bool:
    """Whether the times of lines are spoiled: also where recording took most of the time."""
    return bool(silenced_by(profile)) or profile.profiler_cost == "most"


loop_facts_silenced_by = partial(loop_silenced_by, of_facts=True)


class InsightKind(NamedTuple):
    """A kind of insight.

    Attributes:
        find: those of this kind in a profile.
        silenced_by: what keeps it from speaking.
        is_general: it knows what a line does and not what that is for: it is silent where others, which stand before
            it, have said most of what it would say about the line.
        is_of_memory: it is told after all that is about time.
    """

    find: Callable[[Profile], list[Insight]]
    silenced_by: Callable[[Profile], object]
    is_general: bool = False
    is_of_memory: bool = False


KINDS = (
    InsightKind(contended, processor_silenced_by),
    InsightKind(oversubscribed, processor_silenced_by),
    InsightKind(gil_bound, processor_silenced_by),
    InsightKind(lock_bound, processor_silenced_by),
    InsightKind(serial, processor_silenced_by),
    InsightKind(waiting, processor_silenced_by),
    InsightKind(throttled, processor_silenced_by),
    InsightKind(input_bound, loop_silenced_by),
    InsightKind(optimizer_loop, loop_silenced_by),
    InsightKind(no_zero_grad, loop_facts_silenced_by),
    InsightKind(grad_unused, loop_facts_silenced_by),
    InsightKind(eval_mode, loop_facts_silenced_by),
    InsightKind(sync, loop_silenced_by),
    InsightKind(transfer, loop_silenced_by),
    InsightKind(constant, lines_silenced_by, is_general=True),
    InsightKind(copies, lines_silenced_by, is_general=True),
    InsightKind(slow_dtype, lines_silenced_by, is_general=True),
    InsightKind(memory_bound_run, lines_silenced_by, is_general=True),
    InsightKind(page_fault, lines_silenced_by, is_general=True),
    InsightKind(shape, lines_silenced_by, is_general=True),
    InsightKind(below_roof, lines_silenced_by, is_general=True),
    InsightKind(numpy, lines_silenced_by, is_general=True),
    InsightKind(python, lines_silenced_by, is_general=True),
    InsightKind(overhead, silenced_by, is_general=True),  # where recording took most, there were many small events
    InsightKind(compiling_took, compile_silenced_by),
    InsightKind(recompiles, compile_silenced_by),
    InsightKind(graph_break, compile_silenced_by),
    InsightKind(fell_back, compile_silenced_by),
    InsightKind(leak, memory_silenced_by, is_of_memory=True),
    InsightKind(peak, memory_silenced_by, is_of_memory=True),
)
"""Those that name one cause stand before those that name many: of two about the same seconds the first stays.
Operations that become one write no memory between, so that its page faults go with it. What compiling took is no time
of the lines' own, so it hides none."""

_ABOUT_RESULTS = frozenset({"no-zero-grad", "eval-mode"})
"""Kinds that say what is wrong with the result: they are about no seconds that another kind could have."""
_SAME = 0.5
"""Of the seconds of the more general one: from which on two insights about one line are about the same time."""
_APART = {("page-fault", "below-roof")}
"""Kinds that share an operation's time out between them: none of it is told twice."""


def insights_of(profile: Profile) -> tuple[Insight, ...]:
    """See `Profile.insights`."""
    kept: list[Insight] = []
    of_memory: list[Insight] = []
    silenced = {silence: silence(profile) for silence in {kind.silenced_by for kind in KINDS}}
    for kind in KINDS:
        found = [] if silenced[kind.silenced_by] else kind.find(profile)
        if kind.is_of_memory:
            of_memory += found
        else:
            kept += [each for each in found if not (kind.is_general and _is_said(each, kept))]
    return _with_body(profile, [*sorted(kept, key=lambda each: -each.seconds), *of_memory])


def _with_body(profile: Profile, insights: list[Insight]) -> tuple[Insight, ...]:
    """They can be tried where what was profiled is a whole cell; its text is all that they hold of it."""
    source = profile.sources.get(profile.source_id) if profile.source_id is not None else None
    if source is None or not source.text.lstrip().startswith("%%tprofile"):  # a line of a cell, a function, a file
        return tuple(insights)
    return tuple(replace(each, body=source.text) for each in insights)


def _is_said(insight: Insight, kept: list[Insight]) -> bool:
    """Whether those kept, about its lines, have half of its seconds already."""
    about = [each for each in kept if each.kind not in _ABOUT_RESULTS and (each.kind, insight.kind) not in _APART]
    said = sum(each.seconds for each in about if set(each.places) & set(insight.places))
    return said >= _SAME * insight.seconds
