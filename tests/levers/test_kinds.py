"""``--try`` where something is in its way: no compiler, one that is switched off or full, memory, an accelerator."""

from __future__ import annotations

import ast
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from torchbench_magic.levers import trial
from torchbench_magic.levers.kinds import DoesNotApply, Site
from torchbench_magic.levers.trial import levers_asked
from torchbench_magic.process import device
from torchbench_magic.process.dynamo_internals import compiled_of
from torchbench_magic.timing.levers_view import recommended

from .test_trial import in_names, reasons, row, tried

FUNCTION = "x = torch.ones(2)\ndef f(x, n=0): return x + n"


# ---- the compiler ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"])
def test_a_compiler_that_the_environment_switches_off_is_said_with_the_variable(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "1")
    result = tried("f(x)", "compile", setup=FUNCTION)
    assert result.frame["description"].tolist() == ["as it is"]
    assert reasons(result)["compile"] == f"torch.compile is disabled here ({name}=1)"


def test_a_compiler_that_torchs_own_setting_switches_off_is_said(compiled_anew: None) -> None:
    with torch._dynamo.config.patch(disable=True):
        result = tried("f(x)", "compile", setup=FUNCTION)
    assert reasons(result)["compile"] == "torch.compile is disabled here (torch._dynamo.config.disable)"


ADD = "class Add(nn.Module):\n    def forward(self, x, n=0): return x + n\nadd, x = Add(), torch.ones(2)"
BROKEN = ADD.replace("return x + n", "torch._dynamo.graph_break(); return x + n")


def named(setup: str) -> dict[str, Any]:
    names: dict[str, Any] = {"torch": torch, "nn": nn, "__name__": "__main__"}
    exec(setup, names)
    return names


def test_a_module_with_as_many_compilations_as_may_be_is_compiled_for_the_trial_alone(compiled_eagerly: None) -> None:
    """The compiler keeps what it compiled by the code of ``forward``, whoever asks for it: that of the user's stays."""
    names = named(ADD)
    code = names["Add"].forward.__code__
    with torch._dynamo.config.patch(recompile_limit=2):
        compiled: Any = torch.compile(names["add"])
        for n in range(1, 5):
            compiled(names["x"], n)
        before = compiled_of(code)
        result = in_names(names, "add(x, 9)", "compile")
        assert compiled_of(code) == before
    assert row(result, "compile")["result"] == "equal"
    assert len(before) == 2


@pytest.mark.compiler
@pytest.mark.parametrize("name", ["add", "chain"])
def test_a_second_trial_of_a_module_compiles_it_anew(name: str, compiled_eagerly: None) -> None:
    names = named(f"{ADD}\nchain = nn.Sequential(nn.Linear(2, 2), nn.ReLU())")
    for result in [in_names(names, f"{name}(x)", "compile") for _ in range(3)]:
        assert row(result, "compile")["compile_time"] >= 0
        assert row(result, "compile")["result"] == "equal"


def test_a_module_has_no_attribute_of_torchs_after_it_was_compiled(compiled_eagerly: None) -> None:
    names = named(ADD)
    before = set(vars(names["add"]))
    result = in_names(names, "add(x)", "compile")
    assert row(result, "compile")["compile_time"] >= 0
    assert set(vars(names["add"])) == before
    assert "_is_torch_compile" not in " ".join(doubt.text for doubt in result.warnings)


def test_code_behind_a_graph_break_that_was_compiled_before_is_said_to_be_used_again(compiled_eagerly: None) -> None:
    names = named(BROKEN)
    first, second = (in_names(names, "add(x)", "compile") for _ in range(2))
    assert row(first, "compile")["compile_time"] >= 0
    assert math.isnan(row(second, "compile")["compile_time"])
    assert "compiled earlier in this session" in second.subjects[1].trial.changed  # type: ignore[union-attr]
    with torch._dynamo.config.patch(recompile_limit=1):
        full = in_names(names, "add(x)", "compile")
    assert full.frame["description"].tolist() == ["as it is"]
    assert "its limit of compilations may be reached" in reasons(full)["compile"]


@pytest.mark.slow
def test_without_a_cpp_compiler_its_error_is_said_and_the_other_levers_are_timed(compiled_anew: None) -> None:
    inductor = pytest.importorskip("torch._inductor.config")
    settings = inductor.patch({"cpp.cxx": (None, "/nowhere/c++"), "fx_graph_cache": False, "compile_threads": 1})
    with settings, torch._functorch.config.patch(enable_autograd_cache=False):
        result = tried("f(x)", "compile", "inference_mode", setup="x = torch.ones(2)\ndef f(x): return x.sin() + 1")
    assert result.frame["description"].tolist() == ["as it is", "inference_mode"]
    assert reasons(result)["compile"].startswith("it raised InductorError: InvalidCxxCompiler")
    assert "\n" not in reasons(result)["compile"]


