"""What is shown to be the same tensor each time, and what is not: texts, variables and recorded shapes are given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from tests.results.profiling.insights.built import SOURCE, Did, Op, built_profile
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.trace import Source

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
VALUES = (("cfg.n", "300", ""), ("C.n", "300", ""), ("cfg.many", "contents 12", ""), ("cfg.odd", "3", "not known"))
MADE = Did(400, 1e-3, [Op("aten::ones", 400, 0.01), Op("aten::ones > aten::fill_", 400, 0.3)])


def made(body: str, line: int = 4, inputs: Any = INPUTS, others: dict[str, Source] | None = None) -> Profile:
    """A cell whose ``line`` (the first being the magic's) makes the tensor 400 times."""
    used = Did(400, 1e-3, [Op("aten::sum", 400, 0.01), Op("aten::add", 400, 0.01)])
    profile = built_profile(f"%%tprofile\n{body}", {line: MADE, line + 1: used}, inputs=inputs, values=VALUES)
    return replace(profile, sources={**profile.sources, **(others or {})})


def with_functions(profile: Profile, *names: str) -> Profile:
    """With functions of the user's that ran elsewhere."""
    called = profile.frames.iloc[[0] * len(names)].assign(kind="function", name=list(names), parent=0)
    return replace(profile, frames=pd.concat([profile.frames, called], ignore_index=True))


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
        "cfg.n, C.n",
        "int(n / math.pi)",
    ],
)
def test_the_same_sizes_each_time_are_told(size: str) -> None:
    assert is_told(made(LOOP.format("z = x + 1", size)))


@pytest.mark.parametrize(
    ("before", "size"),
    [
        ("C.n = 300 + k % 3", "C.n"),
        ("cfg.n += 1", "cfg.n"),
        ("del cfg.n", "cfg.n"),
        ("setattr(C, 'n', k)", "C.n"),
        ("C.__dict__['n'] = k", "C.n"),
        ("vars(cfg)['n'] = k", "cfg.n"),
        ("pass", "pp.n"),  # a property is no recorded value
        ("pass", "cfg.many"),
        ("pass", "cfg.odd"),
        ("pass", "unknown"),
        ("pass", "sizes"),  # a list may be changed by whoever has it
        ("pass", "sizes[0]"),
        ("pass", "w * 2"),
        ("pass", "x.shape[-k]"),
        ("x.resize_(k)", "x.shape[0]"),
        ("x.data = torch.rand(k)", "x.shape"),
        ("net.half()", "3, dtype=x.dtype"),
        ("library_call(k)", "n"),  # not recorded: what it binds is not known
        ("library_call(k)", "cfg.n"),
        ("exec('n = k')", "n"),
        ("globals()['n'] = k", "n"),
        ("%run more.py", "n"),
        ("torch.set_default_dtype([torch.float32, torch.float64][k % 2])", "3, 3"),
        ("torch.set_default_device('cpu')", "3, 3"),
    ],
)
def test_what_may_be_another_tensor_each_time_is_not(before: str, size: str) -> None:
    assert not is_told(made(LOOP.format(before, size)))


def test_an_unknown_call_takes_no_certainty_from_plain_numbers() -> None:
    assert is_told(made(LOOP.format("library_call(k)", "300, 300, dtype=torch.float64")))


@pytest.mark.parametrize("context", ["torch.device(names[k % 2])", "devices[k % 2]", "somewhere"])
def test_no_constant_within_a_device_that_is_entered_each_time(context: str) -> None:
    body = f"for k in range(400):\n    with {context}:\n        m = torch.ones(3, 3)\n        y = m.sum()"
    assert not is_told(made(body))
    assert is_told(made(body.replace(context, "torch.no_grad()")))
    around = f"with {context}:\n    for k in range(400):\n        m = torch.ones(3, 3)\n        y = m.sum()"
    assert is_told(made(around))


BUMP = "def bump():\n    global n\n    n += 1"


def test_a_function_that_binds_a_global_anew_is_heard() -> None:
    """It was defined in an earlier cell; that it ran is in the call tree, its text among the sources."""
    plain = with_functions(made(LOOP.format("bump()", "n")), "__main__.bump")
    assert is_told(plain)
    earlier = {"cd34": Source("cd34", "<cell 2>", f"{BUMP}\nn = 300", cell=2)}
    assert not is_told(with_functions(made(LOOP.format("bump()", "n"), others=earlier), "__main__.bump"))


def test_a_method_that_sets_an_attribute_is_heard() -> None:
    text = "class S:\n    def step(s):\n        s.n += 1"
    earlier = {"cd34": Source("cd34", "<cell 2>", text, cell=2)}
    assert not is_told(with_functions(made(LOOP.format("cfg.step()", "cfg.n"), others=earlier), "__main__.S.step"))


