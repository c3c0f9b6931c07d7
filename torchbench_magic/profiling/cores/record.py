"""Threads watched from outside while code runs, and what they tell of the use of the cores."""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from torchbench_magic.process.contention import CoreWait, contention_between
from torchbench_magic.process.machine import THIS_MACHINE, Limit, SystemFiles, cgroup_figures, cores_under, cpu_quota

from .verdict import FEWEST, LEAST_WALL, TIMELINE_COLUMNS, Concurrency, CoreUse, verdict_of

# ---- concurrency_run -------------------------------------------------------------------------------------------------
# One run looked at from enter to leave, and what is to be said of it.


class ConcurrencyRun:
    """`start` and `stop` lie outside of the code's time; `enter` and `leave` take well under 0.3 ms each.

    Args:
        ignored: native ids of threads that are nobody's.
    """

    def __init__(self, ignored: Collection[int] = ()) -> None:
        self._side = SideWatch(ignored)
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


# ---- core_facts ------------------------------------------------------------------------------------------------------
# What the system counts of the cores besides the threads: the quota and what it stopped, and the processor time of
# this process as it counts itself.


@dataclass(frozen=True)
class CoreFacts:
    """At one moment.

    Attributes:
        cores: that this process may use.
        periods, throttled: of the quota that holds, so far: all, and those in which it stopped the code. Without a
            quota 0, NaN where that is not known.
        own_cpu: seconds of processor time of this process so far, ended threads included.
        children_cpu: seconds of the processes below that have ended so far, and were waited for.
    """

    cores: int
    periods: float
    throttled: float
    own_cpu: float
    children_cpu: float = 0.0

    @classmethod
    def read(cls, quota: Limit, files: SystemFiles = THIS_MACHINE) -> CoreFacts:
        """Under the ``quota`` that holds. Takes 0.02 ms, with a quota 0.05 ms."""
        periods = throttled = math.nan if math.isnan(quota.value) else 0.0
        if quota.is_set:
            counted = cgroup_figures(f"{quota.folder}/cpu.stat", files)
            periods = float(counted.get("nr_periods", math.nan))
            throttled = float(counted.get("nr_throttled", math.nan))
        return cls(cores_under(quota), periods, throttled, time.process_time(), _of_children())

    def throttled_since(self, before: CoreFacts) -> float:
        """Share of the periods since then in which the quota stopped the code; NaN where that is not known."""
        periods, throttled = self.periods - before.periods, self.throttled - before.throttled
        if math.isnan(periods) or math.isnan(throttled):
            return math.nan
        return min(max(throttled / periods, 0.0), 1.0) if periods > 0 else 0.0


def _of_children() -> float:
    with contextlib.suppress(ImportError):  # Windows
        import resource

        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime
    return 0.0


# ---- seen_threads ----------------------------------------------------------------------------------------------------
# What was seen of the threads, as a `CoreUse` and a timeline; pure.

ACTIVE = 0.05
"""Share of the time that a thread ran or waited for a core, from which on it counts as one that wanted one."""
ROWS = 256
"""Of the timeline: as many as are told apart in a picture; of a longer run each is longer."""
SHORTEST = 0.02
"""Seconds of a row: the kernel books the time of a running thread by its tick, 1 to 4 ms (10 ms at the most)."""
ENDED_UNSEEN = 0.1
"""Cores: how much more the process may have used, as it counts itself, than was seen of its threads. Threads that live
shorter than it takes to look for new ones are not seen."""


def core_use(seen: Mapping[str, Any], root: int, begin: int, end: int) -> CoreUse:
    """The figures of the threads between two moments; cores and the load of others are not among them.

    Args:
        seen: what `profiling.cores.side_process` reports.
        root: id of the process; those below it have others.
        begin, end: ns of the clock that the samples have.
    """
    rows = _within(seen["points"], begin, end)
    if len(rows) < 2:
        return CoreUse(samples=len(rows))
    wall = (rows[-1, 0] - rows[0, 0]) / 1e9
    run, wait, below = (rows[-1, column] - rows[0, column] for column in (1, 2, 3))
    counts = rows[1:, 4:].sum(axis=0)
    threads = [_Row(*row) for row in seen["threads"]]
    wanted = [thread for thread in threads if thread.wants >= ACTIVE * wall]
    looked = max(1, int(seen["looked"])) / 1e9
    own = [thread for thread in threads if thread.process == root]
    gil, lock = (math.nan, math.nan) if not seen["sees_waits"] else _turns(own, looked, wall)
    return CoreUse(
        wall=float(wall),
        run=float(run / 1e9 / wall),
        wait=float(wait / 1e9 / wall),
        below=float(below / 1e9 / wall),
        below_run=sum(thread.run for thread in threads if thread.process != root) / float(wall),
        threads=len(wanted),
        most=int(seen["most"]),
        processes=len({thread.process for thread in wanted if thread.process != root}),
        alone=float((counts[2] + counts[3]) / counts[1]) if counts[1] else math.nan,
        idle=float(counts[2] / counts[1]) if counts[1] else math.nan,
        gil=gil,
        lock=lock,
        samples=int(counts[0]),
    )


class _Row:
    """A thread as it is reported, in seconds."""

    def __init__(self, process: int, run: int, wait: int, runnable: int, timed: int, untimed: int) -> None:
        self.process = process
        self.runnable, self.timed, self.untimed = runnable / 1e9, timed / 1e9, untimed / 1e9
        self.run = run / 1e9
        self.wants = (run + wait) / 1e9


