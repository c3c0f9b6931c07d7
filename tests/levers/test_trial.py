"""``--try``: which levers apply, what they do to a copy of the names, and what a script may ask."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import pandas as pd
import pytest
import torch
from torch import nn

from tests.every_case import every_case
from tests.timing.fake_clock import FakeClock
from torchbench_magic import Comparison, compare, load
from torchbench_magic.cell_body import Body
from torchbench_magic.errors import BodyError, OptionError
from torchbench_magic.levers import trial
from torchbench_magic.levers.kinds import Change, DoesNotApply, Site
from torchbench_magic.levers.trial import check_levers, try_levers
from torchbench_magic.process.contention import Clocks
from torchbench_magic.result_base import Cure, Insight
from torchbench_magic.show.document import plain
from torchbench_magic.timing.levers_view import recommended
from torchbench_magic.timing.plan import Plan
from torchbench_magic.timing.samples import with_compiling
from torchbench_magic.timing.task import Task
from torchbench_magic.timing.view import document

# ==== trying ==========================================================================================================


TRAINING = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 8))
opt = torch.optim.Adam(model.parameters(), lr=0.1)
x = torch.randn(4, 8)
def step():
    opt.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    opt.step()
    return loss
"""


WEIGHT = "w = torch.ones(3, requires_grad=True)"


def tried(body: str, *levers: str, setup: str = "", **plan: Any) -> Comparison:
    """The body under the levers; where it does ``clock.work`` by a clock that nothing else moves."""
    names: dict[str, Any] = {"torch": torch, "nn": nn, "__name__": "__main__"}
    exec(compile(setup, "<cell>", "exec"), names)
    return in_names(names, body, *levers, is_fake="clock.work" in body, **plan)


def in_names(
    names: dict[str, Any], body: str, *levers: str, is_fake: bool = False, progress: Any = None, **plan: Any
) -> Comparison:
    names.setdefault("clock", FakeClock())
    given = {"threads": (1,), "seed": 0, "number": 1, "repeat": 9, **plan}
    clocks = names["clock"].clocks if is_fake else Clocks()
    task = Task({"s": Body(body, "<s>")}, namespace=names, plan=Plan(levers=levers, **given), clocks=clocks)
    return try_levers(task if progress is None else replace(task, progress=progress))


def row(result: Comparison, name: str) -> Any:
    return result.frame.set_index("description").loc[name]


def reasons(result: Comparison) -> dict[str, str]:
    found: dict[str, str] = {}
    for doubt in result.warnings:
        if doubt.kind == "lever":
            one = doubt.facts.get("reasons") or {doubt.facts["name"]: doubt.facts["reason"]}
            found.update(one)  # type: ignore[call-overload]
    return found


# ---- what a lever costs by itself ------------------------------------------------------------------------------


class Machine(FakeClock):
    """A call takes 100 us; 20 more after something was entered, or grad mode switched off."""

    __module__ = "time"
    is_cold, had_grad = False, True

    def call(self) -> None:
        self.work(120 if self.is_cold or self.had_grad > torch.is_grad_enabled() else 100)
        self.is_cold, self.had_grad = False, torch.is_grad_enabled()

    @contextmanager
    def entered(self, *given: Any) -> Iterator[None]:
        self.work(30)
        self.is_cold = True
        yield


def under(machine: Machine, to_do: Change, monkeypatch: pytest.MonkeyPatch, **plan: Any) -> Any:
    monkeypatch.setitem(trial.LEVERS, "changing", lambda site: to_do)
    names: dict[str, Any] = {"clock": machine, "torch": torch, "__name__": "__main__"}
    given = {"number": None, "repeat": None, "min_run_time": 0.05, **plan}
    return row(in_names(names, "clock.call()", "changing", is_fake=True, **given), "changing")