@pytest.mark.parametrize(
    ("body", "line", "told"),
    [
        ("n = 300\nfor k in range(400):\n    m = torch.ones(n)\n    y = m.sum()", 4, True),
        ("n, p = x.shape\nfor k in range(400):\n    m = torch.ones(n, p)\n    y = m.sum()", 4, True),
        ("n = []\nfor k in range(400):\n    m = torch.ones(n)\n    n.append(3)", 4, False),
        ("n = 3\nn = [3]\nfor k in range(400):\n    m = torch.ones(n)\n    n.append(3)", 5, False),
        ("def f():\n    m = torch.ones(n)\n    return m + 1\nfor n in x:\n    f()", 3, False),
        ("def f():\n    m = torch.ones(n)\n    return m + 1\nf()\nn = 4\nf()", 3, False),
        ("n = 3\ndef f():\n    m = torch.ones(n)\n    return m + 1\nfor k in range(400):\n    f()", 4, True),
        ("match x:\n    case n:\n        pass\nfor k in x:\n    m = torch.ones(n)\n    y = m.sum()", 6, False),
        ("async def f():\n    for k in x:\n        await k\n        m = torch.ones(n)\n        y = m + 1", 5, False),
    ],
)
def test_names_that_the_cell_itself_binds(body: str, line: int, told: bool) -> None:
    bound = {"n", "p"} if body[0] in "nm" else set()
    inputs = tuple(one for one in INPUTS if one[0] not in bound)
    assert is_told(with_functions(made(body, line, inputs), "__main__.f")) is told


def test_an_attribute_set_from_outside_is_heard_by_a_function() -> None:
    """``mymod.n = k`` in the cell, and a function of the module that reads ``n``."""
    body = "for k in x:\n    mymod.n = k\n    for i in range(9):\n        m = torch.ones(n)\n        y = m.sum()"
    assert not is_told(made(body, 5))
    assert is_told(made(body.replace("mymod.n", "mymod.other"), 5))


def of_shapes(*shapes: str) -> Profile:
    """With recorded shapes: as many calls of each kind."""
    profile = made(LOOP.format("z = x + 1", "n, n"))
    rows = profile.ops[profile.ops["op"] != "aten::fill_"]
    one = profile.ops[profile.ops["op"] == "aten::fill_"]
    kinds = [one.assign(calls=400 // len(shapes), input_shapes=shape, input_dtypes="['float']") for shape in shapes]
    return replace(profile, ops=pd.concat([rows, *kinds], ignore_index=True))


def test_recorded_shapes_that_differ_contradict_the_text() -> None:
    assert is_told(of_shapes("[[300, 300], []]"))
    assert not is_told(of_shapes("[[300, 300], []]", "[[301, 301], []]"))


def test_a_function_of_the_users_that_is_called_like_an_operation_may_change_it() -> None:
    body = LOOP.format("pass", "3, 3").replace("m.sum()", "ones(m)")
    assert is_told(made(body))
    assert not is_told(with_functions(made(body), "__main__.ones"))


@pytest.mark.parametrize(
    "use",
    [
        "v = m.permute(1, 0); v += k",
        "v = torch.reshape(m, (-1,)); v += k",
        "v = torch.as_tensor(m); v += k",
        "y = F.relu(m, inplace=True)",
    ],
)
def test_what_lies_in_its_memory_may_change_it(use: str) -> None:
    assert not is_told(made(LOOP.format("pass", "3, 3").replace("y = m.sum()", use)))
    assert is_told(made(LOOP.format("pass", "3, 3").replace("y = m.sum()", "y = F.relu(m.permute(1, 0) + 1)")))


@pytest.mark.parametrize(("op", "told"), [("aten::relu", True), ("aten::relu_", False)])
def test_a_module_that_works_in_place_may_change_it(op: str, told: bool) -> None:
    body = LOOP.format("pass", "3, 3").replace("m.sum()", "net(m)")
    did = {4: MADE, 5: Did(400, 1e-3, [Op(op, 400, 0.01)], modules=400)}
    assert is_told(built_profile(f"%%tprofile\n{body}", did)) is told


def test_the_source_of_a_file_may_name_its_own_constants() -> None:
    text = "N = 200\ndef f(x):\n    m = torch.ones(N)\n    return x + m"
    profile = made("f(x)", 4)
    source = Source(SOURCE, "/project/mine.py", text, first_line=2)
    assert is_told(replace(profile, sources={SOURCE: source}, source_id=None))
