"""The call tree on synthetic streams: no profiler, every time a round number."""

from __future__ import annotations

from array import array

import pandas as pd

from torchbench_magic.profiling.call_tree_tables import sum_of_frames
from torchbench_magic.profiling.join import join_the_rest
from torchbench_magic.profiling.line_events import LEAVE, entered
from torchbench_magic.profiling.module_calls import ModuleRecord
from torchbench_magic.profiling.tables import frame_table
from torchbench_magic.profiling.trace import Source

from .test_attribution import BODY, BODY_RUNS, DEVICE, MAIN, F, events, joined, stream

SOURCE = {"<cell>": Source("s", "<cell>", "x = 1\ny = 2\n", cell=3)}
NONE = ModuleRecord()

# line 1 calls f (10 to 40); line 2 from 50
CALLS = stream((0, entered(BODY)), (0, 1), (10, entered(F)), (12, 2), (40, LEAVE), (50, 2), (100, LEAVE))


def frames(result, modules=NONE, every=None, memory=None) -> pd.DataFrame:
    run = join_the_rest(result, events() if every is None else every, memory, modules)
    return frame_table(run, SOURCE, [f"thread {thread.number}" for thread in result.threads])


def tree_of(table: pd.DataFrame, column: str = "self_time") -> list[tuple[str, int]]:
    """(indented name, ns or what the column holds) by row."""
    depth: list[int] = []
    found = []
    for parent, name, value in zip(table["parent"], table["name"], table[column], strict=True):
        depth.append(depth[parent] + 1 if parent >= 0 else 0)
        found.append((" " * depth[-1] + name, round(value * 1e9) if table[column].dtype == float else int(value)))
    return found


def test_a_function_stands_between_the_calling_line_and_its_own_lines() -> None:
    table = frames(joined(events({"name": "mm", "start": 20, "end": 30}), CALLS))
    assert tree_of(table) == [
        ("thread 0", 0),
        (" In[3]:1", 20),
        ("  f", 0),
        ("   In[3]:1", 2),  # the def line, as it is entered
        ("   In[3]:2", 18),
        ("    mm", 10),
        (" In[3]:2", 50),
    ]
    assert dict(tree_of(table, "calls"))["  f"] == 1
    assert round(table["wall_time"].iloc[1] * 1e9) == 50


def test_a_range_that_stays_open_stands_below_each_line_and_counts_once() -> None:
    table = frames(joined(events({"name": "R", "start": 20, "end": 70, "kind": "user_annotation"}), BODY_RUNS))
    assert tree_of(table) == [
        ("thread 0", 6),
        (" In[3]:1", 19),
        ("  R", 30),
        (" In[3]:2", 25),
        ("  R", 20),
    ]
    assert [n for name, n in tree_of(table, "calls") if name == "  R"] == [1, 0]


def test_a_module_stands_between_the_line_and_its_ops() -> None:
    marks = array("q", [5, 0, 10, 1, 40, -2, 45, -1])
    modules = ModuleRecord(("net", "net.0"), {MAIN: marks})
    result = joined(events({"name": "mm", "start": 20, "end": 30}), BODY_RUNS)
    table = frames(result, modules)
    assert tree_of(table) == [
        ("thread 0", 6),
        (" In[3]:1", 9),
        ("  net", 10),
        ("   net.0", 20),
        ("    mm", 10),
        (" In[3]:2", 45),
    ]
    tree = join_the_rest(result, events(), None, modules).tree
    assert [tree.module_names[number] for number in tree.op_module] == ["net.0"]


def test_a_call_that_never_ended_ends_with_the_one_around_it_or_with_the_run() -> None:
    record = ModuleRecord(("a", "b"), {MAIN: array("q", [5, 0, 10, 1, 40, -1, 50, 1])})
    columns = (column.tolist() for column in record.calls(MAIN, 0, 100))
    assert list(zip(*columns, strict=True)) == [(5, 40, 0), (10, 40, 1), (50, 100, 1)]
    assert not len(record.calls(DEVICE, 0, 100)[0])


