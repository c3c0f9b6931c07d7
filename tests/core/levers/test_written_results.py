"""What a cell writes into objects is its result, and is put back; what tells nothing of its numbers is none."""

from __future__ import annotations

import itertools
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import nn

from tests.every_case import every_case
from torchbench_magic.errors import BodyError, Interrupted
from torchbench_magic.timing import written_objects
from torchbench_magic.timing.levers_view import recommended

from .test_trying import in_names, row, tried

W = "w = torch.ones(3, requires_grad=True)\n"
FAST = "clock.work(10_000 if torch.is_grad_enabled() else 1_000)\n"
"""Milliseconds by a clock that nothing else moves: warming up for some of them takes few calls."""
TEN = "w * (2 if torch.is_grad_enabled() else 20)"


def named(setup: str) -> dict[str, Any]:
    names: dict[str, Any] = {"torch": torch, "nn": nn, "__name__": "__main__"}
    exec(compile(setup, "<cell>", "exec"), names)
    return names


def kinds(result: Any) -> list[str]:
    return [doubt.kind for doubt in result.warnings]


# ---- results --------------------------------------------------------------------------------------------------

WRITTEN = [
    (
        "acts = {}\nmodel = nn.Identity()\nmodel.register_forward_hook(lambda m, i, o: acts.update(y=o))",
        "def run(x): model(x)\nrun({})",
    ),
    ("preds = [None] * 3", "for i in range(3): preds[i] = {}"),
    ("out = {}", "out['y'] = {}"),
    ("log = []", "log.append({})"),
    ("from collections import deque\nlast = deque(maxlen=2)", "for _ in range(3): last.append({})"),
    ("class Box: pass\nbox = Box()", "box.out = {}"),
    ("class Box: pass", "Box.out = {}"),
    ("model = nn.Linear(1, 1)", "model.out = {}"),
    ("import numpy\nout = numpy.zeros(3)", "out[:] = ({}).detach().numpy()"),
    ("total = 0\ndef add(x):\n    global total\n    total = total + x", "add({})"),
    ("kept = {}\ndef keep(x): kept['all'] = [x]", "keep({})"),
    ("", "for _ in range(2): {}"),
    ("", "if True:\n    {}\nn = 1"),
]


def test_what_a_cell_writes_is_compared() -> None:
    def check(setup: str, body: str) -> None:
        different = tried(FAST + body.format(TEN), "no_grad", setup=W + setup)
        assert row(different, "no_grad")[["verdict", "result"]].tolist() == ["faster", "differs"]
        assert recommended(different) == []
        same = tried(FAST + body.format("w * 2"), "no_grad", setup=W + setup)
        assert row(same, "no_grad")["result"] == "equal"
        assert recommended(same) == ["no_grad"]

    every_case(WRITTEN, check)


TELLS_NOTHING = [
    "for i in range(3): print(float(({}).sum().detach()))",
    "n = 3\nprint(float(({}).sum().detach()))",
    "first, step = xs[0], 0.5\nprint(({}).detach())",
    "for x in xs: show({})",
    "count['n'] += 1\nshow({})",
]


def test_what_tells_nothing_of_the_numbers_is_not_called_the_same() -> None:
    setup = W + "xs = [torch.ones(1)] * 2\ncount = {'n': 0}\ndef show(x): print(x.detach())"

    def check(body: str) -> None:
        result = tried(FAST + body.format(TEN), "no_grad", setup=setup)
        assert row(result, "no_grad")["verdict"] == "faster"
        assert not isinstance(row(result, "no_grad")["result"], str)
        assert recommended(result) == []
        assert "The cell keeps no number that it computes" in " ".join(doubt.text for doubt in result.warnings)

    every_case(((body,) for body in TELLS_NOTHING), check)


def test_a_lever_that_has_other_numbers_printed_is_not_recommended() -> None:
    result = tried(f"{FAST}y = w * 2\nprint(({TEN}).detach())", "no_grad", setup=W)
    assert row(result, "no_grad")["verdict"] == "faster"
    assert recommended(result) == []
    same = tried(f"{FAST}y = w * 2\nprint(y.detach())", "no_grad", setup=W)
    assert recommended(same) == ["no_grad"]


def test_an_object_of_a_class_beside_a_tensor_is_not_compared() -> None:
    result = tried(f"{FAST}[Acc(), w * 2]", "no_grad", setup=W + "class Acc: pass")
    assert recommended(result) == []
    assert "is an object of class `Acc`" in " ".join(doubt.text for doubt in result.warnings)


def test_a_cell_that_does_not_repeat_itself_is_said_with_what_differs() -> None:
    result = tried("box['t'] = os.urandom(8).hex(); w * 2", "no_grad", setup=W + "import os\nbox = {}")
    said = next(doubt for doubt in result.warnings if doubt.kind == "not-repeatable")
    assert "(`box['t']`)" in said.text


# ---- state ----------------------------------------------------------------------------------------------------

WRITES = """
from collections import deque
class Box: pass
box = Box(); box.n = 0; box.log = []
n, lines, last, out = 0, [], deque(maxlen=3), {}
def use(x):
    global n
    n += 1
    box.n += 1; box.log.append(n); lines.append(2); last.append(n); out['y'] = x @ x; box.y = out['y']
    return x @ x
x = torch.ones(4, 4)
"""


def test_objects_are_as_they_were_after_a_trial() -> None:
    def check(body: str) -> None:
        names = named(WRITES)
        result = in_names(names, body, "bf16", "matmul-medium")
        assert (names["n"], names["lines"], [*names["last"]], names["out"]) == (0, [], [], {})
        assert vars(names["box"]) == {"n": 0, "log": []}
        assert not {"shadowed-global", "not-restored", "not-repeatable", "grows"} & {*kinds(result)}

    every_case([("use(x)",), ("use(x); None",), ("y = use(x)",)], check)


