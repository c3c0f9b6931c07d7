"""``--check`` of results that hold what the alternatives after them fill anew."""

from __future__ import annotations

import collections
import math
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from torchbench_magic.errors import BodyError, CheckFailed
from torchbench_magic.timing.check import compared
from torchbench_magic.timing.equality import form

from .fake_clock import FakeClock, timed

CASES: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    "array": ("arr[:] = {}\narr", lambda: {"arr": np.zeros(5)}),
    "dict": ("out['loss'].fill_({})\nout", lambda: {"out": {"loss": torch.zeros(3), "name": "x"}}),
    "list": ("held.clear()\nheld.append({})\nheld", lambda: {"held": []}),
    "tuple": ("buf.fill_({})\n(buf, [buf])", lambda: {"buf": torch.zeros(3)}),
    "set": ("seen.clear()\nseen.add({})\nseen", lambda: {"seen": set()}),
}


def told(a: str, b: str, names: dict[str, Any], check: bool | str = True) -> dict[str, str]:
    """Kind of each doubt -> its text."""
    bodies = {"a": f"clock.work(2000)\n{a}", "b": f"clock.work(2000)\n{b}"}
    made = timed(FakeClock(), bodies, names=names, check=check, number=1, repeat=6)
    return {doubt.kind: doubt.text for doubt in made.warnings}


def check(a: str, b: str, names: dict[str, Any]) -> list[str]:
    """Kinds of the doubts."""
    return [*told(a, b, names)]


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
    with pytest.raises(CheckFailed, match=r"1 and 0 \(at \.second\)"):
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
    with pytest.raises(BodyError, match=r"returns a tensor without values, which cannot be compared"):
        check("x + 1", "x + 2", {"x": torch.zeros(3, device="meta")})
    with FakeTensorMode():
        fake = torch.ones(3)
    with pytest.raises(BodyError, match="returns a tensor without values"):
        check("fake", "fake", {"fake": fake})


class Private:
    __slots__ = ("__a",)

    def __init__(self, a: Any) -> None:
        self.__a = a


def test_slots_with_private_names_are_compared() -> None:
    names = {"Private": Private}
    check("Private(1)", "Private(1)", names)
    with pytest.raises(CheckFailed, match=r"2 and 1 \(at \._Private__a\)"):
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
        with pytest.raises(CheckFailed, match="values: 3 and"):
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
    with pytest.raises(CheckFailed, match=r"`b` and `a` return different values: 2 and 1"):
        check("1", "2", {})


def test_results_that_agree_only_for_being_tiny_are_told() -> None:
    names = {"g": torch.tensor([1e-6, -2e-6]), "torch": torch}
    assert "tiny-results" in check("g * 2", "torch.zeros_like(g)", names)
    assert "tiny-results" in check("{'a': 1e-7}", "{'a': 2e-7}", names)
    assert "tiny-results" not in check("g * 2", "g + g", names)
    assert "tiny-results" not in check("(g, 1.0)", "(g * 2, 1.0)", names), "beside a large one"


ROWS = np.random.default_rng(0).random((16, 64))
SHARED = {"a": ROWS, "t": torch.from_numpy(ROWS), "frame": pd.DataFrame(ROWS), "np": np, "torch": torch, "pd": pd}
ACROSS = [
    ("a * 2", "t * 2"),
    ("a.sum()", "t.sum()"),
    ("a.sum()", "t.sum().item()"),
    ("frame.to_numpy()", "t"),
    ("frame * 2", "a * 2"),
    ("frame * 2", "t * 2"),
    ("frame[3]", "t[:, 3]"),
    ("np.argwhere(a > 0.5)", "torch.argwhere(t > 0.5)"),
    ("np.nonzero(a > 0.5)", "torch.nonzero(t > 0.5, as_tuple=True)"),
    ("{'sum': a.sum(), 'parts': [a[0], a.shape]}", "{'sum': t.sum(), 'parts': [t[0], t.shape]}"),
    ("a[0].tolist()", "t[0]"),
    ("a > 0.5", "t > 0.5"),
]


