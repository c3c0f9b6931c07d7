"""The buttons of a profile's live view that try its cures, pressed in a real kernel."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Kernel

pytestmark = pytest.mark.kernel

SETUP = """\
import torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(60)])
opt = torch.optim.Adam(model.parameters(), foreach=False)
x = torch.randn(4, 8)
%load_ext torchbench_magic"""
LOOP = """\
%%tprofile -q
for _ in range(4):
    opt.zero_grad()
    model(x).square().mean().backward()
    print("a step")
    opt.step()"""
PRESS = """\
before = [p.detach().clone() for p in model.parameters()]
press()"""
OPEN = f"""\
from torchbench_magic.result_base import Cure, Insight
from torchbench_magic.profiling.profile import Profile
cure = Cure("Update all parameters at once.", lever="fused-optimizer")
Profile.insights = property(lambda self: (Insight("optimizer-loop", 0.01, 0.5, "", cures=(cure,), body={LOOP!r}),))
trials = _tprofile.explore().trials
press = trials.buttons["fused-optimizer"].click"""
"""The insight is planted: on a busy machine a profile has none."""


@pytest.fixture(scope="module")
def kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    return start_kernel(SETUP, LOOP, OPEN)


def test_a_button_tries_its_cure_on_the_profiled_cell_and_puts_back_what_it_changes(kernel: Kernel) -> None:
    ran = kernel.run(PRESS)
    assert not ran.error
    assert "a step" not in ran.stdout
    said = kernel.run("c = trials.comparison; print(c.frame['description'].tolist(), trials.status.value)").stdout
    assert "as it is" in said
    assert "fused-optimizer" in said
    same = "print(all(torch.equal(a, b) for a, b in zip(before, model.parameters())))"
    assert kernel.run(same).stdout.strip() == "True"
    drawn = "print(len(trials.children), [t['name'] for t in trials.children[-1].spec['tables']])"
    assert kernel.run(drawn).stdout.startswith("3 ")
    kernel.run(PRESS)
    assert kernel.run(drawn).stdout.startswith("3 ")  # the table of the trial before is gone


def test_a_variable_that_is_gone_is_said_and_the_buttons_stay(kernel: Kernel) -> None:
    ran = kernel.run("there = opt\ndel opt\npress()\nopt = there\nprint(trials.status.value)")
    assert "`opt`, which no longer exists" in ran.stdout
    assert "False" in kernel.run("print(*[b.disabled for b in trials.buttons.values()])").stdout


def test_an_exception_of_the_code_is_said(kernel: Kernel) -> None:
    ran = kernel.run("kept, x = x, x[:, :3]\npress()\nx = kept\nprint(trials.status.value)")
    assert "fused-optimizer: the code raised RuntimeError: " in ran.stdout


def test_a_click_that_arrives_in_another_thread_is_tried_in_the_main_one(kernel: Kernel) -> None:
    cell = """\
import threading
ran_in = []
trials.observe(lambda change: ran_in.append(threading.current_thread() is threading.main_thread()), "comparison")
there = trials.comparison
thread = threading.Thread(target=press)
thread.start(); thread.join()
print(trials.comparison is there, trials.buttons["fused-optimizer"].disabled)"""
    assert kernel.run(cell).stdout.split() == ["True", "True"]  # it waits for this cell
    assert kernel.run("print(trials.comparison is there, ran_in)").stdout.split() == ["False", "[True]"]