@pytest.mark.parametrize("number", [None, 1, 2, 50])
def test_what_switches_a_lever_on_and_what_that_leaves_cold_is_not_timed(
    number: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine()
    for to_do in (Change(around=machine.entered), Change(before=partial(torch.set_grad_enabled, False))):
        found = under(machine, to_do, monkeypatch, number=number)
        assert found[["ratio", "verdict"]].tolist() == [1, "same"]
    assert torch.is_grad_enabled()


def test_no_output_is_dropped_around_single_blocks_of_a_lever(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    monkeypatch.setattr(trial, "dropped_output", machine.entered)
    assert under(machine, Change(), monkeypatch)[["ratio", "verdict"]].tolist() == [1, "same"]


def test_grad_modes_are_entered_once_a_block_and_autocast_in_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    for lever, ratio in (("inference_mode", 1), ("no_grad", 1), ("bf16", 1.5)):
        machine = Machine()
        mode = {"bf16": "autocast"}.get(lever, lever)
        monkeypatch.setattr(torch, mode, lambda *given, machine=machine, **more: machine.entered())
        names: dict[str, Any] = {"clock": machine, "w": torch.ones(3, requires_grad=True), "__name__": "__main__"}
        result = in_names(names, "w\nclock.call()", lever, is_fake=True, number=8)
        monkeypatch.undo()
        assert row(result, lever)["ratio"] == pytest.approx(ratio)


# ---- ratios, results ------------------------------------------------------------------------------------------


def test_a_lever_that_halves_the_time_with_an_equal_result_is_recommended() -> None:
    result = tried("clock.work(10_000 if torch.is_grad_enabled() else 5_000)\nw * 2", "no_grad", setup=WEIGHT)
    assert result.frame["description"].tolist() == ["as it is", "no_grad"]
    assert row(result, "no_grad")["ratio"] == pytest.approx(0.5)
    assert row(result, "no_grad")[["verdict", "result"]].tolist() == ["faster", "equal"]
    assert row(result, "no_grad")["max_difference"] == 0
    assert recommended(result) == ["no_grad"]
    assert "no_grad makes it 2.00 times as fast" in " ".join(repr(result).split())
    assert "with the same result" in " ".join(repr(result).split())


def test_a_lever_of_slow_code_has_the_rounds_that_its_verdict_needs_or_ends_in_good_time() -> None:
    body = "clock.work(900_000 if torch.is_grad_enabled() else {})\nw * 2"
    for under, rounds in ((500_000, 6), (9_000, 5)):
        result = tried(body.format(under), "no_grad", setup=WEIGHT, number=None, repeat=None, min_run_time=0.2)
        assert row(result, "no_grad")["verdict"] == "faster"
        assert result.frame["samples"].tolist() == [rounds, rounds]
    body = "clock.work(11e6 if torch.is_grad_enabled() else 10e6)\nw * 2"
    result = tried(body, "no_grad", setup=WEIGHT, number=None, repeat=None, min_run_time=0.2)
    assert row(result, "no_grad")["verdict"] == "undecided"
    assert result.frame["samples"].tolist() == [1, 1]


def test_a_lever_whose_result_differs_is_never_recommended_however_fast() -> None:
    body = "clock.work(10_000 if torch.is_grad_enabled() else 1_000)\nw * (2 if torch.is_grad_enabled() else 2.5)"
    result = tried(body, "no_grad", setup=WEIGHT)
    assert row(result, "no_grad")[["verdict", "result"]].tolist() == ["faster", "differs"]
    assert row(result, "no_grad")["max_difference"] == pytest.approx(0.5)
    assert recommended(result) == []
    assert "no lever makes it faster with the same result" in " ".join(repr(result).split())
    assert "its result differs (by up to 0.50)" in " ".join(repr(result).split())


def test_what_a_variable_was_bound_to_is_compared_where_there_is_no_last_expression() -> None:
    same = tried("y = w * 2", "no_grad", setup=WEIGHT)
    other = tried("y = w * (2 if torch.is_grad_enabled() else 3)", "no_grad", setup=WEIGHT)
    assert [row(one, "no_grad")["result"] for one in (same, other)] == ["equal", "differs"]


def test_a_result_of_unknown_kind_is_not_said_to_be_the_same() -> None:
    setup = "class Thing: pass\nw = torch.ones(3, requires_grad=True)"
    result = tried("clock.work(10_000 if torch.is_grad_enabled() else 5_000); w\nThing()", "no_grad", setup=setup)
    assert row(result, "no_grad")["verdict"] == "faster"
    assert row(result, "no_grad")["result"] is not None
    assert not isinstance(row(result, "no_grad")["result"], str)
    assert recommended(result) == []


def test_a_lower_precision_is_held_against_its_own_tolerance() -> None:
    setup = "m = nn.Linear(4, 4)\nm.weight.data.fill_(0.1); m.bias.data.zero_()\nx = torch.ones(2, 4)"
    result = tried("m(x)", "bf16", setup=setup)
    assert row(result, "bf16")["result"] == "close"
    assert 0 < row(result, "bf16")["max_difference"] < 0.01


def test_random_numbers_are_the_same_under_each_lever() -> None:
    result = tried("drop(x)", "inference_mode", setup="drop = nn.Dropout(0.5)\nx = torch.ones(1000)")
    assert row(result, "inference_mode")["result"] == "equal"


def test_numbers_that_may_have_been_drawn_in_another_order_are_said_where_a_result_differs() -> None:
    """48 elements that fall alike in both orders: once in 2 ** 40 runs."""
    setup = "conv = nn.Conv2d(3, 3, 1)\ndrop = nn.Dropout(0.5)\nx = torch.randn(1, 3, 4, 4)"
    for body, is_said in (("drop(conv(x))", True), ("conv(x) + drop(torch.zeros(4))", False), ("conv(x)", False)):
        result = tried(body, "channels_last", setup=setup)
        assert (row(result, "channels_last")["result"] == "differs") is is_said, body
        texts = [doubt.text for doubt in result.warnings if doubt.kind == "not-compared"]
        assert [("random" in text, "`channels_last`" in text) for text in texts] == [(True, True)] * is_said


def test_a_cell_that_does_not_repeat_itself_has_no_lever_recommended() -> None:
    setup = "import os\nw = torch.ones(1, requires_grad=True)"
    body = "clock.work(10_000 if torch.is_grad_enabled() else 5_000)\nw + int.from_bytes(os.urandom(6), 'big')"
    result = tried(body, "no_grad", setup=setup)
    assert "not-repeatable" in [doubt.kind for doubt in result.warnings]
    assert recommended(result) == []


# ---- state ----------------------------------------------------------------------------------------------------


def test_a_training_step_leaves_parameters_optimizer_buffers_and_random_numbers_as_they_were() -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(TRAINING, names)
    names["step"]()
    before = {key: value.clone() for key, value in names["model"].state_dict().items()}
    moments = [{k: v.clone() for k, v in s.items()} for s in names["opt"].state.values()]
    generator = torch.get_rng_state()
    result = in_names(names, "step()", "fused-optimizer", "foreach", "threads:2")
    assert all(torch.equal(names["model"].state_dict()[key], value) for key, value in before.items())
    after = [dict(state) for state in names["opt"].state.values()]
    assert all(torch.equal(one[k], two[k]) for one, two in zip(moments, after, strict=True) for k in one)
    assert torch.equal(torch.get_rng_state(), generator)
    assert set(result.frame["result"].iloc[1:]) <= {"equal", "close"}
    assert result.options["restore"] is True


def test_each_block_begins_from_the_same_state() -> None:
    """A slower one after each call that found the state of another: only the state as it was takes 3 ms."""
    setup = "p = torch.zeros(1)"
    result = tried("clock.work(3_000 + 100_000 * float(p))\np += 1", "inference_mode", "threads:2", setup=setup)
    assert result.frame["median"].tolist() == pytest.approx([3e-3] * 3)


def test_an_optimizer_that_does_not_train_under_a_lever_is_found_out() -> None:
    setup = """
p = nn.Parameter(torch.ones(2))
class Half(torch.optim.SGD):
    def step(self):
        if not self.param_groups[0]["foreach"]:
            super().step()
opt = Half([p], lr=0.1)
"""
    result = tried("opt.zero_grad()\np.sum().backward()\nopt.step()", "foreach", setup=setup)
    assert row(result, "foreach")["result"] == "differs"
    assert row(result, "foreach")["max_difference"] == pytest.approx(0.1)


def test_settings_of_the_process_are_as_they_were() -> None:
    before = (torch.get_num_threads(), torch.get_float32_matmul_precision(), torch.is_grad_enabled())
    tried("x @ x", "threads:2", "matmul-medium", "flush-denormal", "bf16", setup="x = torch.ones(3, 3)")
    assert (torch.get_num_threads(), torch.get_float32_matmul_precision(), torch.is_grad_enabled()) == before
    assert float(torch.tensor([1e-39]) * 1) > 0, "denormals are kept again"


# ---- what levers do -------------------------------------------------------------------------------------------


def test_a_lever_of_threads_runs_with_its_own_count() -> None:
    result = tried("clock.work(10_000 * torch.get_num_threads())", "threads:2")
    assert row(result, "threads:2")["ratio"] == pytest.approx(2)
    assert not [doubt for doubt in result.warnings if doubt.kind == "changes-threads"]


def test_functions_read_the_changed_names_and_the_notebook_keeps_its_own() -> None:
    names: dict[str, Any] = {"__name__": "__main__", "torch": torch}
    exec(
        "x = torch.ones(4, 3).t()\n"
        "def read(): clock.work(4_000 if x.is_contiguous() else 8_000); return x.sum()",
        names,
    )
    held = names["x"]
    result = in_names(names, "read()", "contiguous", is_fake=True)
    assert row(result, "contiguous")["ratio"] == pytest.approx(0.5)
    assert names["x"] is held
    assert not held.is_contiguous()


def test_a_method_that_reads_the_global_is_a_reason_not_to_apply() -> None:
    setup = "x = torch.ones(4, 3).t()\nclass Reader:\n    def read(self): return x.sum()\nreader = Reader()"
    result = tried("reader.read() + x.sum()", "contiguous", setup=setup)
    assert "cannot be made to read a copy" in reasons(result)["contiguous"]


def test_channels_last_copies_modules_and_inputs_and_says_where_the_conversion_is() -> None:
    setup = "model = nn.Conv2d(2, 2, 3)\nx = torch.ones(1, 2, 8, 8)\nflags = []"
    body = "clock.work(5_000 if model.weight.is_contiguous(memory_format=torch.channels_last) else 10_000)\nmodel(x)"
    result = tried(body, "channels_last", setup=setup)
    assert row(result, "channels_last")["ratio"] == pytest.approx(0.5)
    assert "converted once, before the timing" in " ".join(repr(result).split())


DO_NOT_APPLY = [
    ("no_grad", "x = torch.ones(2)", "x + 1", "nothing that the cell reads requires a gradient"),
    ("no_grad", TRAINING, "step()", "computes gradients"),
    ("compile", "x = torch.ones(2)", "x + 1", "no module or function"),
    ("channels_last", "x = torch.ones(2)", "x + 1", "no module with a 2-d convolution"),
    ("fused-optimizer", "x = torch.ones(2)", "x + 1", "no optimizer"),
    ("foreach", "opt = torch.optim.SGD([torch.ones(1)], foreach=True)", "opt.step()", "foreach=True already"),
    ("contiguous", "x = torch.ones(2)", "x + 1", "is contiguous"),
    ("bf16", "x = torch.ones(2).int()", "x + 1", "no float32"),
    ("fp16", TRAINING, "step()", "GradScaler"),
    ("threads:1", "x = torch.ones(2)", "x + 1", "runs with 1 thread as it is"),
]


def test_a_lever_that_does_not_apply_is_no_row_but_a_doubt_with_its_reason() -> None:
    def check(lever: str, setup: str, body: str, why: str) -> None:
        result = tried(body, lever, setup=setup)
        assert result.frame["description"].tolist() == ["as it is"]
        assert why in reasons(result)[lever]

    every_case(DO_NOT_APPLY, check)


def test_all_levers_that_apply_are_tried_without_a_name() -> None:
    result = tried("x + 1", setup="x = torch.ones(2)")
    names = set(result.frame["description"]) | set(reasons(result))
    assert {"inference_mode", "no_grad", "compile", "bf16", "flush-denormal", "contiguous"} <= names
    assert len([doubt for doubt in result.warnings if doubt.kind == "lever"]) == 1


# ---- what goes wrong ------------------------------------------------------------------------------------------


def test_a_lever_under_which_the_cell_raises_is_a_doubt_and_the_others_are_timed() -> None:
    body = "assert not torch.is_inference_mode_enabled(), 'no'\nw * 2"
    result = tried(body, "inference_mode", "no_grad", setup="w = torch.ones(2, requires_grad=True)")
    assert reasons(result) == {"inference_mode": "it raised AssertionError: no"}
    assert result.frame["description"].tolist() == ["as it is", "no_grad"]


def test_what_a_lever_changes_out_of_its_sight_is_put_back_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its function is one of C's that hides the counter; the next lever finds the counter as the cell left it."""
    counts = {"calls": 0}

    def f(number: int) -> torch.Tensor:
        counts["calls"] += 1
        return torch.ones(2)

    seen: list[int] = []

    def hiding(site: Site) -> Change:
        return Change({"f": numpy.frompyfunc(f, 1, 1)})

    def looking(site: Site) -> Change:
        seen.append(counts["calls"])
        raise DoesNotApply("it only looks")

    levers = {"looking": looking, "hiding": hiding, "looking again": looking}
    monkeypatch.setattr(trial, "levers_asked", lambda names, site: levers)
    result = in_names({"f": f, "torch": torch}, "f(0)", "no_grad")
    assert "hiding" in result.frame["description"].tolist()
    assert seen == [0, 0]


def test_an_exception_of_the_cell_as_it_is_propagates() -> None:
    with pytest.raises(ZeroDivisionError):
        tried("1 / 0", "inference_mode")


def test_a_lever_that_never_ends_is_ended_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "DEADLINE_S", 0.2)
    handler, is_set = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)[0] > 0
    setup = "import time\nw = torch.ones(2, requires_grad=True)"
    result = tried("while not torch.is_grad_enabled(): time.sleep(0.01)\nw * 2", "no_grad", setup=setup)
    assert "did not end within" in reasons(result)["no_grad"]
    assert signal.getsignal(signal.SIGALRM) is handler
    assert (signal.getitimer(signal.ITIMER_REAL)[0] > 0) is is_set, "an alarm that was set goes on"