@pytest.mark.parametrize(("one", "other"), ACROSS)
def test_what_is_computed_in_two_libraries_is_compared_by_value(one: str, other: str) -> None:
    for pair in ((one, other), (other, one)):
        assert not {"unlike-results", "tiny-results"} & set(check(*pair, SHARED))


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ("a * 2", "t * 3", r"1024 of 1024 numbers differ \(rtol=1e-07, atol=1e-07\), most at \[\d+, \d+\]: "),
        ("a.sum()", "t.mean()", r"0\.\d+ and 5\d\d\.\d+ \(rtol="),
        ("a[0]", "t", r"shapes \(16, 64\) and \(64,\)"),
        ("frame", "t + 1", "1024 of 1024 numbers"),
        ("np.array([2**60])", "torch.tensor([2**60 + 1])", r"1 of 1 numbers differ, most at \[0\]: "),
        ("np.array(True)", "torch.tensor(1)", "values: 1 and True"),
        ("np.array([True])", "torch.tensor([1.0])", "values: float32 and bool"),
        ("{'x': a}", "{'y': t}", r"only one of them has \['[xy]'\]"),
        ("a", "'text'", r"'text' and float64 numbers of shape \(16, 64\)"),
        ("np.array([np.inf])", "torch.tensor([1.0])", "1 of 1 numbers differ"),
    ],
)
def test_what_differs_across_libraries_is_told(one: str, other: str, said: str) -> None:
    with pytest.raises(CheckFailed, match=said) as caught:
        check(one, other, SHARED)
    assert "\n" not in str(caught.value)


def test_frames_are_compared_by_the_names_of_their_columns_and_by_their_index() -> None:
    check("pd.DataFrame({'x': [1, 2], 'y': ['a', None]})", "pd.DataFrame({'y': ['a', None], 'x': [1, 2]})", SHARED)
    for other, where in (
        ("{'x': [1, 3]}", r"\.columns\['x'\]"),
        ("{'z': [1, 2]}", r"\.columns\["),
        ("{'x': [1, 2]}, index=[5, 6]", r"\.index"),
    ):
        with pytest.raises(CheckFailed, match=where):
            check("pd.DataFrame({'x': [1, 2]})", f"pd.DataFrame({other})", SHARED)
    with pytest.raises(CheckFailed, match=r"\.values"):
        check("pd.Series([1.0, 2.0])", "pd.Series([1.0, 2.5])", SHARED)
    with pytest.raises(CheckFailed, match=r"\.columns\['x'\]"):
        check("f.loc[0, 'x'] = 1\nf", "f.loc[0, 'x'] = 2\nf", {"f": pd.DataFrame({"x": [0, 0]})})


def test_dates_and_fields_are_compared() -> None:
    code = "np.array(['2020-01-0{}', 'NaT'], 'M8[D]')"
    check(code.format(1), code.format(1), SHARED)
    with pytest.raises(CheckFailed, match="2020-01-02 and 2020-01-01"):
        check(code.format(1), code.format(2), SHARED)
    code = "np.array([(1, {})], dtype=[('n', 'i4'), ('x', 'f8')])"
    check(code.format(1), code.format(1), SHARED)
    with pytest.raises(CheckFailed, match=r"1 of 1 numbers differ.*\(at \.x\)"):
        check(code.format(1), code.format(2), SHARED)


def test_another_dtype_of_another_library_is_told_and_no_difference() -> None:
    single = told("a", "t.float()", SHARED)["unlike-results"]
    assert single == "`b` and `a` return the same numbers (within rtol=1.3e-06, atol=1e-05), as float32 and float64."
    assert "as int64 and float64" in told("np.ones(2)", "torch.tensor([1, 1])", SHARED)["unlike-results"]
    assert "as float32 and int" in told("3", "torch.tensor(3.0)", SHARED)["unlike-results"]
    assert "unlike-results" not in told("0.5", "torch.tensor(0.5)", SHARED), "a number of Python has no dtype"
    with pytest.raises(CheckFailed):
        check("a", "t.bfloat16().double()", SHARED)