@pytest.mark.slow
def test_a_compilation_that_never_ends_is_ended_and_said(
    compiled_anew: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler unrolls a loop that has no end while it compiles; the other lever has all the time it needs."""

    class ShortWhereItCompiles:
        def update(self, done: float, total: float | None, what: str) -> None:
            monkeypatch.setattr(trial, "DEADLINE_S", 3.0 if "compil" in what else 120.0)

    setup = """
x = torch.ones(2)
def f(x):
    if torch.compiler.is_compiling():
        while True:
            x = x + 1
    return x.sin()
"""
    result = tried("f(x)", "compile", "inference_mode", setup=setup, progress=ShortWhereItCompiles())
    assert result.frame["description"].tolist() == ["as it is", "inference_mode"]
    assert reasons(result)["compile"] == "it did not end within 3 s and was stopped"


def test_a_cell_that_is_compiled_anew_in_each_call_has_no_time_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that counts a graph with each call."""
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    counted = iter(range(100))
    monkeypatch.setattr(trial, "graphs_compiled", lambda: next(counted))
    result = tried("f(x)", "compile", setup=FUNCTION)
    assert "compiled again in each of three calls" in reasons(result)["compile"]


# ---- memory ---------------------------------------------------------------------------------------------------


def test_a_lever_under_which_each_call_keeps_more_memory_is_not_recommended_and_said() -> None:
    setup = "w = torch.ones(3, requires_grad=True)\nkept = {'all': torch.ones(1)}"
    body = (
        "clock.work(10_000 if torch.is_grad_enabled() else 5_000)\n"
        "if not torch.is_grad_enabled(): kept['all'] = torch.cat([kept['all'], torch.ones(50)])\nw * 2"
    )
    result = tried(body, "no_grad", setup=setup)
    assert recommended(result) == []
    said = " ".join(doubt.text for doubt in result.warnings)
    assert "Each call of `no_grad` does more than the one before: `aten.cat` worked on 101 float32" in said


# ---- an accelerator, simulated --------------------------------------------------------------------------------


def site(**values: Any) -> Site:
    """A cell that reads tensors which say that they are on a GPU."""
    on_gpu = SimpleNamespace(device=SimpleNamespace(type="cuda"), dtype=torch.float32, requires_grad=True)
    return Site(
        names=values, home=values, used=frozenset(values), reads=values, functions=(), tree=ast.Module([], []),
        mentioned=frozenset(), tensors={"x": on_gpu},
    )  # fmt: skip


def test_on_an_accelerator_float16_is_tried_too_and_autocast_is_of_that_device() -> None:
    assert "fp16" in levers_asked((), site())
    on_cpu = Site({}, {}, frozenset(), {}, (), ast.Module([], []), frozenset())
    assert "fp16" not in levers_asked((), on_cpu)
    change = levers_asked(("bf16",), site())["bf16"](site())
    assert change.how == 'with torch.autocast("cuda", dtype=torch.bfloat16):'


def test_on_an_accelerator_an_optimizer_that_takes_foreach_by_itself_is_left_as_it_is() -> None:
    parameter = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adam([parameter])
    there = SimpleNamespace(device=SimpleNamespace(type="cuda"))
    optimizer.param_groups[0]["params"] = [there]
    foreach = levers_asked(("foreach",), site())["foreach"]
    with pytest.raises(DoesNotApply, match="already uses foreach by default on this device"):
        foreach(site(opt=optimizer))


def test_work_that_is_only_queued_is_waited_for_under_each_lever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that does its work while it is waited for: 8 ms a call as it is, 2 ms without gradients."""
    from tests.timing.fake_clock import FakeClock

    clock = FakeClock()
    queued: list[float] = []

    def wait() -> None:
        clock.work(sum(queued))
        queued.clear()

    monkeypatch.setattr(device, "choose_device", lambda asked, read: "fake:0")
    monkeypatch.setattr(device, "synchronizer", lambda asked: wait)
    names = {"torch": torch, "clock": clock, "queued": queued, "w": torch.ones(3, requires_grad=True)}
    body = "clock.work(1_000)\nqueued.append(8_000 if torch.is_grad_enabled() else 2_000)\nw * 2"
    result = in_names(names, body, "no_grad", is_fake=True, number=4)
    assert row(result, "as it is")["median"] == pytest.approx(9e-3)
    assert row(result, "no_grad")["ratio"] == pytest.approx(3 / 9)


def test_tensors_that_hold_no_numbers_are_not_said_to_be_the_same() -> None:
    setup = "x = torch.ones(4, device='meta')\nw = torch.ones(4, device='meta', requires_grad=True)"
    result = tried("clock.work(10_000 if torch.is_grad_enabled() else 5_000)\nx * w", "no_grad", "bf16", setup=setup)
    assert row(result, "no_grad")["verdict"] == "faster"
    assert recommended(result) == []
    assert "not compared" in " ".join(repr(result).split())
