"""Doubts about a profile: a busy machine, lines that wait for threads, and what is said of a device."""

from __future__ import annotations

import math
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.insights.test_training import LINE_2, LINE_3, steps
from tests.insights.test_training import device_profile_of as profile_of
from torchbench_magic import load, profile
from torchbench_magic.process import contention
from torchbench_magic.process.contention import CoreWait, CoreWatch, Counters
from torchbench_magic.process.machine import thread_times
from torchbench_magic.profiling import warnings
from torchbench_magic.profiling.line_events import LEAVE, entered
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.recorder import RecordedRun
from torchbench_magic.profiling.schema import LINE_COLUMNS, frame_of
from torchbench_magic.profiling.trace import Source
from torchbench_magic.profiling.view import document
from torchbench_magic.profiling.warnings import doubts_of_load, worked_on
from torchbench_magic.result_base import Doubt
from torchbench_magic.show.document import plain

from .profiles import profile_of_two_kernels
from .profiling_text import profiled
from .test_attribution import BODY, CODES, MAIN, WORKER, events, joined, stream

# ==== machine load ====================================================================================================
# A busy machine is said by a profile: how long threads waited for a core, and who had it.


def waits(
    waited: float, wall: float = 1.0, *, others: float = 0.0, active: int = 1, **more: float
) -> CoreWait:
    """What 1 s on two cores was: ``others`` in processor seconds."""
    zero = dict.fromkeys(("switches", "pressure", "steal", "throttled"), 0.0)
    counters: dict[str, Any] = {
        "wall": wall,
        "own_cpu": wall,
        "busy": wall + others,
        "ran": wall - waited,
        "waited": waited,
        "windows": 1,
        **zero,
        **more,
    }
    return CoreWait(wall, Counters(**counters), active=active, cores=2)


def kinds(doubts: list[Doubt]) -> list[str]:
    return [doubt.kind for doubt in doubts]


def test_a_step_that_waited_most_of_its_time_says_so_and_who_had_the_cores() -> None:
    (doubt,) = doubts_of_load(waits(0.9, others=1.9), 1)
    assert doubt.kind == "busy"
    assert "waited 900 ms for a core while this code ran for 1.00 s" in doubt.text
    assert "Other processes used 1.9 of 2 cores" in doubt.text
    assert "include this waiting" in doubt.text
    assert doubt.facts["waited"] == pytest.approx(0.9)


def test_what_others_took_is_never_beyond_the_machine() -> None:
    (doubt,) = doubts_of_load(waits(0.9, others=23.5), 1)
    assert "used 2.0 of 2 cores" in doubt.text


@pytest.mark.parametrize("load", [waits(0.2), waits(0.0009, 0.002), waits(math.nan), None])
def test_little_waiting_and_an_unknown_one_say_nothing(load: CoreWait | None) -> None:
    assert doubts_of_load(load, 2) == []


def test_own_threads_that_are_too_many_are_told_from_a_busy_machine() -> None:
    (doubt,) = doubts_of_load(waits(0.9, active=4), 4)
    assert doubt.kind == "oversubscribed"
    assert doubt.text.startswith("Oversubscribed: 4 threads share 2 usable cores. Threads of this process waited")
    assert "Busy" not in doubt.text
    assert "`--threads 2`" in doubt.action
    (few,) = doubts_of_load(waits(0.9, active=3), 2)
    assert few.text.startswith("Oversubscribed: this process's own threads used the cores. Threads")
    assert "`--threads 1`" in few.action


def test_processes_that_this_one_started_are_told_from_its_threads() -> None:
    (doubt,) = doubts_of_load(waits(0.9, children=1.7), 2)
    assert doubt.kind == "oversubscribed"
    assert "processes that this one started, such as workers of a loader, used 1.7 of 2 cores" in doubt.text
    assert "threads" not in doubt.action


def test_of_a_short_run_it_is_not_said_what_others_took() -> None:
    (one,) = doubts_of_load(waits(0.008, 0.009, others=0.02), 1)
    assert "threads of this process waited 8.00 ms" in one.text
    assert "rocesses used" not in one.text
    assert "own threads" not in one.text
    (several,) = doubts_of_load(waits(0.008, 0.009, others=0.02, active=4), 4)
    assert "too short to tell whether other processes or its own threads used the cores" in several.text