def test_another_dtype_of_one_library_is_a_difference_unless_tolerances_are_given() -> None:
    for one, other in (("t", "t.float()"), ("a", "a.astype('f4')"), ("1", "1.0")):
        with pytest.raises(CheckFailed, match=r"return the same numbers as \w+ and \w+; `--check rtol="):
            check(one, other, SHARED)
        assert "unlike-results" in told(one, other, SHARED, "rtol=1e-5")
    with pytest.raises(CheckFailed, match=r"return different values: .* \(at \[1\]\)"):
        check("(t, t)", "(t.float(), t + 1)", SHARED)
    assert "on cpu (sparse_coo) and cpu" in told("t", "t.to_sparse()", SHARED)["unlike-results"]


class Picture:
    """Shows its numbers as Pillow's images do: by ``__array_interface__`` alone."""

    def __init__(self, *numbers: float) -> None:
        self._numbers = np.array(numbers)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self._numbers.__array_interface__


def test_what_shows_its_numbers_as_an_array_is_compared_by_them() -> None:
    names = {"Picture": Picture, **SHARED}
    assert "unlike-results" not in check("Picture(1, 2)", "Picture(1, 2)", names)
    assert "unlike-results" not in check("Picture(1, 2)", "torch.tensor([1, 2])", names)
    with pytest.raises(CheckFailed, match=r"1 of 2 numbers differ, most at \[1\]: 3 and 2"):
        check("Picture(1, 2)", "Picture(1, 3)", names)


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ("[1, 'x']", "(1, 'x')", "the same numbers, in a tuple and a list."),
        ("['x']", "collections.deque('x')", "the same values, in a deque and a list."),
        ("{'y': [[t], 1]}", "{'y': [(t,), 1]}", ", in a tuple and a list."),
        ("t", "t.clone().requires_grad_()", ", with requires_grad True and False."),
        ("s", "s.rename('b')", "the same numbers, named 'b' and 'a'."),
        ("s", "s.rename_axis('k')", "the same numbers, with an index named 'k' and None."),
        ("s.to_frame()", "s.to_frame().rename_axis('k', axis=1)", ", with columns named 'k' and None."),
        ("both", "both[['q', 'p']]", "the same numbers, with columns ['q', 'p'] and ['p', 'q']."),
        ("pd.Index([1], name='k')", "pd.Index([1])", ", named None and 'k'."),
        ("pd.RangeIndex(2, name='k')", "pd.Index([0, 1])", ", named None and 'k'."),
        ("pairs", "pairs.rename(['p', None])", ", named ['p', None] and ['p', 'q']."),
        ("[s, [t]]", "[s.rename('b'), (t,)]", ", named 'b' and 'a', in a tuple and a list."),
    ],
)
def test_what_agrees_in_its_values_alone_is_told(one: str, other: str, said: str) -> None:
    pairs = pd.MultiIndex.from_tuples([(1, 2)], names=["p", "q"])
    both = pd.DataFrame({"p": [1, 2], "q": [3, 4]})
    names = {"s": pd.Series([1, 2], name="a"), "pairs": pairs, "both": both, "collections": collections, **SHARED}
    assert told(one, other, names)["unlike-results"].endswith(said)
    for same in (one, other):
        assert "unlike-results" not in told(same, same, names)


def test_a_large_result_takes_no_longer_than_its_numbers() -> None:
    calls: list[str] = []

    def seen(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            calls.append(frame.f_code.co_name)

    one, other = (form(torch.zeros(100_000)) for _ in range(2))
    sys.setprofile(seen)
    try:
        compared(one, other)
    finally:
        sys.setprofile(None)
    assert len(calls) < 1_000  # not one a number; the first comparison of a process makes some 200


def test_tolerances_that_are_given_hold_for_numbers_with_a_fraction() -> None:
    told("t", "t * 1.001", SHARED, "rtol=1e-2")
    told("t", "t + 0.01", SHARED, "atol=0.02")
    told("t", "t.bfloat16()", SHARED, "rtol=1.6e-2,atol=1e-5")
    with pytest.raises(CheckFailed, match=r"rtol=0\.0001, atol=0\)"):
        told("t", "t * 1.001", SHARED, "rtol=1e-4,atol=0")
    with pytest.raises(CheckFailed, match="values: 101 and 100"):
        told("100", "101", SHARED, "rtol=0.5")
