"""Alternatives do not change the process for each other, and the result says which of them changes it."""

from __future__ import annotations

import decimal
import gc
import os
import random
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.overrides import _get_current_function_mode_stack as function_modes
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack as dispatch_modes

from tests.core.timing.fake_clock import FakeClock, timed
from torchbench_magic.process.settings import ProcessState
from torchbench_magic.timing.comparison import Comparison

Reader = Callable[[], Any]

# what a body does, how it is seen, and the words for it
CHANGES: dict[str, tuple[str, Reader, str]] = {
    "grad mode": ("torch.set_grad_enabled(False)", torch.is_grad_enabled, "grad mode off"),
    "inference mode": (
        "keep.append(torch.inference_mode()); keep[-1].__enter__()",
        torch.is_inference_mode_enabled,
        "inference mode on",
    ),
    "default dtype": ("torch.set_default_dtype(torch.float64)", torch.get_default_dtype, "default dtype float64"),
    "default device": ("torch.set_default_device('meta')", torch.get_default_device, "default device meta"),
    "threads": ("torch.set_num_threads(1)", torch.get_num_threads, "1 torch thread"),
    "autocast": (
        "torch.set_autocast_enabled('cpu', True)",
        lambda: torch.is_autocast_enabled("cpu"),
        "autocast on (cpu, bfloat16)",
    ),
    "determinism": (
        "torch.use_deterministic_algorithms(True)",
        torch.are_deterministic_algorithms_enabled,
        "deterministic algorithms on",
    ),
    "matmul precision": (
        "torch.set_float32_matmul_precision('high')",
        torch.get_float32_matmul_precision,
        "matmul precision high",
    ),
    "TF32 of cuDNN": (
        "torch.backends.cudnn.allow_tf32 = False",
        lambda: torch.backends.cudnn.allow_tf32,
        "cuDNN's TF32 off",
    ),
    "reduced precision": (
        "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False",
        lambda: torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction off",
    ),
    "anomaly detection": ("torch.set_anomaly_enabled(True)", torch.is_anomaly_enabled, "anomaly detection on"),
    "collector": ("gc.enable()", gc.isenabled, "garbage collector on"),
    "warnings": ("warnings.simplefilter('ignore')", lambda: len(warnings.filters), "other warning filters"),
    "environment": (
        "os.environ['TB_ISOLATION'] = '1'",
        lambda: os.environ.get("TB_ISOLATION"),
        "environment variable TB_ISOLATION",
    ),
    "directory": ("os.chdir('/')", os.getcwd, "working directory /"),
    "numpy errors": ("np.seterr(over='ignore')", lambda: np.geterr()["over"], "NumPy error handling over='ignore'"),
    "decimal": ("decimal.getcontext().prec = 7", lambda: decimal.getcontext().prec, "decimal precision 7"),
    "dispatch mode": (
        "Seeing().__enter__()",
        lambda: Seeing in map(type, dispatch_modes()),
        f"dispatch mode {__name__}.Seeing",
    ),
    "function mode": ("Calling().__enter__()", lambda: bool(function_modes()), f"function mode {__name__}.Calling"),
    "profile function": ("sys.setprofile(hook)", sys.getprofile, f"sys.setprofile({__name__}.hook)"),
}


class Seeing(TorchDispatchMode):
    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return op(*args, **(kwargs or {}))


class Calling(TorchFunctionMode):
    def __torch_function__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return op(*args, **(kwargs or {}))


def hook(*_: Any) -> None:
    pass


NAMES = {"torch": torch, "gc": gc, "warnings": warnings, "os": os, "np": np, "decimal": decimal, "random": random,
         "sys": sys, "hook": hook, "Seeing": Seeing, "Calling": Calling}  # fmt: skip


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _seen(change: str, read: Reader, **plan: Any) -> tuple[list[Any], list[Any], Comparison]:
    """What the alternatives a (which changes nothing) and b (``change``) find when they begin, from the rounds on."""
    seen: dict[str, list[Any]] = {"a": [], "b": []}
    plan = {"threads": (2,), "number": 1, "repeat": 30, **plan}
    bodies = {name: f"seen[{name!r}].append(read()); clock.work(10)" for name in seen}
    bodies["b"] += f"; {change}"
    result = timed(FakeClock(), bodies, names={**NAMES, "seen": seen, "read": read, "keep": []}, **plan)
    return seen["a"], seen["b"], result


