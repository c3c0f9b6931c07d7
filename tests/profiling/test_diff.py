"""Two profiles side by side: which line is which, and what of the difference stands where."""

from __future__ import annotations

import pandas as pd
import pytest

from torchbench_magic.process.environment import Environment
from torchbench_magic.profiling.diff import ProfileDiff
from torchbench_magic.profiling.options import ProfileOptions
from torchbench_magic.profiling.profile import NOT_ATTRIBUTED, Profile
from torchbench_magic.profiling.schema import LINE_COLUMNS, OP_COLUMNS, frame_of
from torchbench_magic.profiling.trace import Source
from torchbench_magic.result_base import Doubt

BEFORE = "%%tprofile\nh = x @ w\nh = h.relu()\nloss = h.sum()"


def profiled(text: str, times: dict[int, float], *, source_id: str = "a", cell: int = 1, **changes: object) -> Profile:
    """A profile of ``text`` in which each line of ``times`` takes so long, half of it in torch; 1 ms on no line."""
    lines = text.splitlines()
    rows = list(times)
    frame = frame_of(
        LINE_COLUMNS,
        {
            "cell": [*[cell] * len(rows), pd.NA],
            "line": [*rows, pd.NA],
            "source": [*(lines[row - 1] for row in rows), NOT_ATTRIBUTED],
            "source_id": [*[source_id] * len(rows), None],
            "thread": [0] * (len(rows) + 1),
            "calls": [*[1] * len(rows), 0],
            "self_cpu_time": [*(times[row] / 2 for row in rows), 0.0],
            "python_time": [*(times[row] / 2 for row in rows), 0.001],
            "allocated": [*[1000] * len(rows), 0],
        },
    )
    ops = frame_of(OP_COLUMNS, {"op": ["aten::mm"], "calls": [1], "self_cpu_time": [sum(times.values()) / 2]})
    fields = {
        "lines": frame,
        "ops": ops,
        "wall_time": sum(times.values()) + 0.001,
        "num_threads": 1,
        "sources": {source_id: Source(source_id, "<cell>", text, cell=cell)},
        "source_id": source_id,
        "inputs": (),
        "values": (),
    }
    return Profile(**(fields | changes))  # type: ignore[arg-type]


def joined(diff: ProfileDiff) -> list[tuple[object, object, str]]:
    found = diff.lines[diff.lines["source"].fillna(diff.lines["baseline_source"]) != NOT_ATTRIBUTED]
    none = found.astype(object).where(found.notna(), None)
    return list(zip(none["baseline_line"], none["line"], none["match"], strict=True))


TIMES = {2: 0.4, 3: 0.1, 4: 0.1}


def test_lines_of_one_source_are_joined_by_number() -> None:
    diff = ProfileDiff(profiled(BEFORE, TIMES), profiled(BEFORE, TIMES | {2: 0.1}, cell=7))
    assert joined(diff) == [(2, 2, "same"), (3, 3, "same"), (4, 4, "same")]
    row = diff.lines.iloc[0]
    assert (row["baseline_time"], row["time"]) == (0.4, 0.1)
    assert row["time_delta"] == pytest.approx(-0.3)
    assert diff.wall_time_delta == pytest.approx(-0.3)


def test_lines_of_edited_code_are_joined_by_their_text() -> None:
    after = "%%tprofile --memory\n# first the weights\nw = w.half()\n\nh = x @ w\nloss = h.sum()"
    diff = ProfileDiff(profiled(BEFORE, TIMES), profiled(after, {3: 0.05, 5: 0.2, 6: 0.1}, source_id="b"))
    assert joined(diff) == [(None, 3, "new"), (2, 5, "text"), (4, 6, "text"), (3, None, "gone")]
    assert diff.lines.set_index("line").loc[5, "time_delta"] == pytest.approx(-0.2)