def test_each_block_finds_what_every_call_writes_anew_as_it_was() -> None:
    """A hidden state that a lever leaves in another dtype is not what the cell as it is goes on from."""
    setup = "class Box: pass\nbox = Box(); box.h = torch.ones(2, 2)\nw = torch.ones(2, 2)"
    names = named(setup)
    held = names["box"].h
    body = "assert box.h.dtype is torch.float32 or torch.is_autocast_enabled('cpu')\nbox.h = (box.h.float() @ w) / 2"
    result = in_names(names, body, "bf16")
    assert row(result, "bf16")["result"] in ("equal", "close")
    assert names["box"].h is held


def test_what_only_the_first_call_writes_is_there_for_timed_calls() -> None:
    setup = "memo = {}\ndef get():\n    if 'y' not in memo: clock.work(50_000); memo['y'] = 1.0\n    return memo['y']"
    names = named(setup)
    result = in_names(names, "clock.work(1_000)\nget()", "threads:2", is_fake=True)
    assert result.frame["median"].tolist() == pytest.approx([1e-3] * 2)
    assert names["memo"] == {}


def test_objects_are_as_they_were_after_ctrl_c_and_after_an_exception() -> None:
    def check(error: type[BaseException], calls: int) -> None:
        names, counted = named(WRITES), itertools.count(1)

        def end() -> None:
            """Within a `Mock`, where nothing is put back: its counter goes on."""
            if next(counted) == calls:
                raise error

        names["end"] = Mock(side_effect=end)
        with pytest.raises((KeyboardInterrupt, ZeroDivisionError)):
            in_names(names, "use(x)\nend()", "bf16")
        assert vars(names["box"]) == {"n": 0, "log": []}
        assert names["n"] == 0

    every_case(itertools.product([KeyboardInterrupt, ZeroDivisionError], [1, 2, 4, 30]), check)


def test_what_cannot_be_put_back_is_said_and_nothing_is_recommended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written_objects, "_MOST_KEPT", 3)
    setup = W + "table = dict.fromkeys(range(5))\nstep = 5"
    result = tried(f"{FAST}table[len(table)] = w * 2\nw * 2", "no_grad", setup=setup)
    said = " ".join(doubt.text for doubt in result.warnings)
    assert "`table` holds too many items to be put back, and keeps what the last call wrote" in said
    assert "--restore" not in said
    assert recommended(result) == []


# ---- iterators ------------------------------------------------------------------------------------------------

TAKEN = [
    ("it = (torch.ones(1) for _ in range(99))", "next(it)", "it"),
    ("it = iter(torch.utils.data.DataLoader(torch.ones(99, 1)))", "next(it)", "it"),
    ("it = zip((x for x in range(99)), range(99))", "next(it)", "it"),
    ("it = iter(range(99))\ndef take(): return next(it)", "take()", "it"),
    ("class Box: pass\nbox = Box(); box.it = (x for x in range(99))", "next(box.it)", "box.it"),
    ("it = (x for x in range(99))", "for x in it: torch.ones(1) * x", "it"),
]


def test_an_iterator_that_cannot_be_put_back_is_refused_before_anything_is_taken() -> None:
    def check(setup: str, body: str, label: str) -> None:
        names = named(setup)
        with pytest.raises(BodyError, match=f"from `{label}` cannot be put back.*`x = next"):
            in_names(names, body, "inference_mode")
        assert sum(1 for _ in eval(label, names)) == 99

    every_case(TAKEN, check)


def test_files_and_iterators_that_the_cell_makes_are_not_refused() -> None:
    setup = "import io\nfile = io.StringIO('1\\n2\\n')\nloader = torch.utils.data.DataLoader(torch.ones(4, 1))"
    result = tried("file.readline()\nit = iter(loader)\nnext(it)", "inference_mode", setup=setup)
    assert row(result, "inference_mode")["result"] is not None


# ---- what is said ---------------------------------------------------------------------------------------------

STEP = """
torch.manual_seed(0)
model = nn.Linear(2, 1)
opt = torch.optim.Adam(model.parameters(), foreach=False)
steps = []
opt.register_step_post_hook(lambda *_: steps.append(1))
schedule = torch.optim.lr_scheduler.StepLR(opt, 2)
x = torch.ones(1, 2)
"""


@pytest.mark.filterwarnings("error")
def test_a_copy_of_an_optimizer_has_its_hooks_and_no_schedule_warns_of_it(capfd: pytest.CaptureFixture[str]) -> None:
    names = named(STEP)
    body = "opt.zero_grad(); model(x).sum().backward(); opt.step(); schedule.step()"
    result = in_names(names, body, "fused-optimizer", "foreach")
    assert "fused-optimizer" in set(result.frame["description"])
    assert set(result.frame["result"].iloc[1:]) <= {"equal", "close"}
    assert "prints" not in kinds(result)
    assert names["steps"] == []
    assert not hasattr(names["opt"], "_opt_called") or names["opt"]._opt_called is None


def test_a_warning_is_not_called_a_print() -> None:
    setup = W + "import warnings\nwarnings.simplefilter('always')"
    result = tried("warnings.warn('careful'); w * 2", "no_grad", setup=setup)
    assert "prints" not in kinds(result)


def test_ctrl_c_while_levers_are_tried_says_that_nothing_was_measured_and_at_what_it_was() -> None:
    names = named(W)
    with pytest.raises(Interrupted, match=r"Nothing was measured yet: interrupted after .*, while trying no_grad\."):
        in_names(names, "if not torch.is_grad_enabled(): raise KeyboardInterrupt\nw * 2", "no_grad")