@pytest.mark.parametrize("kind", CHANGES)
def test_what_one_alternative_sets_the_others_do_not_see(kind: str) -> None:
    change, read, words = CHANGES[kind]
    before = ProcessState()
    a, b, result = _seen(change, read)
    assert len(set(a[2:])) == 1, "the first call runs with the collector as the notebook has it"
    assert len(set(b[4:])) == 1
    assert b[-1] != a[-1], "its own later calls run with what it set"
    (doubt,) = [d for d in result.warnings if d.kind in ("changes-state", "changes-threads")]
    assert f"`b` runs with {words}" in str(doubt)
    assert [subject.state for subject in result.subjects] == [(), (words,)]
    after = ProcessState(before.kinds)
    pairs = zip(before.kinds, before.values, after.values, strict=True)
    kept = before.left_to_imports  # the first change of one kind imports torch's compiler
    assert [k.name for k, was, is_now in pairs if k.role not in kept and not k.same(was, is_now)] == []


def test_the_order_of_the_alternatives_does_not_matter() -> None:
    seen: list[bool] = []
    names = {"torch": torch, "seen": seen}
    bodies = {"off": "torch.set_grad_enabled(False)\nclock.work(10)", "on": "seen.append(torch.is_grad_enabled())"}
    timed(FakeClock(), {**bodies, "on": bodies["on"] + "\nclock.work(10)"}, names=names, number=3, repeat=10)
    assert set(seen) == {True}


def test_threads_that_one_alternative_sets_are_its_own_at_each_thread_count() -> None:
    seen: dict[str, set[int]] = {"a": set(), "b": set()}
    bodies = {n: f"seen[{n!r}].add(torch.get_num_threads())\nclock.work(10)" for n in seen}
    bodies["b"] = "torch.set_num_threads(1)\n" + bodies["b"]
    result = timed(FakeClock(), bodies, names={"torch": torch, "seen": seen}, threads=(1, 2), min_run_time=0.1)
    assert seen == {"a": {1, 2}, "b": {1}}
    assert [s.state for s in result.subjects] == [(), (), (), ("1 torch thread",)]
    assert [d.kind for d in result.warnings].count("changes-threads") == 1


def test_a_setting_that_changes_late_drops_the_samples_before() -> None:
    """Here at the thousandth call, in the middle of the rounds: b's samples until then are of another setting."""
    seen: list[bool] = []
    names = {"torch": torch, "seen": seen, "calls": []}
    late = "calls.append(1)\nif len(calls) > 15_000: torch.set_grad_enabled(False); clock.work(30)\nclock.work(10)"
    bodies = {"a": "seen.append(torch.is_grad_enabled())\nclock.work(10)", "b": late}
    result = timed(FakeClock(), bodies, names=names, min_run_time=0.5)
    assert result.frame["median"][1] == pytest.approx(40e-6)
    assert result.call_times(1).min() > 30e-6, "the samples of the cheaper calls are gone"
    assert seen[-100:] == [True] * 100
    (doubt,) = [d for d in result.warnings if d.kind == "changes-state"]
    assert "`b` runs with grad mode off" in str(doubt)
    assert "only after some calls" in str(doubt)


def test_a_setting_that_one_alternative_changes_once_in_the_rounds_stays_its_own() -> None:
    seen: dict[str, list[bool]] = {"a": [], "b": []}
    names = {"torch": torch, "seen": seen, "calls": []}
    bodies = {n: f"seen[{n!r}].append(torch.is_grad_enabled())\nclock.work(10)" for n in seen}
    bodies["b"] += "\ncalls.append(1)\nif len(calls) == 15_000: torch.set_grad_enabled(False)"
    result = timed(FakeClock(), bodies, names=names, min_run_time=0.5)
    assert set(seen["a"]) == {True}
    assert seen["b"].index(False) == 15_000
    assert set(seen["b"][15_000:]) == {False}
    assert result.samples["wall"].sum() >= 0.9, "both were sampled as long as was asked, after the change"
    assert [s.state for s in result.subjects] == [(), ("grad mode off",)]


