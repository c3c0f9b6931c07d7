"""Cells that keep memory by a known holder, and cells that keep none, or on purpose; run in an IPython shell."""

from __future__ import annotations

import gc
import sys
from dataclasses import dataclass
from typing import Any

from torchbench_magic.profiling.profile import Profile
from torchbench_magic.result_base import Insight

__all__ = ["HEALTHY", "LEAKING", "LeakCell", "leaks_said", "profile_in_shell"]


@dataclass(frozen=True)
class LeakCell:
    """A cell that is profiled with ``--memory``, after others.

    Attributes:
        before: cells that run before it; one may raise.
        body: the cell without its magic line.
        holder: what must stand in the sentence; empty for a healthy cell.
        kind: of the holder, as in `HOLDER_COLUMNS`.
        line: that keeps the most, the magic's being the first; 0 where it is of another cell.
    """

    name: str
    before: tuple[str, ...]
    body: str
    holder: str = ""
    kind: str = ""
    line: int = 0


IMPORT = "import torch, functools, collections"
NET = (
    "torch.manual_seed(0)\n"
    "net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256))"
)
LOOP = "with torch.no_grad():\n    for i in range(20):\n"
BATCH = "x = torch.rand(256, 256)"
WINDOW = """\
class Log:
    def __init__(self):
        self.past = []
    def note(self, t):
        self.past.append(t)
        if len(self.past) > 30:
            del self.past[0]"""
NODE = """\
class Node:
    def __init__(self, value, before):
        self.value = value
        self.before = before"""
RUNNER = """\
class Runner:
    node = None
    def step(self, t):
        self.node = Node(t.exp(), self.node)
runner = Runner()"""
TRAIN = """\
for i in range(20):
    opt.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    opt.step()"""

LEAKING = (
    LeakCell("a list of outputs", (NET, BATCH, "kept = []"), "for i in range(20):\n    kept.append(net(x))",
             "the list `kept`", "list", 3),
    LeakCell("losses added up with their graph", (NET, BATCH, "total = 0"),
             "for i in range(20):\n    loss = net(x).square().mean()\n    total += loss",
             "the autograd graph of `total`", "graph", 3),
    LeakCell("losses added up in one line", (NET, BATCH, "total = 0"),
             "for i in range(20): total = total + net(x).square().mean()", "the autograd graph of `total`", "graph", 2),
    LeakCell("a dict on a module", (NET, BATCH, "net.seen = {}"),
             "with torch.no_grad():\n    for i in range(20):\n        net.seen[i] = net(x)",
             "the dict `net.seen`", "dict", 4),
    LeakCell("a list in a closure", (BATCH, ("def recorder():\n    past = []\n    def record(t):\n"
                                            "        past.append(t * 2)\n    return record"), "record = recorder()"),
             "for i in range(20):\n    record(x)", "`past` in the closure of `record`", "closure"),
    LeakCell("a default argument", (BATCH, "def smooth(t, past=[]):\n    past.append(t.sin())\n    return past[-1]"),
             "for i in range(20):\n    y = smooth(x)", "the default argument `past` of `smooth`", "default"),
    LeakCell("a cache without a limit", (("@functools.lru_cache(maxsize=None)\ndef table(n):\n"
                                         "    return torch.full((256, 256), float(n))"),),
             "for i in range(20):\n    y = table(i)", "the cache of `table`", "cache"),
    LeakCell("a forward hook", (NET, BATCH, ("def keeper():\n    acts = []\n    def hook(module, given, made):\n"
                                            "        acts.append(made.detach())\n    return hook"),
                                "handle = net[0].register_forward_hook(keeper()); del handle"),
             "with torch.no_grad():\n    for i in range(20):\n        y = net(x)", "a hook of `net.0`", "hook", 4),
    LeakCell("an output of an earlier cell", (BATCH, "x.repeat(8, 8)"), "for i in range(20):\n    y = x.relu()",
             "`Out[3]`", "output"),
    LeakCell("the value of the cell itself", (BATCH,), "y = x.relu()\nx.repeat(8, 8)", "`Out[3]`", "output"),
    LeakCell("the frames of an error", (BATCH, "def fails():\n    big = x.repeat(8, 8)\n    raise RuntimeError('full')",
                                        "fails()"),
             "for i in range(20):\n    y = x.relu()", "RuntimeError", "traceback"),
    LeakCell("a log on an object",
             (BATCH, "class Log:\n    def __init__(self):\n        self.steps = []", "log = Log()"),
             "def note(t):\n    log.steps.append(t.exp())\nfor i in range(20):\n    note(x)",
             "the list `log.steps`", "list", 3),
    LeakCell("a list of a class", (BATCH, ("class Store:\n    items = []\n    def put(self, t):\n"
                                          "        self.items.append(t.exp())"), "store = Store()"),
             "for i in range(20):\n    store.put(x)", "the list `Store.items`", "list"),
    LeakCell("tensors that hold the one before", (BATCH,),
             "cur = None\nfor i in range(16):\n    t = x * i\n    t.prev = cur\n    cur = t",
             "with each of 16 runs: the chain of `cur.prev` holds 4.00 MiB", "chain", 4),
    LeakCell("objects that hold the one before", (BATCH, NODE, "last = None"),
             "for i in range(16):\n    last = Node(x.exp(), last)",
             "the chain of `last.before` holds 4.00 MiB", "chain", 3),
    LeakCell("states that an object links", (BATCH, NODE, RUNNER), "for i in range(16):\n    runner.step(x)",
             "the chain of `runner.node.before` holds 4.00 MiB", "chain"),
    LeakCell("what a generator yields, kept", (BATCH, "kept = []"),
             "def batches():\n    for i in range(16):\n        yield x * i\n"
             "for t in batches():\n    kept.append(t)\ndel t",
             "with each of 16 runs: the list `kept` holds 4.00 MiB", "list", 4),
)  # fmt: skip

