"""``--try`` in a real kernel: a training step, its levers, and the notebook as it was."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Kernel

pytestmark = pytest.mark.kernel

TRAINING = """\
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2), nn.Linear(8, 8))
opt = torch.optim.Adam(model.parameters())
x = torch.randn(4, 8)
def step():
    opt.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    opt.step()
    return loss
step()
state = {name: value.clone() for name, value in model.state_dict().items()}"""
RANDOM = "random = torch.get_rng_state()"
SAME = """\
print(all(torch.equal(value, state[name]) for name, value in model.state_dict().items()),
      torch.equal(random, torch.get_rng_state()), opt.param_groups[0]["fused"])"""


@pytest.fixture(scope="module")
def kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    return start_kernel(TRAINING, RANDOM)


def test_a_training_step_is_tried_and_everything_is_as_it_was(kernel: Kernel) -> None:
    ran = kernel.run("%%timer -t 1 -n 1 -r 6 --try fused-optimizer,foreach,no_grad\nstep()")
    assert not ran.error
    for word in ("as it is", "fused-optimizer", "foreach"):
        assert word in ran.text()
    said = kernel.run("print(*_timer.warnings, sep='\\n')").stdout  # a busy machine's doubts are shown before it
    assert "`no_grad` was not timed: the cell computes gradients" in said
    shown = kernel.run("print(_timer.frame['result'].tolist()[1:], _timer.options['restore'])").stdout
    assert set(shown.split(" True")[0].strip("[]\n ").replace("'", "").split(", ")) <= {"equal", "close"}
    assert kernel.run(SAME).stdout.split() == ["True", "True", "None"]


def test_an_error_of_the_cell_names_its_own_line_and_no_frame_of_ours(kernel: Kernel) -> None:
    ran = kernel.run("%%timer --try no_grad\nz = x\n1 / 0")
    assert "ZeroDivisionError" in ran.error
    assert "1 / 0" in ran.error
    assert "torchbench_magic" not in ran.error


@pytest.mark.slow
def test_an_insight_of_a_profiled_cell_is_tried(kernel: Kernel) -> None:
    assert not kernel.run("%%tprofile -q\nfor i in range(2000):\n    y = x + 1").error
    asked = (
        "from torchbench_magic import Insight\n"
        "from torchbench_magic.result_base import Cure\n"
        "body = _tprofile.sources[_tprofile.source_id].text\n"
        "one = Insight('overhead', 1.0, 0.5, 'Slow.', cures=(Cure('Try.', lever='inference_mode'),), body=body)\n"
        "tried = one.try_(min_run_time=0.01)\ntried"
    )
    ran = kernel.run(asked)
    assert not ran.error
    assert "inference_mode" in ran.text()
    assert kernel.run("print('i' in globals(), tried.frame['result'][1])").stdout.split() == ["True", "equal"]


@pytest.mark.slow  # a compiler runs
@pytest.mark.timeout(280)
def test_compile_has_its_time_and_the_calls_after_which_it_has_paid(kernel: Kernel) -> None:
    defined = "ones = torch.ones(1000)\ndef f(x):\n    for _ in range(5): x = x.sin() + 1\n    return x"
    assert not kernel.run(defined).error
    ran = kernel.run("%%timer -t 1 --min-run-time 0.02 --try compile\nf(ones)")
    assert not ran.error
    asked = kernel.run(
        "import math\nbase, at = (row for _, row in _timer.frame.iterrows())\n"
        "saved = base['median'] - at['median']\n"
        "paid = math.ceil(at['compile_time'] / saved) if at['verdict'] == 'faster' else None\n"
        "print(at['result'], at['compile_time'] > 0.05, paid is None or at['break_even'] == paid,"
        " hasattr(f, '_torchdynamo_orig_callable'))"
    )
    assert not asked.error, (asked.error, ran.text())
    shown = asked.stdout.split()
    assert shown[0] in ("equal", "close")
    assert shown[1:] == ["True", "True", "False"], "the user's function stays as it was"


@pytest.mark.slow  # a compiler runs
@pytest.mark.timeout(280)
def test_a_compiled_module_with_dropout_has_the_same_result_from_the_same_random_numbers(kernel: Kernel) -> None:
    ran = kernel.run("%%timer -t 1 --min-run-time 0.02 --try compile\nloss = step()")
    assert not ran.error
    assert kernel.run("print(_timer.frame['result'][1])").stdout.strip() in ("equal", "close")
    assert kernel.run(SAME).stdout.split() == ["True", "True", "None"]
