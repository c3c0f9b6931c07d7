"""A profile as a document: sentence, annotated source, operations, what a line holds, insights."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from tests.insights.built import SOURCE, Did, Op, built_profile
from tests.show.builders import CELL, LINES, MODULE, OPS, profile_of, rows_of
from torchbench_magic.errors import OptionError
from torchbench_magic.notebook.widgets import ProfileExplorer
from torchbench_magic.profiling import view
from torchbench_magic.profiling.diff import ProfileDiff
from torchbench_magic.profiling.diff_view import document as diff_document
from torchbench_magic.profiling.lines_view import inside_line
from torchbench_magic.profiling.ops_view import SORT_KEYS, operations, runs_text, shapes_text
from torchbench_magic.profiling.options import ProfileOptions
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.schema import FRAME_COLUMNS, LINE_COLUMNS, OP_COLUMNS, frame_of
from torchbench_magic.profiling.trace import Source
from torchbench_magic.profiling.view import document
from torchbench_magic.result_base import Doubt
from torchbench_magic.show import html, page_data
from torchbench_magic.show.document import plain
from torchbench_magic.show.renderers import to_text
from torchbench_magic.show.table import Row, Table

# ==== profile =========================================================================================================


def lines_of(profile=None) -> Table:  # type: ignore[no-untyped-def]
    return view.document(profile or profile_of()).tables[0]


def row_at(table: Table, place: str) -> Row:
    return next(row for row in table.rows() if row.key == place)


def cells(table: Table, row: Row) -> dict[str, str]:
    return {column.name: cell.text for column, cell in zip(table.columns, row.cells, strict=True)}


def names(table: Table, column: str = "op") -> list[str]:
    at = [each.name for each in table.columns].index(column)
    return [row.cells[at].text for row in table.rows()]


# ---- the sentence -------------------------------------------------------------------------------------------


def recorded(*times: tuple[float, float], on_none: float = 0.0, **changes: Any) -> Profile:
    """A loop and what else ran, outside torch: (seconds of each line, of them added by recording)."""
    python, added = zip(*times, strict=True)
    count = len(times)
    lines = rows_of(
        LINE_COLUMNS,
        cell=[2] * count + [None],
        line=[*range(1, count + 1), None],
        source_id=["ab"] * count + [None],
        wall_time=[*python, 0.0],
        self_cpu_time=0.0,
        python_time=[*python, 0.0],
        recording_time=[*added, on_none],
    )
    rest = {
        "ops": frame_of(OP_COLUMNS, {}),
        "memory": None,
        "wall_time": sum(python),
        "frames": frame_of(FRAME_COLUMNS, {}),
    }
    return dataclasses.replace(profile_of(), lines=lines, **rest | {"trace": None, "warnings": []} | changes)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        pytest.param(
            recorded((0.6, 0.02), (0.4, 0.0)),
            "In[2]:1 takes 60 % of the time (0.600 of 1.00 s), nearly all of it outside torch",
            id="little was added",
        ),
        pytest.param(
            recorded((0.35, 0.3), (0.25, 0.2), (0.4, 0.0)),
            "In[2]:3 takes 53 to 100 % of the time without the profiler (with it: 0.400 of 1.00 s), nearly all of it"
            " outside torch",
            id="the same line, and the bounds of its share",
        ),
        pytest.param(
            recorded((0.75, 0.6), (0.0, 0.0), (0.25, 0.0)),
            "which line takes the most time is not known: with the profiler it is In[2]:1 (0.750 of 1.00 s), without it"
            " probably In[2]:3",
            id="another line, if the estimate is right",
        ),
        pytest.param(
            recorded((0.6, 0.2), (0.4, 0.15)),
            "which line takes the most time is not known: with the profiler it is In[2]:1 (0.600 of 1.00 s)",
            id="another line, if the estimate is wrong",
        ),
        pytest.param(
            recorded((0.55, 0.0), (0.45, 0.0), on_none=0.2),
            "which line takes the most time is not known: with the profiler it is In[2]:1 (0.550 of 1.00 s)",
            id="what stands on no line may all have been added to the first",
        ),
        pytest.param(
            recorded((0.7, 0.05), (0.3, 0.05)),
            "In[2]:1 takes 70 % of the time (0.700 of 1.00 s), nearly all of it outside torch",
            id="the share may be what was recorded",
        ),
        pytest.param(
            recorded((0.75, 0.6), (0.0, 0.0), (0.25, 0.0), unprofiled_time=0.3),
            "In[2]:3 takes 67 to 100 % of the time without the profiler (with it: 0.250 of 1.00 s), nearly all of it"
            " outside torch",
            id="what --twice measured decides",
        ),
        pytest.param(
            recorded((1.0, 0.9)),
            "In[2]:1 takes 100 % of the time (1.00 of 1.00 s), nearly all of it outside torch",
            id="the only line",
        ),
        pytest.param(
            recorded((0.6, float("nan")), (0.4, float("nan")), options=ProfileOptions(host_memory=True)),
            "In[2]:1 takes 60 % of the time with --host-memory, which slows Python (0.600 of 1.00 s), nearly all of it"
            " outside torch",
            id="what tracemalloc costs nobody knows",
        ),
    ],
)  # fmt: skip
def test_the_sentence_names_no_line_that_may_be_the_first_only_by_the_profilers_own_work(
    made: Profile, said: str
) -> None:
    assert plain(view.document(made).sentence) == said


@pytest.mark.parametrize(("waited", "is_known"), [(0.6, True), (1.2, False)])
def test_the_sentence_names_no_line_that_may_be_the_first_since_it_waited_for_a_core(
    waited: float, is_known: bool
) -> None:
    """0.65 and 0.25 s, while each of two threads waited 0.3 or 0.6 s."""
    held_up = Doubt("busy", "Busy machine.", "", {"waited": waited, "threads": 2, "wall_time": 1.0})
    said = plain(view.document(recorded((0.65, 0.0), (0.25, 0.0), (0.1, 0.0), warnings=[held_up])).sentence)
    assert said == (
        "In[2]:1 takes 65 % of the time (0.650 of 1.00 s), nearly all of it outside torch"
        if is_known
        else "which line takes the most time is not known: In[2]:1 (0.650 of 1.00 s) and In[2]:2 (0.250 of 1.00 s)"
        " differ by less than a thread waited for a core, 600 ms"
    )


def test_the_footer_says_what_the_times_include() -> None:
    """What starting and stopping took is not in them; what each line paid is."""
    made = recorded((0.6, 0.2), (0.4, 0.15), profiler_cost="noticeable", profiler_time=0.2)
    said = " ".join(plain(line) for line in view.document(made).footer)
    assert "They include what the profiler added to each line (" in said
    assert "starting and stopping the profiler 200 ms, not included" in said
    little = dataclasses.replace(made, profiler_cost="little")
    assert "They include" not in " ".join(plain(line) for line in view.document(little).footer)


def test_the_sentence_names_the_line_that_costs_most_with_its_backward() -> None:
    assert plain(view.document(profile_of()).sentence) == (
        "In[2]:8 takes 45 % of the time (1.45 of 3.22 s), forward and backward;"
        " peak 1.14 GiB; In[3]:3 allocates most, 954 MiB"
    )


def allocating(**allocated: list[object]) -> Profile:
    """Lines of one text with ``line`` and ``allocated``, the peak 100 MB."""
    times = {"wall_time": 0.1, "self_cpu_time": 0.1, "python_time": 0.0, "backward_cpu_time": 0.0}
    threads = list(range(len(allocated["line"])))
    lines = rows_of(LINE_COLUMNS, **times, thread=threads, peak=10**8, **allocated)
    return dataclasses.replace(profile_of(), lines=lines, memory=None)


def test_a_line_allocates_what_all_its_threads_do_and_none_allocates_most_where_more_is_on_none() -> None:
    said = plain(view.document(allocating(line=[2, None], allocated=[30 * 2**20, 70 * 2**20])).sentence)
    assert "allocates most" not in said
    assert said.endswith("; 70.0 MiB are on no line, more than any single line allocates")
    given = allocating(line=[2, 3, 2, None], allocated=[2**20, 40 * 2**20, 50 * 2**20, 45 * 2**20])
    assert plain(view.document(given).sentence).endswith("In[2]:2 allocates most, 51.0 MiB")


def test_the_sentence_adds_a_backward_pass_once_to_the_line_that_runs_it() -> None:
    """0.2 s forward and 0.3 s backward on one line: half of the second, not 0.8 s of it."""
    lines = rows_of(
        LINE_COLUMNS,
        line=[2, 3],
        source=["net(x).sum().backward()", "time.sleep(0.5)"],
        wall_time=[0.5, 0.45],
        self_cpu_time=[0.5, 0.0],
        python_time=[0.0, 0.45],
        backward_cpu_time=[0.3, 0.0],
    )
    names = ["aten::addmm", "autograd::engine::evaluate_function: AddmmBackward0"]
    ops = rows_of(OP_COLUMNS, op=names, line=2, self_cpu_time=[0.2, 0.3], cpu_time=[0.2, 0.3])
    profile = Profile(lines=lines, ops=ops, wall_time=1.0, num_threads=1, source_id="ab")
    assert plain(view.document(profile).sentence) == (
        "In[2]:2 takes 50 % of the time (0.500 of 1.00 s), nearly all of it in torch"
    )


def test_a_trace_that_does_not_say_its_threads_gets_none_in_the_footer() -> None:
    profile = dataclasses.replace(profile_of(), num_threads=0)
    assert " threads" not in plain(view.document(profile).footer[-1])


def test_the_sentence_says_when_the_time_is_outside_torch() -> None:
    only_python = [row for row in LINES if row[1] == 9]
    sentence = plain(view.document(profile_of(lines=only_python, memory=False)).sentence)
    assert sentence == "In[2]:9 takes 99 % of the time (724 of 732 ms), nearly all of it outside torch"


def test_the_sentence_states_the_split_where_neither_part_is_nearly_all() -> None:
    """4.55 s of 4.58 s with 1.82 s of torch in it is not outside torch."""
    times = {"wall_time": 4.55, "self_cpu_time": 1.82, "cpu_time": 1.82, "python_time": 2.73, "backward_cpu_time": 0.0}
    lines = rows_of(LINE_COLUMNS, cell=115, line=[4], source="trainer.train()", **times)
    profile = Profile(lines=lines, ops=frame_of(OP_COLUMNS, {}), wall_time=4.58, num_threads=1, source_id="ab")
    assert plain(view.document(profile).sentence) == (
        "In[115]:4 takes 99 % of the time (4.55 of 4.58 s), 1.82 s in torch and 2.73 s outside it"
    )
    opened = dataclasses.replace(profile, libraries=(("ab", 4, "trainers.loop"),))
    assert plain(view.document(opened).sentence).endswith("; more with --lines-of trainers.loop")


def test_the_sentence_does_not_name_the_option_that_is_given() -> None:
    lines = rows_of(LINE_COLUMNS, cell=1, line=[2], source="fit()", wall_time=1.0, self_cpu_time=1.0, python_time=0.0)
    frames = rows_of(
        FRAME_COLUMNS,
        parent=[-1, 0, 1], kind=["thread", "line", "module"], name=["MainThread", "In[1]:2", "net"],
        source_id=[None, "ab", "ab"], line=[pd.NA, 2, 2],
        wall_time=[1.0, 1.0, 0.9], self_time=[0.0, 0.1, 0.9], self_cpu_time=[0.0, 0.1, 0.9],
    )  # fmt: skip
    profile = Profile(lines, frame_of(OP_COLUMNS, {}), 1.0, 1, source_id="ab", frames=frames)
    assert "; more with --group-by module" in plain(view.document(profile).sentence)
    assert "--group-by" not in plain(view.document(profile, group_by="module").sentence)


def test_two_numbers_in_a_row_are_no_range() -> None:
    assert runs_text((1, 2)) == "1 and 2"
    assert runs_text((2, 3, 6, 7, 8)) == "2, 3 and 6 … 8"


def test_without_lines_the_sentence_and_the_table_are_of_operations() -> None:
    document = view.document(profile_of(lines=(), memory=False, wall_time=3.0))
    assert [table.name for table in document.tables] == ["operations"]
    assert plain(document.sentence) == "aten::mm takes 30 % of 3.00 s"


def test_a_cell_that_ran_nothing_of_torch_says_so() -> None:
    document = view.document(profile_of(lines=(), ops=(), memory=False))
    assert plain(document.sentence) == "no torch operation ran in 8.30 ms"
    assert document.tables[0].hidden == "no torch operation ran"


# ---- the annotated source -----------------------------------------------------------------------------------


def test_the_cell_is_shown_whole_and_of_other_sources_the_functions_that_ran() -> None:
    table = lines_of()
    assert [(group.title, len(group.rows)) for group in table.groups] == [
        ("In[3], this cell", len(CELL.splitlines())),
        ("In[2], MyModule.forward", 5),
    ]


def test_a_line_has_its_times_bytes_and_calls() -> None:
    table = lines_of()
    assert cells(table, row_at(table, "In[2]:8")) == {
        "line": "8",
        "bar": "",
        "self_cpu_time": "486",
        "python_time": "0.3",
        "backward_cpu_time": "968",
        "allocated": "24.0",
        "peak": "1\u202f042",
        "calls": "3",
        "source": "        out = self.linear(input)",
    }


def test_a_line_that_did_not_run_has_no_numbers() -> None:
    table = lines_of()
    first = next(table.rows())
    assert [cell.text for cell in first.cells] == ["1", *[""] * 7, "%%tprofile --memory --shapes"]


def test_columns_that_do_not_apply_are_not_there() -> None:
    forward_only = [(*row[:5], 0.0, *row[6:]) for row in LINES]
    table = lines_of(profile_of(memory=False, lines=forward_only))
    assert [column.name for column in table.columns] == [
        "line", "bar", "self_cpu_time", "python_time", "calls", "source",
    ]  # fmt: skip
    assert ("backward", "backward") not in table.columns[-1].legend


def test_self_times_and_what_is_not_attributed_add_up_to_the_wall_time() -> None:
    missing, total = (row.cells[-1].text.replace("\u202f", "") for row in lines_of().totals)
    assert missing == "not attributed 8.3 ms"
    assert total == "wall time 3222.0 ms = 2487.1 torch + 726.6 Python + 8.3 not attributed"


def test_bars_share_one_scale_and_backward_is_a_second_thin_one() -> None:
    table = lines_of()
    at = [column.name for column in table.columns].index("bar")
    assert row_at(table, "In[2]:8").cells[at].picture == (
        (("torch", pytest.approx(486 / 975.6)),),
        (("backward", pytest.approx(968 / 975.6)),),
    )
    assert row_at(table, "In[2]:9").cells[at].picture == ((("python", pytest.approx(724 / 975.6)),), ())


def test_the_bar_of_a_backward_call_has_the_colour_of_the_column_that_its_number_stands_in() -> None:
    table = lines_of()
    at = [column.name for column in table.columns].index("bar")
    ((parts, _),) = (row_at(table, "In[3]:7").cells[at].picture,)
    assert [meaning for meaning, _ in parts] == ["torch"]


def test_a_line_that_only_calls_says_its_inclusive_time() -> None:
    table = lines_of()
    assert row_at(table, "In[3]:6").cells[-1].note == "1\u202f210 ms with calls"
    assert row_at(table, "In[2]:8").cells[-1].note == ""


def test_the_detail_of_a_line_is_its_operations() -> None:
    detail = row_at(lines_of(), "In[3]:7").detail
    assert detail is not None
    assert names(detail) == ["aten::mm", "engine: AddmmBackward0"]
    assert detail.columns[0].label == "operation of In[3]:7"
    assert row_at(lines_of(), "In[2]:10").detail is None


def test_sorted_by_a_column_a_line_is_named_by_its_place() -> None:
    assert row_at(lines_of(), "In[2]:8").cells[0].flat == "In[2]:8"


def test_a_file_is_shown_by_function_and_not_as_this_cell() -> None:
    profile = profile_of(sources={
        "cell": Source("cell", "/project/train.py", "def train():\n" + CELL.replace("%%", "    # %%")),
        "module": Source("module", "<module>", MODULE, cell=2),
    })  # fmt: skip
    assert all("this cell" not in group.title for group in lines_of(profile).groups)
    assert all("/project" not in group.title for group in lines_of(profile).groups)


def test_lines_of_other_threads_are_groups_of_their_own_outside_the_sum() -> None:
    profile = profile_of()
    frame = profile.lines.copy()
    extra = frame[frame["line"] == 8].assign(thread=1)
    import pandas as pd

    both = profile_of()
    object.__setattr__(both, "lines", pd.concat([frame, extra], ignore_index=True))
    object.__setattr__(both, "threads", ("MainThread", "loader"))
    table = lines_of(both)
    assert table.groups[-1].note == "thread loader, beside the cell's"
    assert table.totals == lines_of().totals


def test_a_source_whose_text_is_gone_is_shown_from_the_lines_that_ran() -> None:
    table = lines_of(profile_of(sources={"cell": Source("cell", "<cell>", CELL, cell=3)}))
    assert "        out = self.linear(input)" in names(table, "source")


# ---- operations ---------------------------------------------------------------------------------------------


def test_operations_are_summed_per_name_largest_first() -> None:
    table = operations(profile_of())
    assert names(table) == [
        "aten::mm", "aten::uniform_", "aten::addmm", "engine: AddmmBackward0", "aten::empty",
    ]  # fmt: skip
    assert names(table, "line")[-1] == "In[3]:2 (50 %) and 1 more"
    assert names(table, "calls")[-1] == "11"


def some_ops(*rows: tuple[str, int | None, int, float]) -> Profile:
    """(op, line, thread, seconds) each."""
    op, line, thread, seconds = map(list, zip(*rows, strict=True))
    there = {"cell": [7 if at else None for at in line], "source_id": ["ab" if at else None for at in line]}
    ops = rows_of(OP_COLUMNS, op=op, line=line, thread=thread, self_cpu_time=seconds, cpu_time=seconds, **there)
    return dataclasses.replace(profile_of(), ops=ops)


def test_the_line_of_an_operation_says_how_much_of_it_stands_there() -> None:
    table = operations(
        some_ops(
            ("all", 2, 0, 9.0),
            ("most", 2, 0, 6.0), ("most", 3, 0, 2.0),
            ("little", 2, 0, 1.0), ("little", None, 1, 3.0),
            ("nothing", None, 1, 1.0),
        )
    )  # fmt: skip
    lines = dict(zip(names(table), names(table, "line"), strict=True))
    assert lines == {
        "all": "In[7]:2",
        "most": "In[7]:2 (75 %) and 1 more",
        "little": "no line (75 %) and 1 more",
        "nothing": "no line",
    }


def test_shares_above_the_wall_time_are_explained() -> None:
    two = plain(view.document(some_ops(("a", 2, 0, 3.0), ("a", 3, 1, 3.0))).footer[0])
    one = plain(view.document(some_ops(("a", 2, 0, 3.0))).footer[0])
    assert "Operations ran on 2 threads in parallel: their % can add up to more than 100." in two
    assert "side by side" not in one


def test_what_is_not_shown_is_counted_with_its_time_and_its_place() -> None:
    assert operations(profile_of()).hidden == "5 of 8 operations; the other 3 take 2.2 ms. All rows: .ops"
    assert operations(profile_of(), row_limit=-1).hidden == ""


@pytest.mark.parametrize(
    ("key", "first"),
    [
        ("self_cpu_time_total", "aten::mm"),
        ("cpu_time_total", "engine: AddmmBackward0"),
        ("count", "aten::empty"),
        ("calls", "aten::empty"),
        ("cpu_memory_usage", "aten::empty"),
        ("self_cpu_memory_usage", "aten::empty"),
        ("op", "LINEAR PASS"),
    ],
)
def test_torchs_sort_keys_and_column_names_are_taken(key: str, first: str) -> None:
    assert names(operations(profile_of(), sort_by=key))[0] == first


def test_every_key_that_torchs_profiler_takes_is_known() -> None:
    for key in ("cuda_time_total", "self_cuda_time_total", "device_time_total", "self_device_time_total",
                "cuda_memory_usage", "self_device_memory_usage", "xpu_time_total"):  # fmt: skip
        assert key in SORT_KEYS


def test_an_unknown_sort_key_lists_the_valid_ones_before_anything_ran() -> None:
    with pytest.raises(OptionError, match=r"sort_by 'tiem' is unknown; use one of op, calls, self_cpu_time"):
        view.check_keys("tiem", None)
    view.check_keys("count", "stack:3")
    view.check_keys(None, None)


def test_a_key_that_was_not_measured_says_what_the_order_is_instead() -> None:
    table = operations(profile_of(memory=False), sort_by="cpu_memory_usage")
    assert table.hidden.startswith("allocated was not measured: sorted by self time; the 4 largest by self time of 8")
    assert names(table)[0] == "aten::mm"


def test_a_row_limit_cuts_the_operations() -> None:
    assert len(operations(profile_of(), row_limit=2)) == 2
    assert len(operations(profile_of(), row_limit=0)) == 0


def test_the_printed_table_groups_by_input_shape_on_demand() -> None:
    ops = [*OPS, ("aten::mm", "module", 8, 1, 5.0, 5.0, 0.0, "[[2, 2], [2, 2]]")]
    profile = profile_of(ops=ops)
    plain_table = profile.table(sort_by="self_cpu_time_total", row_limit=10)
    by_shape = profile.table(row_limit=10, group_by_input_shape=True)
    assert sum("aten::mm" in line for line in plain_table.splitlines()) == 1
    assert sum("aten::mm" in line for line in by_shape.splitlines()) == 2
    assert "[[2, 2], [2, 2]]" in by_shape
    assert "[[" not in plain_table


def test_shapes_lose_the_brackets_that_say_nothing() -> None:
    assert shapes_text("[[3, 4], []]") == "[3, 4] []"
    assert shapes_text("[]") == ""


# ---- doubts and footer --------------------------------------------------------------------------------------


def test_the_doubt_that_memory_is_outside_torch_is_shown() -> None:
    doubt = Doubt("outside-torch", "In[2]:9 allocates outside torch.", "See `tracemalloc`.")
    document = view.document(profile_of(warnings=[doubt]))
    assert plain(document.doubts[0]) == "In[2]:9 allocates outside torch. See tracemalloc."


def test_a_partial_profile_says_so() -> None:
    assert plain(view.document(profile_of(partial=True)).doubts[0]).startswith("Partial: ")


def test_the_footer_tells_threads_versions_events_and_the_attributed_share() -> None:
    *_, last = view.document(profile_of()).footer
    assert plain(last).replace("\u202f", " ") == (
        "2 threads · CPU · torch 2.13.0+cpu · Python 3.11.7 · 1 204 events · 99.7 % attributed"
    )


def test_a_profile_whose_events_were_lost_shows_wall_times_and_claims_nothing_of_torch() -> None:
    known = profile_of(memory=False)
    lines = known.lines.copy()
    lines[["self_cpu_time", "cpu_time", "python_time", "backward_cpu_time"]] = float("nan")
    lost = [Doubt("events-lost", "The code started a torch profiler of its own.")]
    made = dataclasses.replace(known, lines=lines, ops=known.ops.iloc[:0], memory=None, warnings=lost)
    document = view.document(made)
    assert "how much of it is torch is not known" in plain(document.sentence)
    (table,) = document.tables
    assert [column.name for column in table.columns] == ["line", "bar", "wall_time", "calls", "source"]
    longest = max(table.rows(), key=lambda row: row.cells[1].value or 0.0)
    assert longest.cells[1].value == lines["wall_time"].max()
    text = to_text(made)
    for claim in ("attributed", "= 0 torch", "no torch operation ran", "0 %", "nan"):
        assert claim not in text
    assert "own profiler" not in known.to_markdown()
    assert "torch profiler of its own" in made.to_markdown()
    assert "no torch operation ran" not in made.table()


@pytest.mark.slow
def test_a_peak_below_the_start_of_the_cell_is_explained() -> None:
    import torch

    from torchbench_magic import profile

    names = {"torch": torch, "old": torch.ones(1 << 18), "empty": torch.empty(0)}
    freed = profile("old.data = empty\nx = empty + 1\n", globals=names, memory=True)
    assert freed.lines["peak"].min() < 0
    assert "so they are negative when older blocks were freed" in " ".join(repr(freed).split())
    assert "peak −" not in repr(freed), "at its start the cell held what it held"
    assert "older blocks" not in repr(profile("x = torch.ones(4)\n", globals={"torch": torch}, memory=True))


# ==== inside line =====================================================================================================
# What is said to hold the time of a line that calls much.


def profile_of_frames(*frames: tuple[int, str, str, float], source: str = "trainer.train()") -> Profile:
    """Frames ``(parent, kind, name, self seconds)``, on line 2 of one cell, below the thread, which is 0."""
    parent, kind, name, own = map(list, zip((-1, "thread", "MainThread", 0.0), *frames, strict=True))
    whole, on = sum(own), [2] * len(frames)
    found = rows_of(
        FRAME_COLUMNS, parent=parent, kind=kind, name=name, self_time=own, line=[None, *on], calls=0,
        source_id=[None, *["ab"] * len(frames)],
    )  # fmt: skip
    times = dict.fromkeys(("wall_time", "self_cpu_time", "cpu_time"), whole) | {"python_time": 0.0}
    lines = rows_of(LINE_COLUMNS, cell=3, line=[2], source=source, backward_cpu_time=0.0, **times)
    return Profile(lines, frame_of(OP_COLUMNS, {}), whole, 1, frames=found, source_id="ab")


ENGINE = "autograd::engine::evaluate_function: "
TRAINING = (
    (0, "line", "In[3]:2", 0.5),
    (1, "module", "model", 0.1),
    (2, "op", "aten::addmm", 1.9),
    (1, "op", f"{ENGINE}AddmmBackward0", 0.5),
    (4, "op", "aten::mm", 0.5),
    (1, "python", "Optimizer.step#SGD.step", 0.4),
)


def test_modules_backward_and_ranges_of_a_line_hold_its_time() -> None:
    found = inside_line(profile_of_frames(*TRAINING), "ab", 2)
    assert [(name, round(seconds, 9)) for name, seconds in found] == [
        ("model", 2.0),
        ("backward", 1.0),
        ("Optimizer.step#SGD.step", 0.4),
    ]


def test_the_sentence_goes_one_level_deeper_and_names_the_option() -> None:
    sentence = plain(view.document(profile_of_frames(*TRAINING)).sentence)
    assert "; inside it model 2.00 s, backward 1.00 s, Optimizer.step#SGD.step 400 ms" in sentence
    assert sentence.endswith("; more with --group-by module")


def test_of_code_that_is_compiled_as_one_piece_only_its_first_line_is_known() -> None:
    def said(compiled: float) -> str:
        frames = (
                (0, "line", "In[3]:2", 1.0),
            (1, "op", "Torch-Compiled Region: 1/0", 0.0),
            (2, "function", "the rest of f", 0.0),
            (3, "line", "In[3]:2", compiled / 2),
            (4, "op", "aten::mm", compiled / 2),
        )
        return plain(view.document(profile_of_frames(*frames)).sentence)

    assert said(1.1).startswith("In[3]:2, with the code compiled from there on, takes 100 % of the time")
    assert said(0.9).startswith("In[3]:2 takes 100 % of the time")


def test_where_one_module_holds_nearly_all_its_children_are_named() -> None:
    frames = (
        (0, "line", "In[3]:2", 0.02),
        (1, "module", "net", 0.03),
        (2, "module", "net.0", 0.6),
        (2, "module", "net.2", 0.3),
    )
    assert [name for name, _ in inside_line(profile_of_frames(*frames), "ab", 2)] == ["net.0", "net.2"]


def test_a_module_that_the_line_itself_names_is_not_repeated() -> None:
    frames = ((0, "line", "In[3]:2", 0.02), (1, "module", "net", 0.9))
    assert "inside" not in plain(view.document(profile_of_frames(*frames, source="y = net(x)")).sentence)


def test_a_line_without_named_frames_has_nothing_inside() -> None:
    assert inside_line(profile_of_frames((0, "line", "In[3]:2", 1.0)), "ab", 2) == []


def test_a_line_with_the_backward_pass_that_it_caused_names_modules_by_both() -> None:
    frames = (
        (0, "line", "In[3]:2", 0.1),
        (1, "module", "net.0", 1.0),
        (2, "op", "aten::mm", 0.5),
        (1, "module", "net.1", 0.9),
    )
    profile = profile_of_frames(*frames, source="y = step(x)")
    caused = profile.frames.assign(backward_cpu_time=[0.0, 0.0, 0.0, 0.2, 3.0])
    profile = replace(
        profile, frames=caused, lines=profile.lines.assign(backward_cpu_time=[3.2]), wall_time=profile.wall_time + 3.2
    )
    sentence = plain(view.document(profile).sentence)
    assert "takes 100 % of the time (5.70 of 5.70 s), forward and backward; inside it" in sentence
    assert "; inside it net.1 3.90 s, net.0 1.70 s" in sentence


def test_the_wait_for_workers_is_said_in_words() -> None:
    frames = (
        (0, "line", "In[3]:2", 0.1),
        (1, "python", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 0.9),
    )
    sentence = plain(view.document(profile_of_frames(*frames)).sentence)
    assert "; inside it waiting for the DataLoader's workers 900 ms" in sentence
    assert "enumerate" not in sentence


def test_the_range_of_a_step_has_no_name_but_what_runs_in_it_has() -> None:
    frames = (
        (0, "line", "In[3]:2", 0.1),
        (1, "python", "ProfilerStep*", 0.9),
        (2, "module", "net", 0.5),
    )
    assert inside_line(profile_of_frames(*frames), "ab", 2) == [("net", 0.5)]
    assert "ProfilerStep" not in plain(view.document(profile_of_frames(*frames)).sentence)


def test_where_no_line_is_known_the_range_of_a_step_is_not_what_takes_the_time() -> None:
    profile = replace(profile_of_frames((0, "line", "In[3]:2", 1.0)), frames=frame_of(FRAME_COLUMNS, {}))
    ops = frame_of(OP_COLUMNS, {"op": ["ProfilerStep*", "aten::mm"], "self_cpu_time": [0.9, 0.1], "thread": [0, 0]})
    sentence = plain(view.document(replace(profile, lines=frame_of(LINE_COLUMNS, {}), ops=ops)).sentence)
    assert sentence.startswith("aten::mm takes 10 % of")


# ==== insight lines ===================================================================================================
# Insights in each carrier: at most three under the sentence, each unfolds; all in the widget; new and gone.


MATMUL = Did(100, 0.001, [Op("aten::mm", 100, 0.2)])
COPIES = Did(100, 1e-3, [Op("aten::contiguous", 100, 1e-4), Op("aten::contiguous > aten::clone", 100, 0.1)])
SMALL = Did(20_000, 0.05, [Op("aten::add", 20_000, 0.04)])
BOTH = "%%tprofile\nfor i in range(100):\n    y = y + 1\n    w = x.t().contiguous()\n    z = x @ x"


def both() -> Profile:
    """`copies` on line 4, and with less at stake `overhead` on line 3."""
    return built_profile(BOTH, {3: SMALL, 4: COPIES, 5: MATMUL})


def many() -> Profile:
    text = "%%tprofile\nfor i in range(100):\n" + "    y = x.contiguous()\n" * 5
    return built_profile(text, dict.fromkeys(range(3, 8), COPIES))


def test_text_has_each_with_its_kind_its_evidence_and_its_cures_under_the_sentence() -> None:
    lines = repr(both()).splitlines()
    (at,) = [n for n, line in enumerate(lines) if line.startswith("* overhead: In[1]:3 runs 20")]
    assert lines[0].startswith("In[1]:5 takes")
    assert lines[1].startswith("* copies: In[1]:4 copies 100 tensors into another layout")
    under = " ".join(line.strip() for line in lines[at + 1 : at + 8] if line.startswith("  "))
    assert "operations 20 000" in under.replace("\u202f", " ")
    assert "most called aten::add" in under
    assert "torch.compile" in under


def test_markdown_has_them_as_a_list_in_a_list() -> None:
    shown = both().to_markdown()
    assert "\n- copies: `In[1]:4` copies 100 tensors" in shown
    assert "\n  - Leave out `contiguous`" in shown


def test_html_unfolds_them_without_script_and_the_module_gets_the_same() -> None:
    drawn = document(both())
    static = html.static(drawn)
    assert static.count("<details>") == 2
    assert "<summary><strong>copies</strong>: <code>In[1]:4</code>" in static
    sent = page_data.as_dict(drawn)["insights"]
    assert [each[0][1][0] if each[0][0] == "" else each[0][0][0] for each in sent] == ["copies", "overhead"]
    assert len(sent[0]) == 1 + 1 + len(both().insights[0].cures)


def test_at_most_three_are_shown_and_the_rest_counted_and_all_are_in_the_widget() -> None:
    profile = many()
    drawn = document(profile)
    assert len(profile.insights) == 5
    assert len(drawn.insights) == 3
    assert "2 more in" in " ".join(map(plain, drawn.footer))
    tables = {table.name: table for table in ProfileExplorer(profile).document.tables}
    assert len(tables["insights"]) == 5
    assert "insights" not in [table.name for table in ProfileExplorer(profile_without()).document.tables]


def profile_without() -> Profile:
    return replace(many(), partial=True)


def test_nothing_is_added_where_there_are_none() -> None:
    drawn = document(profile_without())
    assert drawn.insights == ()
    assert "insights" not in page_data.as_dict(drawn)
    assert "Insights" not in repr(profile_without())


EDITED = """\
%%tprofile
w = x.t().contiguous()
for i in range(100):
    y = y + 1
    z = x @ x
    v = z.contiguous()"""


def edited() -> Profile:
    """The copy of line 4 is made once now, `overhead` stays on what was line 3, and line 6 copies."""
    did = {2: Did(1, 1e-5), 4: SMALL, 5: MATMUL, 6: COPIES}
    profile = built_profile(EDITED, did)
    other = {"source_id": {SOURCE: "cd34"}}
    moved = {name: getattr(profile, name).replace(other) for name in ("lines", "ops", "frames")}
    return replace(profile, **moved, sources={"cd34": Source("cd34", "<cell>", EDITED, 2)}, source_id="cd34")


def test_a_diff_says_which_are_new_and_which_are_gone_by_the_line_that_it_is() -> None:
    diff = ProfileDiff(both(), edited())
    assert [(each.kind, each.places[0].line) for each in edited().insights] == [("copies", 6), ("overhead", 4)]
    assert [(each.kind, each.places[0].label) for each in diff.insights_new] == [("copies", "In[2]:6")]
    assert [(each.kind, each.places[0].label) for each in diff.insights_gone] == [("copies", "In[1]:4")]
    words = [plain(each.line).split(" copies 100")[0] for each in diff_document(diff).insights]
    assert words == ["new, copies: In[2]:6", "gone, copies: In[1]:4"]
    assert "* gone, copies: In[1]:4" in repr(diff)


def test_a_diff_of_one_profile_with_itself_has_none() -> None:
    diff = ProfileDiff(both(), both())
    assert diff.insights_new == diff.insights_gone == ()
    assert not diff_document(diff).insights


@pytest.mark.parametrize(
    "changes", [{"partial": True}, {"profiler_cost": "most"}, {"warnings": [Doubt("busy", "Busy.")]}], ids=str
)
def test_what_is_not_known_of_one_is_neither_new_nor_gone(changes: dict[str, object]) -> None:
    doubtful = replace(both(), **changes)  # type: ignore[arg-type]
    for diff in (ProfileDiff(both(), doubtful), ProfileDiff(doubtful, both())):
        assert diff.insights_new == diff.insights_gone == ()
        assert "insights-not-known" in [doubt.kind for doubt in diff.warnings]


def test_a_name_with_markup_is_text() -> None:
    text = BOTH.replace("x.t()", "f('<b>`|*').t()")
    profile = replace(both(), sources={SOURCE: Source(SOURCE, "<i>.py", text)})
    static = html.static(document(profile))
    assert "<i>.py" not in static
    assert "&lt;i&gt;.py:4" in static