def test_ctrl_c_while_a_lever_is_tried_ends_the_run_and_puts_everything_back() -> None:
    names: dict[str, Any] = {"torch": torch, "w": torch.ones(2, requires_grad=True), "p": torch.zeros(1)}
    handler = signal.getsignal(signal.SIGALRM)
    with pytest.raises(KeyboardInterrupt):
        in_names(names, "p += 1\nif not torch.is_grad_enabled(): raise KeyboardInterrupt\nw * 2", "no_grad")
    assert float(names["p"]) == 0
    assert torch.is_grad_enabled()
    assert signal.getsignal(signal.SIGALRM) is handler


def test_output_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    result = tried("print('seen'); x + 1", "inference_mode", "threads:2", setup="x = torch.ones(2)")
    assert capsys.readouterr().out == "seen\n"
    assert "prints" in [doubt.kind for doubt in result.warnings]


def test_a_cell_that_may_write_files_is_said_to_run_several_times(tmp_path: Path) -> None:
    path = tmp_path / "log"
    setup = f"path = {str(path)!r}\nx = torch.ones(2)"
    result = tried("with open(path, 'a') as f: f.write('x')\nx + 1", "inference_mode", setup=setup)
    said = next(doubt for doubt in result.warnings if doubt.kind == "repeated-effects")
    assert "runs many times here" in said.text
    assert len(path.read_text()) > 2


