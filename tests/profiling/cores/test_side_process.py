"""What is read of threads, by planted texts and times; and the process that reads them, for real."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from torchbench_magic.profiling.cores import side_process
from torchbench_magic.profiling.cores.record import core_use, timeline_of
from torchbench_magic.profiling.cores.side_process import (
    BLOCKED,
    RUNNABLE,
    TIMED,
    UNTIMED,
    Points,
    schedstat_of,
    wait_kind,
)

LINUX = pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="needs Linux' schedstat")
SECOND = 1_000_000_000


def test_schedstat_is_run_and_wait() -> None:
    assert schedstat_of(b"1055003 20410 17\n") == (1055003, 20410)
    for text in (b"", b"12", b"a b c"):
        with pytest.raises(ValueError, match=r"no schedstat|invalid literal"):
            schedstat_of(text)


def test_what_a_thread_waits_for() -> None:
    kinds = {
        b"running\n": RUNNABLE,
        b"-1 0x7ffc 0x7f\n": BLOCKED,
        b"7 0x7f8f 0x1 0xf 0x0 0x0 0x0 0x7ffc 0x7f8f\n": BLOCKED,  # poll
        b"202 0x7f 0x89 0x0 0x7f8fc2 0x0 0xffffffff 0x7ffc 0x7f8f\n": TIMED,  # take_gil
        b"202 0x7f 0x189 0x0 0x0 0x0 0xffffffff 0x7ffc 0x7f8f\n": UNTIMED,  # threading.Lock
        b"202 0x5654 0x80 0x28 0x0 0x1 0x20000 0x7ffd 0x7f19\n": BLOCKED,  # libgomp
        b"202 0x5654 0x80 0x28 0x7fff 0x1 0x20000 0x7ffd 0x7f19\n": BLOCKED,
        b"202 0x5654\n": BLOCKED,
        b"": BLOCKED,
        b"202 x y z w\n": BLOCKED,
    }
    assert {text: wait_kind(text, 202) for text in kinds} == kinds


def test_points_stay_few_and_keep_totals_and_counts() -> None:
    points = Points(most=8)
    for at in range(1000):
        points.add((at, 2 * at, 3 * at, 0), at % 3, 10 if at < 500 else 40)
    assert len(points.rows) <= 9
    assert points.rows[0][:4] == [0, 0, 0, 0]
    assert points.rows[-1][:4] == [999, 1998, 2997, 0]
    assert sum(row[4] for row in points.rows) == 1000
    assert sum(row[5] for row in points.rows) == 500 * 10 + 500 * 40
    assert sum(row[6] for row in points.rows) == 167 * 10 + 167 * 40  # none runnable: each for as long as it stands for
    assert [row[0] for row in points.rows] == sorted(row[0] for row in points.rows)


def seen_of(*threads: tuple[int, ...], seconds: float = 1.0, run: float = 1.0, wait: float = 0.0) -> dict[str, Any]:
    """A report of a hundred looks at even distances; of threads in how many each was runnable, timed and untimed."""
    each = SECOND // 100
    rows = []
    for at in range(101):
        share = at / 100
        totals = [share * seconds, share * run, share * wait, 0.0]
        rows.append([*(round(total * SECOND) for total in totals), 1, each, 0, each])
    found = [[*thread[:3], *(each * looks for looks in thread[3:])] for thread in threads]
    return {"points": rows, "threads": found, "looked": SECOND, "most": 3, "sees_waits": True, "ended": 0}


def test_the_figures_of_a_stretch() -> None:
    seen = seen_of((1, SECOND // 2, SECOND // 2, 90, 0, 0), (1, SECOND // 2, 0, 50, 0, 0), (2, 1000, 0, 1, 0, 0))
    use = core_use(seen | {"threads": [*seen["threads"], (3, SECOND // 4, 0, 1, 0, 0)]}, 1, 0, SECOND)
    assert use.wall == 1.0
    assert use.run == pytest.approx(1.0)
    assert (use.threads, use.processes) == (3, 1)
    assert use.alone == 1.0


def test_only_what_lies_between_the_moments_counts() -> None:
    seen = seen_of(run=2.0, seconds=2.0, wait=1.0)
    use = core_use(seen, 1, SECOND // 2, SECOND)
    assert use.wall == pytest.approx(0.5)
    assert use.run == pytest.approx(1.0)
    assert use.wait == pytest.approx(0.5)
    timeline = timeline_of(seen, SECOND // 2, SECOND)
    assert timeline["time"].iloc[-1] == pytest.approx(0.5)
    assert timeline["running"].mean() == pytest.approx(1.0)


def test_threads_that_take_turns_are_told_from_those_that_poll_or_wait_for_work() -> None:
    turn, poller, idle = (1, SECOND // 4, 0, 25, 75, 0), (1, SECOND // 500, 0, 1, 99, 0), (1, 100, 0, 0, 0, 99)
    assert core_use(seen_of(turn, turn, turn, turn, poller, idle), 1, 0, SECOND).gil == pytest.approx(3.0, abs=0.05)
    assert core_use(seen_of((1, SECOND, 0, 99, 0, 0), poller), 1, 0, SECOND).gil == 0
    locked = (1, SECOND // 4, 0, 25, 0, 75)
    assert core_use(seen_of(*[locked] * 4, idle), 1, 0, SECOND).lock == pytest.approx(3.0, abs=0.05)
    elsewhere = (2, SECOND // 4, 0, 25, 75, 0)
    assert core_use(seen_of(elsewhere, elsewhere), 1, 0, SECOND).gil == 0


def test_looks_count_for_the_time_since_the_one_before_and_not_as_one_each() -> None:
    """Eighty rare looks of a second at work and twenty frequent ones of a second in turns are half of it, not 1/5."""
    seen = seen_of((1, SECOND, 0, 50, 50, 0), (1, SECOND, 0, 50, 50, 0))
    rows = [[at, at, 0, 0, 1, 50, 0, 0] for at in range(0, 1000, 50)]
    rows += [[at, at, 0, 0, 1, 10, 0, 10] for at in range(1000, 2000, 10)]
    ms = SECOND // 1000
    scaled = [[*(value * ms for value in row[:4]), 1, *(value * ms for value in row[5:])] for row in rows]
    use = core_use(seen | {"points": scaled}, 1, 0, 2 * SECOND)
    assert use.alone == pytest.approx(0.5, abs=0.03)
    assert use.gil == pytest.approx(1.0, abs=0.03)


@LINUX
def test_looks_become_rare_where_all_cores_run_own_threads_and_nowhere_else() -> None:
    side = side_process._Side(os.getpid(), (), clock=lambda: now)
    side.cores = 2
    for threads_running, expected in ((2.0, 4), (0.5, 1), (1.9, 4), (1.05, 1)):
        now, run = 0, 0
        side.begin(0.0)
        for _ in range(100):
            side._note_running(now, run, SECOND // 200 if now else 0)
            side.samples += 1
            now, run = now + SECOND // 200, run + round(threads_running * SECOND / 200)
        assert side.rarer == expected, threads_running
    side.cores, side.running = 1, 1.0  # threads that take turns fill one core
    assert side.rarer == 1


def test_of_nothing_seen_there_is_no_figure() -> None:
    nothing = {"points": [], "threads": [], "looked": 0, "most": 0, "sees_waits": True, "ended": 0}
    assert core_use(nothing, 1, 0, SECOND).run != core_use(nothing, 1, 0, SECOND).run
    assert timeline_of(nothing, 0, SECOND).empty
    assert timeline_of(seen_of(), 5 * SECOND, 6 * SECOND).empty


# ---- what is read of real threads ---------------------------------------------------------------------------------


class Clock:
    """In ns; a test moves it."""

    now = SECOND

    def __call__(self) -> int:
        return self.now

    def moves(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)


@pytest.fixture
def side() -> Iterator[side_process._Side]:
    """Looks at this process when the test says so."""
    made = side_process._Side(os.getpid(), (), clock=Clock())
    yield made
    for thread in made.threads.values():
        side_process._close(thread.files[:2])


def looks(side: side_process._Side, *, after: float) -> None:
    side._clock.moves(after)  # type: ignore[attr-defined]
    side.sample()


def begins(side: side_process._Side) -> None:
    side._clock.moves(1.0)  # type: ignore[attr-defined]
    side.begin(side._clock() / SECOND)
    side.sample()


def ran(process: int, thread: int) -> int:
    """ns, as the kernel counts them; what runs now is booked by its tick."""
    return schedstat_of(Path(f"/proc/{process}/task/{thread}/schedstat").read_bytes())[0]


def burn(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass
    time.sleep(0.001)  # it is booked


@LINUX
def test_what_a_thread_ran_is_what_the_kernel_counts_between_begin_and_the_last_look(side: side_process._Side) -> None:
    me = threading.get_native_id()
    burn(0.01)
    before = ran(os.getpid(), me)
    begins(side)
    first = ran(os.getpid(), me)
    burn(0.02)
    last = ran(os.getpid(), me)
    looks(side, after=0.01)
    after = ran(os.getpid(), me)
    counted = side.threads[os.getpid(), me].counted()[0]
    assert last - first <= counted <= after - before
    assert last - first >= 0.015 * SECOND, "what is to be seen at all"


@LINUX
def test_a_thread_that_waits_counts_for_the_time_of_the_looks_until_it_waits_for_long(
    side: side_process._Side,
) -> None:
    lock = threading.Lock()
    lock.acquire()
    thread = threading.Thread(target=lock.acquire)
    thread.start()
    key = os.getpid(), thread.native_id or 0
    try:
        while wait_kind(Path(f"/proc/self/task/{key[1]}/syscall").read_bytes(), side.futex) != UNTIMED:
            time.sleep(0.001)
        begins(side)
        looks(side, after=0.1)
        looks(side, after=0.1)
        seen = side.threads[key]
        assert (seen.kind, seen.untimed, seen.timed, seen.runnable) == (UNTIMED, SECOND // 5, 0, 0)
        looks(side, after=1.0)
        assert seen.untimed == SECOND // 5, "one that has not run for so long waits for work"
    finally:
        lock.release()
        thread.join()
    while os.path.exists(f"/proc/self/task/{key[1]}"):  # Python's thread ends before that of the system
        time.sleep(0.001)
    looks(side, after=1.0)
    assert key not in side.threads, "it has ended"


WATCHES = """import json, sys
sys.path.insert(0, sys.argv[1])
import side_process
root, main, other, place = map(int, sys.argv[2:])
print("ready", flush=True)
while b" %#x " % place not in open(f"/proc/{root}/task/{main}/syscall", "rb").read(): pass  # until it reads to there
side = side_process._Side(root, (), clock=lambda: 10**9)
kinds = [side_process.RUNNABLE] * 2
while kinds[1] == side_process.RUNNABLE:  # each few ms it asks again
    side.sample()
    kinds = [side.threads[root, thread].kind for thread in (main, other)]
