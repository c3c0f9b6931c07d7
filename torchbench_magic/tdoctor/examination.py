"""`doctor`: builds, limits, load, processor, runtimes and tools, looked at one by one and put together."""

from __future__ import annotations

import math
import os
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torchbench_magic import units
from torchbench_magic.counting.lease import path_of_valgrind
from torchbench_magic.cpp.build import find_toolchain
from torchbench_magic.errors import Interrupted, MissingTool
from torchbench_magic.process.contention import TICK, Contention, Counters, contention_between, machine_doubts
from torchbench_magic.process.environment import read_environment
from torchbench_magic.process.interrupts import NO_PROGRESS, Progress
from torchbench_magic.process.machine import (
    CPUS,
    THIS_MACHINE,
    Limit,
    NativeLibrary,
    SystemFiles,
    active_hooks,
    affinity,
    cgroup_figures,
    cores_under,
    cpu_quota,
    governor,
    memory_facts,
    memory_limit,
    native_libraries,
    ranges_text,
    throttled_share,
    usable_cores,
)

from .findings import Diagnosis, Finding, SelfTest

if TYPE_CHECKING:
    from torchbench_magic.timing.comparison import Comparison

# ---- builds ----------------------------------------------------------------------------------------------------------
# How Python and torch were built and started, and what hooks into every call: any of it costs a factor.

_CHECKING = ("CUDA_LAUNCH_BLOCKING", "TORCH_CPP_LOG_LEVEL", "TORCH_DISTRIBUTED_DEBUG")
"""Variables of the environment by which torch checks or waits after every operation."""


def build_findings() -> Iterator[Finding]:
    """What slows every operation down; torch is imported."""
    import torch

    is_debug = {
        "torch": bool(torch.version.debug) or "BUILD_TYPE=Debug" in torch.__config__.show(),
        "Python": bool(sysconfig.get_config_var("Py_DEBUG")),
    }
    slow = [name for name, is_so in is_debug.items() if is_so]
    if slow:
        text = f"{' and '.join(slow)}, built for debugging: all code takes several times as long."
        yield Finding("debug build", "warn", text, "BUILD_TYPE, Py_DEBUG", "Install release builds.")
    if hooks := "; ".join(active_hooks()):
        text = "A hook is called for every line, call or allocation: Python code takes several times as long."
        yield Finding("hooks", "warn", text, hooks, "Stop the debugger, coverage tool or tracer.")
    else:
        yield Finding("hooks", "ok", "No trace or profile hook is set.", "sys.gettrace, sys.getprofile, tracemalloc")
    checks = {
        "torch.autograd.set_detect_anomaly(True)": torch.is_anomaly_enabled(),
        "torch.use_deterministic_algorithms(True)": torch.are_deterministic_algorithms_enabled(),
        **{f"{name}={os.environ.get(name)}": os.environ.get(name) in ("1", "INFO", "DETAIL") for name in _CHECKING},
    }
    if on := ", ".join(name for name, is_on in checks.items() if is_on):
        text = "torch runs extra checks, waits or uses other kernels in every operation: times differ from normal ones."
        yield Finding("torch checks", "warn", text, on, "Switch it off, unless you want to measure it.")


# ---- limits ----------------------------------------------------------------------------------------------------------
# How much of the machine this process may use: cores, quota, memory.

_SCARCE = 0.1
"""Share of the memory below which the system begins to take pages away from processes."""
_THROTTLED = 0.05
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def limit_findings(threads: int, files: SystemFiles = THIS_MACHINE) -> Iterator[Finding]:
    """Threads, affinity, quota."""
    quota, installed = cpu_quota(files), os.cpu_count() or 1
    named = ", ".join(f"{name}={os.environ[name]}" for name in _THREAD_VARIABLES if name in os.environ)
    yield _of_threads(threads, cores_under(quota), named)
    yield _of_affinity(affinity(), installed)
    yield _of_quota(quota, threads, installed, named)
    if (share := throttled_share(quota, files)) > _THROTTLED:
        text = f"The quota stopped this cgroup in {100 * share:.0f} % of its periods since it was created."
        yield Finding("throttling", "warn", text, f"{quota.folder}/cpu.stat", "Use fewer threads, or raise the quota.")