def test_an_iterator_is_put_back_for_each_lever() -> None:
    setup = "it = iter(list(torch.arange(50.)))\nx = torch.ones(4, 3).t()"
    result = tried("next(it) + x.sum()", "inference_mode", "contiguous", setup=setup)
    assert row(result, "inference_mode")["result"] == "equal"
    assert row(result, "contiguous")["result"] in ("equal", "close")


def test_the_iterator_of_the_notebook_is_left_as_it_was() -> None:
    """Levers with names of their own, as of a copied optimizer, take from copies of their own, in timed calls too."""

    def check(iterator: str) -> None:
        names: dict[str, Any] = {"torch": torch, "w": torch.ones(2, requires_grad=True), "items": list(range(50))}
        names["opt"] = torch.optim.SGD([names["w"]], lr=0.1)
        names["it"] = eval(iterator, names)
        step = "next(it); opt.zero_grad(); loss = w.square().sum(); loss.backward(); opt.step()"
        result = in_names(names, step, "foreach", "no_grad", repeat=60)
        assert row(result, "foreach")["result"] in ("equal", "close"), reasons(result)
        assert sum(1 for _ in names["it"]) == 50

    every_case([("iter(items)",), ("zip(items, items)",), ("enumerate(items)",), ("map(abs, items)",)], check)


