"""Training loops: twelve with a planted cause and four healthy ones, none of which had a part in choosing thresholds;
whether phases add up to a step that the loop itself times; and what ``--phases`` costs.

A planted loop is right when an insight has the planted kind and line (of a step that takes long: when it is named with
the line that took the time). A healthy loop is right when no insight is said at all. Doubts about what else ran on the
machine are set aside, since they would silence all of them.

    python tests/benchmarks/cure_cases/loops.py
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[3])]

import numpy as np  # noqa: E402
import torch  # noqa: E402
from record import Figure, record  # noqa: E402
from tabulate import tabulate  # noqa: E402

from tests.insights.insight_runs import Planted, calm, profiled  # noqa: E402
from torchbench_magic import profile  # noqa: E402
from torchbench_magic.profiling.loops.phases import outliers_of  # noqa: E402
from torchbench_magic.profiling.profile import Profile  # noqa: E402
from torchbench_magic.timing.intervals import median_interval  # noqa: E402

OUTLIER = "outlier"
BASE = """\
import time
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset
net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(net.parameters(), 0.01)
"""
SLOW_SET = BASE + """\
class Slow(Dataset):
    def __len__(self): return 160
    def __getitem__(self, at):
        sum(at * n for n in range(20000))
        return torch.rand(256), at % 10
