"""Instruction counts: how long, how steady, how right and how large, with torch's own collector beside.

``python tests/benchmarks/counts.py [SECTION ...]`` runs some sections only: kernels, warm, torch, annotate, cell,
memory, and writes ``results/counts_SECTION.json``. Without a section all of them run and ``results/counts.json`` is
written, in about eight minutes, most of it in torch's collector (40 s a call). Run it on an idle machine.
"""

from __future__ import annotations

import gc
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

from record import Figure, record

Found = tuple[list[Figure], dict[str, Any]]
"""A section's figures, and the conditions of the run."""

NUMBER = 100
KERNELS, RUNS = 5, 20

NOTEBOOK = """
import torch
torch.manual_seed(0)
x, y = torch.randn(128, 128), torch.randn(128, 1)
batch = torch.randn(16, 64)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    def forward(self, x):
        return scaled(self.layers(x))
def scaled(x):
    return x * 2.0
net, linear = Net(), torch.nn.Linear(64, 64)
small, rows = torch.nn.Linear(16, 16), torch.randn(4, 16)
"""
"""What every kernel of this benchmark has defined."""

STEADY = {
    "x * y": "x * y",
    "nn.Linear forward": "small(rows)",
    "nn.Linear forward, 16 x 64 by 64": "linear(batch)",
    "a module of the notebook": "net(batch)",
    "Python loop": "for i in range(100): i + i",
}
"""Statements that are counted over and over: name -> text.

The first two are of the size that the limits were set with (57 thousand instructions a forward). In the third one most
time goes into multiplying and adding: valgrind 3.19 emulates the processor's fused instruction for it in software.
"""

BESIDE_TORCH = {
    "x * y": ("x * y", "x, y = torch.ones(128, 128), torch.ones(128, 1)"),
    "nn.Linear forward": ("linear(batch)", "linear, batch = torch.nn.Linear(64, 64), torch.ones(16, 64)"),
    "matmul": ("a @ a", "a = torch.ones(64, 64)"),
    "sum": ("a.sum(1)", "a = torch.ones(64, 64)"),
    "backward": ("(w * w).sum().backward()", "w = torch.ones(64, requires_grad=True)"),
}
"""Five statements for torch's collector too: name -> (text, setup), since it takes no tensors along."""


def notebook() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(NOTEBOOK, names)
    return names


def counted(text: str, names: dict[str, Any], **more: Any) -> Any:
    """The costs of the statement and of the empty loop."""
    from torchbench_magic.cell_body import Body
    from torchbench_magic.counting.client import the_server
    from torchbench_magic.counting.count import Job, count_instructions

    return count_instructions(Job(Body(text, "<benchmark>"), names, NUMBER, **more), the_server())[0]


def loop_seconds() -> float:
    """How fast this machine is at the moment: ten million passes of an empty loop, the best of three."""
    return min(timeit.repeat(number=10_000_000, repeat=3))


def bare_seconds() -> float:
    """``import torch`` in an interpreter that valgrind runs without counting anything: what no first count can beat."""
    began = time.perf_counter()
    command = ["valgrind", "--tool=none", "-q", "--vgdb=no", sys.executable, "-c", "import torch"]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return time.perf_counter() - began


# ---- the sections -------------------------------------------------------------------------------------------


def kernels() -> Found:
    """A fresh kernel each: how long to the first count, and the same numbers in all of them?"""
    found = [json.loads(subprocess.check_output([sys.executable, __file__, "--kernel"])) for _ in range(KERNELS)]
    firsts = [one["first"] for one in found]
    figures = [
        Figure("first count in a fresh kernel", max(firsts), "s", at_most=20, spread=(min(firsts), max(firsts)))
    ]
    bare = bare_seconds()
    figures += [
        Figure("import torch under valgrind --tool=none", bare, "s"),
        Figure("first count against it", statistics.median(firsts) / bare, "x"),
    ]
    for name in STEADY:
        totals = [one["totals"][name] for one in found]
        figures.append(Figure(f"{name}: spread over {KERNELS} kernels", spread_of(totals), "instructions", at_most=0))
        figures.append(Figure("  of", totals[0], "instructions"))
    return [*figures, *shared_by_kernels(found[0]["totals"])], {"kernels": KERNELS}