def _of_threads(threads: int, usable: int, named: str) -> Finding:
    said = f"torch.get_num_threads() {threads}; {named or 'OMP_NUM_THREADS is not set'}"
    of_torch, cores = units.counted(threads, "thread"), units.counted(usable, "usable core")
    if threads > usable:
        text = f"torch uses {of_torch} on {cores}: the threads wait for each other."
        fix = f"`torch.set_num_threads({usable})`, or OMP_NUM_THREADS={usable} before Python starts."
        return Finding("threads", "warn", text, said, fix)
    if usable == 1:
        text = "torch uses 1 thread on 1 usable core: thread counts cannot be compared here."
        return Finding("threads", "not available", text, said)
    return Finding("threads", "ok", f"torch uses {of_torch} on {cores}.", said)


def _of_affinity(own: frozenset[int], installed: int) -> Finding:
    if not own:
        text = "Which CPUs this process may use is unknown here."
        return Finding("affinity", "not available", text, f"os.cpu_count() {installed}")
    text = f"This process may use {len(own)} of {installed} CPUs."
    return Finding("affinity", "ok", text, f"sched_getaffinity: {ranges_text(own)}; os.cpu_count() {installed}")


def _of_quota(quota: Limit, threads: int, installed: int, named: str) -> Finding:
    cores = quota.value
    if math.isnan(cores):
        return Finding("quota", "not available", "Whether a CPU quota applies is unknown: there are no cgroups here.")
    if math.isinf(cores):
        return Finding("quota", "ok", "No cgroup limits the CPU time.", f"os.cpu_count() {installed}")
    said = f"{quota.said}; os.cpu_count() {installed}"
    has = f"The cgroup's quota is {cores:g} core{'' if cores == 1 else 's'}"
    if cores < 1:
        text = f"{has}: even one thread is stopped for part of each period."
        fix = "Raise the quota to at least 1 core (`docker run --cpus`, `resources.limits.cpu`)."
    elif threads > cores:
        text = f"{has}, less than torch's {threads} threads: they are stopped for part of each period."
        fix = f"`torch.set_num_threads({math.floor(cores)})`, or a larger quota."
    elif installed > cores and not named:
        text = f"{has} of {installed}, and OMP_NUM_THREADS is not set: libraries may start {installed} threads."
        fix = f"Set OMP_NUM_THREADS={math.floor(cores)} before Python starts."
    else:
        return Finding("quota", "ok", f"{has}, enough for torch's threads.", said)
    return Finding("quota", "warn", text, said, fix)


# ---- memory -------------------------------------------------------------------------------------------------


def memory_findings(files: SystemFiles = THIS_MACHINE) -> Iterator[Finding]:
    """Whether there is memory left: of the cgroup and the machine."""
    limit = memory_limit(files)
    if limit.is_set:
        used = _used(files, limit.folder)
        of = f"{units.bytes_text(limit.value)} that its cgroup allows"
        if used is None:
            yield Finding("memory limit", "not available", f"How much of the {of} is used is unknown.", limit.said)
        else:
            said = f"{units.bytes_text(used)} used of the {of}"
            yield _memory("memory limit", 1 - used / limit.value, said, limit.said)
    known = memory_facts(files)
    if known.get("MemTotal", 0) > 0 and "MemAvailable" in known:
        left = known["MemAvailable"] / known["MemTotal"]
        said = f"{units.bytes_text(known['MemAvailable'])} of {units.bytes_text(known['MemTotal'])} available"
        yield _memory("memory", left, said, "/proc/meminfo")
    elif not limit.is_set:
        yield Finding("memory", "not available", "How much memory is free is unknown: /proc/meminfo cannot be read.")


def _memory(kind: str, left: float, said: str, source: str) -> Finding:
    if left < _SCARCE:
        fix = "Free memory, or raise the limit: paging costs milliseconds."
        return Finding(kind, "warn", f"Memory is scarce: {said}.", source, fix)
    return Finding(kind, "ok", f"Memory: {said}.", source)


def _used(files: SystemFiles, folder: str) -> int | None:
    """Bytes that a cgroup holds, without files that it has merely read."""
    text = files.text(f"{folder}/memory.current") or files.text(f"{folder}/memory.usage_in_bytes") or ""
    if not text.isdigit():
        return None
    counted = cgroup_figures(f"{folder}/memory.stat", files)
    cache = counted.get("total_inactive_file", counted.get("inactive_file", 0))  # version 1, version 2
    return max(int(text) - cache, 0)


# ---- outside_load ----------------------------------------------------------------------------------------------------
# What else uses the processors now: watched for half a second, in which this process sleeps.

