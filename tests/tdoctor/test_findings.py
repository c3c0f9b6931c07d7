"""Findings: each from facts, in their order, as a frame, as JSON and as text."""

from __future__ import annotations

import json
import math
import os
import pickle
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.process.trees import tree
from torchbench_magic.process import machine
from torchbench_magic.process.contention import Contention, Counters
from torchbench_magic.process.machine import NativeLibrary
from torchbench_magic.tdoctor import examination
from torchbench_magic.tdoctor.examination import (
    BusyProcess,
    WatchedLoad,
    accelerator_finding,
    build_findings,
    limit_findings,
    load_findings,
    memory_findings,
    nvidia_driver,
    openmp_finding,
    processor_findings,
    tool_findings,
    watch_load,
)
from torchbench_magic.tdoctor.findings import Diagnosis, Finding, SelfTest

# ==== findings ========================================================================================================
# Each finding from facts: what is well, what spoils a measurement, what is not known.


CG, CPUS = "/sys/fs/cgroup", "/sys/devices/system/cpu"
QUIET = Contention(wall=0.5, pressure=0.0, steal=0.0, ext=0.02, throttled=0.0)


def of(findings: Iterable[Finding], kind: str) -> Finding:
    (found,) = [one for one in findings if one.kind == kind]
    return found


def states(findings: Iterable[Finding]) -> dict[str, str]:
    return {one.kind: one.state for one in findings}


# ---- load ---------------------------------------------------------------------------------------------------


def test_a_quiet_machine_has_nothing_to_say_of_its_load() -> None:
    found = list(load_findings(WatchedLoad(QUIET, 0.0, ()), 4))
    assert states(found) == {"outside load": "ok", "waiting": "ok", "steal": "ok"}
    assert of(found, "outside load").text == "Other processes use 0.02 of 4 cores."


def test_other_processes_are_named_with_what_they_use() -> None:
    busy = (BusyProcess("stress", 7, 0.9), BusyProcess("make", 8, 0.3))
    seen = WatchedLoad(Contention(wall=0.5, pressure=0.5, steal=0.2, ext=1.25, throttled=0.1), 0.4, busy)
    found = list(load_findings(seen, 2))
    assert states(found) == dict.fromkeys(("outside load", "own load", "waiting", "steal"), "warn")
    load = of(found, "outside load")
    assert load.text == (
        "Other processes use 1.25 of 2 cores, mostly stress (pid 7): absolute times are unreliable."
    )
    assert load.evidence == "in 0.5 s; most used by stress (pid 7) 0.90, make (pid 8) 0.30"
    assert all(one.fix for one in found)


@pytest.mark.parametrize("busiest", [None, (), (BusyProcess("sh", 3, 0.1),)])
def test_load_of_processes_that_cannot_be_seen_is_said_to_be(busiest: tuple[BusyProcess, ...] | None) -> None:
    seen = WatchedLoad(Contention(wall=0.5, ext=1.0, pressure=0.0, steal=0.0, throttled=0.0), 0.0, busiest)
    assert "are not visible here" in of(load_findings(seen, 2), "outside load").evidence


def test_where_there_is_no_proc_each_says_that_it_is_not_known() -> None:
    unknown = WatchedLoad(Contention(wall=0.5), 0.0, None, average=1.5)
    found = list(load_findings(unknown, 4))
    assert states(found) == dict.fromkeys(("outside load", "waiting", "steal"), "not available")
    assert of(found, "outside load").evidence == "load average over one minute: 1.50"


def ran(pid: int, name: str, parent: int, ticks: int) -> dict[str, str]:
    """What /proc tells of a process that ran for so many ticks of 10 ms, three of four of them in the kernel."""
    return {f"/proc/{pid}/stat": f"{pid} ({name}) S {parent} {'0 ' * 9}{ticks // 4} {ticks - ticks // 4} 0 0 20"}