def test_compile_is_refused_where_the_environment_disables_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")
    result = tried("f(x)", "compile", setup="x = torch.ones(2)\ndef f(x): return x + 1")
    assert "TORCH_COMPILE_DISABLE=1" in reasons(result)["compile"]


def test_what_compiles_nothing_is_not_timed_as_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where dynamo's limit of compilations is reached: the code runs, and as it is."""
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    result = tried("f(x)", "compile", setup="x = torch.ones(2)\ndef f(x): return x + 1")
    assert "compiled nothing" in reasons(result)["compile"]


@pytest.mark.compiler
@pytest.mark.usefixtures("compiled_eagerly")
def test_that_the_compiler_gave_up_is_said_of_the_lever() -> None:
    setup = (
        "class Counts(nn.Module):\n    calls = 0\n    def forward(self, x):\n        self.calls += 1\n"
        "        return x * self.calls\nnet, x = Counts(), torch.ones(4)"
    )
    made = tried("for _ in range(12): net(x)", "compile", setup=setup)
    (doubt,) = (doubt for doubt in made.warnings if doubt.kind == "fell-back")
    assert doubt.text.startswith("`compile` contains code that is not compiled (")
    assert " reached" in doubt.text


def test_two_alternatives_a_sweep_and_several_thread_counts_are_refused() -> None:
    task = Task({"a": Body("1", "<a>"), "b": Body("2", "<b>")}, plan=Plan(levers=()))
    with pytest.raises(OptionError, match="leave the `# ---` sections out"):
        try_levers(task)
    with pytest.raises(OptionError, match="one thread count"):
        tried("1", threads=(1, 2))
    with pytest.raises(OptionError, match="does not go with --baseline"):
        tried("1", baseline="s")
    with pytest.raises(BodyError, match="cannot await"):
        tried("import asyncio\nawait asyncio.sleep(0)", "inference_mode")