SECONDS = 0.5
"""Long enough that ticks of 10 ms tell a twentieth of a core."""
_BUSY = 0.15
"""Cores of others from which on it is said; as many are known to `contention.MOST_BLUR`."""
_OWN = 0.15
_WAITING = 0.1
_NAMED = 3
_LEAST_NAMED = 0.05
_WAIT = "Wait until they end, or stop them; until then, compare alternatives in one `%%timer` cell, with `-t 1`."


@dataclass(frozen=True)
class BusyProcess:
    """A process that ran: its name, its id, and the cores that it used."""

    name: str
    pid: int
    cores: float

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid}) {self.cores:.2f}"


@dataclass(frozen=True)
class WatchedLoad:
    """What was seen.

    Attributes:
        contention: what else wanted the processors; NaN where the system does not tell.
        own: cores that this process used, which slept, and its children.
        busiest: other processes that ran, from a twentieth of a core on, those with the most time first; None
            where they cannot be listed.
        average: the load average of a minute; NaN where there is none.
    """

    contention: Contention
    own: float
    busiest: tuple[BusyProcess, ...] | None
    average: float = math.nan


def watch_load(
    files: SystemFiles = THIS_MACHINE,
    seconds: float = SECONDS,
    sleep: Callable[[float], object] = time.sleep,
    counters: Callable[[], Counters] = Counters.read,
) -> WatchedLoad:
    """Sleep for some time and see what ran meanwhile."""
    before, ticks = counters(), _ticks(files)
    sleep(seconds)
    ran, spent = _ticks(files), counters() - before
    busiest = None
    if ticks is not None and ran is not None:
        own = _family(ran, os.getpid())
        before_it = {pid: ticks[pid][1] if pid in ticks else 0 for pid in ran}
        found = [
            BusyProcess(name, pid, (after - before_it[pid]) * TICK / spent.wall)
            for pid, (name, after, _) in ran.items()
            if pid not in own
        ]
        busiest = tuple(sorted((one for one in found if one.cores >= _LEAST_NAMED), key=lambda one: -one.cores))
    try:
        average = os.getloadavg()[0]
    except (AttributeError, OSError):  # Windows
        average = math.nan
    return WatchedLoad(contention_between(spent), spent.own_cpu / spent.wall, busiest, average)


def _ticks(files: SystemFiles) -> dict[int, tuple[str, int, int]] | None:
    """Process id -> (name, ticks of 10 ms that it ran, id of its parent); None where processes are hidden."""
    found = {}
    for entry in files.names("/proc"):
        text = files.text(f"/proc/{entry}/stat") if entry.isdigit() else None
        if text is None:
            continue
        head, _, rest = text.rpartition(")")  # the name may hold spaces and brackets
        figures = rest.split()
        try:
            found[int(entry)] = head.partition("(")[2], int(figures[11]) + int(figures[12]), int(figures[1])
        except (ValueError, IndexError):
            continue
    return found or None


def _family(processes: dict[int, tuple[str, int, int]], root: int) -> set[int]:
    """``root`` and all processes below it."""
    family, grown = {root}, True
    while grown:
        more = {pid for pid, (_, _, parent) in processes.items() if parent in family} - family
        family, grown = family | more, bool(more)
    return family


def load_findings(seen: WatchedLoad, cores: int) -> Iterator[Finding]:
    """What the load does to measurements."""
    yield _of_others(seen, cores)
    if seen.own > _OWN:
        text = f"This process, or one that it started, is using the CPU: {seen.own:.2f} cores."
        fix = "Stop its other threads and workers."
        yield Finding("own load", "warn", text, "processor time while this thread slept", fix)
    yield _of_waiting(seen.contention)
    yield _of_steal(seen.contention)


def _of_others(seen: WatchedLoad, cores: int) -> Finding:
    ext, wall = seen.contention.ext, seen.contention.wall
    if math.isnan(ext):
        average = f"load average over one minute: {seen.average:.2f}" if not math.isnan(seen.average) else ""
        text = "The load of other processes is unknown: /proc/stat cannot be read."
        return Finding("outside load", "not available", text, average)
    window = f"in {wall:.1f} s"
    if ext <= _BUSY:
        text = f"Other processes use {ext:.2f} of {units.counted(cores, 'core')}."
        return Finding("outside load", "ok", text, f"{window}; {_named(seen.busiest)}" if seen.busiest else window)
    top = f", mostly {seen.busiest[0].name} (pid {seen.busiest[0].pid})" if seen.busiest else ""
    text = f"Other processes use {ext:.2f} of {units.counted(cores, 'core')}{top}: absolute times are unreliable."
    known = sum(one.cores for one in seen.busiest or ())
    told = f"{window}; {_named(seen.busiest)}" if seen.busiest else window
    if known < ext / 2:
        told += "; the rest by processes that are not visible here (of another container or user)"
    return Finding("outside load", "warn", text, told, _WAIT)