def test_a_kernel_is_on_the_op_that_launched_it_or_on_the_line() -> None:
    every = events(
        {"name": "linear", "start": 10, "end": 30, "corr": 1},
        {"name": "mm", "start": 12, "end": 20, "corr": 2},
        {"name": "cudaLaunchKernel", "start": 13, "kind": "cuda_runtime", "corr": 501, "link": 2},
        {"name": "gemm", "start": 70, "end": 90, "kind": "kernel", "corr": 501, "link": 2, "native": 7},
        {"name": "cudaLaunchKernel", "start": 60, "kind": "cuda_runtime", "corr": 502},
        {"name": "custom", "start": 300, "end": 305, "kind": "kernel", "corr": 502, "native": 7},
    )
    result = joined(every.where(every.is_op), BODY_RUNS)
    table = frames(result, every=every)
    assert tree_of(table, "self_device_time") == [
        ("thread 0", 0),
        (" In[3]:1", 0),
        ("  linear", 0),
        ("   mm", 20),
        (" In[3]:2", 5),
    ]
    assert [value for _, value in tree_of(table, "device_time")] == [25, 20, 20, 20, 5]


def test_backward_on_another_thread_is_below_the_line_that_waits_and_caused_by_the_forward_op() -> None:
    ops = events(
        {"name": "exp", "start": 10, "end": 20, "seq": 3},
        {"name": "ExpBackward0", "start": 60, "end": 70, "seq": 3, "fwd": 1, "scope": 1, "native": DEVICE, "tid": 4},
        {"name": "mul", "start": 62, "end": 65, "native": DEVICE, "tid": 4},
    )
    modules = ModuleRecord(("net",), {MAIN: array("q", [5, 0, 45, -1])})
    result = joined(ops, BODY_RUNS, natives=(MAIN, DEVICE))
    table = frames(result, modules)
    assert dict(tree_of(table, "backward_cpu_time"))["   exp"] == 10
    of_thread = table[table["thread"] == 1]
    assert of_thread["name"].tolist() == ["thread 1", "In[3]:2", "ExpBackward0", "mul"]
    assert (of_thread["self_time"] * 1e9).round().tolist() == [0, 0, 7, 3]
    assert join_the_rest(result, events(), None, modules).tree.op_module.tolist() == [0, 0, 0]


def test_bytes_stand_where_they_were_taken() -> None:
    every = events(
        {"name": "mm", "start": 20, "end": 30},
        {"name": "[memory]", "start": 25, "nbytes": 400},
        {"name": "[memory]", "start": 60, "nbytes": -400},
    )
    result = joined(every.where(~every.is_memory), BODY_RUNS)
    table = frames(result, memory=every.where(every.is_memory))
    assert dict(tree_of(table, "allocated"))["  mm"] == 400
    assert dict(tree_of(table, "freed"))[" In[3]:2"] == 400
    assert table["allocated"].sum() == table["freed"].sum() == 400


def test_a_deep_recursion_does_not_overflow() -> None:
    deep = 2000
    marks = [(0, entered(BODY)), (0, 1)]
    marks += [mark for n in range(deep) for mark in ((n + 1, entered(F)), (n + 1, 2))]
    marks += [(deep + 1 + n, LEAVE) for n in range(deep + 1)]
    op = events({"name": "mm", "start": deep, "end": deep + 1})
    table = frames(joined(op, stream(*marks), end=2 * deep + 10))
    assert table["kind"].tolist().count("function") == deep
    assert round(table["wall_time"].iloc[0] * 1e9) == 2 * deep + 10


def test_trees_of_several_runs_add_up() -> None:
    one = frames(joined(events({"name": "mm", "start": 20, "end": 30}), BODY_RUNS))
    ops = events({"name": "mm", "start": 20, "end": 24}, {"name": "add", "start": 60, "end": 65})
    other = frames(joined(ops, BODY_RUNS))
    both = sum_of_frames([one, other])
    found = {name: (ns, calls) for (name, ns), (_, calls) in zip(tree_of(both), tree_of(both, "calls"), strict=True)}
    assert found["  mm"] == (14, 2)
    assert found["  add"] == (5, 1)
    assert round(both["wall_time"].iloc[0] * 1e9) == 200
    assert both["allocated"].isna().all()