def test_a_setting_that_changed_once_by_who_knows_whom_is_put_back_and_said() -> None:
    seen: list[str] = []
    names = {"torch": torch, "seen": seen, "calls": []}
    once = "calls.append(1)\nif len(calls) == 15_000: torch.set_float32_matmul_precision('high')\nclock.work(10)"
    bodies = {"a": "seen.append(torch.get_float32_matmul_precision())\nclock.work(10)", "b": once}
    result = timed(FakeClock(), bodies, names=names, min_run_time=0.5)
    assert seen[-100:] == ["highest"] * 100
    assert result.samples["wall"].sum() >= 0.9
    (doubt,) = [d for d in result.warnings if d.kind == "changes-state"]
    assert "The code changed a setting once, after many calls (matmul precision)" in str(doubt)
    assert [s.state for s in result.subjects] == [(), ()]
    assert torch.get_float32_matmul_precision() == "highest"


def test_a_change_that_only_the_end_shows_starts_timeits_rounds_again() -> None:
    names = {"torch": torch, "calls": []}
    late = "calls.append(1)\nif len(calls) > 1130: torch.set_grad_enabled(False); clock.work(30)\nclock.work(10)"
    bodies = {"a": "clock.work(10)", "b": late}
    result = timed(FakeClock(), bodies, names=names, number=2, repeat=20)
    assert result.details["warmup_calls"][1] == 1111, "the change comes in the rounds"
    assert len(result.samples) == 40
    assert result.call_times(1).min() > 30e-6


def test_setup_sets_for_all_and_every_row_is_labelled() -> None:
    seen: list[bool] = []
    body = "seen.append(torch.is_grad_enabled())\nclock.work(10)"
    result = timed(
        FakeClock(),
        {"a": body, "b": body},
        setup=["torch.set_grad_enabled(False)"],
        names={"torch": torch, "seen": seen},
    )
    assert set(seen) == {False}
    assert [s.state for s in result.subjects] == [("grad mode off",)] * 2
    assert [d.kind for d in result.warnings if d.kind.startswith("changes")] == []
    assert "ran with grad mode off" in str(result)
    assert torch.is_grad_enabled()


def test_threads_that_setup_sets_are_those_of_the_rows() -> None:
    result = timed(
        FakeClock(), {"": "clock.work(10)"}, setup=["torch.set_num_threads(1)"], names={"torch": torch}, threads=None
    )
    assert result.frame["num_threads"].tolist() == [1]


def test_a_lone_statement_is_labelled_too() -> None:
    body = "torch.set_grad_enabled(False)\nclock.work(10)"
    result = timed(FakeClock(), {"": body}, names={"torch": torch})
    (doubt,) = [d for d in result.warnings if d.kind == "changes-state"]
    assert str(doubt).startswith("The code runs with grad mode off")
    assert result.subjects[0].state == ("grad mode off",)
    assert torch.is_grad_enabled()


def test_rows_that_ran_with_another_setting_say_so_in_the_table() -> None:
    body = "torch.set_grad_enabled(False)\nclock.work(10)"
    text = str(timed(FakeClock(), {"a": "clock.work(10)", "b": body}, names={"torch": torch}))
    assert "ran with" in text
    (row,) = [line for line in text.splitlines() if line.split()[:1] == ["b"] and line.endswith("same")]
    assert "grad mode off" in row


