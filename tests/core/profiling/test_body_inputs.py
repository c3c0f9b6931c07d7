"""What a profiled body read is kept with its profile."""

from __future__ import annotations

from typing import Any

import torch

from torchbench_magic import profile


def test_names_that_the_body_makes_itself_are_no_inputs() -> None:
    names: dict[str, Any] = {"x": torch.ones(3, 4), "y": torch.ones(7), "n": 2, "unused": 5}
    made = profile("y = x * n\nz = y.sum()", globals=names)
    assert made.inputs == (("n", "2"), ("x", "3 × 4 float32"))


def test_what_the_run_changes_is_no_input() -> None:
    names: dict[str, Any] = {"log": [], "cfg": {"n": 3}}
    made = profile("log.append(cfg['n'])", globals=names)
    assert made.inputs == (("cfg", "dict of 1"),)
    assert made.values is not None
    assert [(label, held) for label, held, _ in made.values] == [("cfg['n']", "3"), ("log", "")]


def test_an_optimizer_is_an_input_though_its_state_changes() -> None:
    weight = torch.ones(3, 4, requires_grad=True)
    names: dict[str, Any] = {"weight": weight, "opt": torch.optim.Adam([weight], foreach=True)}
    made = profile("weight.sum().backward()\nopt.step()", globals=names)
    assert ("opt", "Adam of 12 values in 1 tensor, foreach") in (made.inputs or ())


def test_variables_around_a_callable_are_known() -> None:
    x = torch.ones(3, 4)
    made = profile(lambda: x.sum())
    assert ("x", "3 × 4 float32") in (made.inputs or ())


def test_a_schedule_keeps_them_too() -> None:
    names: dict[str, Any] = {"x": torch.ones(2), "range": range}
    code = "import torchbench_magic\nfor i in range(4):\n    x.sum()\n    torchbench_magic.step()"
    made = profile(code, globals=names, schedule="wait=1,warmup=1,active=2")
    assert ("x", "2 float32") in (made.inputs or ())
