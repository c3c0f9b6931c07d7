"""Insights of cells that had no part in choosing their thresholds: slow ones and healthy ones.

A slow cell is right when its first insight has the planted kind and line. Its cure is the first that the insight names,
where it names one that can be written. What was at stake by the profile is held
against what the cure saved, both cells timed without the profiler (the shortest of several runs each, in turn): an
upper bound has a factor of 1 and more, and a cure that saves nothing has none. A healthy cell is right when nothing is
said. Doubts about what else ran on the machine are set aside, since they would silence all insights; of three profiles
the shortest is asked.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2])]

from record import Figure, record  # noqa: E402
from tabulate import tabulate  # noqa: E402

from tests.insights.insight_runs import Planted, calm, namespace_of, profiled  # noqa: E402
from torchbench_magic.result_base import Insight  # noqa: E402

REPEATS = 15
BATCHES = "x = torch.rand(64, 1024)\nw = torch.rand(1024, 1024)"

SLOW = [
    Planted(
        "a norm for each row",
        "X = torch.rand(3000, 64)",
        "out = []\nfor row in X:\n    out.append(row.norm() + 1)",
        "overhead", 4, ("", "out = X.norm(dim=1) + 1"),
    ),
    Planted(
        "a pendulum on tensors of two numbers",
        "x, v = torch.rand(2), torch.rand(2)",
        "for step in range(2000):\n    v = v - 0.01 * x.sin()\n    x = x + 0.01 * v",
        "overhead", 3,
        ("import math\nx, v = [0.1, 0.2], [0.3, 0.4]",
         ("for step in range(2000):\n    v = [b - 0.01 * math.sin(a) for a, b in zip(x, v)]\n"
          "    x = [a + 0.01 * b for a, b in zip(x, v)]")),
    ),
    Planted(
        "products by pairs",
        "a, b, m = torch.rand(50, 32), torch.rand(50, 32), torch.zeros(50, 50)",
        "for i in range(50):\n    for j in range(50):\n        m[i, j] = (a[i] * b[j]).sum()",
        "overhead", 4, ("", "m = a @ b.T"),
    ),
    Planted(
        "parameters one by one",
        "params = [torch.rand(16) for _ in range(300)]",
        "for step in range(20):\n    for p in params:\n        p.mul_(0.999).add_(0.001)",
        "overhead", 4,
        ("params = torch.rand(300, 16)", "for step in range(20):\n    params.mul_(0.999).add_(0.001)"),
    ),
    Planted(
        "a running mean number by number",
        "losses = torch.rand(2500)",
        "mean = torch.zeros(())\nfor n, loss in enumerate(losses.unbind()):\n    mean = mean + (loss - mean) / (n + 1)",
        "overhead", 4, ("", "mean = losses.mean()"),
    ),
    Planted(
        "weights in double",
        BATCHES + "\nw = w.double()",
        "for i in range(30):\n    y = x @ w.float()",
        "copies", 3, (BATCHES, "for i in range(30):\n    y = x @ w"),
    ),
    Planted(
        "images turned each time",
        "images = torch.rand(16, 3, 224, 224)",
        "for i in range(10):\n    last = images.permute(0, 2, 3, 1).contiguous()\n    total = last.sum()",
        "copies", 3,
        ("images = torch.rand(16, 3, 224, 224)\nlast = images.permute(0, 2, 3, 1).contiguous()",
         "for i in range(10):\n    total = last.sum()"),
    ),
    Planted(
        "heads put together",
        "heads = torch.rand(16, 8, 512, 32)",
        "for i in range(20):\n    flat = heads.transpose(1, 2).reshape(16, 512, 256)\n    total = flat.sum()",
        "copies", 3,
        ("flat = torch.rand(16, 512, 256)", "for i in range(20):\n    total = flat.sum()"),
    ),
    Planted(
        "an index of another type",
        "table, index = torch.rand(1000), torch.randint(0, 1000, (1_000_000,)).short()",
        "for i in range(10):\n    y = table.take(index.long())",
        "copies", 3,
        ("table, index = torch.rand(1000), torch.randint(0, 1000, (1_000_000,))",
         "for i in range(10):\n    y = table.take(index)"),
    ),
    Planted(
        "a window made for each signal",
        "signal = torch.rand(400_000)",
        "for i in range(20):\n    part = signal * torch.hann_window(400_000)",
        "constant", 3,
        ("signal = torch.rand(400_000)\nwindow = torch.hann_window(400_000)",
         "for i in range(20):\n    part = signal * window"),
    ),
    Planted(
        "a mask in a function",
        "s = torch.rand(512, 512)",
        "def attend(scores):\n    keep = torch.tril(torch.ones(512, 512))\n"
        "    return scores.masked_fill(keep == 0, -1e9).softmax(-1)\nfor i in range(40):\n    y = attend(s)",
        "constant", 3,
        ("s = torch.rand(512, 512)\nkeep = torch.tril(torch.ones(512, 512))",
         ("def attend(scores):\n    return scores.masked_fill(keep == 0, -1e9).softmax(-1)\n"
          "for i in range(40):\n    y = attend(s)")),
    ),
    Planted(
        "a ridge",
        "gram = torch.rand(1000, 1000)",
        "for lam in (0.1, 0.2, 0.3, 0.4) * 5:\n    g = gram + lam * torch.eye(1000)",
        "constant", 3,
        ("gram = torch.rand(1000, 1000)\none = torch.eye(1000)",
         "for lam in (0.1, 0.2, 0.3, 0.4) * 5:\n    g = gram + lam * one"),
    ),
    Planted(
        "a histogram by numpy",
        "x = torch.rand(300_000)",
        "for i in range(12):\n    counts, edges = np.histogram(x.numpy(), bins=64)",
        "numpy", 3, ("", "for i in range(12):\n    counts = torch.histc(x, 64, 0, 1)"),
    ),
    Planted(
        "rows that are alike, by numpy",
        "ids = torch.randint(0, 500, (200_000,))",
        "for i in range(12):\n    seen, counts = np.unique(ids.numpy(), return_counts=True)",
        "numpy", 3, ("", "for i in range(12):\n    counts = torch.bincount(ids)"),
    ),
    Planted(
        "words looked up",
        "vocabulary = {str(n): n for n in range(5000)}\nwords = [str(n % 5000) for n in range(20_000)]",
        "for i in range(20):\n    ids = torch.tensor(list(map(vocabulary.__getitem__, words)))",
        "python", 3,
        ("ids = torch.arange(20_000) % 5000", "for i in range(20):\n    again = ids.clone()"),
    ),
    Planted(
        "a table of lists",
        "rows = [[float(a * b) for a in range(100)] for b in range(100)]\nw = torch.rand(100, 100)",
        "for i in range(40):\n    y = torch.tensor(rows) @ w",
        "python", 3,
        ("rows = torch.rand(100, 100)\nw = torch.rand(100, 100)", "for i in range(40):\n    y = rows @ w"),
    ),
    Planted(
        "observations one by one",
        "policy = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4)).eval()\n"
        "obs = torch.rand(500, 8)",
        "actions = []\nwith torch.no_grad():\n    for o in obs:\n        actions.append(policy(o).argmax())",
        "overhead", 5, ("", "with torch.no_grad():\n    actions = policy(obs).argmax(-1)"),
    ),
    Planted(
        "images brought to a mean of zero",
        "images = torch.randint(0, 256, (64, 3, 128, 128), dtype=torch.uint8)\n"
        "mean = np.array([0.48, 0.46, 0.41], np.float32)[:, None, None]\n"
        "std = np.array([0.23, 0.22, 0.23], np.float32)[:, None, None]",
        "batch = []\nfor image in images:\n"
        "    batch.append(torch.from_numpy((np.asarray(image.numpy(), dtype=float) / 255 - mean) / std))",
        "numpy", 4,
        (("images = torch.randint(0, 256, (64, 3, 128, 128), dtype=torch.uint8)\n"
          "mean, std = torch.tensor([[0.48, 0.46, 0.41], [0.23, 0.22, 0.23]])[:, :, None, None]"),
         "batch = [(image / 255 - mean) / std for image in images]"),
    ),
    Planted(
        "a causal mask for each step",
        "layer = torch.nn.TransformerEncoderLayer(16, 1, 16, batch_first=True).eval()\nx = torch.rand(1, 512, 16)",
        "with torch.no_grad():\n    for step in range(20):\n"
        "        mask = torch.triu(torch.full((512, 512), float('-inf')), diagonal=1)\n"
        "        y = layer(x, src_mask=mask)",
        "constant", 4,
        (("layer = torch.nn.TransformerEncoderLayer(16, 1, 16, batch_first=True).eval()\nx = torch.rand(1, 512, 16)\n"
          "mask = torch.triu(torch.full((512, 512), float('-inf')), diagonal=1)"),
         "with torch.no_grad():\n    for step in range(20):\n        y = layer(x, src_mask=mask)"),
    ),
    Planted(
        "right answers counted one by one",
        "scores, labels = torch.rand(20_000, 10), torch.randint(0, 10, (20_000,))",
        "for i in range(20):\n    found = scores.argmax(1)\n"
        "    right = sum(int(f == label) for f, label in zip(found.tolist(), labels.tolist()))",
        "python", 4,
        ("", "for i in range(20):\n    found = scores.argmax(1)\n    right = int((found == labels).sum())"),
    ),
]  # fmt: skip

TRAINS = """\
for i in range(6):
    opt.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    opt.step()"""
HEALTHY = [
    Planted("products in double", "x = torch.rand(400, 400, dtype=torch.double)", "for i in range(20):\n    y = x @ x"),
    Planted(
        "training with Adam",
        "net = torch.nn.Sequential(torch.nn.Linear(784, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 784))\n"
        "opt = torch.optim.Adam(net.parameters())\nx = torch.rand(256, 784)",
        TRAINS,
    ),
    Planted(
        "a small residual network",
        "class Block(torch.nn.Module):\n    def __init__(self, n):\n        super().__init__()\n"
        "        self.conv, self.norm = torch.nn.Conv2d(n, n, 3, padding=1), torch.nn.BatchNorm2d(n)\n"
        "    def forward(self, x):\n        return torch.relu(x + self.norm(self.conv(x)))\n"
        "net = torch.nn.Sequential(torch.nn.Conv2d(3, 32, 3), *[Block(32) for _ in range(4)])\n"
        "opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)\nx = torch.rand(8, 3, 48, 48)",
        TRAINS,
    ),
    Planted(
        "a transformer layer in training",
        "net = torch.nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True)\n"
        "opt = torch.optim.SGD(net.parameters(), lr=0.1)\nx = torch.rand(8, 128, 256)",
        TRAINS,
    ),
    Planted(
        "an LSTM",
        "net = torch.nn.LSTM(128, 256, batch_first=True)\nx = torch.rand(32, 100, 128)",
        "for i in range(3):\n    y, state = net(x)",
    ),
    Planted("transforms", "x = torch.rand(64, 4096)", "for i in range(20):\n    y = torch.fft.rfft(x).abs()"),
    Planted("sorting", "x = torch.rand(400_000)", "for i in range(10):\n    y, at = x.sort()\n    z = x.topk(100)"),
    Planted("a decomposition", "x = torch.rand(200, 200)", "for i in range(10):\n    u, s, v = torch.linalg.svd(x)"),
    Planted(
        "a sum that is added up in place",
        "x = torch.rand(512, 512)",
        "for i in range(20):\n    total = torch.zeros(512, 512)\n    total += x @ x",
    ),
    Planted("random batches", "w = torch.rand(512, 512)", "for i in range(20):\n    y = torch.randn(512, 512) @ w"),
    Planted(
        "waiting for a file",
        "import tempfile, pathlib\nfile = str(pathlib.Path(tempfile.mkdtemp()) / 'x.npy')\n"
        "np.save(file, np.zeros(2_000_000))",
        "for i in range(20):\n    y = torch.from_numpy(np.load(file)).sum()",
    ),
    Planted(
        "waiting for a queue",
        "import queue, threading, time\nq = queue.Queue()\n"
        "threading.Thread(target=lambda: [(time.sleep(0.004), q.put(torch.ones(4))) for _ in range(80)]).start()",
        "for i in range(20):\n    y = q.get().sum()",
    ),
    Planted("no torch at all", "", "words = ' '.join(str(n) for n in range(20_000)).split()\nn = len(set(words))"),
    Planted(
        "gathering from a table",
        "table = torch.rand(10_000, 128)\nids = torch.randint(0, 10_000, (256, 64))",
        "for i in range(20):\n    y = torch.nn.functional.embedding(ids, table).mean(1)",
    ),
    Planted(
        "a small language model in training",
        "class Model(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.words = torch.nn.Embedding(1000, 128)\n"
        "        layer = torch.nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)\n"
        "        self.body = torch.nn.TransformerEncoder(layer, 2)\n        self.head = torch.nn.Linear(128, 1000)\n"
        "    def forward(self, ids):\n"
        "        mask = torch.nn.Transformer.generate_square_subsequent_mask(ids.shape[1])\n"
        "        return self.head(self.body(self.words(ids), mask, is_causal=True))\n"
        "net, criterion = Model(), torch.nn.CrossEntropyLoss()\nopt = torch.optim.AdamW(net.parameters(), lr=3e-4)\n"
        "ids = torch.randint(0, 1000, (16, 64))",
        "for step in range(4):\n    opt.zero_grad(set_to_none=True)\n    logits = net(ids[:, :-1])\n"
        "    loss = criterion(logits.reshape(-1, 1000), ids[:, 1:].reshape(-1))\n    loss.backward()\n"
        "    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)\n    opt.step()",
    ),
    Planted(
        "evaluation of a convolutional network",
        "net = torch.nn.Sequential(torch.nn.Conv2d(3, 32, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2),\n"
        "    torch.nn.Conv2d(32, 64, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),\n"
        "    torch.nn.Linear(64, 10)).eval()\n"
        "data = torch.utils.data.TensorDataset(torch.rand(128, 3, 64, 64), torch.randint(0, 10, (128,)))\n"
        "loader = torch.utils.data.DataLoader(data, batch_size=16)",
        "correct = total = 0\nwith torch.no_grad():\n    for x, y in loader:\n        found = net(x).argmax(1)\n"
        "        correct += (found == y).sum().item()\n        total += len(y)\naccuracy = correct / total",
    ),
    Planted(
        "an update of a policy",
        "policy = torch.nn.Sequential(torch.nn.Linear(16, 128), torch.nn.Tanh(), torch.nn.Linear(128, 6))\n"
        "opt = torch.optim.Adam(policy.parameters(), lr=3e-4)\nobs, acts = torch.rand(8192, 16), "
        "torch.randint(0, 6, (8192,))\nold, gain = -torch.rand(8192), torch.randn(8192)",
        "for epoch in range(6):\n    dist = torch.distributions.Categorical(logits=policy(obs))\n"
        "    ratio = (dist.log_prob(acts) - old).exp()\n"
        "    loss = -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean() - 0.01 * dist.entropy().mean()\n"
        "    opt.zero_grad()\n    loss.backward()\n    opt.step()",
    ),
    Planted(
        "clusters by means",
        "x = torch.rand(20_000, 32)\ncenters = x[:64].clone()",
        "for i in range(8):\n    near = torch.cdist(x, centers).argmin(1)\n"
        "    sums = torch.zeros_like(centers).index_add_(0, near, x)\n"
        "    centers = sums / torch.bincount(near, minlength=64).clamp(min=1)[:, None]",
    ),
    Planted(
        "training in two precisions",
        "net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256))\n"
        "opt = torch.optim.SGD(net.parameters(), lr=0.1)\nx, y = torch.rand(2048, 256), torch.rand(2048, 256)",
        "for i in range(4):\n    opt.zero_grad()\n    with torch.autocast('cpu', dtype=torch.bfloat16):\n"
        "        out = net(x)\n    loss = (out.float() - y).square().mean()\n    loss.backward()\n    opt.step()",
    ),
    Planted(
        "a table from numpy, once",
        "table = np.random.default_rng(0).random((2000, 64), dtype=np.float32)\nw = torch.rand(64, 512)",
        "x = torch.from_numpy((table - table.mean(0)) / table.std(0))\nfor i in range(30):\n"
        "    y = (x @ w).relu() @ w.T\nbest = y.sum(1).topk(5).indices.numpy()",
    ),
]



def main() -> int:
    rows: list[tuple[str, ...]] = []
    cases: list[dict[str, Any]] = []
    factors: list[float] = []
    right = silent = vain = 0
    for case in SLOW:
        said = _said(case)
        first = (said[0].kind, said[0].places[0].line) if said else ("", 0)
        is_right = first == (case.kind, case.line)
        right += is_right
        before, after = _seconds(case)
        at_stake = said[0].seconds if is_right else float("nan")
        saved = before - after
        saves = saved > 0.02 * before
        factor = at_stake / saved if saves else float("nan")
        factors += [factor] * (is_right and saves)
        vain += is_right and not saves
        wanted, got = f"{case.kind} {case.line}", f"{first[0]} {first[1]}" if said else "nothing"
        rows.append((case.name, wanted, got, _ms(before), _ms(saved), _ms(at_stake), f"{factor:.2f}"))
        cases.append(
            {"case": case.name, "planted": wanted, "said": got, "seconds": before, "saved": saved,
             "at_stake": at_stake if is_right else None, "factor": factor if is_right and saves else None}
        )  # fmt: skip
    for case in HEALTHY:
        said = _said(case)
        silent += not said
        got = ", ".join(f"{each.kind} {each.places[0].line}" for each in said) or "nothing"
        rows.append((case.name, "nothing", got, "", "", "", ""))
        cases.append({"case": case.name, "planted": "nothing", "said": got})
    print("\ninsights")
    header = ("cell", "planted", "said", "takes, ms", "cure saves, ms", "at stake, ms", "factor")
    print(tabulate(rows, header, "plain", colalign=("left",) * 3 + ("right",) * 4, disable_numparse=True))
    bounds = (min(factors), max(factors)) if factors else None
    figures = [
        Figure("slow cells told by kind and line", right, f"of {len(SLOW)}", at_least=len(SLOW) - 2),
        Figure("healthy cells of which nothing is said", silent, f"of {len(HEALTHY)}", at_least=len(HEALTHY) - 1),
        Figure("at stake, over what the cure saved: median", statistics.median(factors or [0.0]), "", spread=bounds),
        Figure("within a factor of 1.5", sum(1 / 1.5 <= each <= 1.5 for each in factors), f"of {right}"),
        Figure("cures that saved nothing", vain, "cells"),
        Figure("at stake, less than 0.8 of what the cure saved", sum(each < 0.8 for each in factors), "cells"),
    ]
    return record("insights", figures, repeats=REPEATS, cases=cases)


def _said(case: Planted) -> tuple[Insight, ...]:
    """Of the shortest of three runs: the one that others took the processor from least."""
    profiles = [calm(profiled(case)) for _ in range(3)]
    return min(profiles, key=lambda profile: profile.wall_time).insights


def _seconds(case: Planted) -> tuple[float, float]:
    """Of the cell and of the cured one, each the shortest of several runs, in turn."""
    setup, body = case.cured
    bodies = [(namespace_of(case.setup), case.body), (namespace_of(setup or case.setup), body)]
    codes = [(compile(text, "<cell>", "exec"), names) for names, text in bodies]
    taken: list[list[float]] = [[], []]
    for _ in range(REPEATS + 1):
        for (code, names), times in zip(codes, taken, strict=True):
            begin = time.perf_counter()
            exec(code, names)
            times.append(time.perf_counter() - begin)
    return min(taken[0]), min(taken[1])


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f}"


if __name__ == "__main__":
    sys.exit(main())