def test_the_hypervisor_and_the_quota_are_said_in_the_words_of_timings() -> None:
    assert kinds(doubts_of_load(waits(0.0, steal=0.5), 1)) == ["steal"]
    assert kinds(doubts_of_load(waits(0.0, 0.15, steal=0.01), 1)) == [], "one tick is none"
    assert kinds(doubts_of_load(waits(0.0, steal=0.05), 1)) == [], "that lengthens times by 5 % at most"
    (quota,) = doubts_of_load(waits(0.9, throttled=0.5, active=4), 4)
    assert quota.text == "The container's CPU quota stopped the process 50 % of the time."


def test_several_cycles_are_one_sum() -> None:
    (doubt,) = doubts_of_load(waits(0.5, others=1.8) + waits(0.1, others=0.2), 1)
    assert "waited 600 ms for a core while this code ran for 2.00 s" in doubt.text
    assert "used 1.0 of 2 cores" in doubt.text


def reading(monkeypatch: pytest.MonkeyPatch, *readings: Mapping[int, tuple[float, float]]) -> CoreWait:
    given = iter(readings)
    monkeypatch.setattr(contention, "thread_times", lambda: next(given))
    watch = CoreWatch(ignored=[7])
    watch.start()
    found = watch.stop(1.0)
    assert found is not None
    return found


