"""One run looked at from enter to leave, and what is to be said of it."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from torchbench_magic.core.machine.contention import contention_between
from torchbench_magic.core.machine.facts.cgroups import Limit, cpu_quota
from torchbench_magic.core.machine.waiting_for_cores import CoreWait
from torchbench_magic.results.machine.concurrency import Concurrency
from torchbench_magic.results.machine.core_verdicts import FEWEST, LEAST_WALL, CoreUse, verdict_of

from .core_facts import CoreFacts
from .seen_threads import ENDED_UNSEEN, core_use, timeline_of
from .side_watch import SideWatch

__all__ = ["ConcurrencyRun", "hang_text"]

_CURE = (
    "Interrupt the cell; then leave the workers at one thread (no `torch.set_num_threads` in `worker_init_fn`), or"
    " start workers with `multiprocessing_context=\"spawn\"`"
)


class ConcurrencyRun:
    """`start` and `stop` lie outside of the code's time; `enter` and `leave` take well under 0.3 ms each.

    Args:
        ignored: native ids of threads that are nobody's.
    """

    def __init__(self, ignored: Collection[int] = ()) -> None:
        self._side = SideWatch(ignored, _tell)
        self._facts: list[CoreFacts] = []
        self._quota = Limit()
        self._seen: dict[str, Any] | None = None

    def start(self) -> None:
        self._quota = cpu_quota()
        self._side.start()

    def enter(self) -> None:
        self._facts = [CoreFacts.read(self._quota)]
        self._side.begin()

    def leave(self) -> None:
        self._side.end()
        if self._facts:
            self._facts.append(CoreFacts.read(self._quota))

    def stop(self) -> None:
        """Take in what was seen; nothing of it runs any more. Safe to call twice, and without `leave`."""
        if len(self._facts) < 2:
            self._side.close()
        elif self._seen is None:
            self._seen = self._side.report()

    def result(
        self, begin: int, end: int, load: CoreWait | None, torch_threads: int, *, partial: bool = False
    ) -> Concurrency:
        """What is to be said of it.

        Args:
            begin, end: of the code, ns of ``time.perf_counter_ns``.
            load: the counters over the same time; None where they are not known.
            torch_threads: torch's intra-op threads.
            partial: the code ended early: then nothing is said of it.
        """
        wall = (end - begin) / 1e9
        use = CoreUse(wall=wall)
        timeline = Concurrency().timeline
        if self._seen is not None:
            use = replace(core_use(self._seen, os.getpid(), begin, end), wall=wall)
            timeline = timeline_of(self._seen, begin, end)
        use = self._with_facts(use, wall)
        if load is not None:
            seen = contention_between(load.spent)
            use = replace(use, ext=seen.ext, steal=seen.steal)
        return Concurrency(
            verdict="not available" if partial else verdict_of(use),
            use=use,
            timeline=timeline,
            torch_threads=torch_threads,
            missing=(*(["The code ended early: no verdict."] if partial else []), *self._missing(use)),
            hung=tuple(map(hang_text, self._seen["hung"])) if self._seen is not None else (),
        )

    def _with_facts(self, use: CoreUse, wall: float) -> CoreUse:
        if len(self._facts) < 2 or wall <= 0:
            return use
        before, after = self._facts[0], self._facts[-1]
        own = (after.own_cpu - before.own_cpu) / wall - (use.run - use.below_run)
        ended = self._seen["ended"] / 1e9 if self._seen is not None else math.nan
        children = (after.children_cpu - before.children_cpu - ended) / wall
        own, children = (more if more > ENDED_UNSEEN else 0.0 for more in (own, children))
        return replace(
            use,
            cores=min(before.cores, after.cores),
            run=use.run + own + children,
            below=use.below + children,
            below_run=use.below_run + children,
            idle=use.idle if math.isnan(use.idle) else max(0.0, use.idle - own - children),
            throttled=after.throttled_since(before),
        )

    def _missing(self, use: CoreUse) -> list[str]:
        """What was not available, a sentence each."""
        found = []
        if self._side.problem:
            found.append(f"Threads and their waiting for cores: {self._side.problem}.")
        elif use.wall < LEAST_WALL:
            ran, least = f"{use.wall * 1e3:.0f} ms", f"{LEAST_WALL * 1e3:.0f} ms"
            found.append(f"The code ran for {ran}: too short for a verdict (at least {least}).")
        elif use.samples < FEWEST and verdict_of(use) == "not available":
            found.append("The process that watches the threads got too little CPU time: no verdict.")
        if not self._side.problem and math.isnan(use.gil) and use.wall >= LEAST_WALL:
            found.append("What threads wait for (GIL, locks): unknown; /proc/PID/syscall is closed (ptrace_scope).")
        if math.isnan(use.ext) and use.wall >= LEAST_WALL:
            found.append("Load of other processes: unknown (/proc/stat). They may have distorted the result.")
        if math.isnan(use.throttled):
            found.append("CPU quota: unknown (/sys/fs/cgroup).")
        if len(self._facts) > 1 and self._facts[0].cores != self._facts[-1].cores:
            before, after = self._facts[0].cores, self._facts[-1].cores
            changed = f"The usable cores changed from {before} to {after} while the code ran"
            found.append(f"{changed}: the verdict uses {use.cores}.")
        return found


def hang_text(hang: dict[str, Any]) -> str:
    """One line that names a process that hangs, and what to do."""
    who = "DataLoader worker" if hang["name"] == "pt_data_worker" else "process"
    return (
        f"A {who} (pid {hang['hangs']}) hangs: it waits for OpenMP threads that were not copied when it was forked."
        f" {_CURE}."
    )


def _tell(hang: dict[str, Any]) -> None:
    """While the cell waits for it, which it would for ever."""
    sys.stderr.write(f"%%tprofile --concurrency: {hang_text(hang)}\n")
    sys.stderr.flush()