def test_processes_that_ran_are_told_by_their_cores_and_those_that_this_one_started_are_its_own(tmp_path: Path) -> None:
    here = os.getpid()
    before = ran(here, "me", 1, 50) | ran(7, "a (b) c", 1, 900) | ran(8, "quiet", 1, 10) | ran(9, "child", here, 0)
    after = ran(here, "me", 1, 60) | ran(7, "a (b) c", 1, 950) | ran(8, "quiet", 1, 12) | ran(9, "child", here, 40)
    after |= ran(10, "grandchild", 9, 30) | ran(11, "new", 1, 20)
    moments = [Counters(*at, 0, 0, 0, busy, 0, 0, 0) for *at, busy in ((5.0, 1.0, 100.0), (5.5, 1.2, 101.0))]

    def sleep(seconds: float) -> None:
        assert seconds == 0.5
        tree(tmp_path, after)

    seen = watch_load(tree(tmp_path, before), 0.5, sleep, lambda: moments.pop(0))
    assert seen.busiest == (BusyProcess("a (b) c", 7, 1.0), BusyProcess("new", 11, 0.4))
    assert seen.own == pytest.approx(0.4)
    assert seen.contention.ext == pytest.approx(min(1.6, len(os.sched_getaffinity(0))))


def test_a_process_that_computes_is_seen_by_its_name_and_what_this_one_started_is_its_own() -> None:
    """As often as is looked until the scheduler has let each of them run."""
    spin = "while True: pass"
    # its parent ends at once, so that it is no child of ours; it holds none of the pipes
    started = f"subprocess.Popen([sys.executable, '-c', {spin!r}], stdout=-3, stderr=-3)"
    script = f"import subprocess, sys; print({started}.pid)"
    pid = int(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout)
    own = subprocess.Popen([sys.executable, "-c", spin])
    missing = {"other", "own", "outside"}
    try:
        while missing:
            seen = watch_load(seconds=0.15)
            assert seen.busiest is not None
            names = {one.pid: one.name for one in seen.busiest}
            assert "python" in names.get(pid, "python")
            assert own.pid not in names
            is_seen = {"other": pid in names, "own": seen.own > 0.1, "outside": seen.contention.ext > 0.1}
            missing -= {what for what, is_so in is_seen.items() if is_so}
    finally:
        os.kill(pid, 9)
        own.kill()
        own.wait()


def test_processes_of_a_hidden_proc_are_no_error(tmp_path: Path) -> None:
    assert watch_load(tree(tmp_path, {"/proc/1/comm": "init"}), 0.01).busiest is None
    odd = tree(tmp_path, {"/proc/1/stat": "1 (a) b) c) S 0 1", "/proc/x/stat": "", "/proc/2/stat": "not a line"})
    assert watch_load(odd, 0.01).busiest is None


# ---- limits -------------------------------------------------------------------------------------------------