print(json.dumps(kinds), flush=True)
"""


@LINUX
def test_a_thread_that_waits_for_the_interpreters_lock_waits_with_a_limit() -> None:
    """This one has the lock, in a call that does not let go of it, until another process has seen the other thread."""
    over, said = threading.Event(), ctypes.create_string_buffer(100)
    thread = threading.Thread(target=lambda: [None for _ in iter(over.is_set, True)])
    thread.start()
    folder = str(Path(side_process.__file__).parent)
    numbers = [os.getpid(), threading.get_native_id(), thread.native_id, ctypes.addressof(said)]
    command = [sys.executable, "-I", "-S", "-c", WATCHES, folder, *map(str, numbers)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            ctypes.PyDLL(None).read(process.stdout.fileno(), said, 100)
        finally:
            over.set()
            thread.join()
    assert json.loads(said.value) == [BLOCKED, TIMED]


@LINUX
def test_what_a_process_below_ran_is_counted_and_kept_when_it_has_ended(side: side_process._Side) -> None:
    text = "import time\nwhile time.thread_time() < 0.02: pass\nprint(flush=True)\ninput()"
    begins(side)
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        looks(side, after=1.0)
        looks(side, after=1.0)
        (thread,) = [each for key, each in side.threads.items() if key[0] == process.pid]
        assert thread.counted()[0] >= 0.02 * SECOND
        process.communicate("\n")
    looks(side, after=1.0)
    report = side.report()
    assert process.pid not in {key[0] for key in side.threads}
    assert report["ended"] == thread.now[0] >= 0.02 * SECOND
    assert report["points"][-1][3] >= 0.02 * SECOND
    assert [process.pid, *thread.counted(), thread.runnable, thread.timed, thread.untimed] in report["threads"]


# ---- the process ----------------------------------------------------------------------------------------------------


def started(parent: str = "") -> subprocess.Popen[str]:
    """The script, looking at this process; ``parent`` is the text of a process that starts it instead."""
    script = side_process.__file__
    if parent:
        return subprocess.Popen([sys.executable, "-c", parent, script], stdout=subprocess.PIPE, text=True)
    command = [sys.executable, "-I", "-S", script, str(os.getpid()), "5", ""]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def has_gone(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@LINUX
def test_it_ignores_interrupts_and_ends_when_told() -> None:
    process = started()
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        assert '"ready": true' in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.stdin.write("begin\n")
        process.stdin.flush()
        process.stdin.write("end\n")
        process.stdin.flush()
        assert '"points"' in process.stdout.readline()
        assert process.wait() == 0


@LINUX
def test_it_ends_when_its_input_ends() -> None:
    process = started()
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        process.stdout.readline()
        process.stdin.close()
        assert process.wait() == 0


@LINUX
def test_it_does_not_outlive_a_process_that_is_killed_even_if_a_child_holds_its_input() -> None:
    parent = (
        "import os, signal, subprocess, sys\n"
        "side = subprocess.Popen([sys.executable, '-I', '-S', sys.argv[1], str(os.getpid()), '5', ''],"
        " stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "side.stdout.readline()\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    os.close(1)\n"
        "    signal.pause()\n"
        "print(side.pid, child, flush=True)\n"
        "signal.pause()\n"
    )
    process = started(parent)
    assert process.stdout is not None
    with process:
        side, child = map(int, process.stdout.readline().split())
        process.kill()
        process.wait()
        try:
            while not has_gone(side):
                time.sleep(0.01)
        finally:
            os.kill(child, signal.SIGKILL)