"""
READY = BASE + """\
data = TensorDataset(torch.rand(512, 256), torch.randint(10, (512,)))
loader = DataLoader(data, batch_size=64)
"""
STEP = """\
    optimizer.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()"""
WITH_DROPOUT = READY + """\
net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Dropout(0.5), nn.Linear(512, 10))
optimizer = torch.optim.SGD(net.parameters(), 0.01)
held_out = DataLoader(TensorDataset(torch.rand(4096, 256), torch.randint(10, (4096,))), batch_size=512)
"""
DEEP = BASE + """\
net = nn.Sequential(*(nn.Linear(32, 32) for _ in range(60)))
x, y = torch.rand(64, 32), torch.rand(64, 32)
"""

PLANTED = [
    Planted(
        "a data set that computes each item, in the loop itself",
        SLOW_SET + "loader = DataLoader(Slow(), batch_size=16)",
        f"for x, y in loader:\n{STEP}",
        "input-bound", 2,
    ),
    Planted(
        "a generator that makes batches by hand",
        BASE + "def batches():\n    for _ in range(12):\n"
        "        rows = [[float(i * j % 7) for i in range(256)] for j in range(64)]\n"
        "        yield torch.tensor(rows), torch.randint(10, (64,))",
        f"for x, y in batches():\n{STEP}",
        "input-bound", 2,
    ),
    Planted(
        "workers that cannot keep up",
        SLOW_SET + "loader = DataLoader(Slow(), batch_size=8, num_workers=1)",
        f"for x, y in loader:\n{STEP}",
        "input-bound", 2,
    ),
    Planted(
        "workers that start anew with each short epoch",
        READY + "loader = DataLoader(data, batch_size=64, num_workers=2)",
        "for epoch in range(5):\n    for x, y in loader:\n" + "\n".join("    " + line for line in STEP.splitlines()),
        "input-bound", 3,
    ),
    Planted(
        "a collate function that goes item by item",
        READY + "def together(items):\n    rows = [[v * 0.5 for v in x.tolist()] for x, _ in items]\n"
        "    return torch.tensor(rows), torch.stack([y for _, y in items])\n"
        "loader = DataLoader(data, batch_size=64, collate_fn=together)",
        f"for x, y in loader:\n{STEP}",
        "input-bound", 2,
    ),
    Planted(
        "Adam over the cells of a deep recurrent network",
        BASE + "cells = nn.ModuleList(nn.GRUCell(24, 24) for _ in range(40))\n"
        "optimizer = torch.optim.Adam(cells.parameters(), 3e-4)\nx, y = torch.rand(32, 24), torch.rand(32, 24)",
        "for i in range(15):\n    h = x\n    for cell in cells:\n        h = cell(h)\n"
        "    loss = F.l1_loss(h, y)\n    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()",
        "optimizer-loop", 9,
    ),
    Planted(
        "Adagrad over many small layers, in a method",
        BASE + "net = nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16)) for _ in range(50)))\n"
        "x = torch.rand(32, 16)",
        "class Fit:\n    def __init__(self):\n        self.optimizer = torch.optim.Adagrad(net.parameters())\n"
        "    def run(self, steps):\n        for _ in range(steps):\n            self.optimizer.zero_grad()\n"
        "            net(x).square().mean().backward()\n            self.optimizer.step()\nFit().run(15)",
        "optimizer-loop", 9,
    ),
    Planted(
        "gradients that nothing clears",
        READY,
        "for x, y in loader:\n    loss = F.cross_entropy(net(x), y)\n    loss.backward()\n    optimizer.step()",
        "no-zero-grad", 5,
    ),
    Planted(
        "an evaluation that records a graph",
        WITH_DROPOUT,
        f"for x, y in loader:\n{STEP}\nnet.eval()\nright = 0\nfor x, y in held_out:\n"
        "    right += (net(x).argmax(1) == y).sum()\nnet.train()",
        "grad-unused", 10,
    ),
    Planted(
        "an evaluation in training mode",
        WITH_DROPOUT,
        f"for x, y in loader:\n{STEP}\nright = 0\nwith torch.no_grad():\n    for x, y in held_out:\n"
        "        out = net(x)\n"
        "        right += (out.argmax(1) == y).sum()",
        "eval-mode", 10,
    ),
    Planted(
        "training that stays in evaluation mode",
        WITH_DROPOUT + "net.train()",
        "net.train()\nfor epoch in range(3):\n    for x, y in loader:\n"
        + "\n".join("    " + line for line in STEP.splitlines())
        + "\n    net.eval()\n    with torch.no_grad():\n"
        "        loss = sum(F.cross_entropy(net(x), y) for x, y in held_out)",
        "eval-mode", 6,
    ),
    Planted(
        "a checkpoint in one of the steps",
        READY + "import io\nbig = torch.rand(8_000_000)",
        "for at, (x, y) in enumerate(loader):\n" + STEP + "\n    if at == 5:\n        torch.save(big, io.BytesIO())",
        OUTLIER, 8,
    ),
]

CONVOLUTIONS = """\
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
net = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
data = TensorDataset(torch.rand(96, 3, 48, 48), torch.randint(10, (96,)))
loader = DataLoader(data, batch_size=16)
"""
HEALTHY = [
    Planted(
        "convolutions with an evaluation as it should be",
        CONVOLUTIONS + "held_out = DataLoader(data, batch_size=32)",
        f"net.train()\nfor x, y in loader:\n{STEP}\nnet.eval()\nwith torch.inference_mode():\n"
        "    for x, y in held_out:\n"
        "        loss = F.cross_entropy(net(x), y)",
    ),
    Planted(
        "a recurrent network with truncated backpropagation",
        "from torch import nn\nfrom torch.nn import functional as F\n"
        "net, head = nn.LSTM(128, 256, batch_first=True), nn.Linear(256, 64)\n"
        "both = [*net.parameters(), *head.parameters()]\noptimizer = torch.optim.RMSprop(both, 1e-3)\n"
        "text, wanted = torch.rand(32, 160, 128), torch.randint(64, (32, 160))",
        "state = None\nfor at in range(0, 160, 20):\n    out, state = net(text[:, at:at + 20], state)\n"
        "    state = tuple(each.detach() for each in state)\n"
        "    loss = F.cross_entropy(head(out).flatten(0, 1), wanted[:, at:at + 20].flatten())\n"
        "    optimizer.zero_grad()\n    loss.backward()\n"
        "    nn.utils.clip_grad_norm_(both, 1.0)\n    optimizer.step()",
    ),
    Planted(
        "two encoders with a contrastive loss, a schedule and an average of the weights",
        "from torch import nn\nfrom torch.nn import functional as F\n"
        "made = lambda: nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 256))\n"
        "of_image, of_text = made(), made()\nboth = nn.ModuleList([of_image, of_text])\n"
        "optimizer = torch.optim.AdamW(both.parameters(), fused=True)\n"
        "schedule = torch.optim.lr_scheduler.LinearLR(optimizer)\n"
        "average = torch.optim.swa_utils.AveragedModel(both)\n"
        "batches = [(torch.rand(384, 512), torch.rand(384, 512)) for _ in range(3)]",
        "target = torch.arange(384)\nfor epoch in range(3):\n    for image, text in batches:\n"
        "        a, b = F.normalize(of_image(image)), F.normalize(of_text(text))\n"
        "        scores = a @ b.T * 10\n"
        "        loss = (F.cross_entropy(scores, target) + F.cross_entropy(scores.T, target)) / 2\n"
        "        optimizer.zero_grad()\n        loss.backward()\n        optimizer.step()\n        schedule.step()\n"
        "    average.update_parameters(both)",
    ),
    Planted(
        "accumulated gradients with workers that keep up",
        CONVOLUTIONS
        + "loader = DataLoader(data, batch_size=8, num_workers=1, persistent_workers=True)\n"
        "for _ in loader: pass",
        "net.train()\nfor epoch in range(2):\n    for at, (x, y) in enumerate(loader):\n"
        "        loss = F.cross_entropy(net(x), y) / 4\n"
        "        loss.backward()\n        if at % 4 == 3:\n            optimizer.step()\n"
        "            optimizer.zero_grad()",
    ),
]


def main() -> int:
    torch.set_num_threads(1)
    rows, right, false = [], 0, 0
    for case in PLANTED:
        said = _said(case)
        is_right = (case.kind, case.line) in said
        right += is_right
        rows.append((case.name, f"{case.kind} line {case.line}", _text(said), "right" if is_right else "WRONG"))
    for case in HEALTHY:
        said = _said(case)
        false += bool(said)
        rows.append((case.name, "nothing", _text(said), "FALSE" if said else "right"))
    print(tabulate(rows, ("loop", "planted", "said", ""), "plain", maxcolwidths=[52, 24, 60, 8]))
    apart = {mode: _apart(phases) for mode, phases in (("--phases", True), ("with lines", False))}
    costs = {name: _cost(*made) for name, made in LOOPS.items()}
    figures = [
        Figure("planted causes named with their line, of 12", right, "loops", at_least=11),
        Figure("healthy loops of which something is said, of 4", false, "loops", at_most=0),
        *(
            Figure(f"phases against the loop's clock, 9 of 10 steps, {mode}", value, "%", at_most=1.0, spread=spread)
            for mode, (value, spread) in apart.items()
        ),
        *(figure for name, cost in costs.items() for figure in _figures_of(name, cost)),
    ]
    names = ("loop", "planted", "said", "verdict")
    said_of = [dict(zip(names, row, strict=True)) for row in rows]
    return record("cures_loops", figures, loops=said_of, pairs=[pairs for _, pairs in LOOPS.values()], threads=1)


def _said(case: Planted) -> list[tuple[str, int]]:
    return [(kind, line) for kind, line, _ in said_of(case)]


def said_of(case: Planted) -> list[tuple[str, int, str]]:
    """(kind, line, words) of what is said of a loop."""
    made = calm(profiled(case))
    found = [(each.kind, each.places[0].line if each.places else 0, each.text) for each in made.insights]
    if case.kind == OUTLIER:
        for each in outliers_of(made.phases_by_line):
            words = f"step {each.step} took {each.seconds * 1e3:.0f} ms, of it {each.phase}"
            found.append((OUTLIER, each.line or 0, words))
    return found


def _text(said: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{kind} line {line}" for kind, line in said) or "nothing"


# ---- phases and cost ------------------------------------------------------------------------------------------------


def _mlp(width: int, batch: int, steps: int) -> Callable[[], list[float]]:
    """A loop that times itself: when each of its iterations began, and when the last had ended."""
    net = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, 10))
    optimizer = torch.optim.AdamW(net.parameters())
    data = torch.utils.data.TensorDataset(torch.rand(batch * steps, width), torch.randint(10, (batch * steps,)))
    loader = torch.utils.data.DataLoader(data, batch_size=batch)

    def train() -> list[float]:
        batches, times = iter(loader), []
        for _ in range(steps):
            times.append(time.perf_counter())
            x, y = next(batches)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
        times.append(time.perf_counter())
        return times

    return train


def _transformer(steps: int) -> Callable[[], list[float]]:
    """Many modules in a step: each of their calls goes through ``--phases``."""
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    net = torch.nn.TransformerEncoder(layer, 4)
    optimizer = torch.optim.AdamW(net.parameters())
    x = torch.rand(16, 32, 64)

    def train() -> list[float]:
        times = []
        for _ in range(steps):
            times.append(time.perf_counter())
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
        times.append(time.perf_counter())
        return times

    return train


LOOPS: dict[str, tuple[Callable[[], list[float]], int]] = {
    "a network of steps of 2 ms": (_mlp(512, 64, 64), 300),
    "a small network": (_mlp(1024, 64, 40), 300),
    "a transformer of small layers": (_transformer(20), 130),
}
"""Each with how many pairs of runs it takes until the interval is narrow beside the limit."""
TOO_SHORT = "a network of steps of 2 ms"
"""Where the limit does not hold, which the profile says of itself ("phases-cost")."""


def _apart(phases: bool) -> tuple[float, tuple[float, float]]:
    """(the difference that nine of ten steps do not reach, %; from the smallest to the largest) of steps and what the
    loop itself measured. Between the loop's clock and the first mark of a step the system may interrupt: that time is
    of one step by the one and of the next by the other."""
    train, seen = _mlp(512, 64, 200), []
    made: Profile = profile(lambda: seen.extend(train()), phases=phases)
    own = np.diff(np.array(seen))
    steps = made.phases.groupby("step")["seconds"].sum().to_numpy()
    # the loop's first step has the making of the iterator before it, and its last one ends with the loop
    apart = 100 * (steps[1:-1] / own[1 : len(steps) - 1] - 1)
    return float(np.quantile(np.abs(apart), 0.9)), (float(apart.min()), float(apart.max()))


class Cost(NamedTuple):
    """In per cent of a step: the median of the pairs of runs with and without, and its 95 % interval.

    Attributes:
        typical: by the lower quartile of the steps of each run's second half, which other programs disturb least.
        whole: by their sum.
        step: seconds of such a quartile without.
    """

    typical: tuple[float, float, float]
    whole: tuple[float, float, float]
    step: float


def _figures_of(name: str, cost: Cost) -> list[Figure]:
    middle, *ends = cost.typical
    return [
        Figure(
            f"cost of --phases, {name}: upper end of 95 % interval", ends[1], "%",
            limit=2.0 if name != TOO_SHORT else None, spread=tuple(ends),
        ),
        Figure(f"cost of --phases, {name}: median", middle, "%"),
        Figure(f"cost of --phases, {name}: of a step", middle / 100 * cost.step * 1e6, "us"),
        Figure(f"cost of --phases, {name}: of the sum of all steps", cost.whole[0], "%", spread=cost.whole[1:]),
        Figure(f"{name}: a step without --phases", cost.step * 1e3, "ms"),
    ]


def _cost(train: Callable[[], list[float]], pairs: int) -> Cost:
    """Short runs in turns, so that what drifts is the same for both of a pair. Of each run its second half: what is
    asked is what a whole run costs, and the beginning of any of them finds cold caches (some 20 steps of 2 ms)."""
    seen: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    order = random.Random(0)
    train()
    for _ in range(pairs):
        for watched in order.sample((True, False), 2):
            moments: list[float] = []
            run: Any = lambda moments=moments: moments.extend(train())
            profile(run, phases=True) if watched else run()
            steps = np.diff(moments)
            steps = steps[len(steps) // 2 :]
            seen[watched].append((float(np.quantile(steps, 0.25)), float(steps.sum())))
    ratios = np.array(seen[True]) / np.array(seen[False])
    return Cost(_per_cent(ratios[:, 0]), _per_cent(ratios[:, 1]), statistics.median(each for each, _ in seen[False]))


def _per_cent(ratios: np.ndarray[Any, np.dtype[np.float64]]) -> tuple[float, float, float]:
    found = median_interval(ratios)
    return tuple(100 * (float(value) - 1) for value in (np.median(ratios), found.low, found.high))  # type: ignore[return-value]


if __name__ == "__main__":
    sys.exit(main())