HEALTHY = (
    LeakCell("layers made in one line", (), "net = torch.nn.Sequential(*[torch.nn.Linear(99, 99) for _ in range(40)])"),
    LeakCell("a loss that is no sum, in one line", (NET, BATCH), "for i in range(20): loss = net(x).square().mean()"),
    LeakCell("losses as numbers", (NET, BATCH, "opt = torch.optim.SGD(net.parameters(), lr=0.1); losses = []"),
             TRAIN + "\n    losses.append(loss.item())"),
    LeakCell("the optimizer's state of the first step",
             (NET, BATCH, "opt = torch.optim.Adam(net.parameters())"), TRAIN),
    LeakCell("a cache that is full", (("@functools.lru_cache(maxsize=None)\ndef table(n):\n"
                                      "    return torch.full((512, 512), float(n))"),),
             "for i in range(40):\n    y = table(i % 4) * 2"),
    LeakCell("a replay buffer with a limit", (BATCH, "buffer = collections.deque(maxlen=50)"),
             "for i in range(40):\n    buffer.append(x + i)"),
    LeakCell("a buffer that is emptied", (BATCH, "buffer = []"),
             "for i in range(40):\n    buffer.append(x + i)\n    if len(buffer) > 30:\n        buffer.pop(0)"),
    LeakCell("results put together after the loop", (NET, BATCH),
             f"outs = []\n{LOOP}        outs.append(net(x))\nall_of = torch.cat(outs)"),
    LeakCell("evaluation without gradients", (NET, BATCH), f"{LOOP}        y = net(x)"),
    LeakCell("a graph through time that backward frees", (NET, BATCH),
             "h = x\nfor i in range(10):\n    h = net(h)\nh.mean().backward()"),
    LeakCell("a model that is made in the cell", (BATCH,), NET + "\nfor i in range(10):\n    y = net(x)"),
    LeakCell("a sequence that is put together", (BATCH, "seen = torch.empty(0, 256)"),
             "for i in range(20):\n    seen = torch.cat([seen, x])"),
    LeakCell("batches made for later cells", (BATCH,), "batches = []\nfor i in range(20):\n    batches.append(x * i)"),
    LeakCell("a window of a log that is cut back", (BATCH, WINDOW, "log = Log()"),
             "for i in range(25):\n    log.note(x * i)"),
    LeakCell("a mean that moves", (BATCH, "mean = torch.zeros(256, 256)"),
             "for i in range(40):\n    mean = 0.9 * mean + 0.1 * x"),
    LeakCell("a small value at the end", (NET, BATCH), f"{LOOP}        y = net(x)\ny.mean()"),
)  # fmt: skip


def profile_in_shell(cell: LeakCell, options: str = "") -> Profile:
    """The profile of the cell in a shell of its own, as a notebook runs it."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.hist_file = ":memory:"
    config.InteractiveShell.colors = "nocolor"
    InteractiveShell.clear_instance()
    _forget_errors()
    shell: Any = InteractiveShell.instance(config=config)
    try:
        shell.run_line_magic("load_ext", "torchbench_magic")
        for text in (IMPORT, *cell.before):
            shell.run_cell(text, store_history=True)
        shell.run_cell(f"%%tprofile --memory -q -o profile_of_cell {options}\n{cell.body}", store_history=True)
        profile = shell.user_ns.get("profile_of_cell")
        assert isinstance(profile, Profile), "the cell was not profiled: see what the shell printed"
        return profile
    finally:
        shell.run_line_magic("unload_ext", "torchbench_magic")
        shell.reset(new_session=False)
        shell.history_manager.end_session()
        shell.last_execution_result = shell.InteractiveTB.tb = shell.SyntaxTB.tb = None  # they outlive the shell
        InteractiveShell.clear_instance()
        _forget_errors()
        gc.collect()


def _forget_errors() -> None:
    for name in ("last_exc", "last_value", "last_traceback", "last_type"):
        if hasattr(sys, name):
            delattr(sys, name)


def leaks_said(profile: Profile) -> list[Insight]:
    return [each for each in profile.insights if each.kind == "leak"]
