"""Whether two calls came to the same, in what they return and in what they write into objects."""

from __future__ import annotations

import itertools
import math
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from tests.every_case import every_case
from torchbench_magic.errors import BodyError, Interrupted
from torchbench_magic.levers.trial_outcome import CallOutcome, compared, detached, differs_in, not_comparable, only_tiny
from torchbench_magic.timing import written_objects
from torchbench_magic.timing.levers_view import recommended

from .test_trial import in_names, row, tried

# ==== outcomes ========================================================================================================
# Whether two calls came to the same.


ONE = torch.tensor([1.0, 2.0])
NAN = torch.tensor([1.0, math.nan])


@pytest.mark.parametrize(
    ("ours", "theirs", "word", "difference"),
    [
        (ONE, ONE.clone(), "equal", 0),
        (ONE, ONE + 1e-7, "close", pytest.approx(1.2e-7, rel=0.1)),
        (ONE, ONE + 0.5, "differs", 0.5),
        (ONE, ONE.double(), "differs", 0),
        (1.0, 1.0 + 1e-9, "close", pytest.approx(1e-9, rel=1e-3)),
        (1e9, 1e9 + 50, "close", 50),
        (1.0, 1.1, "differs", pytest.approx(0.1)),
        ([ONE], (ONE,), "differs", None),
        (ONE, ONE.numpy(), "differs", 0),
        (pd.DataFrame({"x": [1.0]}), pd.DataFrame({"x": [1.0]}), "equal", 0),
        (pd.DataFrame({"x": [1.0]}), pd.DataFrame({"y": [1.0]}), "differs", 0),
        (np.array([None, 1.0]), np.array([None, 2.0]), "differs", 1),
        (torch.eye(2).to_sparse(), torch.eye(2).to_sparse() * 1, "equal", 0),
        (np.float32(1), np.float64(1), "differs", 0),
        (1, 1.0, "differs", 0),
        (NAN, NAN.clone(), "equal", 0),
        (NAN, ONE, "differs", 0),
        (ONE, torch.ones(3), "differs", None),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), "differs", 1),
        (torch.tensor([math.inf]), torch.tensor([math.inf]), "equal", 0),
        ({"a": ONE, "b": 1}, {"a": ONE, "b": 1}, "equal", 0),
        ({"a": ONE}, {"b": ONE}, "differs", None),
        ([ONE, 2.0], [ONE, 2.5], "differs", 0.5),
        ([ONE], [ONE, ONE], "differs", 0),
        ("a", "b", "differs", None),
        (np.ones(2), np.ones(2), "equal", 0),
        (object(), object(), "", None),
        (True, False, "differs", 1),
    ],
)
def test_values_are_equal_close_or_differ(ours: Any, theirs: Any, word: str, difference: Any) -> None:
    found, largest = compared(CallOutcome({"value": ours}), CallOutcome({"value": theirs}))
    assert found == word
    assert math.isnan(largest) if difference is None else largest == difference


def test_what_is_kept_of_a_frame_does_not_change_with_it() -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0]})
    before = CallOutcome({"`frame`": detached(frame)})
    assert compared(CallOutcome({"`frame`": detached(frame)}), before)[0] == "equal"
    frame.loc[0, "x"] = 5.0
    assert compared(CallOutcome({"`frame`": detached(frame)}), before) == ("differs", 4.0)


def test_bfloat16_has_its_own_tolerance() -> None:
    near = CallOutcome({"value": ONE * 1.01})
    assert compared(near, CallOutcome({"value": ONE}))[0] == "differs"
    assert compared(near, CallOutcome({"value": ONE}), torch.bfloat16)[0] == "close"


def test_state_that_only_one_of_them_changed_differs() -> None:
    moved = CallOutcome({}, {"model.weight": (ONE, ONE + 1)})
    assert compared(CallOutcome(), moved) == ("differs", 1.0)
    assert compared(moved, CallOutcome()) == ("differs", 1.0)
    assert compared(CallOutcome({}, {"model._orig_mod.weight": (ONE, ONE + 1)}), moved) == ("equal", 0.0)


def test_nothing_to_compare_is_no_equality() -> None:
    assert compared(CallOutcome(), CallOutcome())[0] == ""


def test_what_is_too_much_to_keep_is_not_called_the_same() -> None:
    """Only the first 10,000 items of a list are kept: of the rest nobody knows."""
    many = [0.0] * 10_001
    for value in (many, dict.fromkeys(range(10_001), 0.0)):
        kept = detached(value)
        assert compared(CallOutcome({"y": kept, "z": 1}), CallOutcome({"y": kept, "z": 1}))[0] == ""
    assert compared(CallOutcome({"y": many[:-1]}), CallOutcome({"y": many[:-1]}))[0] == "equal"


class Thing:
    """What nobody can compare."""