def _named(busiest: Sequence[BusyProcess] | None) -> str:
    return "most used by " + ", ".join(map(str, (busiest or ())[:_NAMED]))


def _of_waiting(seen: Contention) -> Finding:
    """Pressure stall information: of the whole machine, this process aside, as it slept."""
    if math.isnan(seen.pressure):
        text = "How long tasks wait for a core is unknown."
        return Finding("waiting", "not available", text, "/proc/pressure/cpu cannot be read")
    said = f"/proc/pressure/cpu, {seen.wall:.1f} s"
    text = f"Some task waited for a core {100 * seen.pressure:.0f} % of the time"
    if seen.pressure > _WAITING:
        return Finding("waiting", "warn", f"{text}: the cores are overloaded.", said, _WAIT)
    return Finding("waiting", "ok", f"{text}.", said)


def _of_steal(seen: Contention) -> Finding:
    """What the hypervisor took, in the words of timings."""
    said = f"in {seen.wall:.1f} s"
    if math.isnan(seen.steal):
        return Finding("steal", "not available", "What the hypervisor takes is unknown: /proc/stat cannot be read.")
    fix = "Measure at another time, or on a machine with dedicated cores."
    for doubt in machine_doubts(seen.steal, math.nan, math.nan, fix):
        return Finding("steal", "warn", doubt.text, said, fix)
    return Finding("steal", "ok", f"The hypervisor took {seen.steal:.2f} cores.", f"/proc/stat, {said}")


# ---- processor -------------------------------------------------------------------------------------------------------
# What steers the processor's clock: governor, turbo, battery.

_OWN_STEERING = ("intel_pstate", "amd-pstate", "amd-pstate-epp")
"""Drivers under which the processor raises its clock by itself within milliseconds, ``powersave`` or not."""


def processor_findings(files: SystemFiles = THIS_MACHINE) -> Iterator[Finding]:
    """What is known of the clock; a guest is told nothing as a rule."""
    steered, driver = governor(files), files.text(f"{CPUS}/cpu0/cpufreq/scaling_driver") or ""
    said = " · ".join(part for part in (driver, steered) if part)
    if not steered:
        guest = "hypervisor" in (files.text("/proc/cpuinfo") or "").split()
        unread = "/sys/devices/system/cpu/*/cpufreq cannot be read"
        why = "virtual machine: the host sets the clock" if guest else unread
        yield Finding("governor", "not available", "What controls the CPU clock is unknown.", why)
    elif steered == "performance" or driver in _OWN_STEERING:
        yield Finding("governor", "ok", f"The governor is {steered}.", said)
    else:
        text = f"The clock follows the load (governor {steered}): short measurements start slowly."
        yield Finding("governor", "warn", text, said, "`sudo cpupower frequency-set -g performance`")
    for path, on in ((f"{CPUS}/intel_pstate/no_turbo", "0"), (f"{CPUS}/cpufreq/boost", "1")):
        if (told := files.text(path)) in ("0", "1"):
            text = "Turbo is off: the clock is steady."
            if told == on:
                text = "Turbo is on: absolute times depend on temperature and busy cores; ratios hardly do."
            yield Finding("turbo", "ok", text, f"{path}: {told}")
            break
    else:
        yield Finding("turbo", "not available", "Whether turbo is on is unknown.", "/sys does not report it")
    yield from _of_power(files)


def _of_power(files: SystemFiles) -> Iterator[Finding]:
    folder = "/sys/class/power_supply"
    for name in files.names(folder):
        if files.text(f"{folder}/{name}/type") == "Mains" and files.text(f"{folder}/{name}/online") == "0":
            text = "The machine runs on battery, which often lowers the clock."
            yield Finding("power", "warn", text, f"{folder}/{name}/online: 0", "Plug it in.")


# ---- runtimes --------------------------------------------------------------------------------------------------------
# Whether OpenMP is loaded twice.


