"""``--check`` of results that hold what the alternatives after them fill anew."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from torchbench_magic.errors import BodyError, CheckFailed

from ..fake_clock import FakeClock, timed

CASES: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    "array": ("arr[:] = {}\narr", lambda: {"arr": np.zeros(5)}),
    "dict": ("out['loss'].fill_({})\nout", lambda: {"out": {"loss": torch.zeros(3), "name": "x"}}),
    "list": ("held.clear()\nheld.append({})\nheld", lambda: {"held": []}),
    "tuple": ("buf.fill_({})\n(buf, [buf])", lambda: {"buf": torch.zeros(3)}),
    "set": ("seen.clear()\nseen.add({})\nseen", lambda: {"seen": set()}),
}


def check(a: str, b: str, names: dict[str, Any]) -> list[str]:
    """Kinds of the doubts."""
    bodies = {"a": f"clock.work(2000)\n{a}", "b": f"clock.work(2000)\n{b}"}
    made = timed(FakeClock(), bodies, names=names, check=True, number=1, repeat=6)
    return [doubt.kind for doubt in made.warnings]


@pytest.mark.parametrize("case", CASES)
def test_a_result_that_is_filled_anew_is_not_compared_with_itself(case: str) -> None:
    code, names = CASES[case]
    check(code.format(1), code.format(1), names())
    with pytest.raises(CheckFailed) as caught:
        check(code.format(1), code.format(2), names())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("a", "b", "said"), [("True", "1", "1 and True"), ("[True]", "[1.0]", r"1.0 and True \(at \[0\]\)")]
)
def test_a_bool_and_a_number_are_told_apart_in_one_line(a: str, b: str, said: str) -> None:
    with pytest.raises(CheckFailed, match=said) as caught:
        check(a, b, {})
    assert "\n" not in str(caught.value)


class Holder:
    """A user's class without an ``==`` of its own."""

    def __init__(self) -> None:
        self.h = torch.zeros(2)
        self.parts: list[Any] = [self.h, {"n": 0}]

    def put(self, value: float) -> Holder:
        self.h.fill_(value)
        return self


@dataclass
class Pair:
    first: Any
    second: Any = 0


def test_an_object_of_a_users_class_is_compared_by_what_it_holds() -> None:
    check("held.put(1)", "held.put(1)", {"held": Holder()})
    with pytest.raises(CheckFailed, match=r"return different values: .*\(at \.h\)"):
        check("held.put(1)", "held.put(2)", {"held": Holder()})
    names = {"Pair": Pair, "torch": torch}
    check("Pair(torch.ones(2))", "Pair(torch.ones(2))", names)
    with pytest.raises(CheckFailed, match=r"Expected 0 but got 1.*\(at \.second\)"):
        check("Pair(torch.ones(2))", "Pair(torch.ones(2), 1)", names)
    with pytest.raises(CheckFailed, match="an object of class `Holder` and an object of class `Pair`"):
        check("Pair(1)", "Holder()", {**names, "Holder": Holder})


def test_values_within_themselves_and_shared_ones_are_compared() -> None:
    knot = "a = [1]\na.append(a)\na"
    check(knot, knot, {})
    check("p = [1]\n(p, p)", "([1], [1])", {})
    many = "x = [1]\nfor _ in range(40):\n    x = [x, x]\nx"
    check(many, many, {})


def test_what_cannot_be_compared_is_told_and_not_passed() -> None:
    with pytest.raises(BodyError, match="returns an object of class `generator`, which cannot be compared"):
        check("g", "g", {"g": (n for n in range(3))})
    with pytest.raises(BodyError, match="returns an object of class `lock`, which cannot be compared"):
        check("[lock]", "[lock]", {"lock": threading.Lock()})
    with pytest.raises(BodyError, match=r"returns a tensor without values \(meta\), which cannot be compared"):
        check("x + 1", "x + 2", {"x": torch.zeros(3, device="meta")})
    with FakeTensorMode():
        fake = torch.ones(3)
    with pytest.raises(BodyError, match=r"returns a tensor without values \(fake\)"):
        check("fake", "fake", {"fake": fake})


class Private:
    __slots__ = ("__a",)

    def __init__(self, a: Any) -> None:
        self.__a = a


