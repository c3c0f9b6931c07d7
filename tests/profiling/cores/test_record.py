"""A run that is looked at: what comes of it, what is not available, and that nothing stays."""

from __future__ import annotations

import math
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.profiling.profiling_text import profiled
from torchbench_magic.process.contention import CoreWait, Counters
from torchbench_magic.process.machine import Limit, SystemFiles, cpu_quota
from torchbench_magic.profiling.cores import record, verdict
from torchbench_magic.profiling.cores.record import ConcurrencyRun, CoreFacts, SideWatch
from torchbench_magic.profiling.cores.verdict import (
    Concurrency,
    counts_to_compare,
    doubts_of_concurrency,
    proof_of,
    verdict_of,
)

torch = pytest.importorskip("torch")
LINUX = pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="needs Linux' schedstat")
BURN = """import time
def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end: pass
"""
LOOKED = f"""{BURN}import os
ROOT = os.getpid()
def watching():
    for task in os.listdir('/proc/self/task'):
        try:
            for child in open(f'/proc/self/task/{{task}}/children').read().split():
                if b'side_process' in open(f'/proc/{{child}}/cmdline', 'rb').read(): return int(child)
        except OSError: pass  # a thread or a process that has ended since
def reads(process):
    return int(open(f'/proc/{{process}}/io').read().split('syscr:')[1].split()[0])
def looked():
    '''Returns when the process that watches has looked at all threads anew: so many reads are of two looks at least.'''
    watcher = watching()
    until = reads(watcher) + 2 * 20 * (len(os.listdir('/proc/self/task')) + 2)
    while reads(watcher) < until: time.sleep(0.001)
"""