def openmp_finding(libraries: Sequence[NativeLibrary] | None) -> Finding:
    """Which runtimes are loaded; ``libraries`` is None where the system does not tell."""
    if libraries is None:
        text = "Which OpenMP runtimes are loaded is unknown."
        return Finding("OpenMP", "not available", text, "/proc/self/maps cannot be read")
    found = [one for one in libraries if one.kind == "OpenMP"]
    said, names = ", ".join(map(str, found)), sorted({f"lib{one.name}" for one in found})
    if len(found) < 2:
        text = f"One OpenMP runtime is loaded: {names[0]}." if found else "No OpenMP runtime is loaded as a file."
        return Finding("OpenMP", "ok", text, said)
    what = f"{len(found)} OpenMP runtimes are loaded"
    what = what if len(names) > 1 else f"{names[0]} is loaded {len(found)} times"
    text = f"{what}, each with its own threads: together they may use more threads than there are cores."
    fix = "Import only one of these packages, or install them all from one source (pip or conda)."
    return Finding("OpenMP", "warn", text, said, fix)


# ---- tools -----------------------------------------------------------------------------------------------------------
# What some options need besides Python: valgrind, a C++ compiler, the driver of a GPU.


def tool_findings() -> Iterator[Finding]:
    """Of valgrind and the compiler: what is missing says the command that installs it."""
    yield _of_tool("valgrind", "Instruction counts (`--callgrind`)", path_of_valgrind)
    yield _of_tool("compiler", "C++ snippets (`--cpp`)", lambda: find_toolchain().command[0])


def _of_tool(kind: str, what: str, find: Callable[[], str]) -> Finding:
    try:
        where = find()
    except MissingTool as missing:
        reason, _, fix = str(missing).partition(": ")
        return Finding(kind, "not available", f"{what} are not available.", reason, fix)
    return Finding(kind, "ok", f"{what} are available.", where)


def accelerator_finding(name: str | None, backend: str, driver: str) -> Finding:
    """Whether what torch was built for and what the machine has go together.

    Args:
        name: of the accelerator that torch uses; None where it uses none.
        backend: what torch was built for, such as ``CUDA 13.0``; empty for a build of the CPU alone.
        driver: the file that shows NVIDIA's driver; empty where there is none.
    """
    built = f"torch is built for {backend or 'the CPU alone'}"
    if name is not None:
        return Finding("accelerator", "ok", f"torch uses {name}.", built)
    if driver and not backend:
        text = "There is an NVIDIA driver, but this torch cannot use it."
        fix = "Install a build of torch for CUDA (https://pytorch.org/get-started/locally)."
        return Finding("accelerator", "not available", text, f"{driver} is there; {built}", fix)
    if driver:
        text = "There is an NVIDIA driver, but torch finds no usable GPU."
        fix = "Check whether `nvidia-smi` runs, whether CUDA_VISIBLE_DEVICES hides the GPU, and how old the driver is."
        return Finding("accelerator", "not available", text, f"{driver} is there; {built}", fix)
    if backend:
        text = f"torch is built for {backend.split()[0]}, but no driver is found: it runs on the CPU."
        return Finding("accelerator", "not available", text, f"{built}; no /proc/driver/nvidia, no /dev/nvidia0")
    return Finding("accelerator", "ok", "No accelerator: torch runs on the CPU.", built)


def _backend() -> str:
    import torch

    versions = (("CUDA", torch.version.cuda), ("ROCm", torch.version.hip), ("XPU", getattr(torch.version, "xpu", None)))
    return next((f"{word} {version}" for word, version in versions if version), "")


def nvidia_driver(files: SystemFiles = THIS_MACHINE) -> str:
    """The file that shows it; empty where there is none."""
    return next((path for path in ("/proc/driver/nvidia/version", "/dev/nvidia0") if files.has(path)), "")


# ---- self_test -------------------------------------------------------------------------------------------------------
# Equal code against itself, with the comparison that `%%timer` makes: what this machine can tell apart now.

TEST_SECONDS, MOST_TEST_SECONDS = 0.6, 1.5
"""For each alternative, as a minimum and a maximum: two of them and three cases make 4 to 9 s."""
CASES = {
    "matrix product (256 × 256)": ("x = torch.rand(256, 256)\nout = torch.empty(256, 256)", "torch.mm(x, x, out=out)"),
    "elementwise, 8 MB a tensor": ("x = torch.rand(1 << 21)\nout = torch.empty(1 << 21)", "torch.add(x, x, out=out)"),
    "tiny operation": ("x = torch.ones(1)", "x + 1"),
}
"""Name -> (setup, statement): bound by cores, by memory, by the calls themselves."""