# ---- results --------------------------------------------------------------------------------------------------


def test_a_stored_trial_is_read_back(tmp_path: Path) -> None:
    result = tried("w * 2", "no_grad", setup=WEIGHT)
    result.save(tmp_path / "runs.sqlite")
    again = load(tmp_path / "runs.sqlite")[-1]
    assert repr(again.subjects[1].trial) == repr(result.subjects[1].trial)
    assert row(again, "no_grad")["result"] == "equal"


def test_compare_tries_levers_on_one_statement_or_callable() -> None:
    w = torch.ones(3, requires_grad=True)
    text = compare({"s": "w * 2"}, globals={"w": w}, try_="no_grad", min_run_time=0.01, max_run_time=0.02)
    call = compare({"s": lambda: w * 2}, try_=["no_grad"], min_run_time=0.01, max_run_time=0.02)
    for result in (text, call):
        assert result.frame["description"].tolist() == ["as it is", "no_grad"]
        assert row(result, "no_grad")["result"] == "equal"
    with pytest.raises(OptionError, match="nearest is no_grad"):
        compare({"s": "w * 2"}, globals={"w": w}, try_="no-grads")


# ---- what a compiled function changes -------------------------------------------------------------------------

CHANGING = """
import torch
from torch import nn
x, lin, d, seen, buffer = torch.randn(4, 4), nn.Linear(4, 4), {"n": 0}, [], torch.zeros(3)
class Counted: calls = 0
one = Counted()
one.n = 0
def f(x):
    CHANGE
    return lin(x)
"""


