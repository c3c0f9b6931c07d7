"""The call tree: on synthetic streams, and where a backward pass calls Python."""

from __future__ import annotations

from array import array

import pandas as pd
import pytest

from torchbench_magic import profile
from torchbench_magic.profiling.call_tree_tables import modules_of, sum_of_trees
from torchbench_magic.profiling.events import Events
from torchbench_magic.profiling.join import join_the_rest
from torchbench_magic.profiling.line_events import LEAVE, entered
from torchbench_magic.profiling.module_calls import ModuleRecord
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.profile_tables import frame_table
from torchbench_magic.profiling.schema import FRAME_COLUMNS
from torchbench_magic.profiling.trace import Source

from .cases import Case
from .running import run_case
from .test_attribution import BACKWARD, BODY, BODY_RUNS, DEVICE, KERNELS, MAIN, F, events, joined, stream

# ==== synthetic tree ==================================================================================================
# The call tree on synthetic streams: no profiler, every time a round number.


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
    every = events(*KERNELS)
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
    modules = ModuleRecord(("net",), {MAIN: array("q", [5, 0, 45, -1])})
    result = joined(events(*BACKWARD), BODY_RUNS, natives=(MAIN, DEVICE))
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
    both = sum_of_trees([one, other], FRAME_COLUMNS, is_complete=True)
    found = {name: (ns, calls) for (name, ns), (_, calls) in zip(tree_of(both), tree_of(both, "calls"), strict=True)}
    assert found["  mm"] == (14, 2)
    assert found["  add"] == (5, 1)
    assert round(both["wall_time"].iloc[0] * 1e9) == 200
    assert both["allocated"].isna().all()


# ==== caused time =====================================================================================================
# A backward pass that calls Python: whose time that is, on synthetic streams and in checkpoints that really run.


_ENGINE = "autograd::engine::evaluate_function: "


def sine_whose_node_runs_more() -> Events:
    """``sin`` on line 1; its node on line 2, from 60 to 90, runs ``exp`` from 70 to 80 and ``cos`` after it."""
    return events(
        {"name": "sin", "start": 10, "end": 20, "seq": 3},
        {"name": _ENGINE + "SinBackward0", "start": 60, "end": 90, "seq": 3, "fwd": 1},
        {"name": "SinBackward0", "start": 60, "end": 90, "seq": 3, "fwd": 1, "scope": 1},
        {"name": "exp", "start": 70, "end": 80, "seq": 4},
        {"name": "cos", "start": 86, "end": 89},
    )


# the node of line 2 calls f from 65 to 85
CALLS_BACK = stream((1, entered(BODY)), (2, 1), (50, 2), (65, entered(F)), (66, 2), (85, LEAVE), (95, LEAVE))
# net from 5 to 45, with last from 8 to 30; and both once more while the node runs
CALLED_AGAIN = ModuleRecord(
    ("net", "last"), {MAIN: array("q", [5, 0, 8, 1, 30, -2, 45, -1, 65, 0, 66, 1, 84, -2, 85, -1])}
)


def test_what_recorded_python_runs_inside_a_backward_node_is_caused_by_no_other_line() -> None:
    result = joined(sine_whose_node_runs_more(), CALLS_BACK)
    assert [result.ops.names[name] for name in result.ops.name[result.made_by >= 0]] == [
        _ENGINE + "SinBackward0",
        "SinBackward0",
        "cos",
    ]
    assert result.self_time[result.made_by >= 0].sum() == 30 - 20
    table = frames(result)
    assert [ns for name, ns in tree_of(table, "backward_cpu_time") if name.strip() == "sin"] == [10]


def test_a_module_that_the_pass_calls_again_has_that_time_as_backward_and_not_as_forward() -> None:
    made = modules_of(frames(joined(sine_whose_node_runs_more(), BODY_RUNS), CALLED_AGAIN))
    assert made["name"].tolist() == ["net", "last"]
    assert made["parent"].tolist() == [-1, 0]
    assert made["calls"].tolist() == [2, 2]
    assert (made["forward_time"] * 1e9).round().tolist() == [40, 22]
    assert (made["self_time"] * 1e9).round().tolist() == [18, 22]
    assert (made["backward_cpu_time"] * 1e9).round().tolist() == [10 + 20, 10 + 18]


def test_a_line_caused_what_its_modules_do_again_and_each_of_them_its_own() -> None:
    table = frames(joined(sine_whose_node_runs_more(), BODY_RUNS), CALLED_AGAIN)
    caused = {name.strip(): ns for name, ns in tree_of(table, "backward_cpu_time") if ns}
    assert caused == {"net": 2, "last": 18, "sin": 10}
    assert sum(caused.values()) == 30


def test_a_module_whose_own_backward_is_python_with_lines_caused_that_time_too() -> None:
    record = ModuleRecord(("net",), {MAIN: array("q", [5, 0, 45, -1])})
    made = modules_of(frames(joined(sine_whose_node_runs_more(), CALLS_BACK), record))
    assert (made["backward_cpu_time"] * 1e9).round().tolist() == [30]


def test_a_module_that_only_a_backward_pass_calls_has_a_row_of_its_own() -> None:
    record = ModuleRecord(("net", "other"), {MAIN: array("q", [5, 0, 45, -1, 65, 1, 85, -2])})
    made = modules_of(frames(joined(sine_whose_node_runs_more(), BODY_RUNS), record))
    assert list(zip(made["name"], made["calls"], strict=True)) == [("net", 1), ("other", 1)]
    assert (made["forward_time"] * 1e9).round().tolist() == [40, 0]
    assert (made["backward_cpu_time"] * 1e9).round().tolist() == [10, 20]