def test_what_cannot_be_compared_beside_what_can_is_not_called_the_same() -> None:
    ours, theirs = (CallOutcome({"`y`": ONE, "`thing`": Thing(), "`deep`": {"a": [Thing()]}}) for _ in range(2))
    assert compared(ours, theirs)[0] == ""
    assert not_comparable(ours, theirs) == {"`deep`": "Thing", "`thing`": "Thing"}
    other = CallOutcome({**ours.made, "`y`": ONE + 1})
    assert compared(other, theirs) == ("differs", 1.0)


def made_anew() -> type:
    class Local:
        pass

    return Local


@pytest.mark.parametrize(
    ("one", "other", "word"),
    [
        (math, math, "equal"),
        (Thing, Thing, "equal"),
        (made_anew()(), made_anew()(), ""),
        (lambda x: x, lambda x: x, ""),
        (10**30, 10**30, "equal"),
        (10**30, 10**30 + 1, "differs"),
        (10**30, 1, "differs"),
        (torch.float32, torch.bfloat16, "differs"),
        (range(3), range(3), "equal"),
        (np.str_("a"), np.str_("a"), "equal"),
        (None, ONE, "differs"),
    ],
)
def test_objects_are_the_same_only_where_that_is_known(one: Any, other: Any, word: str) -> None:
    assert compared(CallOutcome({"value": one}), CallOutcome({"value": other}))[0] == word


def test_a_function_that_the_cell_defines_is_the_same_by_its_code() -> None:
    made = [eval(compile("lambda x: x + 1", "<cell>", "eval")) for _ in range(2)]
    assert compared(CallOutcome({"`f`": made[0]}), CallOutcome({"`f`": made[1]}))[0] == "equal"


def test_a_module_and_an_optimizer_that_the_cell_makes_are_compared_by_their_numbers() -> None:
    def outcome(scale: float) -> CallOutcome:
        torch.manual_seed(0)
        model = torch.nn.Linear(2, 2)
        model.weight.data.mul_(scale)
        optimizer = torch.optim.Adam(model.parameters())
        model(ONE).sum().backward()
        optimizer.step()
        return CallOutcome({"`model`": detached(model), "`opt`": detached(optimizer)})

    assert compared(outcome(1), outcome(1))[0] == "equal"
    assert compared(outcome(1), outcome(2))[0] == "differs"
    assert not_comparable(outcome(1), outcome(1)) == {}


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        (ONE.double(), ONE, "dtype float64, not float32"),
        ((ONE,), [ONE], "tuple, not list"),
        (ONE.numpy(), ONE, "ndarray, not Tensor"),
        (ONE, ONE + 1, ""),
        ({"a": ONE, "b": 1}, {"a": ONE}, ""),
    ],
)
def test_what_is_of_another_kind_is_said(ours: Any, theirs: Any, said: str) -> None:
    outcomes = [CallOutcome({"the value": detached(value)}) for value in (ours, theirs)]
    assert differs_in(*outcomes) == said
    assert not differs_in(CallOutcome({"a": ONE.bfloat16()}), CallOutcome({"a": ONE}), torch.bfloat16)


def test_a_result_that_is_close_only_for_being_tiny_is_told() -> None:
    def of(ours: Any, theirs: Any, label: str = "`z`") -> str:
        one, other = CallOutcome({label: ours}), CallOutcome({label: theirs})
        assert compared(one, other)[0] in ("close", "equal")
        return only_tiny(one, other)

    assert of(2.2e-6, 0.0) == (
        "by the absolute tolerance only: in `z` they differ by up to 2.2e-06, and the largest value is 2.2e-06"
    )
    assert "in `z`" in of(ONE * 1e-7, -ONE * 1e-7)
    assert of(ONE * 1e-7, ONE * 1.01e-7) == ""
    assert of(torch.tensor([1.0, 1e-9]), torch.tensor([1.0, -1e-9])) == "", "a small one beside a large one"
    assert of(torch.zeros(2), torch.zeros(2)) == ""


def test_gradients_are_judged_together() -> None:
    """That of a bias before a softmax is nothing but rounding."""
    ours = CallOutcome(state={"w.grad": (None, ONE), "b.grad": (None, torch.tensor([1e-9]))})
    theirs = CallOutcome(state={"w.grad": (None, ONE), "b.grad": (None, torch.tensor([-1e-9]))})
    assert only_tiny(ours, theirs) == ""
    lost = CallOutcome(state={"w.grad": (None, ONE * 0), "b.grad": (None, torch.tensor([1e-9]))})
    kept = CallOutcome(state={"w.grad": (None, ONE * 1e-6), "b.grad": (None, ONE[:1] * 0)})
    assert "in the gradients" in only_tiny(lost, kept)


def test_empty_results_of_the_precision_that_was_asked_for_are_close() -> None:
    one, other = CallOutcome({"`z`": torch.zeros(0, 3)}), CallOutcome({"`z`": torch.zeros(0, 3, dtype=torch.bfloat16)})
    assert compared(one, other, torch.bfloat16)[0] == "close"
    assert compared(one, other)[0] == "differs"


# ==== written results =================================================================================================
# What a cell writes into objects is its result, and is put back; what tells nothing of its numbers is none.


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