CHANGES = ['d["n"] += 1', "one.n += 1", "Counted.calls += 1", "seen.append(1)", "buffer.add_(1)"]


def changed(change: str) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(CHANGING.replace("CHANGE", change), "<cell>", "exec"), names)
    result = in_names(names, "f(x)", "compile", "flush-denormal")
    assert [row(result, name)["result"] for name in ("compile", "flush-denormal")] == ["equal", "equal"]
    assert not [doubt for doubt in result.warnings if doubt.kind == "not-restored"]
    left = (names["d"], names["one"].n, names["Counted"].calls, names["seen"], names["buffer"].tolist())
    assert left == ({"n": 0}, 0, 0, [], [0, 0, 0])


@pytest.mark.compiler
@pytest.mark.usefixtures("compiled_eagerly")
def test_what_a_compiled_function_changes_is_put_back_and_held_against_no_lever() -> None:
    every_case(((change,) for change in CHANGES), changed)


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_anew")
def test_what_is_compiled_by_inductor_and_changes_is_put_back_too() -> None:
    every_case(((change,) for change in ('d["n"] += 1', "buffer.add_(1)")), changed)


def test_what_every_call_writes_is_put_back_and_no_result_that_the_first_call_kept() -> None:
    cell = (
        "stats = {'steps': 0}\nlog = []\nclass Net: calls = 0\nnet = Net()\nnet.n = 0\nnth = 0\n"
        "def step():\n    global nth\n    nth += 1\n    stats['steps'] += 1\n    log.append(1)\n    Net.calls += 1\n"
        "    net.n += 1\n    clock.work(10_000)\n    return 1.5"
    )
    names: dict[str, Any] = {"clock": FakeClock(), "__name__": "__main__"}
    exec(compile(cell, "<cell>", "exec"), names)
    result = in_names(names, "step()\nclock.work(1_000)", "flush-denormal", is_fake=True)
    assert not [doubt.text for doubt in result.warnings if doubt.kind == "used-up"]
    assert (names["stats"], names["log"], names["net"].n, names["nth"]) == ({"steps": 0}, [], 0, 0)


def test_of_a_cell_without_a_verdict_no_lever_pays() -> None:
    made = tried("x + 1", "flush-denormal", setup="x = torch.ones(3)")
    records = [{"verdict": "baseline", "median": 1e-9}, {"verdict": pd.NA, "median": 1e-9}]  # below the loop's own cost
    found, _ = with_compiling(records, made.subjects, lambda at: 0)
    assert math.isnan(found[1]["break_even"])


GENERATORS = [
    ("torch.Generator()", "torch.rand(2, generator=gen)", "gen.get_state()"),
    ("numpy.random.default_rng(0)", "torch.ones(2) * float(gen.random())", "gen.bit_generator.state['state']['state']"),
    ("numpy.random.RandomState(0)", "torch.ones(2) * float(gen.random())", "gen.get_state()[2]"),
    ("random.Random(0)", "torch.ones(2) * gen.random()", "gen.getstate()"),
]