def test_a_line_that_was_edited_is_the_same_line_and_one_replaced_by_another_is_gone_and_new() -> None:
    after = BEFORE.replace("x @ w", "x @ w.half()")
    diff = ProfileDiff(profiled(BEFORE, TIMES), profiled(after, TIMES, source_id="b"))
    assert joined(diff) == [(2, 2, "edited"), (3, 3, "text"), (4, 4, "text")]
    after = BEFORE.replace("h = h.relu()", "torch.nn.functional.gelu_(h)")
    diff = ProfileDiff(profiled(BEFORE, TIMES), profiled(after, TIMES, source_id="b"))
    assert joined(diff) == [(2, 2, "text"), (None, 3, "new"), (4, 4, "text"), (3, None, "gone")]


def test_the_times_of_all_rows_add_up_to_each_wall_time() -> None:
    after = "%%tprofile\nw = w.half()\nh = x @ w\nloss = h.sum()"
    diff = ProfileDiff(profiled(BEFORE, TIMES), profiled(after, {2: 0.05, 3: 0.2, 4: 0.1}, source_id="b"))
    assert diff.lines["time"].sum() == pytest.approx(diff.other.wall_time)
    assert diff.lines["baseline_time"].sum() == pytest.approx(diff.baseline.wall_time)
    assert diff.lines["time_delta"].sum() == pytest.approx(diff.wall_time_delta)
    rest = diff.lines[diff.lines["source"] == NOT_ATTRIBUTED]
    assert len(rest) == 1


def test_a_helper_cell_that_both_used_is_joined_besides() -> None:
    helper = Source("h", "<h>", "def f(x):\n    return x @ x", cell=1)
    profiles = []
    for source_id, cell in (("a", 2), ("b", 3)):
        text = f"%%tprofile\nf(x)  # {cell}"
        profile = profiled(text, {2: 0.1}, source_id=source_id, cell=cell)
        lines = profile.lines.copy()
        lines.loc[len(lines)] = lines.iloc[0]
        lines.loc[len(lines) - 1, ["source_id", "line", "source"]] = ["h", 2, "    return x @ x"]
        profiles.append(
            profiled(text, {2: 0.1}, source_id=source_id, cell=cell, lines=lines,
                     sources=dict(profile.sources) | {"h": helper})
        )  # fmt: skip
    assert sorted(joined(ProfileDiff(*profiles)), key=str) == [(2, 2, "edited"), (2, 2, "same")]


def test_ops_stand_side_by_side_the_largest_change_first() -> None:
    before = profiled(BEFORE, TIMES)
    ops = frame_of(OP_COLUMNS, {"op": ["aten::relu", "aten::mm", "aten::mm"], "calls": [1, 1, 2],
                                "self_cpu_time": [0.05, 0.1, 0.1], "allocated": [8, 16, 16]})  # fmt: skip
    diff = ProfileDiff(before, profiled(BEFORE, TIMES, ops=ops))
    first, second = diff.ops.to_dict("records")
    assert (first["op"], first["baseline_calls"], first["calls"]) == ("aten::mm", 1, 3)
    assert first["self_cpu_time_delta"] == pytest.approx(0.2 - 0.3)
    assert (second["op"], second["baseline_calls"], second["self_cpu_time"]) == ("aten::relu", 0, 0.05)
    assert pd.isna(first["baseline_allocated"])
    assert first["allocated"] == 32
    assert pd.isna(first["allocated_delta"])  # bytes of the baseline were not asked for: nothing is known of a change


def test_what_else_differs_is_listed() -> None:
    here = Environment("3.11.7", "2.13.0", "Linux x86_64", "A", 2, 1)
    there = Environment("3.12.1", "2.13.0", "Linux x86_64", "B", 2, 1, variables={"OMP_NUM_THREADS": "1"})
    before = profiled(BEFORE, TIMES, environment=here)
    after = profiled(BEFORE, TIMES, environment=there, num_threads=2, options=ProfileOptions(memory=True))
    assert ProfileDiff(before, after).differences == (
        "python: 3.11.7 -> 3.12.1",
        "cpu: A -> B",
        "OMP_NUM_THREADS: none -> 1",
        "threads: 1 -> 2",
        "memory: no -> yes",
    )
    assert ProfileDiff(before, before).differences == ()
    assert ProfileDiff(before, before).warnings == []


