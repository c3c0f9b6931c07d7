"""What code is given, in words: the same words are the same input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from torchbench_magic.process.inputs import described, inputs_of


class Holder:
    def __init__(self, rows: int) -> None:
        self.batch = torch.zeros(rows, 2)


class Refuses:
    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("not now")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.zeros(4, 8), "4 × 8 float32"),
        (torch.zeros(()), "0-d float32"),
        (torch.zeros(4, 8, dtype=torch.int8), "4 × 8 int8"),
        (torch.zeros(4, 8).T, "8 × 4 float32, strides 1 × 8"),
        (torch.zeros(4, 8, device="meta"), "4 × 8 float32, meta"),
        (torch.eye(3).to_sparse(), "3 × 3 float32, sparse_coo"),
        (torch.zeros(2, requires_grad=True), "2 float32, requires grad"),
        (np.zeros((4, 8)), "ndarray 4 × 8 float64"),
        (3, "3"),
        (True, "True"),
        (0.5, "0.5"),
        (None, "None"),
        ("text", "str of 4 characters"),
        (b"x", "bytes of 1 byte"),
        ([1, 2], "list of 2"),
        ([torch.zeros(2), torch.ones(2)], "list of 2: 2 float32"),
        ({"a": np.zeros(3)}, "dict of 1: ndarray 3 float64"),
        (Holder(5), "Holder: 5 × 2 float32"),
        (torch, ""),
        (len, ""),
        (Holder, ""),
        (Refuses(), "Refuses"),
    ],
)
def test_inputs_are_said_in_a_few_words(value: object, text: str) -> None:
    assert described(value) == text


@pytest.mark.parametrize(
    "make",
    [
        lambda n: torch.nn.Linear(n, 10),
        lambda n: torch.nn.Sequential(torch.nn.Linear(10, 10), torch.nn.Dropout() if n == 1 else torch.nn.ReLU()),
        lambda n: torch.nn.Linear(3, 3).train(n == 1),
        lambda n: [torch.zeros(3), torch.zeros(4)][:: 1 if n == 1 else -1],
        lambda n: [torch.zeros(k + n) for k in range(50)],
        lambda n: tuple(range(n)),
    ],
    ids=["width", "layers", "mode", "order", "many", "length"],
)
def test_unlike_inputs_have_unlike_words_and_like_ones_the_same(make: Callable[[int], object]) -> None:
    assert described(make(1)) == described(make(1))
    assert described(make(1)) != described(make(2))
    assert len(described(make(1))) <= 100


def test_a_module_whose_parameters_have_no_shape_yet_is_described_with_what_is_known() -> None:
    text = described(torch.nn.LazyLinear(3))
    assert text.startswith("LazyLinear with 0 values in 2 tensors, training mode, 1 hook")
    assert text != described(torch.nn.LazyLinear(3, bias=False))


def test_what_functions_read_counts_and_a_counter_does_not() -> None:
    home: dict[str, Any] = {"x": torch.zeros(3), "calls": 0, "k": 2}
    exec("def f():\n    global calls\n    calls += 1\n    return x * k", home)
    assert inputs_of(["f"], home, [home["f"]]) == (("k", "2"), ("x", "3 float32"))