def test_generators_of_the_cells_own_are_put_back_and_draw_the_same_in_each_call() -> None:
    def check(made: str, drawn: str, state: str) -> None:
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(f"import random, numpy, torch\ngen = {made}\ndef f(): return {drawn}", names)
        before = eval(state, names)
        result = in_names(names, "f()", "flush-denormal")
        assert row(result, "flush-denormal")["result"] == "equal"
        assert not [doubt for doubt in result.warnings if doubt.kind in ("not-repeatable", "not-restored")]
        after = eval(state, names)
        assert torch.equal(before, after) if isinstance(before, torch.Tensor) else before == after

    every_case(GENERATORS, check)


class Wrapping(torch.optim.Optimizer):
    """As `accelerate` and `Lookahead` wrap one: the groups are those of the optimizer within."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner, self.param_groups = inner, inner.param_groups

    def step(self, closure: Any = None) -> Any:
        return self.inner.step(closure)


def test_an_optimizer_that_wraps_another_is_not_said_to_be_tried() -> None:
    net = torch.nn.Linear(2, 2)
    names = {"net": net, "opt": Wrapping(torch.optim.AdamW(net.parameters())), "x": torch.ones(1, 2)}
    result = in_names(names, "net(x).sum().backward()\nopt.step()", "fused-optimizer")
    assert "`opt` wraps the optimizer that steps: try it on `opt.inner`, by a name" in str(result.warnings)


# ==== in a script =====================================================================================================
# ``compare(..., try_=...)`` and ``Insight.try_``: what cannot be tried is refused in the words of a script.


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "one statement with itself under levers, and here are 2: give one, and what runs before it as setup="),
        ({"stmts": {}}, "here are 0"),
        ({"stmts": {"a": "1"}, "processes": 2}, "try_ does not go with processes"),
        ({"stmts": {"a": "1"}, "engines": "x"}, "try_ does not go with engines"),
        ({"stmts": {"a": "1"}, "baseline": "a"}, "try_ does not go with baseline"),
        ({"stmts": {"a": "1"}, "threads": (1, 2)}, "give threads one number"),
        ({"stmts": {"a": "1"}, "try_": "comple"}, "try_: no lever is called 'comple'; the nearest is compile"),
        ({"stmts": {"a": "1"}, "try_": "bf-16"}, "the nearest is bf16"),
        ({"stmts": {"a": "1"}, "try_": "zzz"}, "use inference_mode"),
        ({"stmts": {"a": "1"}, "try_": "threads:0"}, "give a whole number of threads"),
        ({"stmts": {"a": "1"}, "try_": "compile:3,threads:x"}, "try_: compile takes no value"),
        ({"stmts": {"a": "1"}, "try_": ["threads:x"]}, "try_: 'threads:x': give a whole number of threads"),
        ({"stmts": {"a": "1"}, "try_": "bf16,bf16"}, "try_: a lever is given twice"),
    ],
)
def test_what_cannot_be_tried_is_told_without_the_syntax_of_a_cell(asked: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"stmts": {"a": "1", "b": "2"}, "try_": True}
    with pytest.raises(OptionError) as caught:
        compare(**(given | asked))
    assert said in str(caught.value)
    assert "--" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_cell_is_told_with_its_option() -> None:
    with pytest.raises(OptionError, match=r"^--try: bf16 takes no value, and 'bf16:8' has"):
        check_levers(["bf16:8"])
    with pytest.raises(OptionError, match=r"^--try: no lever is called 'zzz'"):
        tried("1", "zzz")


def test_a_lever_of_an_insight_that_is_none_is_told_so() -> None:
    insight = Insight("kind", seconds=1.0, share=0.5, text="It takes long.", cures=(Cure("Do.", lever="no_grad"),))
    with pytest.raises(OptionError, match=r"^try_: no lever is called 'zzz'"):
        insight.try_("zzz")


def test_one_that_does_not_apply_is_the_answer_with_the_reason() -> None:
    names = {"x": torch.ones(3)}
    made = compare({"s": "x * 2"}, globals=names, try_="channels_last", min_run_time=0.01, max_run_time=0.02)
    said = plain(document(made).sentence)
    assert said.startswith("channels_last was not timed: the cell reads no module with a 2-d convolution. as it is")
