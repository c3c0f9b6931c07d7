"""The live form of a result."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.show.builders import comparison_of, profile_of
from tests.show.sent import unpacked
from torchbench_magic.notebook.widgets import ComparisonExplorer, LiveView, ProfileExplorer
from torchbench_magic.show.document import plain
from torchbench_magic.show.html import module
from torchbench_magic.show.javascript import self_unpacking


def shown(widget: Any, table: int = 0) -> list[list[str]]:
    """The texts of the rows that the browser was sent."""
    groups = widget.table.spec["tables"][table]["groups"]
    rows = [row["cells"] if isinstance(row, dict) else row for group in groups for row in group["rows"]]
    return [[str(cell[0] if isinstance(cell, list) else cell) for cell in row] for row in rows]


def select(widget: Any, table: str, *keys: str) -> None:
    """What the browser does when rows are clicked."""
    widget.table.state = {"tables": {table: {"selected": list(keys)}}}


def test_explore_gives_the_widget_of_the_result() -> None:
    assert isinstance(comparison_of().explore(), ComparisonExplorer)
    assert isinstance(profile_of().explore(), ProfileExplorer)


def test_the_widget_draws_with_the_module_of_the_inline_output() -> None:
    (packed,) = re.findall(r'unpacked\("(.*?)"\)', str(comparison_of().explore().table._esm))
    written = [line.strip() for line in module().splitlines()]
    assert "\n".join(line for line in written if line and not line.startswith("//")) in unpacked(packed)


def test_the_table_answers_who_asks_whether_python_is_there() -> None:
    table, sent = comparison_of().explore().table, []
    table.send = sent.append
    assert table.answers
    table._handle_custom_msg({"type": "something else"}, [])
    assert not sent
    table._handle_custom_msg({"type": "asked"}, [])
    assert sent == [{"type": "here"}]
    assert not LiveView().table.answers, "while a cell measures, Python is busy"


def test_choosing_a_baseline_rebases_the_same_samples() -> None:
    made = comparison_of()
    widget = made.explore()
    assert plain(widget.document.sentence).startswith("mul_sum is 1.64 to 1.65 times as fast as bmm")
    widget.baseline.value = "mul_sum"
    assert plain(widget.document.sentence).startswith("bmm takes 1.64 to 1.65 times as long as mul_sum")
    assert widget.result.samples.equals(made.samples)
    assert [row[-1] for row in shown(widget)] == ["slower", "baseline"] * 2


def test_the_baseline_that_was_asked_for_is_chosen_at_first_and_a_lone_statement_has_none() -> None:
    assert comparison_of(baseline="mul_sum").explore().baseline.value == "mul_sum"
    assert comparison_of([(None, 1, (1e-3,))], [None]).explore().baseline.disabled


def test_choosing_a_metric_changes_the_time_column() -> None:
    widget = comparison_of().explore()
    before = shown(widget)
    widget.metric.value = "cpu_clock_median"
    assert [c["label"] for c in widget.table.spec["tables"][0]["columns"]].count("CPU clock") == 1
    assert shown(widget) != before


def test_a_row_limit_cuts_the_table_and_counts_the_rest() -> None:
    widget = comparison_of().explore()
    widget.row_limit.value = 3
    assert len(shown(widget)) == 3
    assert widget.table.spec["tables"][0]["hidden"] == "3 of 4 rows shown. All rows: .frame"


def test_operations_are_sorted_by_the_metric_chosen() -> None:
    widget = profile_of().explore()
    assert shown(widget, 1)[0][0] == "aten::mm"
    widget.metric.value = "calls"
    assert shown(widget, 1)[0][0] == "aten::empty"
    widget.row_limit.value = 2
    assert len(shown(widget, 1)) == 2


def test_the_controls_of_a_profile_begin_as_it_was_asked_for() -> None:
    widget = ProfileExplorer(profile_of(), sort_by="count", row_limit=2)
    assert (widget.metric.value, widget.row_limit.value) == ("calls", 2)
    lines, operations = widget.document.tables
    assert len(list(operations.rows())) == 2
    assert len(list(lines.rows())) == len(list(ProfileExplorer(profile_of()).document.tables[0].rows()))


def test_a_metric_that_was_not_measured_is_not_offered() -> None:
    assert "allocated" not in dict(profile_of(memory=False).explore().metric.options)


def test_what_is_selected_is_readable_and_can_be_observed() -> None:
    widget = comparison_of().explore()
    seen = []
    widget.observe(lambda change: seen.append(change["new"]), "selection")
    select(widget, "timings", "1", "3")
    assert widget.selection == (1, 3)
    assert seen == [(1, 3)]
    assert list(widget.rows["description"]) == ["mul_sum", "mul_sum"]


@pytest.mark.parametrize(
    ("table", "key", "column", "value"),
    [("lines", "In[2]:8", "backward_cpu_time", 0.968), ("operations", "aten::addmm", "self_cpu_time", 0.484)],
)
def test_the_rows_of_a_selected_line_or_operation_are_those_of_the_result(
    table: str, key: str, column: str, value: float
) -> None:
    widget = profile_of().explore()
    select(widget, table, key)
    assert widget.selection == (key,)
    assert list(widget.rows[column]) == [value]


def test_the_bundle_has_the_static_table_and_the_text_beside_the_widget() -> None:
    data, _ = comparison_of().explore()._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert "mul_sum" in data["text/plain"]
    assert "<table>" in data["text/html"]


def test_the_bundle_follows_what_was_chosen() -> None:
    widget = comparison_of().explore()
    widget.baseline.value = "mul_sum"
    assert widget._repr_mimebundle_()[0]["text/plain"].startswith("bmm takes 1.64 to 1.65 times as long as mul_sum")


def test_a_profile_with_a_call_tree_has_its_flame_graph_and_can_be_grouped() -> None:
    from tests.show.test_flame import profiled
    from torchbench_magic.show import flame

    assert not hasattr(profile_of().explore(), "flame")
    widget = profiled().explore()
    assert widget.flame._esm == self_unpacking(flame.module())
    assert "aten::mm" in widget.flame.spec["names"]
    by_op = len(shown(widget, 1))
    widget.group_by.value = "shape"
    by_shape = len(shown(widget, 1))
    widget.group_by.value = "stack"
    by_stack = shown(widget, 1)
    assert by_op <= by_shape
    assert any("In[2]:8 in MyModule.forward ← model ← In[3]:6" in row for row in by_stack)
