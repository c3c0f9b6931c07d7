"""What a profile costs in time, memory and room, with torch's own profiler beside in the same run.

``python tests/benchmarks/profile.py [SECTION ...]`` runs some sections only: ops, events, training, memory, pictures.
Each prints a table and writes ``results/profile_SECTION.json``.

All of it is about what a user waits for: the body under the profiler, then the time from its end to the result.
torch's profiler gives a table after ``prof.events()`` and ``key_averages()``; a `Profile` is complete when
``torchbench_magic.profile`` returns.
"""

from __future__ import annotations

import sys

if __name__ != "__main__":
    # A script's folder comes first on the path, so whoever imports Python's own `profile` from a script of this folder
    # (cProfile does, and torch's compiler imports cProfile) finds this file: give them what they want.
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = __file__.rpartition("/")[0]
    spec = PathFinder.find_spec("profile", [place for place in sys.path if place not in (here, "")])
    if spec is None or spec.loader is None:
        raise ImportError("Python's own profile is not there")
    sys.modules["profile"] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules["profile"])

import gc
import json
import resource
import statistics
import subprocess
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT)]

from record import Figure, record  # noqa: E402

TINY = """\
for _ in range({n}):
    a + b
"""
# one step of each is given as text, so that it has lines of its own
SMALL_OPS = """\
def step(a, b):
    c = a + b
    d = c.relu()
    e = d @ b
    return e.sum()
for _ in range({n}):
    step(a, b)
"""
TRAINING = """\
for _ in range({n}):
    loss = net(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
EVENTS = 500_000
TORCH_EVENTS = 40_000  # torch's own tables of half a million take half a minute and 4 GB
STEPS = 300


def names() -> dict[str, Any]:
    """What the bodies use, made anew."""
    import torch

    torch.set_num_threads(1)  # the work is small, and threads that wait for each other would be most of it
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, foreach=False)
    ones = torch.ones(4, 4)
    return {"torch": torch, "a": ones, "b": ones, "net": net, "optimizer": optimizer, "x": torch.randn(32, 64)}


def run_bare(text: str, n: int) -> float:
    """Seconds of the body alone."""
    namespace, code = names(), compile(text.format(n=n), "<bare>", "exec")
    started = time.perf_counter()
    exec(code, namespace)
    return time.perf_counter() - started


def run_under_torch(text: str, n: int, **options: Any) -> tuple[Any, float]:
    """(the profiler, seconds of the body under it)."""
    import torch

    namespace, code = names(), compile(text.format(n=n), "<torch>", "exec")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], **options) as profiler:
        started = time.perf_counter()
        exec(code, namespace)
        took = time.perf_counter() - started
    return profiler, took


def run_ours(text: str, n: int, **options: Any) -> Any:
    from torchbench_magic import profile

    return profile(text.format(n=n), globals=names(), **options)


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """The value and the seconds, without what an earlier one left to collect."""
    gc.collect()
    started = time.perf_counter()
    value = call()
    return value, time.perf_counter() - started


def median_figure(name: str, values: list[float], unit: str = "s", **promise: float) -> Figure:
    return Figure(name, statistics.median(values), unit, spread=(min(values), max(values)), **promise)


def ratios(ours: list[float], theirs: list[float]) -> list[float]:
    """Side by side: of each round its own."""
    return [a / b for a, b in zip(ours, theirs, strict=True)]


# ---- the sections -------------------------------------------------------------------------------------------


def ops() -> int:
    """100 000 tiny ops: how much longer they take than under torch's plain profile."""
    n, rounds, tables = 100_000, 9, 3  # a table of torch's takes seconds
    bare, body, torch_body, whole, torch_whole, torch_table = ([] for _ in range(6))
    run_ours(TINY, 1000)
    run_under_torch(TINY, 1000)
    for number in range(rounds):
        bare.append(run_bare(TINY, n))
        (profiler, took), every = timed(lambda: run_under_torch(TINY, n))
        torch_body.append(took)
        torch_whole.append(every)
        if number < tables:
            _, took = timed(profiler.key_averages)
            torch_table.append(every + took)
        del profiler
        made, every = timed(lambda: run_ours(TINY, n))
        body.append(made.wall_time)
        whole.append(every)
        del made
    to_table = ratios(whole[:tables], torch_table)
    micro = [1e6 * took / n for took in bare]
    figures = [
        median_figure("one op, bare", micro, "us"),
        median_figure("  torch's plain profile", [1e6 * took / n for took in torch_body], "us"),
        median_figure("  with lines", [1e6 * took / n for took in body], "us"),
        median_figure("running time, of torch's", ratios(body, torch_body), "times", at_most=1.4),
        median_figure("start to result, of torch's start to table", to_table, "times", at_most=1.4),
        median_figure("start to result, of torch's start to stop (no table)", ratios(whole, torch_whole), "times"),
    ]
    return record("profile_ops", figures, ops=n, rounds=rounds)