@pytest.fixture(autouse=True)
def an_answer_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is."""
    monkeypatch.setattr(record, "_PATIENCE", 1e6)


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


def seen_in(text: str, **options: Any) -> Concurrency:
    outcome = profiled(text, {"torch": torch, "__name__": "__main__"}, concurrency=True, **options)
    assert outcome.error is None, outcome.error
    seen = outcome.profile.concurrency
    assert seen is not None
    return seen


@LINUX
def test_what_threads_and_processes_used_is_in_what_was_seen_of_them() -> None:
    before = children()
    text = (
        f"{LOOKED}\nfrom multiprocessing import get_context\n"
        "def work(waits):\n    burn(0.03)\n    waits.recv()\n"
        "looked()\n"
        "fork = get_context('fork')\n"
        "ends, goes_on = fork.Pipe(duplex=False)\n"
        "child = fork.Process(target=work, args=(ends,))\n"
        "child.start()\n"
        "burn(0.02)\n"
        "time.sleep(0.11)\n"  # new processes are looked for each 0.1 s, then new threads each 0.02 s
        "looked()\n"
        "time.sleep(0.03)\n"
        "looked()\n"
        "goes_on.send(1)\n"
        "child.join()\n"
        "for each in (ends, goes_on, child): each.close()"
    )
    seen = seen_in(text)
    assert children() <= before
    use = seen.use
    assert use.run * use.wall >= 0.05
    assert use.below * use.wall >= 0.03
    assert use.below_run * use.wall >= 0.03
    assert use.processes <= 1
    assert use.samples >= 3
    assert 0 < seen.timeline["time"].iloc[-1] <= use.wall
    assert (seen.timeline["running"] >= 0).all()
    assert seen.verdict == verdict_of(use)
    assert not [each for each in seen.missing if each.startswith("Threads and")]


@LINUX
def test_the_proof_is_made_of_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict, "LEAST_WALL", math.inf)  # however long it takes: of one that waits there is none
    seen = seen_in("x = 1")
    assert (seen.verdict, seen.proof.splitlines()[0][:20]) == ("not available", "%%timer --threads 1,")
    assert seen.proof.splitlines()[-1] == "x = 1"


@LINUX
def test_steps_are_looked_at_each() -> None:
    from torchbench_magic.profiling.options import Schedule

    text = "from torchbench_magic import step\nfor i in range(4):\n    step()"
    outcome = profiled(text, {"torch": torch}, concurrency=True, schedule=Schedule(wait=1, active=1, repeat=2))
    assert outcome.error is None
    each = [cycle.concurrency for cycle in outcome.profile.cycles]
    assert len(each) == 2
    joined = outcome.profile.concurrency
    assert joined is not None
    assert joined.use.wall == pytest.approx(sum(seen.use.wall for seen in each if seen is not None))


def test_without_the_option_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SideWatch, "start", lambda self: pytest.fail("started"))
    assert profiled("x = 1", {}).profile.concurrency is None


# ---- what can go wrong ----------------------------------------------------------------------------------------------


@LINUX
def test_an_error_and_an_interrupt_keep_what_was_seen_and_leave_no_process() -> None:
    before, threads = children(), threading.active_count()
    for text in ("1 / 0", "import signal\nsignal.raise_signal(signal.SIGINT)\nburn(9)"):
        outcome = profiled(f"{LOOKED}looked()\nburn(0.02)\nlooked()\n{text}", {}, concurrency=True)
        assert outcome.error is not None
        assert outcome.profile.concurrency is not None
        assert outcome.profile.concurrency.use.run > 0
        assert not [each for each in outcome.profile.insights if not each.places], "a part of a run is not judged"
    assert children() <= before
    assert threading.active_count() == threads


@LINUX
def test_a_profile_that_does_not_begin_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchbench_magic.profiling import recorder

    def broken(self: object) -> None:
        raise RuntimeError("not today")

    before = children()
    monkeypatch.setattr(recorder.Kineto, "start", broken)
    with pytest.raises(RuntimeError, match="not today"):
        profiled("x = 1", {}, concurrency=True)
    assert children() <= before


def not_available(problem: str) -> None:
    seen = seen_in("x = 1")
    assert seen.verdict == "not available"
    assert problem in seen.missing[0]
    (doubt,) = doubts_of_concurrency(seen)
    assert doubt.kind == "concurrency-unknown"
    assert "\n" not in doubt.text


def test_without_proc_the_profile_comes_and_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    is_folder = os.path.isdir
    monkeypatch.setattr(os.path, "isdir", lambda path: not str(path).startswith("/proc") and is_folder(path))
    not_available("no /proc/PID/task")


@LINUX
def test_a_kernel_that_counts_no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record.os, "access", lambda path, mode: False)
    not_available("does not count how long threads wait")


@LINUX
@pytest.mark.parametrize("interpreter", ["/no/such/python", "/bin/true", "/bin/cat"])
def test_a_process_that_does_not_start_or_says_nothing(monkeypatch: pytest.MonkeyPatch, interpreter: str) -> None:
    monkeypatch.setattr(record.sys, "executable", interpreter)
    monkeypatch.setattr(record, "_PATIENCE", 0.1)
    not_available("did not start")


@LINUX
def test_a_process_that_is_killed_meanwhile() -> None:
    seen = seen_in(f"{LOOKED}import signal\nos.kill(watching(), signal.SIGKILL)")
    assert seen.verdict == "not available"
    assert "did not answer" in seen.missing[0]


def test_a_short_cell_is_said_to_be_too_short() -> None:
    run = ConcurrencyRun()
    run._facts = [CoreFacts(2, 0, 0, 10.0), CoreFacts(2, 0, 0, 10.1)]
    run._seen = seen_of([[at, 0, 0, 0, 1, 1, 0, 1] for at in range(0, 149_000_000, 10**6)])
    made = run.result(0, 149_000_000, None, 2)
    assert made.verdict == "not available"
    assert made.missing[0] == "The code ran for 149 ms: too short for a verdict (at least 150 ms)."


@LINUX
def test_a_cell_that_forks_reaps_changes_threads_and_affinity_is_looked_at_all_the_same() -> None:
    own, threads = os.sched_getaffinity(0), torch.get_num_threads()
    text = (
        f"{LOOKED}import torch\n"
        "child = os.fork()\n"
        "if not child: os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "torch.set_num_threads(1)\n"
        f"os.sched_setaffinity(0, {{{min(own)}}})\n"
        "looked()"
    )
    try:
        seen = seen_in(text)
    finally:
        os.sched_setaffinity(0, own)
        torch.set_num_threads(threads)
    assert seen.use.cores == 1
    if len(own) > 1:
        assert any("usable cores changed from" in each for each in seen.missing)
    assert seen.use.samples >= 1


@LINUX
def test_a_child_that_waits_for_any_child_takes_no_answer_away() -> None:
    text = (
        f"{LOOKED}looked()\n"
        "try:\n"
        "    while os.waitpid(-1, os.WNOHANG)[0]: pass\n"
        "except ChildProcessError: pass\n"
        "looked()\n"
    )
    seen = seen_in(text)
    assert seen.use.samples >= 2
    assert seen.verdict == verdict_of(seen.use)


def counters(**known: float) -> CoreWait:
    zero = Counters(1.0, 0, 0, 0, 0, 0, 0, 0, 0, windows=1)
    return CoreWait(1.0, replace(zero, **known), 1, 2)


def test_the_load_of_others_is_the_one_of_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "cores_under", lambda quota: 2)
    run = ConcurrencyRun()
    run._facts = [CoreFacts.read(Limit()), CoreFacts.read(Limit())]
    made = run.result(0, 10**9, counters(busy=1.5, own_cpu=1.0), 4)
    if len(os.sched_getaffinity(0)) > 1:
        assert made.use.ext == pytest.approx(0.5)
    assert made.torch_threads == 4
    unknown = run.result(0, 10**9, None, 4)
    assert math.isnan(unknown.use.ext)
    assert any(each.startswith("Load of other processes") for each in unknown.missing)


def test_threads_that_ended_unseen_are_in_the_sum_of_the_process() -> None:
    run = ConcurrencyRun()
    run._facts = [CoreFacts(2, 0, 0, 10.0), CoreFacts(2, 0, 0, 11.5)]
    points = [[round(at * 1e7), round(at * 1e7), 0, 0, 1, 1, 0, 1] for at in range(101)]
    run._seen = seen_of(points)
    assert run.result(0, 10**9, None, 2).use.run == pytest.approx(1.5)


def seen_of(points: list[list[int]], *threads: tuple[int, ...], ended: int = 0) -> dict[str, Any]:
    told = {"points": points, "threads": threads, "looked": 10**9, "most": 1, "sees_waits": True}
    return told | {"ended": ended}


def test_what_processes_below_waited_is_no_processor_time_of_this_process() -> None:
    """Six processes on two cores once ran on 5.6 of them."""
    run = ConcurrencyRun()
    run._facts = [CoreFacts(2, 0, 0, 10.0), CoreFacts(2, 0, 0, 10.1)]
    points = [[*(round(at * each) for each in (1e7, 1.9e7, 3.6e7, 5.4e7)), 1, 10**7, 0, 0] for at in range(101)]
    threads = [(1, 300_000_000, 600_000_000, 0, 0, 0)] * 6
    run._seen = seen_of(points, *threads)
    use = run.result(0, 10**9, None, 2).use
    assert use.run == pytest.approx(1.9)
    assert use.below_run == pytest.approx(1.8)


def test_processes_that_ended_before_they_were_seen_are_in_the_sum_and_the_time_was_not_idle() -> None:
    run = ConcurrencyRun()
    run._facts = [CoreFacts(2, 0, 0, 10.0, 3.0), CoreFacts(2, 0, 0, 10.02, 3.95)]
    half = 5 * 10**6
    points = [[*(round(at * each) for each in (1e7, 5e6, 0, 4.8e6)), 1, 2 * half, half, half] for at in range(101)]
    run._seen = seen_of(points, (1, 480_000_000, 0, 0, 0, 0), ended=480_000_000)
    made = run.result(0, 10**9, None, 2)
    assert made.use.run == pytest.approx(0.97)
    assert made.use.idle == pytest.approx(0.03)
    assert made.verdict == "serial"


def test_code_that_ended_early_is_not_judged() -> None:
    run = ConcurrencyRun()
    run._facts = [CoreFacts(2, 0, 0, 10.0), CoreFacts(2, 0, 0, 11.5)]
    made = run.result(0, 10**9, None, 2, partial=True)
    assert made.verdict == "not available"
    assert made.missing[0] == "The code ended early: no verdict."


@pytest.mark.parametrize(
    ("files", "share"),
    [
        ({"cpu.max": "50000 100000", "cpu.stat": "nr_periods 10\nnr_throttled 2"}, 0.5),
        ({"cpu.max": "max 100000", "cpu.stat": "nr_periods 10\nnr_throttled 2"}, 0.0),
        ({"cpu.max": "50000 100000"}, math.nan),
        ({}, math.nan),
    ],
)
def test_the_share_of_periods_in_which_a_quota_stopped_the_code(
    tmp_path: Path, files: dict[str, str], share: float
) -> None:
    folder = tmp_path / "sys/fs/cgroup"
    if files:
        folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    tree = SystemFiles(str(tmp_path))
    before = CoreFacts.read(cpu_quota(tree), tree)
    if "cpu.stat" in files:
        (folder / "cpu.stat").write_text("nr_periods 20\nnr_throttled 7")
    after = CoreFacts.read(cpu_quota(tree), tree)
    assert after.throttled_since(before) == pytest.approx(share, nan_ok=True)
    if "cpu.max" in files and "max" not in files["cpu.max"].split()[0]:
        assert after.cores == 1  # a quota of half a core


# ---- the proof ------------------------------------------------------------------------------------------------------


def test_the_thread_counts_that_are_worth_comparing() -> None:
    wanted = {(1, 1): {1, 2}, (2, 2): {1, 2}, (2, 8): {1, 2, 8}, (6, 6): {1, 2, 4, 6}, (64, 48): {1, 32, 48, 64}}
    for (cores, current), counts in (wanted | {(8, 1): {1, 4, 8}}).items():
        found = counts_to_compare(cores, current)
        assert counts <= set(found), (cores, current, found)
        assert list(found) == sorted(set(found)), (cores, current, found)
        assert len(found) <= 5, (cores, current, found)


def test_the_proof_is_the_cell_under_the_timer() -> None:
    assert proof_of("%%tprofile --concurrency -q\nx = f()\nx + 1", 2, 4) == "%%timer --threads 1,2,4\nx = f()\nx + 1"
    assert proof_of("y = 1\n%tprofile --concurrency f()", 2, 2) == "%%timer --threads 1,2"
    assert proof_of(None, 2, 2) == "%%timer --threads 1,2"