def test_without_lines_the_ops_are_compared() -> None:
    bare = profiled(BEFORE, TIMES, lines=frame_of(LINE_COLUMNS, {}))
    diff = ProfileDiff(profiled(BEFORE, TIMES), bare, ("a", "b"))
    assert set(diff.lines["match"]) == {"gone"}
    assert [doubt.text for doubt in diff.warnings] == ["b has no lines: only ops are compared."]


def test_it_is_shown_with_the_answer_first_and_as_markdown() -> None:
    diff = ProfileDiff(profiled(BEFORE, TIMES), profiled(BEFORE, TIMES | {2: 0.1}, cell=2), ("old <b>", "new"))
    assert repr(diff).splitlines()[0] == "new takes 301 ms, old <b> 601 ms: 300 ms less, 300 ms of it on In[2]:2"
    assert "`In[2]:2`" in diff.to_markdown()
    bundle = diff._repr_mimebundle_()
    assert "<b>" not in bundle["text/html"].split("<script")[0]
    assert "−300" in bundle["text/plain"]


def test_a_line_that_changed_by_more_than_the_whole_is_no_part_of_it() -> None:
    before, after = profiled(BEFORE, TIMES), profiled(BEFORE, TIMES | {2: TIMES[2] + 0.3, 3: TIMES[3] - 0.1}, cell=2)
    said = repr(ProfileDiff(before, after, ("old", "new"))).splitlines()[0]
    assert said.endswith(": 200 ms more; In[2]:2 alone takes 300 ms more")


def test_what_is_selected_in_the_widget_are_rows_of_its_tables() -> None:
    widget = ProfileDiff(profiled(BEFORE, TIMES), profiled(BEFORE, TIMES | {2: 0.1}, cell=2)).explore()
    lines = widget.document.tables[0].name
    widget.table.state = {"tables": {lines: {"selected": ["In[2]:2"]}}}
    assert widget.rows["line"].tolist() == [2]
    widget.table.state = {"tables": {"operations": {"selected": ["aten::mm"]}}}
    assert widget.rows["op"].tolist() == ["aten::mm"]


def test_what_the_code_read_is_compared_and_what_was_not_recorded_is_said() -> None:
    read = {"inputs": (("x", "4 × 8 float32"),), "values": (("cfg['n']", "3", ""), ("f", "", "TextIOWrapper"))}
    other = {"inputs": (("x", "4000 × 8 float32"),), "values": (("cfg['n']", "5", ""), ("f", "", "TextIOWrapper"))}
    a, b = profiled(BEFORE, TIMES, **read), profiled(BEFORE, TIMES, **other)
    assert ProfileDiff(a, b).differences == ("`x` was 4 × 8 float32, is 4000 × 8 float32", "`cfg['n']` was 3, is 5")
    assert ProfileDiff(a, a).differences == ()
    assert ProfileDiff(a, a).has_same_inputs
    assert not ProfileDiff(a, b).has_same_inputs
    assert [d.text for d in ProfileDiff(a, a).warnings] == ["Not compared: `f` (TextIOWrapper)."]
    older = profiled(BEFORE, TIMES, inputs=None, values=None)
    (said,) = ProfileDiff(older, b, ("last stored run", "this run")).warnings
    assert said.text.startswith("The inputs of last stored run were not recorded: ")


def test_what_spoils_the_figures_of_one_of_the_two_is_said_of_the_comparison_once() -> None:
    busy = [Doubt("busy", "Busy machine."), Doubt("text-unknown", "It has changed.")]
    diff = ProfileDiff(profiled(BEFORE, TIMES), profiled(BEFORE, TIMES, warnings=busy))
    assert [(each.kind, each.text) for each in diff.warnings] == [("busy", "other: Busy machine.")]
    kinds = [each["kind"] for each in diff.lines.attrs["doubts"]]
    assert kinds == ["busy", "text-unknown"]