def events() -> int:
    """Results from half a million events: how long, how much memory, how many bytes on disk."""
    figures: list[Figure] = []
    for kind, options, limit, rounds in (
        ("plain", {}, 2.5, 3),
        ("shapes and memory", {"shapes": True, "memory": True}, 6.0, 2),
    ):
        for body, text in (("small ops", SMALL_OPS), ("training", TRAINING)):
            figures += _events_of(f"{body}, {kind}", text, options, limit, rounds)
    return record("profile_events", figures, events=EVENTS, torch_events=TORCH_EVENTS)


def _events_of(name: str, text: str, options: dict[str, bool], limit: float, rounds: int) -> list[Figure]:
    probe = run_ours(text, 200, **options)
    per_step = probe.n_events / 200
    steps, fewer = round(EVENTS / per_step), round(TORCH_EVENTS / per_step)
    theirs = {"record_shapes": options.get("shapes", False), "profile_memory": options.get("memory", False)}
    took, after, per_event, torch_per_event = [], [], [], []
    for _ in range(rounds):
        made, seconds, until = _time_of_report(lambda: run_ours(text, steps, **options))
        took.append(seconds)
        after.append(until)
        per_event.append(1e6 * seconds / made.n_events)
        del made
        profiler, _ = run_under_torch(text, fewer, **theirs)
        _, seconds = timed(lambda profiler=profiler: (profiler.events(), profiler.key_averages()))
        torch_per_event.append(1e6 * seconds / len(profiler.events()))
        del profiler
    some = _retained(text, fewer, options)
    return [
        median_figure(f"{name}: result of {EVENTS:,} events", took, at_most=limit),
        median_figure("  from the end of the body, with what torch does to stop", after),
        median_figure("  an event", per_event, "us"),
        median_figure(f"  torch's events() and key_averages(), an event of {TORCH_EVENTS:,}", torch_per_event, "us"),
        median_figure("  torch's, of ours", ratios(torch_per_event, per_event), "times", at_least=7),
        *some,
    ]


def _time_of_report(call: Callable[[], Any]) -> tuple[Any, float, float]:
    """The profile; seconds from torch's events to it; seconds from the end of the body to it."""
    from torchbench_magic.profiling import run

    report, seconds = run.report, []
    ended: list[float] = []

    def clocked(run: Any, *given: Any, **named: Any) -> Any:
        ended.append((run.end + 0.0) / 1e9)
        made, took = timed(lambda: report(run, *given, **named))
        seconds.append(took)
        return made

    run.report = clocked
    try:
        made = call()
        until = time.time() - ended[0]
    finally:
        run.report = report
    return made, seconds[0], until


def _retained(text: str, steps: int, options: dict[str, bool]) -> list[Figure]:
    """Bytes that go when the result goes, and bytes of the file it is saved in."""
    tracemalloc.start()
    try:
        made = run_ours(text, steps, **options)
        gc.collect()
        count, held = made.n_events, tracemalloc.get_traced_memory()[0]
        with tempfile.TemporaryDirectory() as folder:
            kept = Path(folder) / "runs.sqlite"
            made.save(kept)
            on_disk = kept.stat().st_size
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
        del made
        gc.collect()
        held -= tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    return [
        Figure(f"  memory that the result holds, an event of {count:,}", held / count, "bytes", limit=1000),
        Figure("  saved, an event", on_disk / count, "bytes", limit=100),
    ]


def training() -> int:
    """300 training steps with lines and memory, each way in a process of its own."""
    done = {how: _in_a_process(how) for how in ("ours", "torch", "stacks")}
    ours, theirs, stacks = done["ours"], done["torch"], done["stacks"]
    allowed = 5 * ours["bare"] + 3
    figures = [
        Figure(f"{STEPS} steps, bare", ours["bare"], "s"),
        Figure("with lines and memory, to the result, 5 x bare + 3 s allowed", ours["whole"], "s", at_most=allowed),
        Figure("  of it the body", ours["body"], "s"),
        Figure("  torch with memory, to its table", theirs["whole"], "s"),
        Figure("  torch with memory and verbose stacks, to its table", stacks["whole"], "s"),
        Figure("exported trace, gzip", ours["trace"] / 1e6, "MB", limit=30),
        Figure("  torch with memory", theirs["trace"] / 1e6, "MB"),
        Figure("  torch with memory and verbose stacks", stacks["trace"] / 1e6, "MB"),
        Figure("largest memory of the process, above before", ours["memory"] / 1e6, "MB", at_most=300),
        Figure("  torch with memory", theirs["memory"] / 1e6, "MB"),
        Figure("  torch with memory and verbose stacks", stacks["memory"] / 1e6, "MB"),
    ]
    return record("profile_training", figures, steps=STEPS)


