"""What a profile of half a million operations takes: memory while it is held and after it, its pictures, its export.

``python tests/benchmarks/large.py [SECTION ...]`` runs some sections only: bodies, steps. They write
``results/large_profiles.json`` and ``results/large_steps.json``. Memory is what the system counts (resident pages),
each body in a process of its own, in a shell, as a notebook has it.
"""

from __future__ import annotations

import gc
import gzip
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT)]

from record import Figure, record  # noqa: E402

OPS = 500_000
STEPS = 100_000
BEFORE = """\
import torch
torch.set_num_threads(1)
torch.manual_seed(0)
a = b = torch.ones(4, 4)
net = torch.nn.Sequential(
    torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, foreach=False)
x = torch.randn(32, 64)
"""
TINY = "for _ in range({n}):\n    a + b\n"
LINES = """\
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
WIDE = (
    "".join(
        f"def of_some_length_{i}(x, depth):\n"
        f"    with torch.profiler.record_function('a range with a rather long name, number {i}'):\n"
        f"        y = x.exp().add(x).mul(x)\n"
        f"    return of_some_length_{(i * 7 + 3) % 200}(y, depth - 1) if depth else y.sum()\n"
        for i in range(200)
    )
    + "for _ in range({n}):\n"
    + "".join(f"    of_some_length_{i}(a, 20)\n" for i in range(200))
)
BODIES = {
    "one operation in a loop": (TINY, ""),
    "small functions, --shapes --memory": (LINES, "--shapes --memory"),
    "training, --shapes --memory": (TRAINING, "--shapes --memory"),
    "40 000 different stacks, --memory": (WIDE, "--memory"),
}


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def new_shell() -> Any:
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    run(shell, BEFORE)
    shell.run_line_magic("load_ext", "torchbench_magic")
    return shell


def run(shell: Any, text: str) -> Any:
    done = shell.run_cell(text, store_history=True)
    done.raise_error()
    return done.result


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    gc.collect()
    started = time.perf_counter()
    value = call()
    return value, time.perf_counter() - started


def pictures_of(made: Any, folder: str) -> dict[str, float]:
    """Seconds of each; the pages are dropped at once."""
    from torchbench_magic.show.renderers import mimebundle

    trace, packed = Path(folder) / "trace.json", Path(folder) / "trace.json.gz"
    calls: dict[str, Callable[[], Any]] = {
        "inline output": lambda: mimebundle(made),
        "page": made.to_html,
        "flame graph": lambda: made.flamegraph()._repr_mimebundle_(),
        "timeline": lambda: made.timeline()._repr_mimebundle_(),
        "export": lambda: made.export_trace(trace),
        "export, gzip": lambda: made.export_trace(packed),
    }
    found = {name: timed(call)[1] for name, call in calls.items()}
    with gzip.open(packed) as file:
        assert len(json.load(file)["traceEvents"]) > len(made.trace)
    return found | {"bytes of the trace": trace.stat().st_size, "bytes of the trace, gzip": packed.stat().st_size}


def in_this_process(name: str) -> dict[str, float]:
    """The numbers of one body."""
    text, options = BODIES[name]
    shell = new_shell()
    few = 1 if text == WIDE else 200
    run(shell, f"%%tprofile -q {options}\n{text.replace('{n}', str(few))}")
    steps = round(OPS * few / len(shell.user_ns["_tprofile"].trace))
    with tempfile.TemporaryDirectory() as folder:
        pictures_of(shell.user_ns["_tprofile"], folder)  # what is imported and cached counts for nobody
        gc.collect()
        before = resident()
        _, took = timed(lambda: run(shell, f"%%tprofile -q {options}\n{text.replace('{n}', str(steps))}"))
        made = shell.user_ns["_tprofile"]
        gc.collect()
        found = {"seconds of the cell": took, "wall_time": made.wall_time, "ops": len(made.trace)}
        found |= {"events": made.n_events, "held": resident() - before}
        found["highest"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
        found |= pictures_of(made, folder)
        gc.collect()
        run(shell, "1")  # the end of a cell
        found["held, drawn"] = resident() - before
    del made
    run(shell, "del _tprofile")
    gc.collect()
    run(shell, "1")
    return found | {"left": resident() - before}


def in_a_process(name: str) -> dict[str, float]:
    env = os.environ | {"IPYTHONDIR": tempfile.mkdtemp()}
    done = subprocess.run([sys.executable, __file__, f"--body={name}"], check=True, stdout=subprocess.PIPE, env=env)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


# ---- the sections -------------------------------------------------------------------------------------------


def bodies() -> int:
    """Memory and pictures of each body."""
    figures: list[Figure] = []
    for name in BODIES:
        found = in_a_process(name)
        events = found["events"]
        drawn = found["page"] + found["flame graph"] + found["timeline"]
        figures += [
            Figure(f"{name}: operations", found["ops"], "ops"),
            Figure("  events, with changes of memory", events, "events"),
            Figure("  the cell, from its begin to its result", found["seconds of the cell"], "s"),
            Figure("  of it the code", found["wall_time"], "s"),
            Figure("  highest memory, above before", found["highest"] / 1e6, "MB"),
            Figure("  held with the profile", found["held"] / 1e6, "MB"),
            Figure("  held, an event", found["held"] / events, "bytes", limit=1000),
            Figure("  held after pictures and export", found["held, drawn"] / 1e6, "MB"),
            Figure("  left when the profile is released", found["left"] / 1e6, "MB", limit=LEFT),
            *(Figure(f"  {part}", found[part], "s") for part in ("inline output", "page", "flame graph", "timeline")),
            Figure("  page, flame graph and timeline", drawn, "s", limit=5),
            Figure("  export", found["export"], "s", limit=8),
            Figure("  export, gzip", found["export, gzip"], "s", limit=8),
            Figure("  exported, gzip", found["bytes of the trace, gzip"] / 1e6, "MB"),
        ]
    return record("large_profiles", figures, ops=OPS)


LEFT = 50  # MB: what libraries keep for themselves, and pages that are in use in part


def steps() -> int:
    """A loop of 100 000 steps, of which ten are recorded, against the plain loop."""
    shell = new_shell()
    run(shell, "from time import perf_counter as now")
    figures: list[Figure] = []
    for what, loop, n in (
        ("nothing but pass", "for i in range({n}):\n    pass", STEPS),
        ("one small operation", "for i in range({n}):\n    a + b", STEPS),
        ("while", "i = 0\nwhile i < {n}:\n    i += 1", STEPS),
    ):
        plain, marked = [], []
        for _ in range(5):
            for head, seconds in (("", plain), ("%%tprofile --steps 10 --warmup 1 -q\n", marked)):
                # the loop alone is timed, from a step after those that are recorded: what a cell costs is apart
                text = loop.format(n=n).replace("\n    ", "\n    if i == 1000: began = now()\n    ", 1)
                run(shell, f"{head}{text}\nended = now()")
                took = shell.user_ns["ended"] - shell.user_ns["began"]
                seconds.append(took * 1e9 / (n - 1000))
        extra = [b - a for a, b in zip(plain, marked, strict=True)]
        figures += [
            Figure(f"{what}: a step of the plain loop", statistics.median(plain), "ns"),
            Figure("  a step that --steps does not record", statistics.median(marked), "ns"),
            Figure("  more", statistics.median(extra), "ns", spread=(min(extra), max(extra))),
        ]
    return record("large_steps", figures, steps=STEPS, active=10)


SECTIONS = {section.__name__: section for section in (bodies, steps)}


def main() -> int:
    asked = sys.argv[1:] or list(SECTIONS)
    if asked[0].startswith("--body="):
        print(json.dumps(in_this_process(asked[0].partition("=")[2])))
        return 0
    return max([SECTIONS[name]() for name in asked])


if __name__ == "__main__":
    sys.exit(main())
