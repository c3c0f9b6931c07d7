"""What a thread wanted of the processors: running and waiting for a core, not sleeping."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from torchbench_magic.process.contention import WantedClock

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts the waiting for a core")
BUSY = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nprint(flush=True)\nwhile True: pass"
MS = 1_000_000


@contextmanager
def beside_a_busy_process() -> Iterator[None]:
    """This thread shares its only core with a process that computes: from time to time it waits for the core."""
    before = os.sched_getaffinity(0)
    core = min(before)
    with subprocess.Popen([sys.executable, "-c", BUSY, str(core)], stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None
            other.stdout.readline()  # it has begun
            os.sched_setaffinity(0, {core})
            yield
        finally:
            os.sched_setaffinity(0, before)
            other.kill()


@LINUX
def test_what_the_thread_waits_for_a_core_is_wanted_beside_what_it_ran() -> None:
    clock = WantedClock()
    with beside_a_busy_process():
        began, wanted, ran = time.perf_counter_ns(), clock(), time.thread_time_ns()
        while clock() - wanted < time.thread_time_ns() - ran + 5 * MS:  # it has waited for 5 ms
            pass
        now, whole = clock() - wanted, time.perf_counter_ns() - began
    clock.close()
    assert now >= 5 * MS
    assert now <= whole + MS, "a part of the time that passed"


@LINUX
def test_sleeping_wants_no_processor() -> None:
    clock = WantedClock()
    began, wanted = time.perf_counter_ns(), clock()
    time.sleep(0.05)
    now, whole = clock() - wanted, time.perf_counter_ns() - began
    clock.close()
    assert now <= whole - 50 * MS + MS, "of the time that passed, 50 ms were slept"


@pytest.mark.parametrize("text", [None, "", "nothing here"])
def test_without_the_kernels_counter_it_is_the_time_that_the_thread_ran(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "schedstat").write_text(text)
    clock = WantedClock(str(tmp_path / "schedstat"))
    before = time.thread_time_ns()
    now = clock()
    assert before <= now <= time.thread_time_ns()
    clock.close()


def test_what_waited_for_a_core_is_added(tmp_path: Path) -> None:
    waited = 7_000_000_000_000
    (tmp_path / "schedstat").write_text(f"5 {waited} 3\n")
    clock = WantedClock(str(tmp_path / "schedstat"))
    before = time.thread_time_ns()
    now = clock()
    assert before + waited <= now <= time.thread_time_ns() + waited
    clock.close()
    before = time.thread_time_ns()
    assert before <= clock() <= time.thread_time_ns()