def test_every_alternative_draws_the_same_random_numbers_in_its_samples() -> None:
    drawn: dict[str, list[Any]] = {"a": [], "b": [], "c": []}
    draws = "(float(torch.rand(1)), random.random(), np.random.rand())"
    bodies = {n: f"drawn[{n!r}].append({draws}); clock.work(10)" for n in ("a", "b")}
    bodies["c"] = "torch.manual_seed(0); np.random.seed(0); random.seed(0); drawn['c'].append(0); clock.work(10)"
    before = ProcessState()
    result = timed(FakeClock(), bodies, names={**NAMES, "drawn": drawn}, number=1, repeat=20)
    assert drawn["a"][-20:] == drawn["b"][-20:]
    assert len(set(drawn["a"][-20:])) == 20, "and every block others"
    assert [d.kind for d in result.warnings if d.kind.startswith("changes")] == [], "drawing is no change to tell of"
    before_again = ProcessState(before.kinds)
    assert all(k.same(a, b) for k, a, b in zip(before.kinds, before.values, before_again.values, strict=True))


@pytest.mark.slow
def test_check_runs_each_alternative_with_the_settings_as_they_were() -> None:
    names = {"torch": torch, "random": random, "x": torch.ones(2)}
    bodies = {"a": "torch.set_default_dtype(torch.float64); clock.work(10); (x * random.random(), torch.rand(2))"}
    bodies["b"] = bodies["a"].replace("torch.set_default_dtype(torch.float64)", "None")
    bodies["a"] = bodies["a"].replace("torch.rand(2)", "torch.rand(2).double()")
    bodies["b"] = bodies["b"].replace("torch.rand(2)", "torch.rand(2).double()")
    bodies = {"b": bodies["b"], "c": bodies["b"].replace("x *", "1 * x *")}
    assert timed(FakeClock(), bodies, names=names, check=True, number=1, repeat=2) is not None


def test_an_error_or_an_interrupt_leaves_the_notebook_as_it_was() -> None:
    for error in (ZeroDivisionError, KeyboardInterrupt):
        body = (
            f"torch.set_grad_enabled(False); os.chdir('/')\nif len(calls) > 30: raise {error.__name__}\ncalls.append(1)"
        )
        here = os.getcwd()
        with pytest.raises((ZeroDivisionError, KeyboardInterrupt, Exception)):
            timed(FakeClock(), {"a": "clock.work(10)", "b": body + "\nclock.work(10)"}, names={**NAMES, "calls": []})
        assert torch.is_grad_enabled()
        assert os.getcwd() == here


def test_what_an_import_sets_is_for_all_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "filtering_module.py").write_text(
        "import warnings, os\nwarnings.simplefilter('ignore')\nos.environ['TB_X'] = '1'"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    seen: list[str | None] = []
    monkeypatch.setenv("TB_X", "0")
    with warnings.catch_warnings():
        result = timed(
            FakeClock(),
            {"a": "seen.append(os.environ['TB_X'])\nclock.work(10)", "b": "import filtering_module\nclock.work(10)"},
            names={"os": os, "seen": seen},
        )
    assert [d.kind for d in result.warnings if d.kind.startswith("changes")] == []
    assert seen[0] == "0"
    assert set(seen[1:]) == {"1"}, "what a module sets while it is imported is for all"
    assert os.environ["TB_X"] == "1", "and stays, as the module does"


# ---- the garbage collector ------------------------------------------------------------------------------------------


def _collecting(**given: Any) -> tuple[bool, Comparison]:
    """Whether the collector was on in the samples."""
    seen: list[bool] = []
    names = {"gc": gc, "seen": seen}
    result = timed(FakeClock(), {"": "seen.append(gc.isenabled())\nclock.work(10)"}, names=names, **given)
    assert len(set(seen[2:])) == 1
    return seen[-1], result


def test_the_collector_is_off_unless_it_is_asked_for_or_setup_switches_it_on() -> None:
    assert gc.isenabled()
    assert _collecting()[0] is False
    for given in ({"gc": True}, {"setup": ["gc.enable()"]}):
        is_on, result = _collecting(**given)
        assert is_on
        assert "ran with garbage collector on" in str(result)
    assert _collecting(setup=["gc.disable()"])[0] is False
    assert gc.isenabled()
