"""What others took while something was measured, and what a thread wanted."""

from __future__ import annotations

import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from torchbench_magic.process import contention
from torchbench_magic.process.contention import Counters, WantedClock, blurred, contention_between

# ==== contention ======================================================================================================
# What others took while something was measured: nothing beyond the machine, and nothing where it cannot be known.


LINUX = pytest.mark.skipif(not os.path.exists("/proc/stat"), reason="counters of the kernel are Linux's")


def spent(wall: float, busy: float, own: float = 0.0, windows: int = 1, **more: float) -> Counters:
    zero = dict.fromkeys(("switches", "pressure", "steal", "ran", "waited", "throttled"), 0.0)
    return Counters(wall=wall, own_cpu=own, busy=busy, windows=windows, **(zero | more))  # type: ignore[arg-type]


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contention, "affinity", lambda: frozenset({0, 1}))


@pytest.mark.usefixtures("two_cores")
def test_no_figure_exceeds_what_the_machine_has() -> None:
    seen = contention_between(spent(1.0, 23.5, steal=9.0, pressure=1.2, throttled=3.0))
    assert (seen.ext, seen.steal, seen.pressure, seen.throttled) == (2.0, 2.0, 1.0, 1.0)


@pytest.mark.usefixtures("two_cores")
def test_of_a_time_of_few_ticks_the_load_of_others_is_not_known() -> None:
    # Two ticks of 10 ms more were booked than there was time for: 23 cores in 1 ms, said of 2.
    seen = contention_between(spent(0.001, 0.0235))
    assert math.isnan(seen.ext)
    assert math.isnan(seen.steal)
    assert contention_between(spent(1.0, 0.9)).ext == pytest.approx(0.9)


@pytest.mark.usefixtures("two_cores")
def test_many_short_windows_are_as_good_as_their_errors_add_up() -> None:
    assert not blurred(spent(0.2, 0.0))
    assert blurred(spent(0.1, 0.0))
    one = spent(0.02, 0.01)
    whole = one
    for _ in range(8):
        whole = whole + one
    assert whole.windows == 9
    assert blurred(whole)
    assert not blurred(spent(1.0, 0.0, windows=50))


@pytest.mark.usefixtures("two_cores")
def test_a_difference_of_two_readings_is_one_window() -> None:
    assert (Counters.read() - Counters.read()).windows == 1


@pytest.mark.usefixtures("two_cores")
def test_what_the_system_does_not_tell_stays_unknown() -> None:
    seen = contention_between(spent(1.0, math.nan, steal=math.nan, ran=math.nan, waited=math.nan))
    assert all(math.isnan(value) for value in (seen.ext, seen.steal, seen.wanted, seen.waiting))


BURNS = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ntime.sleep(600)"


@pytest.mark.usefixtures("two_cores")
@LINUX
def test_a_child_counts_as_own_while_it_lives_and_not_anew_when_it_is_reaped() -> None:
    before = Counters.read()
    child = subprocess.Popen([sys.executable, "-c", BURNS], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        alive = Counters.read()
    finally:
        child.kill()
        child.communicate()
    reaped = Counters.read().own_cpu
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    known = sum(one.ru_utime + one.ru_stime for one in used) + contention._living_children()
    assert alive.own_cpu - before.own_cpu >= (alive - before).children >= 0.15, "0.2 s, counted in ticks of 10 ms"
    assert reaped <= known + 0.03, "counted both as one that lives and as one that was reaped"


@pytest.mark.usefixtures("two_cores")
@LINUX
def test_a_grandchild_is_a_child_too() -> None:
    code = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', sys.argv[1]])"
    child = subprocess.Popen([sys.executable, "-c", code, BURNS], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        of, own = contention.children_of, [str(child.pid)]
        assert own[0] in of()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(contention, "children_of", lambda pid="self": own[:] if pid == "self" else [])
            alone = contention._living_children()
            patched.setattr(contention, "children_of", lambda pid="self": own[:] if pid == "self" else of(pid))
            both = contention._living_children()
        assert both - alone >= 0.15, "0.2 s, counted in ticks of 10 ms"
    finally:
        for pid in contention.children_of(str(child.pid)):
            os.kill(int(pid), 9)
        child.communicate()


# ==== wanted clock ====================================================================================================
# What a thread wanted of the processors: running and waiting for a core, not sleeping.


WAITS_COUNTED = pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts the waiting for a core")
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


@WAITS_COUNTED
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


@WAITS_COUNTED
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
