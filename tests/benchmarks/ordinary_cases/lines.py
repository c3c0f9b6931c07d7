"""Which text, which line and which words stand beside the time."""

from __future__ import annotations

from .case import Case

_MODEL = """
import torch


def f(x):
    y = x @ x
    return y.sum()


def g(x):
    return torch.maximum(
        x.exp(),
        x,
    )
"""
_CHANGED = "# a line on top\n" + _MODEL.replace("x @ x", "(x @ x).relu()")
_LIBRARY = """
import time


class Trainer:
    def __init__(self, model, data):
        self.model, self.data = model, data

    def train(self):
        for x in self.data:
            self.model(x).sum().backward()
            time.sleep(0.002)
"""
_FORKS = """
import torch


@torch.jit.script
def work(x):
    for _ in range(3):
        x = (x @ x).tanh()
    return x


@torch.jit.script
def both(x):
    forked = torch.jit.fork(work, x)
    y = x.sin()
    return torch.jit.wait(forked) + y
"""
_BESIDE = """
def beside(made, op):
    rows = made.ops[made.ops["op"] == op]
    return [made.sources[s].line(int(n)).strip() for s, n in zip(rows["source_id"], rows["line"]) if s is not None]
"""
_LINE_PROFILER = """
import io
said = io.StringIO(); lp.print_stats(said); said = said.getvalue()
"""

