"""What a thread wanted of the processors: running and waiting for a core, not sleeping."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from torchbench_magic.core.machine.wanted_clock import WantedClock

BUSY = "import time\nend = time.time() + 20\nwhile time.time() < end: pass"


def wanted_share(clock: WantedClock, seconds: float, *, sleeps: bool) -> float:
    """Share of a stretch that the thread wanted a processor."""
    began, wanted = time.perf_counter_ns(), clock()
    if sleeps:
        time.sleep(seconds)
    while time.perf_counter_ns() - began < seconds * 1e9:
        pass
    return (clock() - wanted) / (time.perf_counter_ns() - began)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts the waiting for a core")
def test_computing_wants_a_processor_whoever_else_does_and_sleeping_wants_none() -> None:
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(4)]
    try:
        clock = WantedClock()
        time.sleep(0.2)  # the others have begun
        assert wanted_share(clock, 0.4, sleeps=False) > 0.9
        assert wanted_share(clock, 0.2, sleeps=True) < 0.5
    finally:
        for each in others:
            each.kill()
            each.wait()
    clock.close()


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
    (tmp_path / "schedstat").write_text("5 7000000000000 3\n")
    clock = WantedClock(str(tmp_path / "schedstat"))
    assert clock() - time.thread_time_ns() == pytest.approx(7e12, rel=1e-3)
    clock.close()
    assert clock() < 7e12
