from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from torchbench_magic.errors import OptionError
from torchbench_magic.process.environment import Environment
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.fuzzers import points_of
from torchbench_magic.timing.samples import AXIS
from torchbench_magic.timing.sweep import RESERVED, sweep_points


def test_one_axis_gives_a_point_for_each_value_with_the_value_as_a_name() -> None:
    points = sweep_points(["n=[2**k for k in range(4, 7)]"], {})
    assert [dict(p.make()) for p in points] == [{"n": 16}, {"n": 32}, {"n": 64}]
    assert [p.axes for p in points] == [(("n", 16),), (("n", 32),), (("n", 64),)]
    assert [p.sub_label for p in points] == ["n=16", "n=32", "n=64"]


def test_several_axes_give_their_cartesian_product_the_last_one_varying_fastest() -> None:
    points = sweep_points(["n=[1, 2]", "mode=('sum', 'mean')"], {})
    assert [p.sub_label for p in points] == ["n=1, mode=sum", "n=1, mode=mean", "n=2, mode=sum", "n=2, mode=mean"]
    assert points[2].make() == {"n": 2, "mode": "sum"}


def test_the_expression_sees_the_notebooks_names_and_leaves_them_alone() -> None:
    namespace: dict[str, Any] = {"sizes": [3, 4], "double": lambda n: 2 * n}
    before = dict(namespace)
    points = sweep_points(["n=[double(s) for s in sizes]"], namespace)
    assert [p.make()["n"] for p in points] == [6, 8]
    assert namespace == before


def test_names_that_a_body_rebinds_do_not_reach_the_next_visit_of_the_point() -> None:
    (point,) = sweep_points(["n=[1]"], {})
    point.make()["n"] = 99  # type: ignore[index]
    assert point.make() == {"n": 1}


def test_scalars_of_numpy_and_torch_become_pythons_own() -> None:
    points = sweep_points(["n=np.arange(2)", "t=torch.tensor([0.5])"], {"np": np, "torch": torch})
    assert [p.axes for p in points] == [(("n", 0), ("t", 0.5)), (("n", 1), ("t", 0.5))]
    assert all(type(p.make()["n"]) is int and type(p.make()["t"]) is float for p in points)


def test_values_that_are_objects_keep_a_name_in_the_result_and_stay_objects_in_the_code() -> None:
    points = sweep_points(["f=[torch.relu, torch.sin]", "dtype=[torch.float32]"], {"torch": torch})
    assert [p.axes for p in points] == [
        (("f", "relu"), ("dtype", "torch.float32")),
        (("f", "sin"), ("dtype", "torch.float32")),
    ]
    assert points[1].make() == {"f": torch.sin, "dtype": torch.float32}


def test_no_tensor_stands_in_an_axis() -> None:
    points = sweep_points(["x=[torch.zeros(2, 2), torch.zeros(2, 2)]"], {"torch": torch})
    assert [type(value) for p in points for _, value in p.axes] == [str, str]
    assert len({p.sub_label for p in points}) == 2
    assert isinstance(points[0].make()["x"], torch.Tensor)


def test_shapes_are_values_as_they_are() -> None:
    points = sweep_points(["shape=[(64, 64), (128, 1)]"], {})
    assert [p.axes for p in points] == [(("shape", (64, 64)),), (("shape", (128, 1)),)]


def test_close_floats_keep_labels_of_their_own() -> None:
    points = sweep_points(["p=[0.1, 0.1 + 0.2, 0.3, 1e-7]"], {})
    assert [p.sub_label for p in points] == ["p=0.1", "p=0.30000000000000004", "p=0.3", "p=1e-07"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n", "NAME=EXPR"),
        ("n=", "NAME=EXPR"),
        ("n==3", "NAME=EXPR"),
        ("2n=[1]", "not a Python name"),
        ("for=[1]", "not a Python name"),
        ("a.b=[1]", "not a Python name"),
        ("median=[1]", "a column of the result"),
        ("result=[1]", "a column of the result"),  # of results put side by side
        ("n=5", "several values"),
        ("n=torch.tensor(3)", "several values"),
        ("n='abc'", r"write \['abc'\]"),
        ("n=[]", "no values in"),
        ("n=range(0)", "no values in"),
        ("n=[1, 2, 1]", "1 is given twice"),
        ("n=itertools.count()", "endless iterator"),
        ("n=[1, 2", "SyntaxError"),
        ("n=sizes_that_are_not_there", "NameError"),
        ("n=[1/0]", "ZeroDivisionError"),
        ("n=(1/k for k in [1, 0])", "ZeroDivisionError"),
    ],
)
def test_a_sweep_that_cannot_be_used_is_one_line_that_says_why(text: str, message: str) -> None:
    import itertools

    with pytest.raises(OptionError, match=message) as caught:
        sweep_points([text], {"torch": torch, "itertools": itertools})
    assert "\n" not in str(caught.value)


def test_an_axis_given_twice_and_a_product_without_measure_are_errors_before_anything_runs() -> None:
    with pytest.raises(OptionError, match="n is given twice"):
        sweep_points(["n=[1]", "n=[2]"], {})
    with pytest.raises(OptionError, match="40000 points"):
        sweep_points(["a=range(200)", "b=range(200)"], {})


def test_no_axis_can_be_called_like_any_column_of_the_result() -> None:
    empty = Comparison((), pd.DataFrame(columns=["round", "measurement", "wall", "cpu", "number", "position"]), NOWHERE)
    assert {*empty.frame.columns, AXIS} == RESERVED


NOWHERE = Environment(python="3", torch="2")


def test_no_sweep_and_no_fuzzer_is_no_point() -> None:
    assert len(points_of([], None, {})) == 0


def test_a_sweep_and_a_fuzzer_meet_at_every_pair_of_points() -> None:
    with torch.random.fork_rng():
        points = points_of(["k=[1, 2]"], "unary:3", {})
        alone = points_of([], "unary:3", {})
        assert len(points) == 6
        assert [p.sub_label for p in points] == [f"k={k}, {p.sub_label}" for k in (1, 2) for p in alone]
        for i, point in enumerate(points):
            names = point.make()
            assert names["k"] == dict(point.axes)["k"]
            assert torch.equal(names["x"], alone[i % 3].make()["x"])


def test_an_axis_that_the_fuzzer_would_hide_and_too_many_points_of_both_are_errors() -> None:
    with pytest.raises(OptionError, match="the fuzzer draws its own x"):
        points_of(["x=[1]"], "unary:3", {})
    with pytest.raises(OptionError, match="20000 points"):
        points_of(["k=range(20)"], "unary:1000", {})


def test_nan_and_infinity_are_values_like_others() -> None:
    points = sweep_points(["a=[float('inf'), float('nan')]"], {})
    assert [p.sub_label for p in points] == ["a=inf", "a=nan"]
    assert math.isnan(points[1].make()["a"])
