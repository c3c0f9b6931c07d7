"""``%%timer --try`` and ``Insight.try_()`` in a shell."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from torchbench_magic.errors import Interrupted
from torchbench_magic.levers import trial
from torchbench_magic.notebook.option_parser import looks_like_levers, read_line
from torchbench_magic.notebook.options import TimerOptions
from torchbench_magic.result_base import Cure, Insight

Run = Callable[..., str]
SHORT = "-t 1 -n 2 -r 6"


@pytest.fixture
def ready(loaded: Any, run: Run) -> Any:
    run(loaded, "import torch\nw = torch.ones(20, requires_grad=True)\nx = torch.ones(20)")
    return loaded


@pytest.mark.parametrize(
    ("line", "levers", "rest"),
    [
        ("--try", (), ""),
        ("--try compile,bf16", ("compile", "bf16"), ""),
        ("--try=no_grad x.sum()", ("no_grad",), "x.sum()"),
        ("--try threads:2 x.sum()", ("threads:2",), "x.sum()"),
        ("--try x.sum()", (), "x.sum()"),
        ("--try f", (), "f"),
        ("--try -n 3 x", (), "x"),
        ("x", None, "x"),
    ],
)
def test_levers_are_told_from_the_statement_after_them(line: str, levers: object, rest: str) -> None:
    options, left = read_line(TimerOptions, "%timer", line)
    assert (options.levers, left.strip()) == (levers, rest)


def test_a_word_that_is_nearly_a_lever_is_taken_for_one() -> None:
    assert looks_like_levers("comple")
    assert looks_like_levers("bf16,other")
    assert not looks_like_levers("model(x)")
    assert not looks_like_levers("step")


def test_a_cell_is_tried_and_nothing_of_it_is_left_in_the_notebook(ready: Any, run: Run) -> None:
    before = set(ready.user_ns)
    shown = run(ready, f"%%timer {SHORT} --try no_grad,contiguous\ny = w * 2\ny + 1")
    assert "as it is" in shown
    assert "`contiguous` was not timed: every tensor" in str(ready.user_ns["_timer"].warnings)  # two are shown
    assert set(ready.user_ns) - before <= {"_timer", "_i", "_ii", "_iii"} | {n for n in ready.user_ns if n[:1] == "_"}
    assert ready.user_ns["_timer"].frame["result"].tolist()[1] == "equal"


def test_a_statement_is_tried_on_the_line(ready: Any, run: Run) -> None:
    run(ready, f"%timer {SHORT} --try no_grad w * 2")
    assert ready.user_ns["_timer"].frame["description"].tolist() == ["as it is", "no_grad"]


def test_levers_and_setup(ready: Any, run: Run) -> None:
    run(ready, f"%%timer {SHORT} --try no_grad --setup 'v = w + 1'\nv * 2")
    result = ready.user_ns["_timer"]
    assert result.frame["description"].tolist() == ["as it is", "no_grad"]
    assert result.subjects[1].setup == "v = w + 1"
    assert result.subjects[1].stmt.strip() == "v * 2"


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("%%timer --try comple\nx", "the nearest is compile"),
        ("%%timer --try sdpa\nx", "scaled_dot_product_attention(q, k, v) as an alternative and compare both"),
        ("%%timer --try zzz\nx", "no lever is called 'zzz'"),
        ("%%timer --try compile:3,threads:x\nx", "compile takes no value, and 'compile:3' has; only"),
        ("%%timer --try bf16,threads:x\nx", "'threads:x': give a whole number of threads from 1 to"),
        ("%%timer --try threads:\nx", "'threads:': give a whole number of threads"),
        ("%%timer --try\n# --- a\nx\n# --- b\nx + 1", "leave the `# ---` sections out"),
        ("%%timer --try --sweep n=[1]\nx", "does not go with --sweep"),
        ("%%timer --try --processes 2\nx", "does not go with --processes"),
        ("%%timer --try --callgrind\nx", "does not go with --callgrind"),
        ("%%timer --try --cpp\nint x = 1;", "does not go with --cpp"),
        ("%%timer --try -t 1,2\nx", "one thread count"),
        ("%%timer --try --description D\nx", "does not go with --description"),
    ],
)
def test_what_cannot_be_tried_is_one_line(ready: Any, run: Run, cell: str, said: str) -> None:
    shown = run(ready, cell)
    assert said in " ".join(shown.split())
    assert "Traceback" not in shown
    assert "_timer" not in ready.user_ns


def test_an_exception_of_the_cell_is_the_users_own(ready: Any, run: Run) -> None:
    shown = run(ready, "%%timer --try no_grad\nz = w\n1 / 0")
    assert "ZeroDivisionError" in shown
    assert "core/levers" not in shown


# ---- from an insight -------------------------------------------------------------------------------------------


def insight(body: str, *levers: str) -> Insight:
    cures = tuple(Cure("Try.", lever=each) for each in levers)
    return Insight("overhead", 1.0, 0.5, "It is slow.", cures=cures, body=body)


def test_an_insight_is_tried_on_its_cell_with_the_notebooks_variables(ready: Any) -> None:
    result = insight("%%tprofile\nw * 2", "no_grad").try_(min_run_time=0.01)
    assert result.frame["description"].tolist() == ["as it is", "no_grad"]
    assert "%%timer --try no_grad" in result.code
    other = insight("%%tprofile\nw * 2", "no_grad").try_("inference_mode", min_run_time=0.01)
    assert other.frame["description"].tolist() == ["as it is", "inference_mode"]


def test_where_a_variable_holds_something_else_now_the_line_of_the_cell_is_shown(ready: Any, run: Run) -> None:
    ready.user_ns["asked"] = insight("%%tprofile\nv = 2\nw.square()", "no_grad")
    shown = run(ready, "w = 'text'\nasked.try_()")
    assert "AttributeError: 'str' object has no attribute 'square'" in shown
    assert "3 w.square()" in shown
    assert "asked.try_()" in shown
    assert "torchbench_magic" not in shown


def test_after_ctrl_c_the_line_says_where_the_result_until_then_is(
    ready: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = insight("%%tprofile\nw * 2", "no_grad")
    ready.user_ns["asked"] = asked
    made = asked.try_(min_run_time=0.01)

    def interrupted(task: object) -> None:
        raise Interrupted(made)

    monkeypatch.setattr(trial, "try_levers", interrupted)
    assert "in a notebook: `sys.last_value.partial`" in run(ready, "asked.try_()")
    assert run(ready, "import sys; held = sys.last_value.partial") == ""
    assert ready.user_ns["held"] is made


def test_variables_may_be_handed_over(ready: Any) -> None:
    torch = ready.user_ns["torch"]
    names = {"v": torch.ones(2, requires_grad=True)}
    assert len(insight("%%tprofile\nv + 1", "no_grad").try_(names=names, min_run_time=0.01).frame) == 2


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (insight("%%tprofile\nw * 2"), "what helps is a change of the code"),
        (insight("", "no_grad"), "not from a whole %%tprofile cell"),
        (insight("%%tprofile\ngone * 2", "no_grad"), "`gone`, which no longer exists"),
        (insight("%%tprofile\nw * 2", "no_grads"), "nearest is no_grad"),
    ],
)
def test_where_an_insight_cannot_be_tried_it_is_one_line(ready: Any, asked: Insight, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        asked.try_()


def test_outside_of_a_notebook_the_variables_are_asked_for() -> None:
    with pytest.raises(ValueError, match=r"try_\(names=globals\(\)\)"):
        insight("%%tprofile\nw * 2", "no_grad").try_()


def test_of_a_scripts_profile_the_way_to_try_it_is_said() -> None:
    with pytest.raises(ValueError, match=re.escape('compare({"f": "f()"}, globals=globals(), try_="no_grad")')):
        insight("", "no_grad").try_()


def test_the_insights_of_a_profiled_cell_hold_its_text_and_no_object(ready: Any, run: Run) -> None:
    cell = "%%tprofile\nfor i in range(3000):\n    v = x + 1"
    run(ready, cell)
    profile = ready.user_ns["_tprofile"]
    calm = replace(profile, warnings=[])
    for each in calm.insights:
        assert each.body == cell
        assert each.levers == tuple(cure.lever for cure in each.cures if cure.lever)


def test_the_line_to_run_stands_with_the_cure(ready: Any) -> None:
    from torchbench_magic.profiling.lines_view import unfolding
    from torchbench_magic.show.document import plain

    said = [plain(line) for line in unfolding(insight("", "compile")).under]
    assert "Try. Try it: %%timer --try compile" in said
