"""The live difference of counts, and what a reader types into it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.timing.samples import pair
from torchbench_magic.counting.counts import CallEdge, CallGraph, Counted, CountKey, Counts, stats_of
from torchbench_magic.counting.diff import CountsDiff
from torchbench_magic.counting.view import Step, replaced
from torchbench_magic.errors import InputError
from torchbench_magic.notebook.widgets import CountsExplorer
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.samples import Subject

# ==== patterns ========================================================================================================
# What the reader types as a regular expression: it works, or it is said in one line.


NAMES = ["at::mul(at::Tensor)", "_int_malloc", "مرحبا\u202e", "a\nb", "\ud800"]


def test_a_replacement_may_name_groups() -> None:
    assert replaced(r"(\w+)::", r"\1.", NAMES)[0] == "at.mul(at.Tensor)"
    assert replaced("", "", NAMES) == NAMES


@pytest.mark.parametrize(
    ("pattern", "to", "told"),
    [("(", "x", "not a usable pattern: missing"), ("(a)", r"\2", "not a usable replacement: invalid group reference")],
)
def test_what_is_no_pattern_is_said_in_one_line(pattern: str, to: str, told: str) -> None:
    with pytest.raises(InputError, match=told) as caught:
        replaced(pattern, to, NAMES)
    assert "\n" not in str(caught.value)


# ==== counts explorer =================================================================================================
# The live difference of counts: each change is a chip, Python has the state, a bad pattern changes nothing.


TORCH = "[/lib/libtorch_cpu.so]"
MUL, STRIDES = f"/w/build/aten/m.cpp:at::mul(Tensor) {TORCH}", f"/w/build/aten/i.cpp:at::Iterator::strides() {TORCH}"
MALLOC, EVAL = "./malloc.c:_int_malloc [/lib/libc.so.6]", "/b/Python/ceval.c:eval [/lib/libpython3.11.so]"


def counted(mul: int, strides: int, malloc: int) -> Counted:
    costs = {name: cost for name, cost in ((MUL, mul), (STRIDES, strides), (MALLOC, malloc), (EVAL, 50)) if cost}
    both = {"exclusive": costs, "inclusive": {name: 2 * cost for name, cost in costs.items()}}
    nothing: dict[str, dict[str, int]] = {"exclusive": {}, "inclusive": {}}
    calls = [CallEdge(EVAL, MUL, 10, mul + strides + malloc), CallEdge(MUL, MALLOC, 30, malloc)]
    calls += [CallEdge(MUL, STRIDES, 10, strides)] if strides else []
    return Counted(stats_of(both, nothing, 10, stmt="f", setup="pass"), (), CallGraph(tuple(calls), (), 10))


A, B = counted(1000, 0, 200), counted(1500, 300, 210)


def compared(**counts: Counted) -> Comparison:
    found: dict[CountKey, Counted] = {(name, None, 1): one for name, one in counts.items()}
    made = pair(1e-6, 2e-6)
    subjects = tuple(Subject(description=name, stmt="f") for name in counts)
    samples = made.samples[made.samples["measurement"] == 0]
    frames = [samples.assign(measurement=row) for row in range(len(counts))]
    import pandas as pd

    return replace(made, subjects=subjects, samples=pd.concat(frames), counts=Counts(found))


def test_a_filter_is_looked_for_without_regard_to_case() -> None:
    found = Step("filter", "TENSOR").applied(compared(A=A, B=B).diff("B"))
    assert found.functions == (MUL,)


@pytest.fixture
def widget() -> CountsExplorer:
    made: CountsExplorer = compared(A=A, B=B, C=counted(900, 0, 200)).diff("B").explore()
    return made


def chips(widget: CountsExplorer) -> list[str]:
    found = [child.description for child in widget._chips.children if hasattr(child, "description")]
    return [words for words in found if words]


def press(widget: CountsExplorer, words: str) -> None:
    (chip,) = [c for c in widget._chips.children if getattr(c, "description", "").startswith(words)]
    chip.click()


def shown(widget: CountsExplorer) -> list[Any]:
    groups = widget.table.spec["tables"][0]["groups"]
    return [row["key"] for group in groups for row in group["rows"] if isinstance(row, dict)]


def test_it_begins_standardized_with_what_differs_and_the_running_total(widget: CountsExplorer) -> None:
    assert chips(widget) == ["standardize  ×", "undo", "undo all"]
    assert shown(widget) == ["build/aten/m.cpp:at::mul(Tensor)", "build/aten/i.cpp:at::Iterator::strides()",
                             "./malloc.c:_int_malloc"]  # fmt: skip
    assert widget.status.value == "4 functions, 3 differ; their sum differs by +81"
    assert (widget.total.baseline, widget.total.count, widget.total.delta) == (125, 206, 81)


def test_a_transform_renames_and_adds_up(widget: CountsExplorer) -> None:
    widget.find_text.value, widget.to_text.value = r".*at::.*", "ours"
    widget.add_button.click()
    assert chips(widget) == ["standardize  ×", ".*at::.* to ours  ×", "undo", "undo all"]
    assert widget.find_text.value == widget.to_text.value == ""
    frame = widget.result.frame.set_index("function")
    assert frame.loc["ours", ["baseline_count", "count", "delta"]].tolist() == [100, 180, 80]


def test_the_filter_is_live_and_can_be_kept_as_a_step(widget: CountsExplorer) -> None:
    widget.filter_text.value = "iterator"
    assert shown(widget) == ["build/aten/i.cpp:at::Iterator::strides()"]
    assert widget.total.delta == 30
    assert len(widget.steps) == 1
    widget.keep_button.click()
    assert widget.filter_text.value == ""
    assert widget.steps[1] == Step("filter", "iterator")
    assert shown(widget) == ["build/aten/i.cpp:at::Iterator::strides()"]


def test_each_step_is_undone_by_its_own_chip_by_undo_and_all_at_once(widget: CountsExplorer) -> None:
    widget.transform("at::")
    widget.denoise_box.value = True
    assert widget.total.delta == 80
    assert [step.kind for step in widget.steps] == ["standardize", "transform", "denoise"]
    press(widget, "at:: to nothing")
    assert [step.kind for step in widget.steps] == ["standardize", "denoise"]
    assert "build/aten/m.cpp:at::mul(Tensor)" in shown(widget)
    widget.undo()
    assert widget.denoise_box.value is False
    assert widget.total.delta == 81
    widget.transform("x")
    widget.undo_all()
    assert widget.steps == ()
    assert widget.standardize_box.value is False
    assert set(shown(widget)) == {MUL, STRIDES, MALLOC}


def test_a_chip_takes_back_its_own_step_also_while_the_row_is_drawn_anew(widget: CountsExplorer) -> None:
    widget.transform("at::mul", "ours")
    widget.keep("ours")
    standard, transform, keep = (c for c in widget._chips.children if getattr(c, "description", "").endswith("×"))
    standard.click()
    transform.click()  # as it stood before the first click
    assert [step.kind for step in widget.steps] == ["filter"]
    assert keep in widget._chips.children
    transform.click()
    assert [step.kind for step in widget.steps] == ["filter"]


def test_the_boxes_are_steps_too(widget: CountsExplorer) -> None:
    widget.standardize_box.value = False
    assert widget.steps == ()
    widget.standardize_box.value = True
    assert widget.steps == (Step("standardize"),)


@pytest.mark.parametrize(("by", "names"), [
    ("function", {"at::mul(Tensor)": 50, "at::Iterator::strides()": 30, "_int_malloc": 1, "eval": 0}),
    ("file", {"build/aten/m.cpp": 50, "build/aten/i.cpp": 30, "./malloc.c": 1, "Python/ceval.c": 0}),
    ("library", {"/lib/libtorch_cpu.so": 80, "/lib/libc.so.6": 1, "/lib/libpython3.11.so": 0}),
])  # fmt: skip
def test_rows_are_added_up_by_function_file_and_library(widget: CountsExplorer, by: str, names: dict[str, int]) -> None:
    widget.by_list.value = by
    assert dict(zip(widget.result.frame["function"], widget.result.frame["delta"], strict=True)) == names


def test_inclusive_counts_and_another_alternative_are_chosen_there(widget: CountsExplorer) -> None:
    widget.inclusive_box.value = True
    assert widget.result.inclusive
    assert widget.result.frame["delta"].iloc[0] == 100
    widget.inclusive_box.value = False
    widget.alternative_list.value = 1
    assert widget.result.names == ("A", "C")
    assert widget.total.delta == -10
    assert [step.kind for step in widget.steps] == ["standardize"]


def test_a_pattern_that_is_none_keeps_the_last_view_and_says_why(widget: CountsExplorer) -> None:
    before = shown(widget)
    widget.filter_text.value = "("
    assert widget.message.value.startswith("not a usable pattern: missing )")
    assert shown(widget) == before
    widget.filter_text.value = ""
    assert widget.message.value == ""
    widget.find_text.value, widget.to_text.value = "(a)", r"\3"
    widget.add_button.click()
    assert widget.message.value.startswith("not a usable replacement")
    assert len(widget.steps) == 1
    assert widget.find_text.value == "(a)", "what was typed can be mended"


def test_the_selected_function_opens_its_callers_and_callees_in_place(widget: CountsExplorer) -> None:
    seen = []
    widget.observe(lambda change: seen.append(change["new"]), "selection")
    key = "build/aten/m.cpp:at::mul(Tensor)"
    widget.table.state = {"tables": {"instructions": {"selected": [key]}}}
    assert seen == [(key,)]
    assert widget.rows["function"].tolist() == ["at::mul(Tensor)"]
    spec = widget.table.spec
    assert spec["opened"] == [key]
    rows = [row for group in spec["tables"][0]["groups"] for row in group["rows"]]
    (row,) = [row for row in rows if isinstance(row, dict) and row["key"] == key]
    titles = {group["title"]: [one[0] for one in group["rows"]] for group in row["detail"]["groups"]}
    assert titles == {"called by": ["eval"], "calls": ["at::Iterator::strides()", "_int_malloc"]}
    assert sum("detail" in row for row in rows if isinstance(row, dict)) == 1
    callees = widget.callees().set_index("function")
    assert callees.loc["_int_malloc", ["baseline_calls", "calls", "delta"]].tolist() == [3, 3, 1]
    assert widget.callers()["function"].tolist() == ["eval"]
    widget.table.state = {"tables": {"instructions": {"selected": []}}}
    with pytest.raises(InputError, match="click a row"):
        widget.callers()


def test_a_selection_whose_row_is_gone_is_none(widget: CountsExplorer) -> None:
    widget.table.state = {"tables": {"instructions": {"selected": ["./malloc.c:_int_malloc"]}}}
    widget.denoise_box.value = True
    assert widget.selection == ()


def test_what_was_done_before_stays_done(widget: CountsExplorer) -> None:
    given = compared(A=A, B=B).diff().transform(lambda name: name.replace("at::", ""))
    made = given.explore()
    assert chips(made) == ["transform"]
    assert made.inclusive_box.disabled, "a function cannot be applied again to other counts"
    made.denoise_box.value = True
    made.undo_all()
    assert made.result.frame.equals(given.frame)


def test_the_bundle_has_the_static_table_beside_the_widget(widget: CountsExplorer) -> None:
    widget.filter_text.value = "iterator"
    data, _ = widget._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert "strides()" in data["text/plain"]
    assert "_int_malloc" not in data["text/plain"]
    assert "<table>" in data["text/html"]


def test_a_difference_of_given_stats_is_explored_too() -> None:
    made = CountsDiff.between(A.stats, B.stats).explore()
    assert made.total.delta == 81
    made.inclusive_box.value = True
    assert made.result.frame["delta"].iloc[0] == 100
    made.table.state = {"tables": {"instructions": {"selected": list(shown(made)[:1])}}}
    assert "detail" not in str(made.table.spec), "who called whom is not in torch's stats"


def test_calls_that_are_not_known_are_not_shown_as_none() -> None:
    unknown = replace(B, calls=CallGraph((CallEdge(EVAL, MUL, 0, 2010),), (), 10))
    widget = compared(A=A, B=unknown).diff().explore()
    widget.table.state = {"tables": {"instructions": {"selected": ["build/aten/m.cpp:at::mul(Tensor)"]}}}
    table = widget.document.tables[0]
    (detail,) = [row.detail for row in table.rows() if row.detail is not None]
    (caller,) = detail.groups[0].rows
    assert [cell.text for cell in caller.cells] == ["eval", "1", "–", "120", "201", "+81"]
    assert "how often is not known" in detail.hidden