def test_a_module_of_two_parents_that_the_pass_calls_again_is_not_counted_to_either() -> None:
    marks = [2, 0, 3, 2, 4, -3, 9, -1, 9, 1, 9, 2, 30, -3, 45, -2, 65, 2, 85, -3]
    made = modules_of(
        frames(
            joined(sine_whose_node_runs_more(), BODY_RUNS),
            ModuleRecord(("a", "b", "c"), {MAIN: array("q", marks)}),
        )
    )
    assert list(zip(made["name"], made["parent"], made["calls"], strict=True)) == [
        ("a", -1, 1),
        ("c", 0, 1),
        ("b", -1, 1),
        ("c", 2, 1),
        ("c", -1, 1),
    ]


def test_a_tree_that_was_stored_without_what_modules_caused_has_what_lines_caused() -> None:
    record = ModuleRecord(("net",), {MAIN: array("q", [5, 0, 45, -1])})
    table = frames(joined(sine_whose_node_runs_more(), BODY_RUNS), record)
    old = table.assign(module_backward_time=float("nan"))
    assert (modules_of(old)["backward_cpu_time"] * 1e9).round().tolist() == [30]


def test_a_call_by_the_pass_in_a_tree_that_was_stored_so_is_backward_once() -> None:
    record = ModuleRecord(("net",), {MAIN: array("q", [5, 0, 45, -1, 65, 0, 85, -1])})
    old = frames(joined(sine_whose_node_runs_more(), BODY_RUNS), record).assign(module_backward_time=float("nan"))
    made = modules_of(old)
    assert (made["forward_time"] * 1e9).round().tolist() == [40]
    assert (made["backward_cpu_time"] * 1e9).round().tolist() == [30]


# ---- checkpoints that run ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[False, True], ids=["hooks", "reentrant"])
def checkpointed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Profile:
    """A checkpoint whose function multiplies matrices before the line that ends it."""
    pytest.importorskip("torch")
    case = Case(
        "checkpoint",
        (
            """import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 8)
    def forward(self, x):
        with torch.no_grad():
            w = big @ big @ big
        h = self.l(x) * w[0, 0]
        return h.sin()
class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.b = Inner()
    def forward(self, x):
        return checkpoint(self.b, x, use_reentrant=reentrant)
big, net, x = torch.ones(200, 200), Outer(), torch.ones(4, 8, requires_grad=True)
reentrant = """
            + str(request.param),
            "%%tprofile\ny = net(x)\ny.sum().backward()\n",
        ),
    )
    return run_case(case, tmp_path_factory.mktemp("notebook")).outcome.profile


def test_what_a_checkpoint_runs_again_stands_on_its_lines_and_is_no_backward_of_another(
    checkpointed: Profile,
) -> None:
    lines, trace = checkpointed.lines.set_index("line"), checkpointed.trace
    assert lines.loc[lines["source"].str.contains("w = big @ big", na=False), "calls"].tolist() == [2]
    names = trace.events["name"].map(trace.names.__getitem__)
    on_their_lines = trace.events[names.isin(["aten::matmul", "aten::linear", "aten::sin"])]
    assert len(on_their_lines) >= 7  # the second sin may be left out: its result is not needed
    assert (on_their_lines["caused_by"] == -1).all()
    caused = trace.events[names == "SinBackward0"]["caused_by"].map(trace.nodes["line"])
    assert lines.loc[caused, "source"].str.strip().tolist() == ["return h.sin()"]


def test_a_checkpointed_module_is_one_row_with_both_calls(checkpointed: Profile) -> None:
    lines, modules = checkpointed.lines, checkpointed.modules.set_index("name")
    assert modules.index.tolist() == ["net", "net.b", "net.b.l"]
    assert modules["parent"].tolist() == [-1, 0, 1]
    assert modules["calls"].tolist() == [1, 2, 2]
    inside = lines[lines["source"].str.contains("big @ big|h.sin|self.l", na=False)]
    both = modules.loc["net.b", ["forward_time", "backward_cpu_time"]]
    assert both.sum() >= inside[["self_cpu_time", "python_time"]].sum().sum() - 1e-8


def test_what_a_checkpoint_runs_again_is_no_time_forward(checkpointed: Profile) -> None:
    trace, modules = checkpointed.trace, checkpointed.modules.set_index("name")
    names = trace.events["name"].map(trace.names.__getitem__)
    products = trace.events[names == "aten::mm"]
    begin = trace.events[names.str.startswith(_ENGINE)]["start"].min()
    again = products[products["start"] > begin]
    assert 2 <= len(again) < len(products), "the product of the weights' gradient may be an addmm"
    assert modules.loc["net.b", "backward_cpu_time"] >= again["duration"].sum() / 1e9 - 1e-8
    forward = checkpointed.frames[checkpointed.frames["source"].str.contains("y = net(x)", na=False, regex=False)]
    assert modules.loc["net", "forward_time"] <= forward["wall_time"].sum() + 1e-8


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_in_checkpoints_are_backward_too(reentrant: bool) -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.checkpoint import checkpoint

    class Wrapped(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, inner: torch.nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = checkpoint(self.inner, x, use_reentrant=reentrant)
            return result

    net, x = Wrapped(Wrapped(torch.nn.Sigmoid())), torch.ones(8, requires_grad=True)
    made = profile("y = net(x)\ny.sum().backward()", globals={"net": net, "x": x})
    assert made.modules["name"].tolist() == ["net", "net.inner", "net.inner.inner"]
    assert made.modules["calls"].tolist() == [1, 2, 3 if reentrant else 2]
    first, second = (made.lines[made.lines["line"] == line]["wall_time"].sum() for line in (1, 2))
    assert 0 < made.modules["forward_time"].max() <= first + 1e-8
    assert 0 < made.modules["backward_cpu_time"].max() <= second + 1e-8
