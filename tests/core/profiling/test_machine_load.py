"""A busy machine is said by a profile: how long threads waited for a core, and who had it."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torchbench_magic import load, profile  # noqa: E402
from torchbench_magic.process import contention  # noqa: E402
from torchbench_magic.process.contention import CoreWait, CoreWatch, Counters  # noqa: E402
from torchbench_magic.process.machine import thread_times  # noqa: E402
from torchbench_magic.profiling.recording import RecordedRun  # noqa: E402
from torchbench_magic.profiling.warnings import doubts_of_load  # noqa: E402
from torchbench_magic.results import Doubt  # noqa: E402


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
    assert "own threads, or processes it started, used the cores" in few.text
    assert "`--threads 1`" in few.action


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
