"""Slow cells with the one insight that is right for each, and healthy cells; recorded once, since shares are of times.

``python -m tests.insights.insight_cells`` records them anew, on a machine that does nothing else: it runs each
until what is said of the run itself is right, and writes its trace beside this file.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

from torchbench_magic import load_trace
from torchbench_magic.profiling.profile import Profile

from .insight_runs import Planted, found, profiled

__all__ = ["HEALTHY", "SLOW", "recorded"]

FOLDER = Path(__file__).parent / "recorded_insights"
TRIES = 50

SQUARE = "x = torch.rand(256, 256)"
SLOW = [
    Planted("elements", "x = torch.rand(64)", "y = 0\nfor i in range(1500):\n    y = y + x[i % 64]", "overhead", 4),
    Planted(
        "two lines of a loop",
        "x = torch.rand(8)",
        "for i in range(800):\n    a = x * 2\n    b = (a + 1).relu()",
        "overhead",
        4,
    ),
    Planted(
        "casts", "x = torch.rand(512, 512)", "for i in range(40):\n    y = x.double()\n    z = x.add(1)", "copies", 3
    ),
    Planted(
        "layout",
        "x = torch.rand(512, 512)",
        "for i in range(40):\n    y = x.t().contiguous()\n    z = x + 1",
        "copies",
        3,
    ),
    Planted(
        "mask",
        SQUARE,
        "for i in range(40):\n    s = x @ x\n    y = s + torch.triu(torch.ones(1024, 1024), 1)[:256, :256]",
        "constant",
        4,
    ),
    Planted("unique", SQUARE, "for i in range(20):\n    u = np.unique(x.numpy())\n    y = x @ x", "numpy", 3),
    Planted(
        "list",
        SQUARE + "\nvalues = [float(i) for i in range(40000)]",
        "for i in range(20):\n    t = torch.tensor(values)\n    y = x @ x",
        "python",
        3,
    ),
]

TRAINING = """\
net = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 512))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.rand(128, 512)"""
STEPS = """\
for i in range(10):
    opt.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    opt.step()"""
CONVOLUTIONS = """\
net = torch.nn.Sequential(
    torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.BatchNorm2d(32), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
    torch.nn.Conv2d(32, 64, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(64 * 32 * 32, 10))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.rand(16, 3, 64, 64)"""
ATTENTION = """\
x = torch.rand(8, 256, 256)
to_q, to_k, to_v = (torch.nn.Linear(256, 256) for _ in range(3))"""
ATTENDS = """\
for i in range(10):
    q = to_q(x).view(8, 256, 8, 32).transpose(1, 2)
    k = to_k(x).view(8, 256, 8, 32).transpose(1, 2)
    v = to_v(x).view(8, 256, 8, 32).transpose(1, 2)
    y = torch.nn.functional.scaled_dot_product_attention(q, k, v)"""
HEALTHY = [
    Planted("products", "x = torch.rand(512, 512)", "for i in range(20):\n    y = x @ x\n    z = y.relu()"),
    Planted("training", TRAINING, STEPS),
    Planted("convolutions", CONVOLUTIONS, STEPS),
    Planted("attention", ATTENTION, ATTENDS),
    Planted("one operation", "x = torch.rand(4)", "y = x + 1"),
    Planted("sleeping", "import time\nx = torch.rand(4)", "for i in range(20):\n    time.sleep(0.002); y = x + 1"),
    Planted("no torch", "", "total = 0\nfor i in range(20):\n    total += sum(range(20000))"),
]


def file_of(case: Planted) -> Path:
    return FOLDER / f"{case.name.replace(' ', '_')}.json.gz"


def recorded(case: Planted) -> Profile:
    """The profile of the cell's recorded run."""
    return load_trace(file_of(case))


def right_of(case: Planted) -> list[tuple[str, int]]:
    return [(case.kind, case.line)] if case.kind else []


def record(case: Planted, folder: Path) -> None:
    """Run the cell until its own profile says what is right, and keep that run's trace."""
    for _ in range(TRIES):
        profile = profiled(case)
        if list(found(profile)) == right_of(case) and (not case.kind or profile.insights):
            profile.export_trace(folder / "trace.json")
            text = (folder / "trace.json").read_bytes()
            file_of(case).write_bytes(gzip.compress(text, 9, mtime=0))
            return
    sys.exit(f"{case.name}: {list(found(profile))} in place of {right_of(case)}, {TRIES} times")


if __name__ == "__main__":
    import tempfile

    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        for each in [*SLOW, *HEALTHY]:
            record(each, Path(made))
            print(f"{each.name}: {file_of(each).stat().st_size / 1024:.0f} KB")  # noqa: T201
