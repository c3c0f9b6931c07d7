"""``%%tprofile --phases`` in a real kernel: the lines of the cell, a Ctrl-C in the middle of a run, what is left."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Kernel

pytestmark = pytest.mark.kernel

SET_UP = """\
import os, signal, time, threading, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
net, criterion = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)), nn.CrossEntropyLoss()
optimizer = torch.optim.AdamW(net.parameters())
loader = DataLoader(TensorDataset(torch.ones(40, 8), torch.zeros(40, dtype=torch.int64)), batch_size=4)

def state():
    from torch.optim import optimizer as module
    return {
        "call": vars(nn.Module)["__call__"],
        "iter": vars(DataLoader)["__iter__"],
        "backward": torch.autograd.backward,
        "compile": torch.compile,
        "hooks": (len(module._global_optimizer_pre_hooks), len(module._global_optimizer_post_hooks)),
        "threads": sorted(thread.name for thread in threading.enumerate() if thread.name == "torchbench_magic"),
    }

before = state()
"""
LOOP = """\
%%tprofile --phases
for at, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = criterion(net(x), y)
    loss.backward()
    optimizer.step()
    if at == 6:
        time.sleep(0.6)
"""


def left(kernel: Kernel) -> list[str]:
    """What is not as it was."""
    changed = kernel.run("print([name for name, now in state().items() if before[name] != now], threading.enumerate())")
    names, _, threads = changed.stdout.partition("] ")
    return [] if names == "[" else [names, threads]


@pytest.fixture(scope="module")
def kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    return start_kernel(SET_UP)


@pytest.mark.slow
def test_a_step_that_took_long_is_named_with_the_line_of_the_cell(kernel: Kernel) -> None:
    ran = kernel.run(LOOP)
    assert not ran.error
    assert " ".join(ran.text().split()).startswith("a step takes ")
    assert "tb-steps" in ran.text("text/html")
    assert kernel.run("print(_tprofile.phases['step'].nunique())").stdout.strip() == "10"
    there = "_tprofile.phases.query('step == 6 and phase == \"other\"')"  # its lines are as the looks fell
    assert float(kernel.run(f"print({there}['seconds'].sum())").stdout) >= 0.6
    assert left(kernel) == []


def test_after_a_ctrl_c_the_steps_until_then_are_shown_and_nothing_is_left(kernel: Kernel) -> None:
    endless = LOOP.replace("for at, (x, y) in enumerate(loader):", "while True:").replace("    if at == 6:\n    ", "")
    endless = endless.replace("0.6", "0.01").replace("net(x), y", "net(torch.ones(4, 8)), torch.zeros(4).long()")
    stops = "    if next(steps) == 50: os.kill(os.getpid(), signal.SIGINT)\n"
    assert not kernel.run("import itertools\nsteps = itertools.count()").error
    ran = kernel.run(f"{endless.rstrip()}\n{stops}")
    assert "KeyboardInterrupt" in ran.error
    assert "Partial: interrupted after" in ran.text()
    assert int(kernel.run("print(_tprofile.phases['step'].nunique())").stdout) > 2
    assert left(kernel) == []


def test_without_a_loop_it_says_so(kernel: Kernel) -> None:
    ran = kernel.run("%%tprofile --phases\ny = net(torch.ones(2, 8))")
    assert "no training loop steps" in ran.text()
    assert "No steps were seen: fewer than two steps of an optimizer" in " ".join(ran.text().split())


@pytest.mark.parametrize("option", ["--memory", "--trace x.json", "--stacks x.txt", "--group-by op"])
def test_with_an_option_that_needs_operations_it_is_one_line(kernel: Kernel, option: str) -> None:
    ran = kernel.run(f"%%tprofile --phases {option}\npass")
    said = f"--phases records no operations, and {option.split()[0]} is of these: leave out one of them"
    assert said in ran.stderr + ran.error


def test_a_part_of_the_steps_is_not_taken(kernel: Kernel) -> None:
    ran = kernel.run("%%tprofile --phases --steps 3\nfor _ in range(3): pass")
    assert "--phases records all steps: leave out --steps" in ran.stderr + ran.error