def _in_a_process(how: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, f"--train={how}"], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _train(how: str) -> None:
    """In the process: the numbers of one way, as JSON. Memory is the largest ever, less what there was just before."""
    run_bare(TRAINING, STEPS)
    found = {"bare": statistics.median(run_bare(TRAINING, STEPS) for _ in range(3))}
    import torchbench_magic.profiling.run  # noqa: F401  # imports count neither as time nor as memory

    before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json.gz"
        if how == "ours":
            made, found["whole"] = timed(lambda: run_ours(TRAINING, STEPS, memory=True))
            found["body"] = made.wall_time
            made.export_trace(trace)
        else:
            from torch._C._profiler import _ExperimentalConfig

            stacks = how == "stacks"
            options = {"with_stack": stacks, "experimental_config": _ExperimentalConfig(verbose=stacks)}

            def to_table() -> Any:
                profiler, found["body"] = run_under_torch(TRAINING, STEPS, profile_memory=True, **options)
                profiler.key_averages()
                return profiler

            made, found["whole"] = timed(to_table)
            made.export_chrome_trace(str(trace))
        found["trace"] = trace.stat().st_size
    found["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    print(json.dumps(found))


def memory() -> int:
    """Bytes of all lines, and the peak, against torch's own totals in the same run."""
    from tests.profiling.memory import test_table as test_memory_table

    loop = test_memory_table.TRAINING
    more = "old = None\nkept = [torch.empty(n) for n in range(1, 400)]\ndel kept[::2]\n"
    wrong, figures = {"net": 0, "peak": 0}, []
    cases = {"training": (loop, {}), "freed before and after": (more, {"old": 1 << 20}), "small ops": (SMALL_OPS, {})}
    for name, (text, older) in cases.items():
        given = names() | {key: names()["torch"].ones(size) for key, size in older.items()}
        found = test_memory_table.figures_against_torch(text.format(n=100) if "{n}" in text else text, given)
        for what, (ours, theirs) in found.items():
            wrong[what] += abs(ours - theirs)
            figures.append(Figure(f"{name}: {what}, torch's own {theirs:,}", ours, "bytes"))
    sums = {"net": "sum of the lines' net bytes, off torch's total", "peak": "peak, off the largest total"}
    figures = [*(Figure(sums[what], off, "bytes", at_most=0) for what, off in wrong.items()), *figures]
    return record("profile_memory", figures)


def pictures() -> int:
    """Bytes that a profile of half a million events leaves in the saved notebook."""
    from torchbench_magic import profile
    from torchbench_magic.show.renderers import mimebundle

    figures = []
    for body, text in (("small ops", SMALL_OPS), ("training", TRAINING)):
        options = {"shapes": True, "memory": True}
        steps = round(EVENTS / (run_ours(text, 200, **options).n_events / 200))
        made = run_ours(text, steps, **options)
        views = {
            group: stored(mimebundle(made, group_by=group)) for group in ("op", "stack:3")
        }
        figures.append(Figure(f"{body}: the output, largest of its groupings", max(views.values()), "bytes", limit=1e6))
        for metric in ("time", "bytes"):
            size = stored(made.flamegraph(metric)._repr_mimebundle_())
            figures.append(Figure(f"  flame graph of {metric}", size, "bytes", limit=300_000))
        figures.append(Figure("  timeline", stored(made.timeline()._repr_mimebundle_()), "bytes", limit=1e6))
    deep = profile(WIDE, globals={"torch": names()["torch"]}, memory=True)
    size = stored(deep.flamegraph()._repr_mimebundle_())
    figures += [
        Figure(f"many different stacks, {len(deep.frames):,} frames: the output", stored(mimebundle(deep)), "bytes",
               limit=1e6),
        Figure("  flame graph", size, "bytes", limit=300_000),
    ]  # fmt: skip
    return record("profile_pictures", figures, events=EVENTS)


WIDE = "import torch\nx = torch.ones(4)\n" + "".join(
    f"def of_some_length_{i}(x, depth):\n"
    f"    with torch.profiler.record_function('a range with a rather long name, number {i}'):\n"
    f"        y = x.exp().add(x).mul(x)\n"
    f"    return of_some_length_{(i * 7 + 3) % 200}(y, depth - 1) if depth else y.sum()\n"
    for i in range(200)
) + "".join(f"of_some_length_{i}(x, 20)\n" for i in range(200))  # fmt: skip


def stored(bundle: Any) -> int:
    """Bytes of an output as a notebook file has it."""
    return len(json.dumps(bundle, ensure_ascii=False).encode())


SECTIONS = {section.__name__: section for section in (ops, events, training, memory, pictures)}


def main() -> int:
    asked = sys.argv[1:] or list(SECTIONS)
    if asked[0].startswith("--train="):
        _train(asked[0].partition("=")[2])
        return 0
    return max([SECTIONS[name]() for name in asked])


if __name__ == "__main__":
    sys.exit(main())
