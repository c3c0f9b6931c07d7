"""All kinds of insights: looked for in a profile one by one, and sorted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torchbench_magic.profiling.profile import Profile, processor_silenced_by, silenced_by
from torchbench_magic.results import Insight

from .compile import COMPILE_KINDS, compile_silenced_by
from .constant import constant
from .copies import copies
from .cores import PROCESSOR_KINDS
from .leak import leak
from .operators import below_roof, memory_bound_run, page_fault, shape, slow_dtype
from .optimizers import no_zero_grad, optimizer_loop
from .outside_torch import numpy, python
from .overhead import overhead
from .peak import peak
from .training import eval_mode, grad_unused, input_bound, loop_silenced_by, sync, transfer

# ---- kinds -----------------------------------------------------------------------------------------------------------
# The kinds of insights about memory, and what keeps them from speaking: doubts about bytes, never one about times.

MEMORY_KINDS: dict[str, Callable[[Profile], list[Insight]]] = {"leak": leak, "peak": peak}

_VOIDING = frozenset({"partial", "not-run", "no-steps", "events-lost", "events-dropped", "trace-mended"})


def memory_silenced_by(profile: Profile) -> str:
    """The kind of what keeps these kinds from speaking; empty where nothing does."""
    kinds = [doubt.kind for doubt in profile.warnings if doubt.kind in _VOIDING]
    if profile.partial:
        kinds.append("partial")
    return kinds[0] if kinds else ""


# ---- found -----------------------------------------------------------------------------------------------------------
# All insights of a profile: what each kind finds, the most at stake first.

TRAINING_KINDS: dict[str, Callable[[Profile], list[Insight]]] = {
    "input-bound": input_bound,
    "optimizer-loop": optimizer_loop,
    "no-zero-grad": no_zero_grad,
    "grad-unused": grad_unused,
    "eval-mode": eval_mode,
    "sync": sync,
    "transfer": transfer,
}
"""Those of a training loop. They know what the lines are for, and come before those that know only what these do."""

ABOUT_RESULTS = frozenset({"no-zero-grad", "eval-mode"})
"""Kinds that say what is wrong with the result: they are about no seconds that another kind could have."""

ABOUT_FACTS = ABOUT_RESULTS | {"grad-unused"}
"""Kinds that rest on what ran and not on how long it took: a busy machine does not silence them."""

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


_APART = {("page-fault", "below-roof")}
"""Kinds that share an operation's time out between them: none of it is told twice."""


def insights_of(profile: Profile) -> tuple[Insight, ...]:
    """See `Profile.insights`. Those about memory come after those about time, `leak` before `peak`."""
    kept: list[Insight] = []
    of_memory: list[Insight] = []
    if not memory_silenced_by(profile):
        of_memory = [each for kind in MEMORY_KINDS.values() for each in kind(profile)]
    compiled: list[Insight] = []
    if not compile_silenced_by(profile):
        compiled = [each for kind in COMPILE_KINDS.values() for each in kind(profile)]
    if not processor_silenced_by(profile):
        kept = [each for kind in PROCESSOR_KINDS.values() for each in kind(profile)]
    for name, kind in TRAINING_KINDS.items():
        if not loop_silenced_by(profile, of_facts=name in ABOUT_FACTS):
            kept += kind(profile)
    if not silenced_by(profile):
        for name, kind in KINDS.items():
            if profile.profiler_cost != "most" or name in STANDS_WITH_COST:
                kept += [each for each in kind(profile) if not _is_said(each, kept)]
    kept += compiled  # what compiling took is no time of the lines' own: neither hides the other
    return _with_body(profile, [*sorted(kept, key=lambda each: -each.seconds), *of_memory])


def _with_body(profile: Profile, insights: list[Insight]) -> tuple[Insight, ...]:
    """They can be tried where what was profiled is a whole cell; its text is all that they hold of it."""
    source = profile.sources.get(profile.source_id) if profile.source_id is not None else None
    if source is None or not source.text.lstrip().startswith("%%tprofile"):  # a line of a cell, a function, a file
        return tuple(insights)
    return tuple(replace(each, body=source.text) for each in insights)


def _is_said(insight: Insight, kept: list[Insight]) -> bool:
    """Whether those kept, about its lines, have half of its seconds already."""
    about = [each for each in kept if each.kind not in ABOUT_RESULTS and (each.kind, insight.kind) not in _APART]
    said = sum(each.seconds for each in about if set(each.places) & set(insight.places))
    return said >= _SAME * insight.seconds