def shared_by_kernels(alone: dict[str, int]) -> list[Figure]:
    """Kernels one after the other that share the counting process; ``alone`` are the totals of one of their own."""
    with tempfile.TemporaryDirectory(prefix="torchbench-") as place:
        environment = {**os.environ, "XDG_RUNTIME_DIR": place, "TORCHBENCH_MAGIC_COUNT_IDLE": "10"}
        command = [sys.executable, __file__, "--kernel"]
        found = [json.loads(subprocess.check_output(command, env=environment)) for _ in range(KERNELS)]
    later = [one["first"] for one in found[1:]]
    apart = max(abs(one["totals"][name] - alone[name]) for one in found for name in STEADY)
    return [
        Figure("first count where kernels share, in the first of them", found[0]["first"], "s"),
        Figure("  in each later one", statistics.median(later), "s", at_most=1, spread=(min(later), max(later))),
        Figure("  how far any total is from that of a kernel of its own", apart, "instructions", at_most=0),
    ]


def one_kernel() -> int:
    """What a fresh kernel of `kernels` does: prints its first count's seconds and the four totals."""
    names = notebook()
    began = time.perf_counter()
    counted(STEADY["x * y"], names)
    first = time.perf_counter() - began
    totals = {name: counted(text, names)[0].total for name, text in STEADY.items()}
    print(json.dumps({"first": first, "totals": totals}))
    return 0


