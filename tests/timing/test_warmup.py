"""What is compiled before the first sample and after it, what that took, and when it has paid."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from torchbench_magic import compare, load
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.samples import calls_to_pay

pytestmark = pytest.mark.usefixtures("compiled_anew")

# ==== compiled alternatives ===========================================================================================
# Alternatives that torch.compile compiles: what that took, when it has paid, and compiling while they are timed.


SHORT = {"min_run_time": 0.01, "max_run_time": 0.05}


def plus(x: Any, n: Any) -> Any:
    return x + n


def timed(bodies: dict[str, str], **names: Any) -> Comparison:
    return compare(bodies, globals={"x": torch.ones(8), "plus": plus} | names, **SHORT)


def kinds(made: Comparison) -> list[str]:
    return [doubt.kind for doubt in made.warnings]


def test_compile_time_is_a_column_where_something_is_compiled_and_it_is_kept(tmp_path: Path) -> None:
    made = timed({"eager": "plus(x, 1)", "compiled": "g(x, 1)"}, g=torch.compile(plus, backend="eager"))
    eager, compiled = made.frame["compile_time"]
    assert eager != eager
    assert compiled > 0
    assert made.frame["break_even"].isna().all()  # nothing is faster for the backend "eager"
    assert "compile time" in repr(made)
    assert "compile time" in made.to_markdown()
    made.save(tmp_path / "kept.db")
    (kept,) = load(tmp_path / "kept.db")
    assert kept.frame["compile_time"].tolist()[1] == compiled
    again = timed({"eager": "plus(x, 1)", "compiled": "g(x, 1)"}, g=torch.compile(plus, backend="eager"))
    assert "compile_time" in again.frame or again.frame["median"].notna().all()


def test_what_was_compiled_before_and_what_is_not_compiled_has_no_column() -> None:
    g = torch.compile(plus, backend="eager")
    g(torch.ones(8), 1)
    made = timed({"eager": "plus(x, 1)", "compiled": "g(x, 1)"}, g=g)
    assert "compile_time" not in made.frame
    assert "compile time" not in repr(made)


def test_a_lone_statement_says_what_compiling_took() -> None:
    made = compare({"": "g(x, 1)"}, globals={"g": torch.compile(plus, backend="eager"), "x": torch.ones(8)}, **SHORT)
    assert made.frame["compile_time"].iloc[0] > 0


def test_compiling_again_while_it_is_timed_is_a_doubt() -> None:
    state = {"n": 0}
    body = "state['n'] += 1; g(x, state['n'])"
    g = torch.compile(plus, backend="eager", dynamic=False)
    with torch._dynamo.config.patch(recompile_limit=10_000, accumulated_recompile_limit=10_000):
        made = timed({"eager": "plus(x, 1)", "again": body}, g=g, state=state)
    assert "recompiled" in kinds(made)
    doubt = next(doubt for doubt in made.warnings if doubt.kind == "recompiled")
    assert "`n` was" in doubt.text
    assert made.subjects[1].compiled_in_samples > 0
    assert made.subjects[0].compiled_in_samples == 0


def test_code_that_the_compiler_gave_up_before_it_is_timed_is_a_doubt() -> None:
    state = {"n": 0}
    body = "state['n'] += 1; g(x, state['n'])"
    g = torch.compile(plus, backend="eager", dynamic=False)
    with torch._dynamo.config.patch(recompile_limit=2):
        made = timed({"eager": "plus(x, 1)", "again": body}, g=g, state=state)
    assert "fell-back" in kinds(made)
    assert made.frame["break_even"].isna().all()


def test_a_compiler_that_is_switched_off_is_a_doubt_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    made = timed({"a": "plus(x, 1)", "b": "torch.compile(plus)(x, 1)"}, torch=torch)
    assert "compile-off" in kinds(made)
    assert "compile-off" not in kinds(timed({"a": "plus(x, 1)"}))


def test_the_number_of_frames_that_are_compiled_is_that_of_the_plain_calls() -> None:
    from torch._dynamo.utils import clear_compilation_metrics, get_compilation_metrics

    clear_compilation_metrics()  # it keeps 64
    timed({"eager": "plus(x, 1)", "compiled": "g(x, 1)"}, g=torch.compile(plus, backend="aot_eager"))
    assert len(get_compilation_metrics()) == 1


@pytest.mark.parametrize(
    ("compiling", "baseline", "own", "expected"),
    [(10.0, 3e-3, 1e-3, 5000.0), (1.0, 0.3, 0.0, 4.0), (10.0, 1.0, 1.0, None), (10.0, 1.0, 2.0, None)],
)
def test_compiling_has_paid_when_what_it_saves_is_what_it_took(
    compiling: float, baseline: float, own: float, expected: float | None
) -> None:
    found = calls_to_pay(compiling, baseline, own)
    assert found == pytest.approx(expected, abs=1) if expected is not None else found != found


# ==== compile costs ===================================================================================================
# When compiling has paid.


@pytest.mark.parametrize(
    ("compiling", "before", "after", "calls"),
    [(4.0, 3e-3, 1e-3, 2000), (1.0, 3e-3, 1e-3, 500), (0.0, 2.0, 1.0, 0), (1.0, 0.9, 0.3, 2)],
)
def test_it_is_the_compile_time_over_what_a_call_saves(
    compiling: float, before: float, after: float, calls: int
) -> None:
    assert calls_to_pay(compiling, before, after) == calls


def test_what_is_no_faster_never_pays() -> None:
    assert math.isnan(calls_to_pay(1.0, 1e-3, 1e-3))
    assert math.isnan(calls_to_pay(1.0, 1e-3, 2e-3))


def test_what_is_not_known_gives_no_number() -> None:
    assert math.isnan(calls_to_pay(math.nan, 1.0, 0.5))
    assert math.isnan(calls_to_pay(1.0, 1.0, math.nan))
