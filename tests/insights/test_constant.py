"""Which tensors may be the same each time, and which not: texts, variables and recorded shapes are given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.trace import Source

from .built import SOURCE, Did, Op, built_profile

INPUTS = (
    ("x", "64 × 64 float32"),
    ("n", "300"),
    ("inf", "-inf"),
    ("size", "(1+2j)"),
    ("shape", "tuple of 2"),
    ("dt", "dtype"),
    ("sizes", "list of 1"),
    ("cfg", "SimpleNamespace"),
    ("w", "64 float32, requires grad"),
)
MADE = Did(400, 1e-3, [Op("aten::ones", 400, 0.01), Op("aten::ones > aten::fill_", 400, 0.3)])


def made(body: str, line: int = 4, inputs: Any = INPUTS) -> Profile:
    """A cell whose ``line`` (the first being the magic's) makes the tensor 400 times."""
    used = Did(400, 1e-3, [Op("aten::sum", 400, 0.01), Op("aten::add", 400, 0.01)])
    return built_profile(f"%%tprofile\n{body}", {line: MADE, line + 1: used}, inputs=inputs)


def is_told(profile: Profile) -> bool:
    return "constant" in [each.kind for each in profile.insights]


LOOP = "for k in range(400):\n    {}\n    m = torch.ones({})\n    y = m.sum()"


@pytest.mark.parametrize(
    "size",
    [
        "300, 300",
        "n, n",
        "n * 2, -n",
        "shape",
        "3, dtype=dt",
        "3, dtype=torch.float64",
        "x.shape[0], x.shape[-1]",
        "x.shape",
        "3, dtype=x.dtype, device=x.device",
        "int(n / math.pi)",
    ],
)
def test_the_same_sizes_each_time_are_told(size: str) -> None:
    assert is_told(made(LOOP.format("z = x + 1", size)))


@pytest.mark.parametrize(
    ("before", "size"),
    [
        ("cfg.n = k", "cfg.n"),
        ("sizes.append(k)", "sizes"),
        ("sizes[0] = k", "sizes[0]"),
        ("pass", "size_of(x)"),
        ("pass", "x.shape[-k]"),
        ("n = k", "n"),
        ("x = torch.rand(k)", "x.shape"),
        ("pass", "3, requires_grad=True"),
        ("pass", "**kinds"),
    ],
)
def test_what_may_be_another_tensor_each_time_is_not(before: str, size: str) -> None:
    assert not is_told(made(LOOP.format(before, size)))


def test_what_other_code_may_do_is_left_to_the_if_of_the_cure() -> None:
    """Nobody proves that ``library_call`` binds no ``n`` anew: the text does not say that the tensor is the same."""
    (insight,) = (each for each in made(LOOP.format("library_call(k)", "n")).insights if each.kind == "constant")
    assert "In[1]:4` runs `torch.ones(n)` 400 times, and this code does not rebind its arguments: up to" in insight.text
    assert "same" not in insight.text
    assert insight.cures[0].text.startswith("If its arguments do not change and nothing writes into the tensor, make")
    assert insight.cures[0].code == "m = torch.ones(n)"


@pytest.mark.parametrize(
    ("body", "line", "told"),
    [
        ("n = 300\nfor k in range(400):\n    m = torch.ones(n)\n    y = m.sum()", 4, True),
        ("n, p = x.shape\nfor k in range(400):\n    m = torch.ones(n, p)\n    y = m.sum()", 4, True),
        ("for k in range(400):\n    m = torch.ones(n)\n    y = m.sum()\nn = 3", 3, False),
        ("n = []\nfor k in range(400):\n    m = torch.ones(n)\n    n.append(3)", 4, False),
        ("n = 3\nn = [3]\nfor k in range(400):\n    m = torch.ones(n)\n    n.append(3)", 5, False),
        ("def f():\n    m = torch.ones(n)\n    return m + 1\nfor n in x:\n    f()", 3, False),
        ("def f():\n    m = torch.ones(n)\n    return m + 1\nf()\nn = 4\nf()", 3, False),
        ("n = 3\ndef f():\n    m = torch.ones(n)\n    return m + 1\nfor k in range(400):\n    f()", 4, True),
        ("match x:\n    case n:\n        pass\nfor k in x:\n    m = torch.ones(n)\n    y = m.sum()", 6, False),
    ],
)
def test_names_that_the_cell_itself_binds(body: str, line: int, told: bool) -> None:
    bound = {"n", "p"} if body[0] in "nm" else set()
    inputs = tuple(one for one in INPUTS if one[0] not in bound)
    assert is_told(made(body, line, inputs)) is told


def of_shapes(*shapes: str) -> Profile:
    """With recorded shapes: as many calls of each kind."""
    profile = made(LOOP.format("z = x + 1", "n, n"))
    rows = profile.ops[profile.ops["op"] != "aten::fill_"]
    one = profile.ops[profile.ops["op"] == "aten::fill_"]
    kinds = [one.assign(calls=400 // len(shapes), input_shapes=shape, input_dtypes="['float']") for shape in shapes]
    return replace(profile, ops=pd.concat([rows, *kinds], ignore_index=True))


def test_recorded_shapes_that_differ_contradict_the_text() -> None:
    alike = of_shapes("[[300, 300], []]")
    assert is_told(alike)
    assert "400 times, on inputs of the same sizes, and" in alike.insights[0].text
    assert not is_told(of_shapes("[[300, 300], []]", "[[301, 301], []]"))


@pytest.mark.parametrize(
    "use",
    ["v = m; v += k", "F.relu(m, inplace=True)", "torch.add(y, 1, out=m)", "kept.append(m)", "return m", "m[0] = k"],
)
def test_what_the_text_writes_to_or_keeps_is_not(use: str) -> None:
    body = "def f(y, k, kept):\n    m = torch.ones(3, 3)\n    {}"
    assert not is_told(made(body.format(use), 3))
    assert is_told(made(body.format("return F.relu(m.permute(1, 0) + 1)"), 3))


def test_the_source_of_a_file_may_name_its_own_constants() -> None:
    text = "N = 200\ndef f(x):\n    m = torch.ones(N)\n    return x + m"
    profile = made("f(x)", 4)
    source = Source(SOURCE, "/project/mine.py", text, first_line=2)
    assert is_told(replace(profile, sources={SOURCE: source}, source_id=None))
