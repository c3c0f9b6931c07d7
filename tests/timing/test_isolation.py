"""Alternatives do not change the process, nor shared objects, for each other; where one does, it is said."""

from __future__ import annotations

import argparse
import copy
import dataclasses
import functools
import gc
import os
import random
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.overrides import _get_current_function_mode_stack as function_modes
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack as dispatch_modes

from torchbench_magic import Comparison
from torchbench_magic.process.settings import ProcessState

from .fake_clock import FakeClock, timed

# ==== isolation =======================================================================================================


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
    "dispatch mode": (
        "read() or Seeing().__enter__()",
        lambda: Seeing in map(type, dispatch_modes()),
        f"dispatch mode {__name__}.Seeing",
    ),
    "function mode": (
        "read() or Calling().__enter__()",
        lambda: bool(function_modes()),
        f"function mode {__name__}.Calling",
    ),
    "profile function": ("sys.setprofile(hook)", sys.getprofile, f"sys.setprofile({__name__}.hook)"),
}


class Seeing(TorchDispatchMode):
    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return op(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def no_guard_outlives_its_test() -> Iterator[None]:
    """A guard of inference mode that a recorded call entered and kept tells torch's dispatcher, when it is let go, that
    there is a mode, as there was then. What enters one next, as a measurement, puts that right; a test may come first.
    """
    yield
    gc.collect()
    with Seeing():
        pass


class Calling(TorchFunctionMode):
    def __torch_function__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return op(*args, **(kwargs or {}))


def hook(*_: Any) -> None:
    pass


NAMES = {"torch": torch, "gc": gc, "warnings": warnings, "os": os, "np": np, "random": random,
         "sys": sys, "hook": hook, "Seeing": Seeing, "Calling": Calling}  # fmt: skip


@pytest.fixture
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


@pytest.mark.usefixtures("in_a_folder")
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


@pytest.mark.usefixtures("in_a_folder")
def test_the_order_of_the_alternatives_does_not_matter() -> None:
    seen: list[bool] = []
    names = {"torch": torch, "seen": seen}
    bodies = {"off": "torch.set_grad_enabled(False)\nclock.work(10)", "on": "seen.append(torch.is_grad_enabled())"}
    timed(FakeClock(), {**bodies, "on": bodies["on"] + "\nclock.work(10)"}, names=names, number=3, repeat=10)
    assert set(seen) == {True}


@pytest.mark.usefixtures("in_a_folder")
@pytest.mark.parametrize("number", [None, 1, 2])
def test_what_exchanging_a_setting_leaves_cold_is_not_timed(number: int | None) -> None:
    """The first call after grad mode was switched off takes 120 us, others 100."""
    clock, had_grad = FakeClock(), [True]

    def work() -> None:
        clock.work(120 if had_grad[0] > torch.is_grad_enabled() else 100)
        had_grad[0] = torch.is_grad_enabled()

    bodies = {"on": "work()", "off": "torch.set_grad_enabled(False); work()", "on again": "( work() )"}
    result = timed(clock, bodies, names={"work": work, "torch": torch}, number=number)
    assert result.frame["ratio"].tolist() == [1, 1, 1]
    assert result.frame["verdict"].tolist() == ["baseline", "same", "same"]


def test_threads_that_one_alternative_sets_are_its_own_at_each_thread_count() -> None:
    seen: dict[str, set[int]] = {"a": set(), "b": set()}
    bodies = {n: f"seen[{n!r}].add(torch.get_num_threads())\nclock.work(10)" for n in seen}
    bodies["b"] = "torch.set_num_threads(1)\n" + bodies["b"]
    result = timed(FakeClock(), bodies, names={"torch": torch, "seen": seen}, threads=(1, 2), min_run_time=0.1)
    assert seen == {"a": {1, 2}, "b": {1}}
    assert [s.state for s in result.subjects] == [(), (), (), ("1 torch thread",)]
    assert [d.kind for d in result.warnings].count("changes-threads") == 1


@pytest.mark.usefixtures("in_a_folder")
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


@pytest.mark.usefixtures("in_a_folder")
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


@pytest.mark.usefixtures("in_a_folder")
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


@pytest.mark.usefixtures("in_a_folder")
def test_a_change_that_only_the_end_shows_starts_timeits_rounds_again() -> None:
    names = {"torch": torch, "calls": []}
    late = "calls.append(1)\nif len(calls) > 60: torch.set_grad_enabled(False); clock.work(30)\nclock.work(10)"
    bodies = {"a": "clock.work(10)", "b": late}
    result = timed(FakeClock(), bodies, names=names, number=2, repeat=20)
    assert result.details["warmup_calls"][1] == 40, "the change comes in the rounds"
    assert len(result.samples) == 40
    assert result.call_times(1).min() > 30e-6


@pytest.mark.usefixtures("in_a_folder")
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


@pytest.mark.usefixtures("in_a_folder")
def test_threads_that_setup_sets_are_those_of_the_rows() -> None:
    result = timed(
        FakeClock(), {"": "clock.work(10)"}, setup=["torch.set_num_threads(1)"], names={"torch": torch}, threads=None
    )
    assert result.frame["num_threads"].tolist() == [1]


@pytest.mark.usefixtures("in_a_folder")
def test_a_lone_statement_is_labelled_too() -> None:
    body = "torch.set_grad_enabled(False)\nclock.work(10)"
    result = timed(FakeClock(), {"": body}, names={"torch": torch})
    (doubt,) = [d for d in result.warnings if d.kind == "changes-state"]
    assert str(doubt).startswith("The code runs with grad mode off")
    assert result.subjects[0].state == ("grad mode off",)
    assert torch.is_grad_enabled()


@pytest.mark.usefixtures("in_a_folder")
def test_rows_that_ran_with_another_setting_say_so_in_the_table() -> None:
    body = "torch.set_grad_enabled(False)\nclock.work(10)"
    text = str(timed(FakeClock(), {"a": "clock.work(10)", "b": body}, names={"torch": torch}))
    assert "ran with" in text
    (row,) = [line for line in text.splitlines() if line.split()[:1] == ["b"] and line.endswith("same")]
    assert "grad mode off" in row


@pytest.mark.usefixtures("in_a_folder")
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


def test_where_one_alternative_leaves_gradients_and_another_one_none_each_finds_its_own() -> None:
    w, other = torch.ones(3, requires_grad=True), torch.ones(2, requires_grad=True)
    found: dict[str, list[bool]] = {"adds": [], "makes": []}
    step = "found[{!r}].append(w.grad is None); clock.work(10); ((w * w).sum() + other.sum()).backward()"
    bodies = {"adds": step.format("adds"), "makes": step.format("makes") + "; w.grad = None"}
    result = timed(FakeClock(), bodies, names={**NAMES, "w": w, "other": other, "found": found}, number=1, repeat=20)
    assert found["adds"] == [True] + [False] * (len(found["adds"]) - 1)
    assert found["makes"] == [True] * (len(found["makes"]) - 1) + [False], "which looks what is done with some"
    assert other.grad is not None, "which both leave is shared, and stays"
    assert [d.kind for d in result.warnings if d.kind.startswith(("changes", "used-up"))] == []


@pytest.mark.parametrize(
    "makes",
    [
        torch.optim.SGD,
        torch.optim.Adam,
        functools.partial(torch.optim.SGD, momentum=0.9, weight_decay=0.5),
        functools.partial(torch.optim.AdamW, weight_decay=0.5),
    ],
)
@pytest.mark.parametrize("is_trained", [False, True])
def test_an_optimizer_that_finds_none_of_the_gradients_of_another_alternative_has_no_verdict(
    makes: Any, is_trained: bool
) -> None:
    w = torch.ones(3, requires_grad=True)
    opt = makes([w], lr=0.1)
    if is_trained:  # a step moves parameters without gradients from now on
        w.sum().backward()
        opt.step()
        opt.zero_grad()
    before, state = w.tolist(), copy.deepcopy(opt.state_dict())
    names = {**NAMES, "w": w, "opt": opt}
    bodies = {"backward": "clock.work(10); w.sum().backward()", "step": "clock.work(1); opt.step(); opt.zero_grad()"}
    bodies["forward"] = "clock.work(5); w.sum()"
    result = timed(FakeClock(), bodies, names=names, number=1, repeat=20)
    said = [d.text for d in result.warnings if d.kind == "used-up"]
    assert len(said) == 1, said
    assert "Calls of `step` found no gradients" in said[0]
    assert result.frame["verdict"].tolist()[:2] == ["baseline", "undecided"]
    assert result.frame["verdict"].tolist()[2] == "faster"
    assert w.tolist() == before, "zeros stood for them, and the step was put back"
    assert repr(opt.state_dict()) == repr(state)
    if not is_trained:  # then no call of the timing changed it
        assert [d.kind for d in result.warnings if d.kind == "in-place" and "`w`" in d.text] == []
    assert not w._post_accumulate_grad_hooks, "and no hook is left"


@pytest.mark.usefixtures("in_a_folder")
@pytest.mark.slow
def test_check_runs_each_alternative_with_the_settings_as_they_were() -> None:
    names = {"torch": torch, "random": random, "x": torch.ones(2)}
    bodies = {"a": "torch.set_default_dtype(torch.float64); clock.work(10); (x * random.random(), torch.rand(2))"}
    bodies["b"] = bodies["a"].replace("torch.set_default_dtype(torch.float64)", "None")
    bodies["a"] = bodies["a"].replace("torch.rand(2)", "torch.rand(2).double()")
    bodies["b"] = bodies["b"].replace("torch.rand(2)", "torch.rand(2).double()")
    bodies = {"b": bodies["b"], "c": bodies["b"].replace("x *", "1 * x *")}
    assert timed(FakeClock(), bodies, names=names, check=True, number=1, repeat=2) is not None


@pytest.mark.usefixtures("in_a_folder")
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


@pytest.mark.usefixtures("in_a_folder")
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


@pytest.mark.usefixtures("in_a_folder")
def test_the_collector_is_off_unless_it_is_asked_for_or_setup_switches_it_on() -> None:
    assert gc.isenabled()
    assert _collecting()[0] is False
    for given in ({"gc": True}, {"setup": ["gc.enable()"]}):
        is_on, result = _collecting(**given)
        assert is_on
        assert "ran with garbage collector on" in str(result)
    assert _collecting(setup=["gc.disable()"])[0] is False
    assert gc.isenabled()


# ==== shared state ====================================================================================================
# Switches of a shared object that one alternative sets and another one runs with.


SWITCHES = ("shared", "global")


class Config:
    def __init__(self) -> None:
        self.fast, self.calls = False, 0


def run(bodies: dict[str, str], **names: Any) -> Comparison:
    ticking = {name: f"{body}\nclock.work({10 * (at + 1)})" for at, (name, body) in enumerate(bodies.items())}
    return timed(FakeClock(), ticking, names={"torch": torch, **names}, min_run_time=0.01)


def shared(result: Comparison) -> list[str]:
    return [str(d.facts["name"]) for d in result.warnings if d.kind == "used-up" and d.facts["how"] in SWITCHES]


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


@pytest.mark.parametrize(
    "bodies",
    [
        {"infer": "one.eval(); one(x)", "train": "one.train(); one(x)"},  # each sets the switch
        {"a": "one.eval(); one(x); config.calls += 1", "b": "two(x); config.calls += 1"},  # one's own, a counter
    ],
)
def test_alternatives_that_share_no_switch_are_compared(bodies: dict[str, str]) -> None:
    result = run(bodies, one=drop(), two=drop(), x=torch.ones(2, 2), config=Config())
    assert not shared(result)
    assert result.frame["verdict"].tolist() == ["baseline", "slower"]


class Plain:
    """One that holds what it is given."""

    def __init__(self, **given: Any) -> None:
        self.__dict__ |= given


@dataclasses.dataclass(slots=True)
class Slotted:
    fast: bool = False


def module(text: str = "FAST = False") -> types.ModuleType:
    """A module of the user's own."""
    made = types.ModuleType("mymod")
    exec(text, vars(made))
    return made


def functions(text: str, **given: Any) -> dict[str, Any]:
    """What a cell that defines functions and classes leaves in the notebook."""
    home: dict[str, Any] = {"__name__": "__main__", "torch": torch, **given}
    exec(compile(text, "<cell>", "exec"), home)
    return {name: value for name, value in home.items() if not name.startswith("__")}


CLASS = "class Cfg:\n    fast = False\n    n = 1\n"
GLOBAL = "MODE = 'a'\ndef put():\n    global MODE\n    MODE = 'x'\ndef work():\n    return MODE\n"
NESTED = (
    "class A: pass\nt = A(); t.cfg = A(); t.cfg.o = A(); t.cfg.o.fast = False\ndef work():\n    return t.cfg.o.fast\n"
)
CELLS = (
    "def make():\n    fast = False\n    def put():\n        nonlocal fast\n        fast = True\n    def work():\n"
    "        return fast\n    return put, work\nput, work = make()\n"
)
MODEL = "class Model:\n    fast = False\n    def __call__(self):\n        return self.fast\nmodel = Model()\n"


@pytest.mark.parametrize(
    ("cell", "bodies", "said"),
    [
        (CLASS + "def work(): return Cfg.fast", ("work()", "Cfg.fast = True; work()"), ("global", "Cfg.fast")),
        (CLASS, ("Cfg.fast", "Cfg.fast = True"), ("global", "Cfg.fast")),
        (CLASS + "def work(): return Cfg.n", ("work()", "Cfg.n = 64; work()"), ("global", "Cfg.n")),
        (MODEL, ("model()", "Model.fast = True; model()"), ("global", "Model.fast")),
        (MODEL, ("model()", "model.fast = True; model()"), ("shared", "model.fast")),
        (GLOBAL, ("work()", "put(); work()"), ("global", "MODE")),
        (GLOBAL, ("put(); work()", "work()"), ("global", "MODE")),
        (CELLS, ("work()", "put(); work()"), ("global", "fast")),
        (NESTED, ("work()", "t.cfg.o.fast = True; work()"), ("shared", "t.cfg.o.fast")),
        (NESTED, ("t.cfg.o.fast", "t.cfg.o.fast = True"), ("shared", "t.cfg.o.fast")),
        ("opts = {}\ndef work(): return opts.get('k')", ("work()", "opts['k'] = 'x'; work()"), ("shared", "opts['k']")),
        ("def work(): return work.fast\nwork.fast = False", ("work()", "work.fast = True"), ("global", "work.fast")),
    ],
)
def test_what_is_set_on_classes_variables_and_nested_objects_is_said_too(
    cell: str, bodies: tuple[str, str], said: tuple[str, str]
) -> None:
    result = run(dict(zip("ab", bodies, strict=True)), **functions(cell))
    assert [(d.facts["how"], d.facts["name"]) for d in result.warnings if d.kind == "used-up"] == [said]
    assert "undecided" in result.frame["verdict"].tolist()
    action = next(d.action for d in result.warnings if d.kind == "used-up")
    assert ("deepcopy" in action) is (said[0] == "shared")  # of a class there is one


@pytest.mark.parametrize(
    ("bodies", "said"),
    [
        (("mymod.FAST", "mymod.FAST = True"), "mymod.FAST"),
        (("mymod.FAST", "mymod.FAST = 1"), "mymod.FAST"),
        (("mymod.work()", "mymod.put()"), "mymod.FAST"),
        (("mymod.sub.work()", "mymod.sub.FAST = True"), "mymod.sub.FAST"),
        (("use()", "mymod.sub.work = print"), "mymod.sub.work"),
    ],
)
def test_what_is_set_in_a_module_of_ones_own_is_said_too(bodies: tuple[str, str], said: str) -> None:
    text = "FAST = False\ndef work():\n    return FAST\ndef put():\n    global FAST\n    FAST = True\n"
    mymod = module(text)
    vars(mymod)["sub"] = module(text)
    names = functions("def use(): mymod.sub.work()", mymod=mymod)
    assert shared(run(dict(zip("ab", bodies, strict=True)), **names)) == [said]


def test_of_a_library_only_what_a_text_assigns_by_its_whole_name_is_looked_at(monkeypatch: Any) -> None:
    functional = torch.nn.functional
    monkeypatch.setattr(functional, "relu", functional.relu)
    monkeypatch.setattr(torch.nn.ReLU, "mode", "a", raising=False)
    names = {"F": functional, "x": torch.ones(2), "mine": lambda x, inplace=False: x}
    bodies = {"a": "torch.nn.ReLU()(x)", "b": "F.relu = mine; torch.nn.ReLU()(x)"}
    assert shared(run(bodies, **names)) == ["F.relu"]
    assert shared(run({"a": "x", "b": "torch.nn.ReLU.mode = 'b'"}, x=1)) == ["ReLU.mode"]
    config = argparse.ArgumentParser("a")
    assert shared(run({"a": "config", "b": "config.prog = 'b'"}, config=config)) == ["config.prog"]
    assert not shared(run({"a": "1", "b": "config.prog = 'c'"}, config=config))


def test_slots_and_plain_holders_are_looked_at() -> None:
    for holder in (Slotted(), types.SimpleNamespace(fast=False), argparse.Namespace(fast=False), Plain(fast=False)):
        assert shared(run({"a": "o.fast", "b": "o.fast = True"}, o=holder)) == ["o.fast"]


def test_the_slot_of_a_derived_class_is_the_one_that_is_looked_at() -> None:
    cell = (
        "class Base: __slots__ = ('fast',)\n"
        "class Mine(Base):\n    __slots__ = ('fast', 'other')\n"  # another slot, and one that is never set
        "o = Mine(); o.fast = False"
    )
    names = functions(cell)
    assert shared(run({"a": "o.fast", "b": "o.fast = True"}, **names)) == ["o.fast"]


def test_tensors_that_require_gradients_or_are_laid_out_in_another_order_are_said() -> None:
    result = run({"a": "x * 2", "b": "x.requires_grad_() * 2"}, x=torch.ones(3))
    assert shared(result) == ["x.requires_grad"]
    net, x = torch.nn.Conv2d(4, 4, 3), torch.ones(1, 4, 8, 8)
    result = run({"plain": "net(x)", "cl": "net.to(memory_format=torch.channels_last)(x)"}, net=net, x=x)
    assert shared(result) == ["net.weight.stride()"]


def test_a_flag_that_changes_after_the_warm_up_is_said() -> None:
    names = {"o": Plain(fast=False), "calls": []}
    result = run({"a": "o.fast", "b": "calls.append(1)\no.fast = len(calls) > 900"}, **names)
    assert len(names["calls"]) > 901
    assert shared(result) == ["o.fast"]


LAZY = (
    "class Model:\n    ready = False\n    scale = None\n    def __call__(self):\n        if not self.ready:\n"
    "            self.ready, self.scale = True, 0.5\n        return self.scale\nmodel = Model()\n"
)
WORK = (
    "class Work:\n    total = 0\n    flip = False\n    last = 0\n    def __call__(self, n=1):\n"
    "        self.total += n\n        Work.total += n\n        self.flip = not self.flip\n        self.last = n\n"
    "        self.text = f'step {self.total}'\n        return self.total\nwork = Work()\n"
)


@pytest.mark.parametrize(
    ("cell", "bodies"),
    [
        (LAZY, ("model()", "model(); model()")),  # each would make it
        (WORK, ("work()", "work(2)")),  # counters, states
        ("n = 0\ndef count():\n    global n\n    n += 1\ndef read(): return n", ("read()", "count()")),
        ("seen = []\nhooks = {}\ndef f(): return seen, hooks", ("f()", "f(); seen.append('x'); hooks['a'] = f")),
        ("class A: pass\na = A(); b = A()", ("a.fast = True", "b.fast = False")),
        (CLASS, ("Cfg.fast = True", "Cfg.fast = False")),
        (CLASS, ("Cfg.fast = False", "Cfg.fast = True")),  # which setup left so
        (CLASS, ("Cfg.fast = True", "Cfg.fast = True; Cfg.fast")),
        (CLASS, ("Cfg.fast", "Cfg.fast = True; Cfg.fast; Cfg.fast = False")),
        (GLOBAL, ("MODE = 'b'; work()", "MODE = 'c'; work()")),  # names are put back
        ("m = torch.nn.BatchNorm1d(3); x = torch.ones(4, 3)", ("m(x)", "m(x); m(x)")),
        ("m = torch.nn.Linear(3, 3); m.eval(); x = torch.ones(4, 3)", ("m.eval()(x)", "m.eval()(x); m(x)")),
        ("m = torch.nn.Linear(3, 3)", ("m.eval()", "m.eval(); m.eval()")),
    ],
)
def test_what_is_work_or_each_ones_own_is_no_switch(cell: str, bodies: tuple[str, str]) -> None:
    assert not shared(run(dict(zip("ab", bodies, strict=True)), **functions(cell)))


def test_a_switch_that_both_set_is_none_even_where_the_first_one_left_it_set() -> None:
    """The second finds it set: only a call from the setup's value tells that it sets it too."""
    names = functions(LAZY)
    result = run({"a": "model()", "b": "model()", "c": "model(); model()"}, **names)
    assert not shared(result)
    assert names["model"].ready is True


def test_a_call_that_is_only_tried_may_fail() -> None:
    cell = (
        "class Model:\n    ready = False\n    made = 0\n    def __call__(self):\n        if not self.ready:\n"
        "            if Model.made: raise RuntimeError('registered twice')\n            Model.made = 1\n"
        "            self.ready = True\nmodel = Model()\n"
    )
    names = functions(cell)
    assert len(run({"a": "model()", "b": "model(); model()"}, **names).frame) == 2
    assert names["model"].ready is True


def test_checking_the_results_first_hides_nothing() -> None:
    names = functions(CLASS + "def work(): return Cfg.fast and None")
    bodies = {"a": "clock.work(10)\nwork()\n1", "b": "clock.work(20)\nCfg.fast = True\n1"}
    assert shared(timed(FakeClock(), bodies, names=names, min_run_time=0.01, check=True)) == ["Cfg.fast"]


def test_looking_runs_no_code_of_the_users() -> None:
    ran: list[str] = []

    class Meta(type):
        def __getattribute__(cls, name: str) -> Any:
            if not name.startswith("__"):
                ran.append(name)
            return super().__getattribute__(name)

    class Asks(metaclass=Meta):
        fast = False

        @property
        def slow(self) -> bool:
            ran.append("slow")
            return False

        def __getattr__(self, name: str) -> Any:
            ran.append(name)
            raise AttributeError(name)

        def __eq__(self, other: object) -> bool:
            ran.append("==")
            return False

        __hash__ = None  # type: ignore[assignment]

    names = {"o": Asks(), "Asks": Asks, "held": {"a": Asks()}}
    run({"a": "o; Asks; held", "b": "o; Asks; held; 'slow fast'"}, **names)
    assert ran == []
