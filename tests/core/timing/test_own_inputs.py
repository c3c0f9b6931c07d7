"""Alternatives that read tensors of their own, and what is said of a ratio that it may move."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from torchbench_magic import compare
from torchbench_magic.timing.task import own_inputs

X = torch.randn(2048)
NAMES: dict[str, Any] = {
    "x": X,
    "seen": X[:1024],
    "half": torch.randn(1024),
    "u": torch.randn(2048),
    "double": torch.randn(2048).double(),
    "small": torch.randn(8),
    "other_small": torch.randn(8),
    "a": np.ones(2048),
    "b": np.ones(2048),
    "of_b": np.ones(4096),
    "f": len,
}


NAMES |= {"begin": NAMES["of_b"][:2048], "end": NAMES["of_b"][2048:]}


@pytest.mark.parametrize(
    ("first", "second", "own"),
    [
        (["x"], ["x"], ()),
        (["x"], ["u"], ("u",)),
        (["x"], ["seen"], ()),
        (["half"], ["seen"], ("seen",)),
        (["x", "u"], ["x", "u"], ()),
        (["x"], ["x", "u"], ()),
        (["x"], ["double"], ()),
        (["small"], ["other_small"], ()),
        (["a"], ["b", "f", "nowhere"], ("b",)),
        (["begin"], ["end"], ()),
    ],
)
def test_twins_in_other_memory_are_found(first: list[str], second: list[str], own: tuple[str, ...]) -> None:
    assert own_inputs({"A": first, "B": second}, NAMES, "A").get("B", ()) == own
    assert "A" not in own_inputs({"A": first, "B": second}, NAMES, "A")


def test_a_comparison_keeps_them() -> None:
    made = compare({"A": "x + 1", "B": "u + 1"}, globals=NAMES, min_run_time=0.01)
    assert [subject.own_inputs for subject in made.subjects] == [(), ("u",)]