@dataclass(frozen=True)
class _Part:
    """The progress of one case, said with its name and number."""

    progress: Progress
    at: int
    name: str

    def update(self, done: float, total: float | None, what: str) -> None:
        self.progress.update(done, total, f"{self.name} against itself (self-test {self.at + 1} of {len(CASES)})")


def self_tests(progress: Progress) -> Iterator[SelfTest]:
    """Each case as it is finished.

    Raises:
        Interrupted: on Ctrl-C; ``.partial`` is the `SelfTest` of the case under way, or None.
    """
    from torchbench_magic.script.compare import compare  # with pandas, which the rest does without
    from torchbench_magic.timing.comparison import Comparison

    for at, (name, (setup, stmt)) in enumerate(CASES.items()):
        try:
            made = compare(
                {"first": stmt, "second": stmt},
                setup=setup,
                min_run_time=TEST_SECONDS,
                max_run_time=MOST_TEST_SECONDS,
                progress=_Part(progress, at, name),
            )
        except Interrupted as interrupt:
            known = interrupt.partial
            raise Interrupted(as_self_test(name, known) if isinstance(known, Comparison) else None) from None
        yield as_self_test(name, made)


def as_self_test(name: str, made: Comparison) -> SelfTest:
    """What a comparison of two equal alternatives says."""
    row = made.frame.iloc[-1]
    return SelfTest(
        name=name,
        median=float(row["median"]),
        ratio=float(row["ratio"]),
        low=float(row["ratio_low"]),
        high=float(row["ratio_high"]),
        verdict=str(row["verdict"]),
        seconds=made.elapsed,
    )


def self_test_findings(tests: tuple[SelfTest, ...]) -> Iterator[Finding]:
    """Whether equal code was called different."""
    wrong = [one for one in tests if one.is_wrong]
    if wrong:
        names = ", ".join(f"{one.name}: {one.verdict}, {one.ratio:.3f}" for one in wrong)
        text = "The self-test found a difference between equal code: other comparisons may be wrong now, too."
        fix = "Run it again: one in 20 does this by chance. If it persists, measure with `--processes`."
        yield Finding("self-test", "warn", text, names, fix)
    elif tests:
        said = ", ".join(f"{one.name}: {one.verdict}" for one in tests)
        yield Finding("self-test", "ok", "The self-test found no false difference.", said)


# ---- examination -----------------------------------------------------------------------------------------------------
# `doctor`: everything that is looked at, put together.


def doctor(*, self_test: bool = False, progress: Progress = NO_PROGRESS) -> Diagnosis:
    """What on this machine spoils a measurement now. It takes about a second, half of which the load is watched.

    Args:
        self_test: also compare equal code with itself, which takes some seconds, and tell the smallest difference that
            can be resolved now.
        progress: told what is under way.

    Raises:
        Interrupted: on Ctrl-C in the self-test; ``.partial`` is the `Diagnosis` as far as it was made.
    """
    __tracebackhide__ = True
    began = time.perf_counter()
    environment = read_environment()
    seen = watch_load()
    found = [*load_findings(seen, usable_cores()), *findings_of(environment.num_threads, environment.accelerator)]
    seconds = time.perf_counter() - began

    known = Diagnosis(tuple(found), (), seconds, seen.contention.wall, environment.footer())
    return _with_self_test(known, progress) if self_test else known


def _with_self_test(known: Diagnosis, progress: Progress) -> Diagnosis:
    """What is known, and the self-test.

    Raises:
        Interrupted: as `doctor`.
    """
    tests = list[SelfTest]()
    try:
        for test in self_tests(progress):
            tests.append(test)
    except KeyboardInterrupt as interrupt:
        if isinstance(unfinished := getattr(interrupt, "partial", None), SelfTest):
            tests.append(unfinished)
        findings = (*known.findings, *self_test_findings(tuple(tests)))
        raise Interrupted(replace(known, findings=findings, self_test=tuple(tests), partial=True)) from None
    return replace(known, findings=(*known.findings, *self_test_findings(tuple(tests))), self_test=tuple(tests))


def findings_of(threads: int, accelerator: str | None, files: SystemFiles = THIS_MACHINE) -> Iterator[Finding]:
    """All but the load. What cannot be read is said to be not available, and the rest goes on."""
    yield from limit_findings(threads, files)
    yield from memory_findings(files)
    yield from build_findings()
    yield openmp_finding(native_libraries(files))
    yield from processor_findings(files)
    yield from tool_findings()
    yield accelerator_finding(accelerator, _backend(), nvidia_driver(files))
