"""Switches of a shared object that one alternative sets and another one runs with."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torchbench_magic import Comparison  # noqa: E402

from .fake_clock import FakeClock, timed  # noqa: E402


class Config:
    def __init__(self) -> None:
        self.fast, self.calls = False, 0


def run(bodies: dict[str, str], **names: Any) -> Comparison:
    clock = FakeClock()
    ticking = {name: f"{body}\nclock.work({10 * (at + 1)})" for at, (name, body) in enumerate(bodies.items())}
    return timed(clock, ticking, names={"torch": torch, **names}, min_run_time=0.01)


def shared(result: Comparison) -> list[str]:
    return [str(d.facts["name"]) for d in result.warnings if d.kind == "used-up" and d.facts["how"] == "shared"]


def drop() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.5))


@pytest.mark.parametrize(
    ("bodies", "said"),
    [
        ({"train": "m(x)", "infer": "m.eval(); m(x)"}, "m.training"),
        ({"infer": "m.eval(); m(x)", "train": "m(x)"}, "m.training"),
        ({"fp32": "m(x)", "bf16": "m.to(torch.bfloat16)(x.to(m[0].weight.dtype))"}, None),
        ({"grad": "m(x)", "frozen": "m.requires_grad_(False); m(x)"}, None),
        ({"slow": "config.fast", "fast": "config.fast = True"}, "config.fast"),
        ({"slow": "flags['fast']", "fast": "flags['fast'] = True"}, "flags['fast']"),
    ],
)
def test_what_one_alternative_sets_and_another_runs_with_voids_the_verdict(
    bodies: dict[str, str], said: str | None
) -> None:
    names = {"m": drop(), "x": torch.ones(2, 2), "config": Config(), "flags": {"fast": False}}
    if "bf16" in bodies:
        bodies = bodies | {"fp32": "m(x.to(m[0].weight.dtype))"}
    result = run(bodies, **names)
    found = shared(result)
    assert found
    assert said is None or found == [said]
    assert result.frame["verdict"].tolist() == ["baseline", "undecided"]
    assert "deepcopy" in next(d.action for d in result.warnings if d.kind == "used-up")


def test_alternatives_that_each_set_the_switch_are_compared() -> None:
    bodies = {"infer": "m.eval(); m(x)", "train": "m.train(); m(x)"}
    result = run(bodies, m=drop(), x=torch.ones(2, 2))
    assert not shared(result)
    assert result.frame["verdict"].tolist() == ["baseline", "slower"]


def test_objects_of_ones_own_and_counters_are_no_matter() -> None:
    bodies = {"a": "one.eval(); one(x); config.calls += 1", "b": "two(x); config.calls += 1"}
    result = run(bodies, one=drop(), two=drop(), x=torch.ones(2, 2), config=Config())
    assert not shared(result)
    assert result.frame["verdict"].tolist() == ["baseline", "slower"]
