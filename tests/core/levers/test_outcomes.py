"""Whether two calls came to the same."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from torchbench_magic.levers.calls import CallOutcome, compared, detached, differs_in, not_comparable, only_tiny

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