def test_which_threads_count(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {1: (5.0, 2.0), 2: (1.0, 1.0), 7: (0.0, 0.0), 9: (3.0, 3.0)}
    after = {1: (5.4, 2.3), 2: (1.0, 1.5), 7: (0.1, 0.9), 11: (0.0, 0.2)}
    seen = reading(monkeypatch, before, after)
    assert seen.spent.waited == pytest.approx(0.3 + 0.5 + 0.2), "not the one that is ignored, nor one that ended"
    assert seen.active == 3


def test_a_thread_waits_no_longer_than_the_stretch(monkeypatch: pytest.MonkeyPatch) -> None:
    # a wait is booked when it ends, with what lay before the stretch
    seen = reading(monkeypatch, {1: (0.0, 0.0)}, {1: (0.1, 18.0)})
    assert seen.spent.waited == pytest.approx(1.0)


def test_it_is_in_the_warnings_and_kept_with_the_profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(CoreWatch, "stop", lambda watch, wall: waits(0.9, others=1.9))
    made = profile(lambda: torch.ones(3).sum())
    assert "busy" in kinds(made.warnings)
    assert "waited 900 ms for a core" in str(made)
    made.save(tmp_path / "runs.sqlite")
    (kept,) = load(tmp_path / "runs.sqlite")
    assert "busy" in kinds(kept.warnings)
    twice = profile(lambda: torch.ones(3).sum(), twice=True)
    assert {"busy", "dilation"} <= set(kinds(twice.warnings))


def test_cycles_have_their_own_and_their_sum_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    given = iter([waits(0.9, others=1.9), waits(0.3, others=0.3)])
    monkeypatch.setattr(CoreWatch, "stop", lambda watch, wall: next(given))
    text = "for i in range(4):\n    x.exp()\n    torchbench_magic.step()\n"
    import torchbench_magic

    names = {"x": torch.ones(3), "torchbench_magic": torchbench_magic}
    made = profile(text, globals=names, schedule="wait=1,active=1,repeat=2")
    assert [doubt.text.split(" while ")[0] for doubt in made.warnings if doubt.kind == "busy"] == [
        "Busy machine: threads of this process waited 1.20 s for a core"
    ]
    of_cycles = [doubt for each in made.cycles for doubt in each.warnings if doubt.kind == "busy"]
    assert [doubt.facts["waited"] for doubt in of_cycles] == [0.9, 0.3]


def test_the_reading_is_outside_the_time_and_in_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    moments: dict[str, int] = {}
    real_start, real_stop, real_leave = CoreWatch.start, CoreWatch.stop, RecordedRun.leave
    monkeypatch.setattr(contention, "thread_times", thread_times)

    def start(watch: CoreWatch) -> None:
        real_start(watch)
        moments["started"] = time.time_ns()

    def stop(watch: CoreWatch, wall: float) -> CoreWait | None:
        moments["stopping"] = time.time_ns()
        return real_stop(watch, wall)

    def leave(run: RecordedRun) -> None:
        real_leave(run)
        moments["begin"], moments["end"] = run.begin, run.end

    monkeypatch.setattr(CoreWatch, "start", start)
    monkeypatch.setattr(CoreWatch, "stop", stop)
    monkeypatch.setattr(RecordedRun, "leave", leave)
    made = profile("x = 1\n", memory=True, host_memory=True)
    assert moments["started"] <= moments["begin"] <= moments["end"] <= moments["stopping"]
    assert not len(made.ops)
    files = {source.file for source in made.sources.values()} - {__file__}  # the functions above are this test's
    assert all(file.startswith("<profile-") for file in files), files
    assert [each.kind for each in made.warnings if each.kind == "threads-unseen"] == []


@pytest.mark.skipif(not os.path.exists("/proc/thread-self/schedstat"), reason="counters of the kernel are Linux's")
def test_the_waiting_of_a_thread_is_what_the_kernel_counted_for_it() -> None:
    def own() -> tuple[float, float]:
        ran, waited = Path("/proc/thread-self/schedstat").read_text().split()[:2]
        return int(ran) / 1e9, int(waited) / 1e9

    before, read, after = own(), thread_times()[threading.get_native_id()], own()
    for least, found, most in zip(before, read, after, strict=True):
        assert least - 1e-9 <= found <= most + 1e-9


def test_where_the_thread_waited_all_the_time_a_profile_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's counters are planted: between the two readings this thread waits for as long as the body ran."""
    native, still = threading.get_native_id(), Counters.read({})
    readings = iter([{native: (0.0, 0.0)}, {native: (0.0, 1e9)}])
    monkeypatch.setattr(contention, "thread_times", lambda: next(readings))
    monkeypatch.setattr(Counters, "read", lambda *given: still)
    made = profile(lambda: time.sleep(0.02))
    (doubt,) = [each for each in made.warnings if each.kind in ("busy", "oversubscribed")]
    assert 0.02 <= doubt.facts["waited"] < 1e9, "no longer than the body ran"


# ==== waiting lines ===================================================================================================
# A line that waits for a thread of Python's, which runs torch, or for something else.


JOINED = """began = time.perf_counter()
def work():
    go.wait(); until = 3 * time.perf_counter() - 2 * began
    while len(x.sin()) and time.perf_counter() < until: pass
t = threading.Thread(target=work, name="mine")
t.start()
go.set(); t.join()
"""
"""The last line lasts twice as long as all before it together, however slow the machine is."""


@pytest.fixture
def any_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """No share of a time decides, and the thread of the cell has computed for nothing."""
    monkeypatch.setattr(warnings, "_LEAST_OUTSIDE", 0.0)
    monkeypatch.setattr(warnings, "_BESIDE", 0.0)
    set_own_cpu(monkeypatch, lambda run: 0)


def set_own_cpu(monkeypatch: pytest.MonkeyPatch, of: Callable[[RecordedRun], int]) -> None:
    monkeypatch.setattr(RecordedRun, "own_cpu", property(of))


def all_of_it(run: RecordedRun) -> int:
    return run.end - run.begin


def waiting_lines(text: str, **names: Any) -> tuple[list[Any], Any]:
    given = {"torch": torch, "threading": threading, "time": time, "x": torch.ones(3000), "go": threading.Event()}
    found = profiled(text, given | names).profile
    return [doubt for doubt in found.warnings if doubt.kind == "waits"], found


@pytest.mark.usefixtures("any_share")
def test_beside_a_line_that_waits_stands_the_torch_work_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    set_load(monkeypatch, 0.0)
    (said,), found = waiting_lines(JOINED)
    assert said.text.startswith("In[7]:7 waits, at least ")
    assert "Meanwhile thread mine computed: its torch work is at In[7]:4 (" in said.text
    assert 0 < said.facts["waited"] <= found.wall_time
    assert " of it waiting, beside thread mine, whose torch work is at In[7]:4" in plain(document(found).sentence)


def test_a_line_that_computes_beside_a_thread_does_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    set_own_cpu(monkeypatch, all_of_it)
    said, found = waiting_lines(JOINED)
    assert said == []
    assert "waiting" not in plain(document(found).sentence)


def set_load(monkeypatch: pytest.MonkeyPatch, waited: float | None) -> None:
    load = None if waited is None else CoreWait(0.3, replace(Counters.read({}), ran=0.0, waited=waited), 1, 2)
    monkeypatch.setattr(RecordedRun, "load", property(lambda run: load, lambda run, value: None))
    own = math.nan if waited is None else waited
    monkeypatch.setattr(RecordedRun, "own_waited", property(lambda run: own))


@pytest.mark.usefixtures("any_share")
def test_a_line_that_sleeps_is_not_called_python(monkeypatch: pytest.MonkeyPatch) -> None:
    set_load(monkeypatch, 0.0)
    (said,), found = waiting_lines("time.sleep(0.05)\n")
    assert said.text.startswith("In[7]:1 waits, at least ")
    assert 0.05 <= float(str(said.facts["waited"])) <= found.wall_time
    sentence = plain(document(found).sentence)
    assert "of it waiting" in sentence or ", at least " in sentence
    assert "Python" not in sentence


def test_a_line_that_computes_outside_torch_is_not_said_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    set_load(monkeypatch, 0.0)
    set_own_cpu(monkeypatch, all_of_it)
    said, found = waiting_lines("total = sum(range(30_000))\n")
    assert said == []
    assert "waiting" not in plain(document(found).sentence)


@pytest.mark.usefixtures("any_share")
@pytest.mark.parametrize("waited", [None, 1000.0])
def test_where_it_may_have_waited_for_a_core_it_is_not_said_to_sleep(
    monkeypatch: pytest.MonkeyPatch, waited: float | None
) -> None:
    set_load(monkeypatch, waited)
    said, found = waiting_lines("time.sleep(0.01)\n")
    assert said == []
    assert "waiting" not in plain(document(found).sentence)


@pytest.mark.usefixtures("any_share")
def test_that_other_threads_waited_for_a_core_does_not_hide_that_this_one_sleeps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_load(monkeypatch, 5.0)
    monkeypatch.setattr(RecordedRun, "own_waited", property(lambda run: 0.0))
    (said,), _ = waiting_lines("time.sleep(0.01)\n")
    assert said.text.startswith("In[7]:1 waits, at least ")


@pytest.mark.usefixtures("any_share")
def test_several_threads_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    set_load(monkeypatch, 0.0)
    text = JOINED.replace("t = ", "ts = [").replace('name="mine")', 'name="mine") for _ in range(2)]')
    text = text.replace("t.start()", "[t.start() for t in ts]").replace("t.join()", "[t.join() for t in ts]")
    (said,), _ = waiting_lines(text)
    assert "Meanwhile 2 threads (mine, …) computed: most of their" in said.text


# ---- which shares decide: on times that are made ----------------------------------------------------------------

MS = 1_000_000


def decided(
    own_cpu: int,
    *,
    waits_from: int = 50,
    in_op: int = 0,
    own_waited: float = 0.0,
) -> str:
    """What is said of 100 ms: a line in torch until ``waits_from``, then one that is not, to 95 ms.

    Args:
        in_op: ms for which a thread of Python's is in an op meanwhile.
    """
    ops = [{"name": "mm", "start": 0, "end": waits_from * MS}]
    within = {"start": 52 * MS, "end": (52 + in_op) * MS}
    ops += [{"name": "sin", **within, "native": WORKER, "tid": 2}] if in_op else []
    record = stream((0, entered(BODY)), (0, 1), (waits_from * MS, 2), (95 * MS, LEAVE))
    other = stream((0, entered(BODY)), (0, 1), (99 * MS, LEAVE), native=WORKER)
    given = joined(events(*ops), record, other, natives=(MAIN, WORKER), end=100 * MS)
    source = Source("s", "<cell>", "y = x @ x\nt.join()\n", cell=7)
    run: Any = SimpleNamespace(
        own_cpu=own_cpu * MS,
        own_waited=own_waited,
        python_threads={WORKER: "mine"},
        record=SimpleNamespace(streams=()),
    )
    said = warnings.waits_of_a_line(run, given, {CODES[BODY].co_filename: source})
    return "" if said is None else f"waits beside {said.facts['who']}" if "who" in said.facts else said.kind


def test_the_shares_from_which_on_a_line_is_said_to_wait() -> None:
    found = {
        "half of it not computed": decided(22),
        "less than half of it": decided(23),
        "with a wait for a core": decided(15, own_waited=0.01),
        "a fifth of the run": decided(0, waits_from=75),
        "less than a fifth of it": decided(0, waits_from=76),
        "a thread in torch for a quarter": decided(0, in_op=12),
        "for less than a quarter": decided(0, in_op=11),
    }
    assert found == {
        "half of it not computed": "waits",
        "less than half of it": "",
        "with a wait for a core": "",
        "a fifth of the run": "waits",
        "less than a fifth of it": "",
        "a thread in torch for a quarter": "waits beside thread mine",
        "for less than a quarter": "waits",
    }


# ==== device clauses ==================================================================================================
# What the sentence says of a device, on traces whose every event is given.


LINES = {
    "cell": [3, 3], "line": [2, 3], "source": ["busy(x)", "y.item()"], "file": ["<cell>"] * 2,
    "source_id": ["ab12"] * 2, "thread": [0, 0], "calls": [10, 10], "python_time": [0.0, 0.0],
}  # fmt: skip


def with_times(made: Profile, cpu: tuple[float, float], device: tuple[float, float], **more: Any) -> Profile:
    times = {"wall_time": cpu, "self_cpu_time": cpu, "cpu_time": cpu, "self_device_time": device, "device_time": device}
    lines = frame_of(LINE_COLUMNS, LINES | {name: list(values) for name, values in times.items()})
    return profile_of_two_kernels(lines=lines, trace=made.trace, wall_time=made.wall_time, **more)


def head(made: Profile) -> str:
    return " ".join(re.split(r"\n\n|\n\*", str(made))[0].split())


def test_the_head_of_a_run_that_a_device_bounds_is_about_the_device_and_says_where_the_host_waits() -> None:
    """Kernels of 3 ms, and a read after each: the line that reads has the host's time, the other the device's."""
    events = [("kernel", 2, 3.0 * at, 2.95, LINE_2) for at in range(10)]
    events += [("runtime", 1, 3.0 * at + 0.1, 2.8, LINE_3) for at in range(10)]
    made = with_times(profile_of(*events, wall=0.03), (0.001, 0.028), (0.0295, 0.0))
    said = "In[3]:2 launches all of the work of cuda:0 (29.5 ms), which is busy for 98 % of the time (30.0 ms)"
    assert head(made) == f"{said}; the host waits for it at In[3]:3 (28.0 ms)"


def test_a_line_that_waits_is_not_said_to_work_in_torch() -> None:
    made = with_times(profile_of(*steps(5, wait=2.9, gap=5.0), wall=0.04), (0.001, 0.0145), (0.015, 0.0))
    said = "In[3]:3 takes 36 % of the time (14.5 of 40.0 ms), nearly all of it waiting for the device"
    assert head(made) == f"{said}, for what In[3]:2 launched"


def test_a_line_that_waits_for_its_own_work_names_no_other() -> None:
    events = [("kernel", 2, 8.0 * at, 3.0, LINE_3) for at in range(5)]
    events += [("runtime", 1, 8.0 * at + 0.1, 2.9, LINE_3) for at in range(5)]
    made = with_times(profile_of(*events, wall=0.04), (0.001, 0.0145), (0.0, 0.015))
    assert head(made).endswith("nearly all of it waiting for the device")


def test_a_short_wait_on_a_line_is_not_named() -> None:
    made = with_times(profile_of(*steps(5, wait=0.5, gap=5.0), wall=0.04), (0.001, 0.0145), (0.015, 0.0))
    assert "nearly all of it in torch" in head(made)


def test_that_the_host_ran_ahead_is_said_with_the_time_at_which_the_code_ended() -> None:
    doubt = worked_on(0.0462, 0.0476)
    assert doubt is not None
    assert doubt.kind == "device-after"
    assert doubt.text.startswith("When the code had ended, after 1.40 ms, the device worked on for 46.2 ms")
    made = with_times(
        profile_of(("kernel", 2, 0.1, 47.4, LINE_2), wall=0.0476), (0.0013, 0.0), (0.0474, 0.0), warnings=[doubt]
    )
    said = "In[3]:2 launches all of the work of cuda:0 (47.4 ms), which is busy for 100 % of the time (47.6 ms)"
    assert head(made).startswith(f"{said}; the code itself ends after 1.40 ms")


@pytest.mark.parametrize(("after", "wall"), [(0.0, 0.01), (1e-5, 0.01), (1e-5, 3e-5), (0.0, 0.0)])
def test_a_device_that_has_ended_with_the_code_is_no_doubt(after: float, wall: float) -> None:
    assert worked_on(after, wall) is None