def _turns(threads: Sequence[_Row], looked: float, wall: float) -> tuple[float, float]:
    """Mean numbers of threads that waited for their turn: with a limit of time, and without one.

    Looks are not equally far apart, so each counts for the time since the one before (``looked`` in all).

    Only of threads that used a fair part of what is to be shared: one that polls, or waits for work, uses next to
    nothing.
    """
    sharing = [thread for thread in threads if thread.timed + thread.untimed > 0.1 * looked]
    least = min(ACTIVE, 0.3 / max(1, len(sharing))) * wall
    taking = [thread for thread in sharing if thread.run >= least]
    return sum(thread.timed for thread in taking) / looked, sum(thread.untimed for thread in taking) / looked


def _within(points: Sequence[Sequence[int]], begin: int, end: int) -> Any:
    """The points in that time, as floats; totals at both ends are put between their neighbours."""
    rows = np.array(points, dtype=np.float64).reshape(-1, 8)
    if not len(rows):
        return rows
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    inside = rows[(rows[:, 0] > begin) & (rows[:, 0] < end)]
    edges: list[Any] = []
    for at in (begin, end):
        if rows[0, 0] <= at <= rows[-1, 0]:
            totals = [np.interp(at, rows[:, 0], rows[:, column]) for column in (1, 2, 3)]
            edges.append(np.array([at, *totals, 0, 0, 0, 0]))
        else:
            edges.append(None)
    parts = [edges[0], *inside, edges[1]]
    return np.array([part for part in parts if part is not None]).reshape(-1, 8)


def timeline_of(seen: Mapping[str, Any], begin: int, end: int) -> pd.DataFrame:
    """Columns of `TIMELINE_COLUMNS`; empty where too little was seen."""
    rows = _within(seen["points"], begin, end)
    lasted = (end - begin) / 1e9
    count = max(1, min(ROWS, len(rows) - 1, int(lasted / SHORTEST)))
    if len(rows) < 3 or count < 2:
        return pd.DataFrame({name: np.zeros(0) for name in TIMELINE_COLUMNS})
    edges = np.linspace(rows[0, 0], rows[-1, 0], count + 1)
    totals = [np.diff(np.interp(edges, rows[:, 0], rows[:, column])) / np.diff(edges) for column in (1, 2, 3)]
    return pd.DataFrame(
        dict(zip(TIMELINE_COLUMNS, [(edges[1:] - begin) / 1e9, *totals], strict=True)), dtype=np.float64
    )


# ---- side_watch ------------------------------------------------------------------------------------------------------
# Starts the process that looks at this one's threads, and hears what it says. See `profiling.cores.side_process`.
#
# It is started before the code begins and ended after it, outside of its time.

PERIOD = 0.005
"""Seconds between two looks at the least, see `profiling.cores.side_process.MOST_SHARE`: 1 ms took 5.6 % of the
throughput of a cell that uses all cores."""
_PATIENCE = 10.0
"""Seconds for an answer: on a machine with many threads more than cores the process waits for its turn too."""
_SCRIPT = Path(__file__).with_name("side_process.py")


class SideWatch:
    """Looks from `start` to `end`; `report` is what was seen.

    Args:
        ignored: native ids of this process's threads that are nobody's, such as those that carry a kernel's messages.

    Attributes:
        problem: why nothing is seen; empty where it works.
    """

    problem = ""

    def __init__(self, ignored: Collection[int] = ()) -> None:
        self._ignored = ignored
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it looks. Where that fails, `problem` says why."""
        if not os.path.isdir("/proc/self/task"):
            self.problem = "this system has no /proc/PID/task, where Linux counts how long threads wait for a core"
            return
        if not os.access("/proc/self/schedstat", os.R_OK):
            self.problem = "the system does not count how long threads wait for a core (no /proc/PID/schedstat)"
            return
        ignored = ",".join(map(str, sorted(self._ignored)))
        command = [sys.executable, "-I", "-S", str(_SCRIPT), str(os.getpid()), str(PERIOD * 1e3), ignored]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, process_group=0
            )
            if not json.loads(self._line() or "{}").get("ready"):
                raise OSError("it sees no threads")
        except (OSError, ValueError) as error:
            self.problem = f"the process that watches the threads did not start ({error})"
            self.close()

    def begin(self) -> None:
        """What was seen before is forgotten. Takes some microseconds."""
        self._say(b"begin\n")

    def end(self) -> None:
        """No more is seen. Takes some microseconds; `report` waits for the answer."""
        self._say(b"end\n")

    def report(self) -> dict[str, Any] | None:
        """What was seen between `begin` and `end`; None where nothing was. The process is gone then."""
        answer: dict[str, Any] | None = None
        with contextlib.suppress(OSError, ValueError):
            answer = json.loads(self._line())
        self.close()
        if answer is None and not self.problem:
            self.problem = "the process that watches the threads did not answer"
        return answer

    def close(self) -> None:
        """End the process, whatever it does, and close its files. Safe to call twice."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for file in (process.stdin, process.stdout):
            if file is not None:
                file.close()

    def _say(self, what: bytes) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                os.write(self._process.stdin.fileno(), what)

    def _line(self) -> bytes:
        """Its next line; empty where none comes in time."""
        if self._process is None or self._process.stdout is None:
            return b""
        file, text, until = self._process.stdout.fileno(), b"", time.monotonic() + _PATIENCE
        while not text.endswith(b"\n"):
            ready, _, _ = select.select([file], [], [], max(0.0, until - time.monotonic()))
            more = os.read(file, 65536) if ready else b""
            if not more:
                return b""
            text += more
        return text