def test_slots_with_private_names_are_compared() -> None:
    names = {"Private": Private}
    check("Private(1)", "Private(1)", names)
    with pytest.raises(CheckFailed, match=r"Expected 1 but got 2.*\(at \._Private__a\)"):
        check("Private(1)", "Private(2)", names)


class Inheriting(Private):
    __slots__ = "b"  # one name, not its letters

    def __init__(self, a: Any, b: Any) -> None:
        super().__init__(a)
        self.b = b


class WithDict:
    __slots__ = ("__a", "__dict__", "__weakref__")

    def __init__(self, a: Any, b: Any) -> None:
        self.__a = a
        self.b = b


@pytest.mark.parametrize("kind", [Inheriting, WithDict])
def test_inherited_slots_and_those_beside_a_dict_are_compared(kind: type) -> None:
    names = {"Kind": kind}
    check("Kind(1, 2)", "Kind(1, 2)", names)
    for other in ("Kind(3, 2)", "Kind(1, 3)"):
        with pytest.raises(CheckFailed, match=r"but got 3"):
            check("Kind(1, 2)", other, names)


LAYOUTS = {
    "CSR": "(torch.eye(3) * {}).to_sparse_csr()",
    "BSR": "(torch.eye(4) * {}).to_sparse_bsr((2, 2))",
    "COO": "(torch.eye(3) * {}).to_sparse()",
    "mkldnn": "(torch.eye(3) * {}).to_mkldnn()",
    "nested": "torch.nested.nested_tensor([torch.ones(2), torch.ones(3) * {}])",
    "jagged": "torch.nested.nested_tensor([torch.ones(2), torch.ones(3) * {}], layout=torch.jagged)",
    "quantized": "torch.quantize_per_tensor(torch.ones(3) * {}, 0.1, 0, torch.quint8)",
    "masked": "np.ma.array([1, {}], mask=[True, False])",
    "objects": "np.array([None, {}])",
}


@pytest.mark.filterwarnings("ignore")  # torch's own, of layouts in beta
@pytest.mark.parametrize("layout", LAYOUTS)
def test_tensors_of_other_layouts_are_compared_by_their_values(layout: str) -> None:
    code, names = LAYOUTS[layout], {"torch": torch, "np": np}
    check(code.format(1), code.format(1), names)
    with pytest.raises(CheckFailed):
        check(code.format(1), code.format(2), names)


def test_masks_are_compared_and_what_is_masked_is_not() -> None:
    check("np.ma.array([1, 2], mask=[0, 1])", "np.ma.array([1, 3], mask=[0, 1])", {"np": np})
    with pytest.raises(CheckFailed):
        check("np.ma.array([1, 2], mask=[0, 1])", "np.ma.array([1, 2], mask=[0, 0])", {"np": np})


def test_nan_at_the_same_places_is_equal_and_told() -> None:
    names = {"x": torch.tensor([1.0, math.nan]), "nan": math.nan, "torch": torch}
    assert "nan-results" in check("x * 1", "x + 0", names)
    assert "nan-results" in check("[{1: nan}]", "[{1: nan * 2}]", names)
    assert "nan-results" in check("(x * torch.eye(2)).to_sparse_csr()", "(x * torch.eye(2)).to_sparse_csr()", names)
    assert "nan-results" not in check("x[:1]", "x[:1] * 1", names)
    with pytest.raises(CheckFailed):
        check("x", "x.nan_to_num()", names)


def test_a_baseline_that_differs_from_itself_is_named_and_not_the_other() -> None:
    counter = iter(range(100))
    with pytest.raises(CheckFailed, match="`a` returned different values in two calls, so the alternatives cannot"):
        check("next(counter)", "next(counter)", {"counter": counter})
    with pytest.raises(CheckFailed, match=r"`b` and `a` return different values: .*Expected 1 but got 2"):
        check("1", "2", {})


def test_results_that_agree_only_for_being_tiny_are_told() -> None:
    names = {"g": torch.tensor([1e-6, -2e-6]), "torch": torch}
    assert "tiny-results" in check("g * 2", "torch.zeros_like(g)", names)
    assert "tiny-results" in check("{'a': 1e-7}", "{'a': 2e-7}", names)
    assert "tiny-results" not in check("g * 2", "g + g", names)
    assert "tiny-results" not in check("(g, 1.0)", "(g * 2, 1.0)", names), "beside a large one"