def warm() -> Found:
    """Twenty counts each of these statements: time and spread; then other strides and other helpers."""
    names, figures = notebook(), []
    counted("x * y", names)
    for name, text in STEADY.items():
        seconds, totals = [], []
        for _ in range(RUNS):
            began = time.perf_counter()
            totals.append(counted(text, names)[0].total)
            seconds.append(time.perf_counter() - began)
        limit = {"x * y": 0.6, "nn.Linear forward": 0.8}.get(name)
        figures += [
            Figure(f"{name}: one count", statistics.median(seconds), "s", at_most=limit,
                   spread=(min(seconds), max(seconds))),
            Figure(f"  spread over {RUNS} runs", spread_of(totals), "instructions", at_most=0),
            Figure("  of", totals[0], "instructions"),
        ]
    names["big"] = names["torch"].ones(1 << 18)
    totals = [counted("big + big", names, threads=2)[0].total for _ in range(RUNS // 4)]
    apart = 100 * spread_of(totals) / statistics.median(totals)
    figures.append(Figure("two threads, 2^18 numbers added: spread", apart, "%", at_most=0.02))
    straight, scaled = counted("x * x", names)[0].total, counted("scaled(batch)", names)[0].total
    names["x"] = names["x"].t()[::2].t()
    exec("def scaled(x):\n    return x * 2.0 + 1", names)
    figures += [
        Figure("another stride: difference", abs(counted("x * x", names)[0].total - straight), "instructions",
               at_least=1),
        Figure("another body of a helper: difference", abs(counted("scaled(batch)", names)[0].total - scaled),
               "instructions", at_least=1),
    ]
    return figures, {"runs": RUNS}


def torch_beside() -> Found:
    """torch's collector in the same run: its seconds against ours, and its totals against ours in its form."""
    from torch.utils.benchmark import Timer

    counted("1 + 1", notebook())
    figures: list[Figure] = []
    explained: dict[str, list[str]] = {}
    for name, (text, setup) in BESIDE_TORCH.items():
        began = time.perf_counter()
        theirs = Timer(text, setup).collect_callgrind(number=NUMBER)
        their_seconds = time.perf_counter() - began
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(f"import torch\n{setup}", names)
        ours, _ = counted(text, names, form="module")
        seconds = []
        for _ in range(5):
            began = time.perf_counter()
            counted(text, names)
            seconds.append(time.perf_counter() - began)
        of_torch = {one.function: one.count for one in theirs.stmt_exclusive_stats}
        total = sum(of_torch.values())
        apart = 100 * (ours.total - total) / total
        ratio = their_seconds / statistics.median(seconds)
        figures += [
            Figure(f"{name}: torch's collector", their_seconds, "s"),
            Figure("  times the seconds of one count here", ratio, "x",
                   at_least=50 if name in ("x * y", "nn.Linear forward") else None),
            Figure("  torch's total", total, "instructions"),
            Figure("  ours in torch's form, against it: size", abs(apart), "%", at_most=3),
        ]
        explained[name] = list(differences(of_torch, ours.exclusive, total))
    for name, lines in explained.items():
        print(f"\n{name}: where ours and torch's differ, in % of torch's total", *lines, sep="\n  ")
    return figures, {"differences": explained}


def differences(theirs: dict[str, int], ours: dict[str, int], total: int, shown: int = 5) -> Iterator[str]:
    """The groups of functions, and the functions, in which two counts of one statement differ most."""
    from torchbench_magic.counting.counts import group_of, standardized

    groups: Counter[str] = Counter()
    functions: Counter[str] = Counter()
    for counts, sign in ((theirs, -1), (ours, 1)):
        for function, count in counts.items():
            groups[group_of(function)] += sign * count
            functions[standardized(function)] += sign * count
    for group, count in groups.most_common():
        yield f"{100 * count / total:+.3f}  {group}"
    for function, count in sorted(functions.items(), key=lambda item: -abs(item[1]))[:shown]:
        yield f"{100 * count / total:+.3f}    {without_folders(function)[:100]}"


def without_folders(function: str) -> str:
    """The function's text without the folder in which somebody built the interpreter."""
    return re.sub(r"^\S*/(?=[^/:]+:)", "", function)


def annotate() -> Found:
    """Every function of a dump against ``callgrind_annotate``, on our dumps and on one that torch keeps."""
    from torch.utils.benchmark import Timer

    from torchbench_magic.counting.callgrind_file import parse

    names = notebook()
    files = {f"ours, {name}": counted(text, names)[0].text for name, text in STEADY.items()}
    files |= {f"ours in torch's form, {name}": counted(STEADY[name], names, form="module")[0].text
              for name in ("x * y", "Python loop")}
    text, setup = BESIDE_TORCH["x * y"]
    kept = Timer(text, setup).collect_callgrind(number=NUMBER, retain_out_file=True).stmt_callgrind_out
    files["torch's, x * y"] = str(kept)
    figures, listed = [], {}
    for name, content in files.items():
        costs, open_calls = parse(content), len(re.findall(r"^calls=0 ", content, re.MULTILINE))
        unlike = []
        for kind, mine in (("self", costs.exclusive), ("inclusive", costs.inclusive)):
            theirs, mine = annotated(content, inclusive=kind == "inclusive"), without_libraries(mine)
            unlike += [
                f"{kind}: {function[:90]}: annotate {theirs.get(function, 0):,}, here {mine.get(function, 0):,}"
                for function in sorted(theirs.keys() | mine.keys())
                if theirs.get(function, 0) != mine.get(function, 0)
            ]
        promise = {"at_most": 0} if not open_calls else {}
        figures += [
            Figure(f"{name}: functions", len(costs.exclusive), "functions", at_least=10),
            Figure(f"  with another number than callgrind_annotate, {open_calls} calls=0", len(unlike), "functions",
                   **promise),
        ]
        if unlike:
            listed[name] = unlike
    for name, lines in listed.items():
        print(f"\n{name}: unlike callgrind_annotate. A line after calls=0 is the inclusive cost of a call that was"
              " still running; annotate adds it to the self cost of the caller.", *lines[:20], sep="\n  ")
    return figures, {"unlike": listed}


def annotated(content: str, *, inclusive: bool) -> dict[str, int]:
    """What ``callgrind_annotate`` says of each function."""
    with tempfile.NamedTemporaryFile("w", suffix=".out") as file:
        file.write(content)
        file.flush()
        command = ["callgrind_annotate", f"--inclusive={'yes' if inclusive else 'no'}", "--threshold=100",
                   "--show-percs=no", file.name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    table = said.partition("file:function")[2].partition("\n-- Auto-annotated")[0]
    rows = re.findall(r"^ *([\d,]+) +(\S.*:.*)$", table, re.MULTILINE)
    return without_libraries([(function.strip(), int(count.replace(",", ""))) for count, function in rows])


def without_libraries(counts: dict[str, int] | list[tuple[str, int]]) -> dict[str, int]:
    """Counts of each ``file:function``: annotate names the library only of functions in a file of their own."""
    summed: Counter[str] = Counter()
    for function, count in counts.items() if isinstance(counts, dict) else counts:
        summed[re.sub(r" \[[^\]]*\]$", "", function)] += count
    return dict(summed)


def cell() -> Found:
    """A whole ``%%timer --callgrind`` cell with two alternatives, and its noise runs."""
    from IPython.core.interactiveshell import InteractiveShell

    from torchbench_magic.counting.client import close_server

    close_server()  # those of other sections
    shell = InteractiveShell.instance()
    for code in (NOTEBOOK, "%load_ext torchbench_magic"):
        shell.run_cell(code)
    text = "%%timer --callgrind --min-run-time 0.02 --max-run-time 0.02 -t 1 -q\n# --- mul\nx * y\n# --- mul_\nx.mul(y)"
    wholes, counts = [], []
    for _ in range(RUNS // 2 + 1):
        began = time.perf_counter()
        shell.run_cell(text).raise_error()
        wholes.append(time.perf_counter() - began)
        counts.append(shell.user_ns["_timer"].counts.elapsed)
    names, single = notebook(), []
    for _ in range(RUNS):
        began = time.perf_counter()
        counted("x * y", names)
        single.append(time.perf_counter() - began)
    noise = statistics.median(counts[1:]) - 2 * statistics.median(single)
    figures = [
        Figure("first such cell of a kernel", wholes[0], "s"),
        Figure("the cell, from the second on", statistics.median(wholes[1:]), "s",
               spread=(min(wholes[1:]), max(wholes[1:]))),
        Figure("  its counting, noise runs included", statistics.median(counts[1:]), "s"),
        Figure("  of that the noise runs", noise, "s"),
    ]
    return figures, {"min_run_time": 0.02}


def memory() -> Found:
    """Memory of the server alone, and what one job adds."""
    from torchbench_magic.counting.client import the_server

    names = notebook() | {"time": time}
    counted("x * y", names)
    server = the_server().pid
    assert server is not None
    gc.collect()
    alone = proportional(server)
    figures = [Figure("server", alone, "MiB", at_most=350)]
    for name, text in (("x * y", "x * y"), ("a module of the notebook", "net(batch)")):
        with waiting(f"{text}\ntime.sleep(0.5)", names):
            seen = 0.0
            for _ in range(60):
                jobs = Path(f"/proc/{server}/task/{server}/children").read_text().split()
                seen = max(seen, proportional(server) + sum(map(proportional, map(int, jobs))))
                time.sleep(0.05)
        figures.append(Figure(f"  and a job, {name}: more", seen - alone, "MiB", at_most=40))
    return figures, {}


@contextmanager
def waiting(text: str, names: dict[str, Any]) -> Iterator[None]:
    """A job that is under way meanwhile."""
    from torchbench_magic.cell_body import Body
    from torchbench_magic.counting.client import the_server
    from torchbench_magic.counting.count import Job, count_instructions

    job = Thread(target=lambda: count_instructions(Job(Body(text, "<benchmark>"), names, 1), the_server()))
    job.start()
    try:
        yield
    finally:
        job.join()


def proportional(pid: int) -> float:
    """PSS: pages that several processes hold are shared out among them. In MiB; 0 of a process that has ended."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0.0
    return int(rollup.partition("\nPss:")[2].split()[0]) / 1024


def spread_of(totals: list[int]) -> int:
    return max(totals) - min(totals)


SECTIONS: dict[str, Callable[[], Found]] = {
    "kernels": kernels,
    "warm": warm,
    "torch": torch_beside,
    "annotate": annotate,
    "cell": cell,
    "memory": memory,
}


def main() -> int:
    os.environ.setdefault("TORCHBENCH_MAGIC_COUNT_IDLE", "0")  # what was started for others says nothing of a start
    if sys.argv[1:] == ["--kernel"]:
        return one_kernel()
    # torch's collector runs `python` from the path, and refuses another one than this
    os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
    figures: list[Figure] = []
    conditions: dict[str, Any] = {"number": NUMBER}
    for name in sys.argv[1:] or list(SECTIONS):
        print(f"{name} ...", flush=True)
        found, more = SECTIONS[name]()
        figures += found
        conditions |= more
        figures.append(Figure(f"{name}: ten million passes of an empty loop, just after", loop_seconds(), "s"))
    return record("_".join(["counts", *sys.argv[1:]]), figures, **conditions)


if __name__ == "__main__":
    sys.exit(main())