class Box:
    """A machine with so many processors, of which all may be used unless fewer are said."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.patch = root, monkeypatch
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            monkeypatch.delenv(name, raising=False)

    def findings(
        self, threads: int, installed: int, *, own: int | None = None, quota: float | None = math.inf, stat: str = ""
    ) -> dict[str, Finding]:
        files = {"/proc/cpuinfo": ""} if quota is None else {f"{CG}/cgroup.procs": "", f"{CG}/cpu.stat": stat}
        if quota is not None and quota < math.inf:
            files[f"{CG}/cpu.max"] = f"{int(quota * 1e5)} 100000"
        self.patch.setattr(os, "cpu_count", lambda: installed)
        for module in (examination, machine):
            self.patch.setattr(module, "affinity", lambda: frozenset(range(installed if own is None else own)))
        return {one.kind: one for one in limit_findings(threads, tree(self.root / f"{threads} {quota}", files))}


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Box:
    return Box(tmp_path, monkeypatch)


def test_a_machine_of_its_own_is_well(box: Box) -> None:
    assert states(box.findings(8, 8).values()) == {"threads": "ok", "affinity": "ok", "quota": "ok"}


def test_more_threads_than_cores_wait_for_each_other(box: Box) -> None:
    found = box.findings(8, 8, own=2)
    assert found["threads"].state == "warn"
    assert found["threads"].text == "torch uses 8 threads on 2 usable cores: the threads wait for each other."
    assert found["threads"].fix.startswith("`torch.set_num_threads(2)`")
    assert found["affinity"].evidence == "sched_getaffinity: 0-1; os.cpu_count() 8"


def test_half_a_core_stops_even_one_thread(box: Box) -> None:
    found = box.findings(1, 8, quota=0.5, stat="nr_periods 10\nnr_throttled 4")
    assert states(found.values()) == {
        "threads": "not available", "affinity": "ok", "quota": "warn", "throttling": "warn",
    }  # fmt: skip
    assert found["threads"].text == "torch uses 1 thread on 1 usable core: thread counts cannot be compared here."
    assert found["quota"].text.startswith("The cgroup's quota is 0.5 cores: even one thread is stopped")
    assert f"{CG}/cpu.max: 50000 100000; os.cpu_count() 8" == found["quota"].evidence
    assert "40 %" in found["throttling"].text


def test_a_quota_below_the_processors_without_a_number_of_threads(box: Box) -> None:
    assert box.findings(2, 8, quota=2.0)["quota"].fix == "Set OMP_NUM_THREADS=2 before Python starts."
    assert box.findings(2, 8, quota=1.5)["quota"].text == (
        "The cgroup's quota is 1.5 cores, less than torch's 2 threads: they are stopped for part of each period."
    )
    box.patch.setenv("OMP_NUM_THREADS", "2")
    assert box.findings(2, 8, quota=2.0)["quota"].state == "ok"


def test_where_neither_affinity_nor_cgroups_are_known(box: Box) -> None:
    found = box.findings(8, 8, own=0, quota=None)
    assert states(found.values()) == {"threads": "ok", "affinity": "not available", "quota": "not available"}


MEMINFO = "MemTotal: 1000 kB\nMemFree: 10 kB\nMemAvailable: {} kB\nHugePages_Total: 0\n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"/proc/meminfo": MEMINFO.format(900)}, {"memory": "ok"}),
        ({"/proc/meminfo": MEMINFO.format(50)}, {"memory": "warn"}),
        (
            {"/proc/meminfo": MEMINFO.format(900), f"{CG}/memory.max": "1000", f"{CG}/memory.current": "990"},
            {"memory": "ok", "memory limit": "warn"},
        ),
        (
            {
                "/proc/meminfo": MEMINFO.format(900),
                f"{CG}/memory.max": "1000",
                f"{CG}/memory.current": "990",
                f"{CG}/memory.stat": "anon 5\ninactive_file 800\n",
            },
            {"memory": "ok", "memory limit": "ok"},
        ),
        ({f"{CG}/memory.max": "1000"}, {"memory limit": "not available"}),
        ({}, {"memory": "not available"}),
    ],
)
def test_memory(tmp_path: Path, files: dict[str, str], expected: dict[str, str]) -> None:
    assert states(memory_findings(tree(tmp_path, files))) == expected


# ---- builds -------------------------------------------------------------------------------------------------


def test_release_builds_without_hooks_are_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "active_hooks", lambda: ())
    assert states(build_findings()) == {"hooks": "ok"}


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_what_slows_every_operation_down(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.version, "debug", True)
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    was = sys.getprofile()
    sys.setprofile(lambda *_: None)
    try:
        with torch.autograd.detect_anomaly(check_nan=False):
            found = list(build_findings())
    finally:
        sys.setprofile(was)
    assert states(found) == dict.fromkeys(("debug build", "hooks", "torch checks"), "warn")
    assert of(found, "debug build").text == "torch, built for debugging: all code takes several times as long."
    assert "sys.setprofile: tests.tdoctor.test_findings" in of(found, "hooks").evidence
    assert of(found, "torch checks").evidence == "torch.autograd.set_detect_anomaly(True), CUDA_LAUNCH_BLOCKING=1"
    assert all(one.fix for one in found)


# ---- libraries, clock, tools --------------------------------------------------------------------------------


def library(kind: str, name: str, place: str) -> NativeLibrary:
    return NativeLibrary(kind, name, f"lib{name}.so", place, f"/{place}/lib{name}.so")


def test_two_openmp_runtimes_are_said_with_their_packages() -> None:
    both = [library("OpenMP", "gomp", "torch"), library("OpenMP", "iomp5", "mkl")]
    found = openmp_finding(both)
    assert found.state == "warn"
    assert found.text.startswith("2 OpenMP runtimes are loaded")
    assert found.evidence == "libgomp.so (torch), libiomp5.so (mkl)"
    twice = [library("OpenMP", "gomp", "torch"), library("OpenMP", "gomp", "sklearn")]
    assert openmp_finding(twice).text.startswith("libgomp is loaded 2 times")


def test_one_openmp_runtime_is_well_beside_other_libraries() -> None:
    found = openmp_finding([library("OpenMP", "gomp", "torch"), library("BLAS", "openblas", "numpy")])
    assert (found.state, found.text) == ("ok", "One OpenMP runtime is loaded: libgomp.")
    assert openmp_finding(()).state == "ok"
    assert openmp_finding(None).state == "not available"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, {"governor": "not available", "turbo": "not available"}),
        (
            {f"{CPUS}/cpu0/cpufreq/scaling_governor": "ondemand", f"{CPUS}/cpufreq/boost": "1"},
            {"governor": "warn", "turbo": "ok"},
        ),
        (
            {
                f"{CPUS}/cpu0/cpufreq/scaling_governor": "powersave",
                f"{CPUS}/cpu0/cpufreq/scaling_driver": "intel_pstate",
            },
            {"governor": "ok", "turbo": "not available"},
        ),
        (
            {
                f"{CPUS}/cpu0/cpufreq/scaling_governor": "performance",
                "/sys/class/power_supply/AC/type": "Mains",
                "/sys/class/power_supply/AC/online": "0",
            },
            {"governor": "ok", "turbo": "not available", "power": "warn"},
        ),
        (
            {
                f"{CPUS}/cpu0/cpufreq/scaling_governor": "performance",
                f"{CPUS}/intel_pstate/no_turbo": "1",
                "/sys/class/power_supply/AC/type": "Mains",
                "/sys/class/power_supply/AC/online": "1",
            },
            {"governor": "ok", "turbo": "ok"},
        ),
    ],
)
def test_the_clock(tmp_path: Path, files: dict[str, str], expected: dict[str, str]) -> None:
    assert states(processor_findings(tree(tmp_path, files))) == expected


def test_a_guest_is_told_why_nothing_is_known_of_its_clock(tmp_path: Path) -> None:
    found = of(processor_findings(tree(tmp_path, {"/proc/cpuinfo": "flags : fpu hypervisor sse\n"})), "governor")
    assert found.evidence == "virtual machine: the host sets the clock"


@pytest.mark.parametrize(
    ("name", "backend", "driver", "state", "word"),
    [
        ("NVIDIA H100", "CUDA 13.0", "/dev/nvidia0", "ok", "torch uses NVIDIA H100."),
        (None, "", "", "ok", "No accelerator"),
        (None, "", "/dev/nvidia0", "not available", "this torch cannot use it"),
        (None, "CUDA 13.0", "", "not available", "no driver is found"),
        (None, "CUDA 13.0", "/dev/nvidia0", "not available", "torch finds no usable GPU"),
    ],
)
def test_accelerators(name: str | None, backend: str, driver: str, state: str, word: str) -> None:
    found = accelerator_finding(name, backend, driver)
    assert found.state == state
    assert word in found.text


def test_a_driver_is_found_by_its_files(tmp_path: Path) -> None:
    assert nvidia_driver(tree(tmp_path, {"/dev/nvidia0": ""})) == "/dev/nvidia0"
    assert nvidia_driver(tree(tmp_path / "none", {"/dev/null": ""})) == ""


def test_missing_tools_say_how_they_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    found = list(tool_findings())
    assert states(found) == dict.fromkeys(("valgrind", "compiler"), "not available")
    assert "`sudo apt-get install valgrind`" in of(found, "valgrind").fix
    assert "`sudo apt-get install g++`" in of(found, "compiler").fix
    assert of(found, "valgrind").text == "Instruction counts (`--callgrind`) are not available."


# ==== diagnosis =======================================================================================================
# The order of findings, and the diagnosis as a frame, as JSON and as text.


OK = Finding("threads", "ok", "torch uses 2 threads on 2 usable cores.", "torch.get_num_threads() 2")
LOAD = Finding(
    "outside load", "warn", "Other processes use 1.20 of 2 cores: absolute times are unreliable.", "in 0.5 s", "Wait."
)
MEMORY = Finding("memory", "warn", "Memory is scarce: 1 of 9 GiB.", "/proc/meminfo", "Free memory.")
UNKNOWN = Finding("turbo", "not available", "Whether turbo is on is unknown.")
NOVEL = Finding("something new", "warn", "Something is new.", "", "Look.")
NO_LOAD = Finding("outside load", "ok", "Other processes use 0.02 of 2 cores.")
TEST = SelfTest("product", 2e-4, 1.001, 0.98, 1.02, "undecided", 1.3)


def test_what_spoils_most_comes_first_and_what_is_well_last() -> None:
    made = Diagnosis((OK, UNKNOWN, NOVEL, MEMORY, LOAD))
    assert [one.kind for one in made.findings] == ["outside load", "memory", "something new", "turbo", "threads"]
    assert made.warnings == (LOAD, MEMORY, NOVEL)


def sentence(made: Diagnosis) -> str:
    return str(made).partition("\n\n")[0].replace("\n", " ")


def test_the_sentence_is_the_worst_or_that_the_machine_can_be_trusted() -> None:
    worst = "Other processes use 1.20 of 2 cores: absolute times are unreliable"
    assert sentence(Diagnosis((OK, LOAD))) == worst
    assert sentence(Diagnosis((OK, MEMORY, LOAD))) == f"{worst}; 1 more problem below"
    assert sentence(Diagnosis((NOVEL, MEMORY, LOAD))) == f"{worst}; 2 more problems below"
    trusted = "This machine is ready to measure: nothing was found that distorts a measurement"
    assert sentence(Diagnosis((OK, NO_LOAD, UNKNOWN))) == trusted
    assert sentence(Diagnosis((NO_LOAD,), (TEST,))) == trusted


def test_the_self_test_stands_below_with_what_it_resolves() -> None:
    said = str(Diagnosis((NO_LOAD, LOAD), (TEST,)))
    assert "\n\nDifferences of 2.0 % or more can be resolved now (worst: product)\n\n" in said
    assert said.index("outside load: Wait.") < said.index("Differences of") < said.index("0.98 … 1.02")
    explored = Diagnosis((NO_LOAD,), (TEST,)).explore()
    assert [table.name for table in explored.document.tables] == ["findings", "self-test"]
    assert "Differences of 2.0 % or more" in str(explored.table.spec["sentence"])


def test_a_machine_whose_load_is_not_known_is_not_called_trusted() -> None:
    unknown = Finding("outside load", "not available", "What other processes use is not known: no /proc/stat here.")
    said = "Nothing was found that distorts a measurement, but the load of other processes is unknown here"
    assert sentence(Diagnosis((OK, unknown))) == said


def test_a_self_test_without_an_interval_claims_no_resolution() -> None:
    without = SelfTest("stream", 1e-3, 4.2, math.nan, math.nan, "undecided", 1.3)
    made = Diagnosis((NO_LOAD,), (TEST, without))
    assert made.smallest_effect == math.inf
    assert "No difference can be resolved now for stream\n" in str(made)
    assert "4.2" not in str(made), "a ratio without an interval is no figure"
    assert json.loads(made.to_json())["self_test"][1]["smallest_effect"] is None


def test_frame_json_and_pickle_hold_everything() -> None:
    made = Diagnosis((OK, LOAD), (TEST,), 0.6, 0.5, "CPU", partial=True)
    assert made.frame.to_dict("records")[0] == {
        "kind": "outside load", "state": "warn", "text": LOAD.text, "evidence": "in 0.5 s", "fix": "Wait.",
    }  # fmt: skip
    read = json.loads(made.to_json())
    assert [one["kind"] for one in read["findings"]] == ["outside load", "threads"]
    assert read["self_test"][0]["verdict"] == "undecided"
    assert read["partial"] is True
    assert pickle.loads(pickle.dumps(made)) == made


def test_text_and_html_show_each_finding_whole_with_its_fix() -> None:
    made = Diagnosis((OK, LOAD, UNKNOWN), (TEST,))
    words = " ".join(str(made).split())
    for part in ("not available", "outside load: Wait.", "product", "0.98 … 1.02"):
        assert part in words
    html = made._repr_mimebundle_()["text/html"]
    assert LOAD.text in html
    assert "Whether turbo is on is unknown." in html
    assert "| outside load" in made.to_markdown()
    assert len(max(str(made).splitlines(), key=len)) <= 100


def test_names_of_processes_cannot_steer_a_terminal() -> None:
    evil = Finding("outside load", "warn", "x", "most by \x1b[31mevil (pid 3) 0.90", "\x1b]0;title\x07")
    assert "\x1b" not in str(Diagnosis((evil,)))
    assert "\x1b" not in Diagnosis((evil,)).to_markdown()
    assert "\x1b" not in Diagnosis((evil,))._repr_mimebundle_()["text/html"]