CASES = [
    Case(
        "a module is edited and reloaded, an old name is kept",
        "lines",
        (
            "import importlib, inspect, m; from m import f as kept; x = torch.ones(50, 50); inspect.getsource(m.f)",
            f"_ = open('m.py', 'w').write({_CHANGED!r}); _ = importlib.reload(m)",
            "%%tprofile -o p\nm.f(x); kept(x)",
        ),
        f"""{_BESIDE}
new, both = beside(p, "aten::relu"), set(beside(p, "aten::mm"))
told = "has changed since" in outputs[2]
good = new == ["y = (x @ x).relu()"] and both == {{"y = x @ x", "y = (x @ x).relu()"}}
outcome = "right" if good and told else "said" if told else "wrong"
shows = f"{{new}} {{sorted(both)}}"
""",
        files={"m.py": _MODEL},
        peers={
            "line_profiler": (
                (
                    "import importlib, m, line_profiler; from m import f as kept; x = torch.ones(50, 50)",
                    f"_ = open('m.py', 'w').write({_CHANGED!r}); _ = importlib.reload(m)",
                    "lp = line_profiler.LineProfiler(kept); lp.runcall(kept, x)",
                ),
                f"""{_LINE_PROFILER}
outcome = "right" if "y = x @ x" in said else "wrong"
shows = [line.strip() for line in said.splitlines() if " 1 " in line][:1]
""",
            )
        },
    ),
    Case(
        "a module is edited under %autoreload 2",
        "lines",
        (
            "%load_ext autoreload\n%autoreload 2\nimport m; x = torch.ones(50, 50)",
            "m.f(x)",
            f"import time; time.sleep(1.1); _ = open('m.py', 'w').write({_CHANGED!r})",
            "%%tprofile -o p\nm.f(x); m.g(x)",
        ),
        f"""{_BESIDE}
found = beside(p, "aten::relu"), beside(p, "aten::exp"), beside(p, "aten::maximum")
right = found == (["y = (x @ x).relu()"], ["x.exp(),"], ["return torch.maximum("])
outcome = "right" if right else "said" if "has changed since" in outputs[3] else "wrong"
shows = found
""",
        files={"m.py": _MODEL},
        peers={
            "line_profiler": (
                (
                    "%load_ext autoreload\n%autoreload 2\nimport m, line_profiler; x = torch.ones(50, 50)",
                    "m.f(x)",
                    f"import time; time.sleep(1.1); _ = open('m.py', 'w').write({_CHANGED!r})",
                    "lp = line_profiler.LineProfiler(m.f); lp.runcall(m.f, x)",
                ),
                f"""{_LINE_PROFILER}
timed = [line for line in said.splitlines() if line.split()[1:2] == ["1"]]
outcome = "right" if any("relu" in line for line in timed) else "wrong"
shows = timed[:1]
""",
            )
        },
    ),
    Case(
        "a module is edited and not reloaded",
        "lines",
        (
            "import m; x = torch.ones(50, 50)",
            f"_ = open('m.py', 'w').write({_MODEL.replace('x @ x', 'x + x')!r})",
            "%%tprofile -o p\nm.f(x)",
        ),
        f"""{_BESIDE}
found = beside(p, "aten::mm")
told = "has changed since" in outputs[2]
outcome = "right" if found == ["y = x @ x"] and told else "said" if told else "wrong"
shows = found
""",
        files={"m.py": _MODEL},
        peers={
            "line_profiler": (
                (
                    "import m, line_profiler; x = torch.ones(50, 50)",
                    f"_ = open('m.py', 'w').write({_MODEL.replace('x @ x', 'x + x')!r})",
                    "lp = line_profiler.LineProfiler(m.f); lp.runcall(m.f, x)",
                ),
                f"""{_LINE_PROFILER}
outcome = "right" if "y = x @ x" in said else "wrong"
shows = [line.strip() for line in said.splitlines() if "y = x" in line]
""",
            )
        },
    ),
    Case(
        "a library trains the model in one line",
        "lines",
        (
            "import sys, os; sys.path.insert(0, os.path.abspath('site-packages')); import trainlib",
            "net = torch.nn.Sequential(torch.nn.Linear(600, 600), torch.nn.ReLU(), torch.nn.Linear(600, 600))",
            "trainer = trainlib.Trainer(net, [torch.randn(200, 600) for _ in range(10)])",
            "%%tprofile -o p\ntrainer.train()",
        ),
        """
row = p.lines[p.lines["line"] == 2].iloc[0]
sentence = " ".join(outputs[3].partition("\\n\\n")[0].split())
parts = {"torch": row.self_cpu_time / p.wall_time, "python": row.python_time / p.wall_time}
split = "in torch and" in sentence if max(parts.values()) < 0.88 else "nearly all" in sentence
opened = all(word in sentence for word in ("--lines-of trainlib", "inside it backward", "trainer.model"))
outcome = "right" if split and opened else "wrong"
shows = sentence
""",
        files={"site-packages/trainlib.py": _LIBRARY},
    ),
    Case(
        "a scripted function forks work",
        "lines",
        (
            "import forks; x = torch.rand(300, 300) / 300; _ = [forks.both(x) for _ in range(3)]",
            "%%tprofile -o p\ny = forks.both(x)\nz = x.cos()",
        ),
        """
mm = p.ops[p.ops["op"] == "aten::mm"]
lines = {None if n != n or n is None else int(n) for n in mm["line"].astype(object).where(mm["line"].notna(), None)}
told = "on no line" in " ".join(outputs[1].split())
outcome = "right" if lines == {2} and not told else "said" if told and lines <= {2, None} else "wrong"
shows = f"forked mm on {sorted(map(str, lines))}, {int(mm['calls'].sum())} calls"
""",
        files={"forks.py": _FORKS},
    ),
    Case(
        "gradients accumulate without zero_grad",
        "lines",
        (
            "w, x = torch.randn(2000, 2000, requires_grad=True), torch.randn(8, 2000); v = x.clone()",
            "%%tprofile -o p\nfor _ in range(5):\n    h = x @ w\n    s = h.tanh()\n    s.sum().backward()",
        ),
        """
lines = p.lines.set_index("line")["backward_cpu_time"]
ops = p.ops[p.ops["op"].str.contains("AccumulateGrad|aten::add_")]
share = ops["self_cpu_time"].sum() / p.lines["self_cpu_time"].sum()
mm = p.ops[(p.ops["op"] == "aten::mm") & (p.ops["line"] == 5)]["self_cpu_time"].sum()
outcome = "right" if lines[3] >= mm + ops["self_cpu_time"].sum() else "wrong"
shows = f"accumulating is {share:.0%} of torch; line 3 caused {lines[3]:.4f} s"
""",
    ),
]
