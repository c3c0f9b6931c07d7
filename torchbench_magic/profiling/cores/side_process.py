"""Looks at the threads of another process and of all processes below it, every few milliseconds, from outside.

A thread of the process itself would be starved by the interpreter's lock (78 of 500 samples came). This file is run as
a script in a fresh interpreter without packages: ``python -I -S side_process.py PID PERIOD_MS IGNORED,...``. It reads
lines: ``begin`` (what was seen before is forgotten) and ``end`` (it answers and ends). It writes two lines of JSON:
ready, and at the end all that was seen. It ends as well when its parent has gone, and when its input ends.

Of each thread two files of /proc stay open: ``schedstat`` (ns that it ran, ns that it waited for a core;
sched-stats.rst of Linux) and ``syscall`` (what it is blocked in; proc(5)). The second one needs the right to trace the
process; where that is missing, ``stat`` tells that a thread is runnable and nothing tells what it waits for.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

RUNNABLE, BLOCKED, TIMED, UNTIMED = range(4)
"""A thread runs or waits for a core; is blocked in something else; waits in a semaphore or condition of glibc with a
limit of time (Python waits so for the interpreter's lock) or without one (so for a `threading.Lock`)."""

FUTEX = {"x86_64": 202, "aarch64": 98, "riscv64": 98, "ppc64le": 221, "s390x": 238}
"""Number of the system call (syscalls(2)) by machine."""
_FUTEX_WAIT_BITSET, _COMMAND = 9, 0x7F  # linux/futex.h; the rest of the bits are flags
LATELY = 0.25
"""Seconds: a thread that has not run for so long waits for work, not for its turn."""
CHILDREN_EVERY, THREADS_EVERY = 0.1, 0.02
"""Seconds after which new processes and new threads are looked for: listing takes 70 and 7 us with four threads."""
MOST_SHARE = 0.007
"""Of one core that this process may take. A look takes 0.1 ms with four threads (0.02 ms where the caches are warm);
where it takes longer there are fewer. Threads that meet at barriers wait for the one that it displaces, so a cell on
two cores loses as much again."""
FULL, CALM, FIRST = 0.9, 4, 16
"""Where so much of the cores runs own threads, looks are so many times as rare: there they cost most, and what threads
wait for is asked of code that leaves cores unused. The first ones are never rarer, of however many threads: short code
gets enough of them."""
ONE_AT_A_TIME = 1.1
"""Running threads up to which a lock may hold the others (`cores.verdict.verdict_of`): then looks stay as they are."""
MOST_POINTS = 2048


def schedstat_of(text: bytes) -> tuple[int, int]:
    """ns that a thread ran and that it waited for a core.

    Raises:
        ValueError: the text is none of ``schedstat``.
    """
    fields = text.split()
    if len(fields) < 2:
        raise ValueError("no schedstat")
    return int(fields[0]), int(fields[1])


def wait_kind(text: bytes, futex: int) -> int:
    """What a thread is at, by its ``syscall``: ``running``, or number, arguments, stack and place in hex."""
    if text.startswith(b"running"):
        return RUNNABLE
    fields = text.split()
    try:
        if len(fields) < 5 or int(fields[0]) != futex:
            return BLOCKED
        command, limit = int(fields[2], 16) & _COMMAND, int(fields[4], 16)
    except ValueError:
        return BLOCKED
    if command != _FUTEX_WAIT_BITSET:
        return BLOCKED
    return TIMED if limit else UNTIMED


def _state_kind(text: bytes) -> int:
    """By the state in ``stat``, which stands after the name in brackets: runnable or not."""
    return RUNNABLE if text.rpartition(b")")[2].split()[:1] == [b"R"] else BLOCKED


class Points:
    """Totals over time, in at most so many points: where there are more, two neighbours become one.

    A point is (ns of the clock, ns run, ns waited, ns of both in processes below) so far, and of its looks (how many,
    ns that they stand for, of these with no runnable thread, with one).
    """

    def __init__(self, most: int = MOST_POINTS) -> None:
        self.rows: list[list[int]] = []
        self._most, self._each, self._open = most, 1, 0

    def add(self, totals: tuple[int, int, int, int], runnable: int, stands_for: int) -> None:
        """One look, which stands for the ns since the one before."""
        counts = [1, stands_for, stands_for * (runnable == 0), stands_for * (runnable == 1)]
        if self._open and self._open < self._each:
            last = self.rows[-1]
            self.rows[-1] = [*totals, *(had + more for had, more in zip(last[4:], counts, strict=True))]
        else:
            self.rows.append([*totals, *counts])
            self._open = 0
        self._open += 1
        if len(self.rows) > self._most:
            self._halve()

    def _halve(self) -> None:
        first, rest = self.rows[0], self.rows[1:]  # the first is where everything begins
        pairs = [rest[at : at + 2] for at in range(0, len(rest), 2)]
        summed = ([*pair[-1][:4], *map(sum, zip(*(row[4:] for row in pair), strict=True))] for pair in pairs)
        self.rows = [first, *summed]
        self._each *= 2
        self._open = self._each


class _Thread:
    """What is known of one thread; its files stay open. ``runnable``, ``timed`` and ``untimed`` are ns."""

    __slots__ = ("changed", "files", "first", "kind", "now", "process", "runnable", "timed", "untimed")

    def __init__(self, process: int, files: tuple[int, int, bool], first: tuple[int, int], now: float) -> None:
        self.process, self.files, self.first, self.now = process, files, first, first
        self.kind, self.changed = BLOCKED, now
        self.runnable = self.timed = self.untimed = 0

    def counted(self) -> tuple[int, int]:
        """ns that it ran and that it waited for a core, since it is counted."""
        return self.now[0] - self.first[0], self.now[1] - self.first[1]


class _Side:
    def __init__(self, root: int, ignored: Iterable[int], clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self.root, self.ignored, self._clock = root, frozenset(ignored), clock
        self.me = os.getpid()
        self.futex = FUTEX.get(platform.machine(), -1)
        self.processes = [root]
        self.threads: dict[tuple[int, int], _Thread] = {}
        self.ended: list[_Thread] = []
        self.sees_waits = True
        self.cores = max(1, len(os.sched_getaffinity(root)))
        self._next_children = self._next_threads = 0.0
        self.begin(0.0)

    def begin(self, now: float) -> None:
        """Count from here; a thread that is found later began later."""
        if now > 0.0:
            self._next_children = self._next_threads = 0.0
            self.sample()
        for thread in self.threads.values():
            thread.first = thread.now
            thread.runnable = thread.timed = thread.untimed = 0
        self.ended = []
        self.points, self.samples, self.most, self.looked = Points(), 0, 0, 0
        self._last: tuple[int, int] | None = None  # ns of the clock and ns run, at the look before
        self.running = 0.0  # threads, lately
        self._gone_run = self._gone_wait = self._gone_below = 0
        self._counts_from_zero = now > 0.0  # threads that begin from now on

    def sample(self) -> None:
        """Look once."""
        at = self._clock()
        now = at / 1e9
        if now >= self._next_children:
            self._next_children = now + CHILDREN_EVERY
            self._find_processes()
        if now >= self._next_threads:
            self._next_threads = now + THREADS_EVERY
            self._find_threads(now)
        stands_for = 0 if self._last is None else at - self._last[0]
        run, wait, below, runnable = self._gone_run, self._gone_wait, self._gone_below, 0
        for key, thread in list(self.threads.items()):
            is_late = self._read(thread, now)
            of_run, of_wait = thread.counted()
            run, wait = run + of_run, wait + of_wait
            below += (of_run + of_wait) * (key[0] != self.root)
            if is_late is None:
                self._end(key)
                continue
            if thread.kind == RUNNABLE:
                runnable += 1
                thread.runnable += stands_for
            elif is_late:
                thread.timed += stands_for * (thread.kind == TIMED)
                thread.untimed += stands_for * (thread.kind == UNTIMED)
        self.points.add((at, run, wait, below), runnable, stands_for)
        self._note_running(at, run, stands_for)
        self.samples += 1
        self.most = max(self.most, runnable)

    def _read(self, thread: _Thread, now: float) -> bool | None:
        """Whether it ran lately; None where it has ended. One that has not is blocked in what it was blocked in."""
        try:
            seen = schedstat_of(os.pread(thread.files[0], 80, 0))
            if seen != thread.now:
                thread.now, thread.changed = seen, now
            is_late = now - thread.changed < LATELY or thread.kind == RUNNABLE
            if is_late:
                text = os.pread(thread.files[1], 400, 0)
                thread.kind = wait_kind(text, self.futex) if thread.files[2] else _state_kind(text)
        except (OSError, ValueError):
            return None
        return is_late

    def _note_running(self, at: int, run: int, stands_for: int) -> None:
        """How many threads ran lately: the mean over some `LATELY` / 8, as the kernel counts by its tick."""
        if self._last is not None and stands_for > 0:
            newest = min(1.0, stands_for / 1e9 / (LATELY / 8))
            self.running += newest * ((run - self._last[1]) / stands_for - self.running)
            self.looked += stands_for
        self._last = at, run

    @property
    def rarer(self) -> int:
        """How many times as long it is to the next look as it would be of code that leaves cores unused."""
        is_full = self.running >= FULL * self.cores and self.running > ONE_AT_A_TIME
        return CALM if is_full else 1

    def _end(self, key: tuple[int, int]) -> None:
        thread = self.threads.pop(key)
        _close(thread.files[:2])
        of_run, of_wait = thread.counted()
        self._gone_run += of_run
        self._gone_wait += of_wait
        self._gone_below += (of_run + of_wait) * (key[0] != self.root)
        if of_run + of_wait:
            self.ended.append(thread)

    def _find_processes(self) -> None:
        found = [self.root]
        for process in found:
            for thread in _names(f"/proc/{process}/task"):
                text = _text(f"/proc/{process}/task/{thread}/children")
                found += [int(each) for each in text.split() if int(each) not in (self.me, *found)]
        self.processes = found

    def _find_threads(self, now: float) -> None:
        for process in self.processes:
            for name in _names(f"/proc/{process}/task"):
                key = (process, int(name))
                if key not in self.threads and not (process == self.root and key[1] in self.ignored):
                    self._open(key, now)

    def _open(self, key: tuple[int, int], now: float) -> None:
        folder = f"/proc/{key[0]}/task/{key[1]}"
        files: list[int] = []
        try:
            files.append(os.open(f"{folder}/schedstat", os.O_RDONLY))
            seen = schedstat_of(os.pread(files[0], 80, 0))
            by_call = self.futex >= 0
            try:
                files.append(os.open(f"{folder}/{'syscall' if by_call else 'stat'}", os.O_RDONLY))
                os.pread(files[1], 400, 0)
            except OSError:  # no right to trace it
                by_call = False
                _close(files[1:])
                files[1:] = [os.open(f"{folder}/stat", os.O_RDONLY)]
            if key[0] == self.root:
                self.sees_waits = self.sees_waits and by_call
        except (OSError, ValueError):
            _close(files)
            return
        thread = _Thread(key[0], (files[0], files[1], by_call), seen, now)
        if self._counts_from_zero:
            thread.first = (0, 0)
        self.threads[key] = thread

    def report(self) -> dict[str, Any]:
        """All that was seen since `begin`: of each thread (process, ns that it ran, ns that it waited for a core, and
        ns that it was runnable, waited with a limit, waited without one); ``looked``: ns that the looks stand for;
        ``ended``: ns that the threads of processes below which ended meanwhile had run in all."""
        rows = [
            [thread.process, *thread.counted(), thread.runnable, thread.timed, thread.untimed]
            for thread in (*self.threads.values(), *self.ended)
        ]
        return {
            "points": self.points.rows,
            "threads": [row for row in rows if row[1] or row[2]],
            "looked": self.looked,
            "ended": sum(thread.now[0] for thread in self.ended if thread.process != self.root),
            "most": self.most,
            "sees_waits": self.sees_waits,
        }


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _close(files: Iterable[int]) -> None:
    for file in files:
        with contextlib.suppress(OSError):
            os.close(file)


def _say(what: dict[str, Any]) -> None:
    text = json.dumps(what).encode() + b"\n"
    while text:
        text = text[os.write(1, text) :]


def main(arguments: list[str]) -> int:
    """Look until told to end; see the module."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the notebook's
    root, period = int(arguments[0]), float(arguments[1]) / 1e3
    side = _Side(root, map(int, filter(None, arguments[2].split(","))))
    side.sample()
    _say({"ready": bool(side.threads)})
    asked = select.poll()
    asked.register(0, select.POLLIN | select.POLLHUP)
    due, length = time.perf_counter(), period
    while os.getppid() == root:
        if asked.poll(max(0.0, (due - time.perf_counter()) * 1e3)):
            said = os.read(0, 100)
            if b"begin" in said:
                side.begin(time.perf_counter())
                side.sample()
            if not said or b"end" in said:
                side.sample()
                _say(side.report())
                return 0
        began = time.process_time()
        side.sample()
        length = max(period, 0.9 * length + 0.1 * (time.process_time() - began) / MOST_SHARE)
        due = max(due + (length * side.rarer if side.samples >= FIRST else period), time.perf_counter())
    return 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (BrokenPipeError, KeyboardInterrupt):
        sys.exit(1)
