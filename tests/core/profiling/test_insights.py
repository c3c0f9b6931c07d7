"""Slow cells that run, of which the right kind and line is said; and healthy ones, of which nothing is."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchbench_magic.results.insights import Insight
from torchbench_magic.results.profiling.profile import Profile
from torchbench_magic.results.storage.store import load, save

from .insight_runs import Planted, calm, found, profiled

SQUARE = "x = torch.rand(256, 256)"
SLOW = [
    Planted("elements", "x = torch.rand(64)", "y = 0\nfor i in range(5000):\n    y = y + x[i % 64]", "overhead", 4),
    Planted(
        "two lines of a loop",
        "x = torch.rand(8)",
        "for i in range(3000):\n    a = x * 2\n    b = (a + 1).relu()",
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


@pytest.mark.parametrize("case", SLOW, ids=lambda case: case.name)
def test_a_slow_cell_is_told_by_its_kind_and_line(case: Planted) -> None:
    """The second or third time where others had the processor in the middle of it."""
    for _ in range(3):
        said = list(found(profiled(case)))
        if said[:1] == [(case.kind, case.line)]:
            return
    assert said[:1] == [(case.kind, case.line)]


@pytest.mark.parametrize("case", HEALTHY, ids=lambda case: case.name)
def test_nothing_is_said_of_a_healthy_cell(case: Planted) -> None:
    """Neither in a run that had the processor; where others have it, what is short for one time may be long."""
    for _ in range(3):
        profile = profiled(case)
        said = list(found(profile))
        if not said:
            return
        assert calm(profile).warnings != profile.warnings, said
        assert not profile.insights
    assert not said


def told(case: Planted) -> Profile:
    """A profile of a slow cell with what is said of it; the second or third where others had the processor."""
    for _ in range(3):
        profile = calm(profiled(case))
        if profile.insights:
            break
    assert profile.insights
    return profile


def test_what_is_at_stake_is_no_more_than_the_run_took() -> None:
    profile = told(SLOW[0])
    (insight,) = profile.insights
    assert 0 < insight.seconds <= profile.wall_time
    assert 0.3 < insight.share <= 1


def facts(insights: tuple[Insight, ...]) -> list[dict[str, object]]:
    return [each.as_dict() for each in insights]


def test_a_stored_profile_has_its_insights_again(tmp_path: Path) -> None:
    profile = told(SLOW[2])
    save(profile, tmp_path / "runs.sqlite")
    (again,) = load(tmp_path / "runs.sqlite")
    assert isinstance(again, Profile)
    assert facts(again.insights) == facts(profile.insights)


def test_a_trace_that_was_exported_has_them_again(tmp_path: Path) -> None:
    from torchbench_magic import load_trace

    profile = told(SLOW[5])
    profile.export_trace(tmp_path / "trace.json")
    assert facts(load_trace(tmp_path / "trace.json").insights) == facts(profile.insights)
