"""Each op on the line that caused it: on synthetic streams, and in scripted functions that fork."""

from __future__ import annotations

import inspect
from array import array
from typing import Any

import numpy as np
import torch

from torchbench_magic.profiling.attribution import (
    DeviceTime,
    Joined,
    RunThreads,
    attribute_bytes,
    attribute_device_time,
    find_launches,
    join_ops_and_lines,
)
from torchbench_magic.profiling.events import Events
from torchbench_magic.profiling.join import join_the_rest, trace_of
from torchbench_magic.profiling.line_events import LEAVE, RESUMED, SUSPEND, LineRecord, Stream, entered
from torchbench_magic.profiling.profile_tables import line_rows, memory_timeline
from torchbench_magic.profiling.segments import Codes
from torchbench_magic.profiling.trace import Source

from .profiling_text import profiled

# ==== attribution =====================================================================================================
# The join on synthetic streams: no profiler, no torch, every time a round number.


MAIN, WORKER, DEVICE = 11, 12, 99

CODES = tuple(
    compile("x = 1\ny = 2\n" if name == "<module>" else f"def {name}():\n  1", "<cell>", "exec")
    if name == "<module>"
    else next(c for c in compile(f"def {name}():\n  1\n", "<cell>", "exec").co_consts if inspect.iscode(c))
    for name in ("<module>", "f")
)
BODY, F = 0, 1


def stream(*marks: tuple[int, int], native: int = MAIN) -> Stream:
    return Stream(native, "thread", array("q", [value for pair in marks for value in pair]))


def events(*rows: dict[str, Any]) -> Events:
    """Events from rows with ``name start end`` and any of the other columns, in the order of (start, -end)."""
    names = list(dict.fromkeys(row["name"] for row in rows))
    kinds = ["cpu_op", "user_annotation", "cpu_instant_event", "kernel", "cuda_runtime"]
    ordered = sorted(rows, key=lambda row: (row["start"], -row.get("end", row["start"])))

    def column(key: str, otherwise: int) -> np.ndarray:
        return np.array([row.get(key, otherwise) for row in ordered], dtype=np.int64)

    return Events(
        names=tuple(names),
        kinds=tuple(kinds),
        devices=("cpu", "cuda:0"),
        name=np.array([names.index(row["name"]) for row in ordered], dtype=np.int64),
        kind=np.array([kinds.index(row.get("kind", "cpu_op")) for row in ordered], dtype=np.int64),
        device=column("device", 0),
        start=column("start", 0),
        end=np.array([row.get("end", row["start"]) for row in ordered], dtype=np.int64),
        native=column("native", MAIN),
        tid=column("tid", 1),
        fwd=column("fwd", 0),
        seq=column("seq", -1),
        scope=column("scope", 0),
        corr=column("corr", 0),
        link=column("link", 0),
        nbytes=column("nbytes", 0),
    )


def joined(
    ops: Events,
    *streams: Stream,
    natives: tuple[int, ...] = (MAIN,),
    with_python: frozenset[int] = frozenset(),
    suspends: frozenset[int] = frozenset(),
    end: int = 100,
) -> Joined:
    record, codes = LineRecord("settrace", streams, CODES), Codes(CODES, {}, suspends)
    return join_ops_and_lines(ops, record, codes, RunThreads(natives, with_python), (0, end))


def time_of(result: Joined, line: int, kind: str = "torch_time") -> int:
    return sum(int(t) for t, at in zip(getattr(result, kind), result.tree.line, strict=True) if at == line)


def line_of(result: Joined, op: int) -> int:
    return result.tree.line[result.node[op]]


def device_time(result: Joined, every: Events) -> DeviceTime | None:
    return attribute_device_time(result, every, find_launches(result, every))


BODY_RUNS = stream((1, entered(BODY)), (2, 1), (50, 2), (95, LEAVE))


KERNELS = (
    {"name": "linear", "start": 10, "end": 30, "corr": 1},
    {"name": "mm", "start": 12, "end": 20, "corr": 2},
    {"name": "cudaLaunchKernel", "start": 13, "kind": "cuda_runtime", "corr": 501, "link": 2},
    {"name": "gemm", "start": 70, "end": 90, "kind": "kernel", "corr": 501, "link": 2, "native": 7},
    # launched by no op that torch knows: the runtime call stands on a line
    {"name": "cudaLaunchKernel", "start": 60, "kind": "cuda_runtime", "corr": 502},
    {"name": "custom", "start": 300, "end": 305, "kind": "kernel", "corr": 502, "native": 7},
)
# on a thread without Python, while line 2 waits for it
BACKWARD = (
    {"name": "exp", "start": 10, "end": 20, "seq": 3},
    {"name": "ExpBackward0", "start": 60, "end": 70, "seq": 3, "fwd": 1, "scope": 1, "native": DEVICE, "tid": 4},
    {"name": "mul", "start": 62, "end": 65, "native": DEVICE, "tid": 4},
)


def test_an_op_is_on_the_line_at_its_start_even_if_it_outlasts_it() -> None:
    result = joined(events({"name": "mm", "start": 49, "end": 60}, {"name": "add", "start": 50, "end": 51}), BODY_RUNS)
    assert [line_of(result, op) for op in range(2)] == [1, 2]


def test_torch_python_and_the_rest_make_up_the_wall_time() -> None:
    result = joined(events({"name": "mm", "start": 10, "end": 30}, {"name": "mm", "start": 60, "end": 65}), BODY_RUNS)
    assert time_of(result, 1) == 20
    assert time_of(result, 1, "python_time") == 1 + 28  # with entering the body
    assert time_of(result, 2) == 5
    assert time_of(result, 2, "python_time") == 40
    assert time_of(result, 0, "python_time") == 1 + 5
    assert result.torch_time.sum() + result.python_time.sum() == 100


def test_nested_ops_are_counted_once() -> None:
    result = joined(
        events({"name": "linear", "start": 10, "end": 30}, {"name": "mm", "start": 12, "end": 28}), BODY_RUNS
    )
    assert time_of(result, 1) == 20
    assert result.self_time.tolist() == [4, 16]


def test_a_range_is_python_and_its_self_time_is_what_no_op_takes() -> None:
    ops = events(
        {"name": "load", "start": 10, "end": 40, "kind": "user_annotation"},
        {"name": "mm", "start": 20, "end": 25},
    )
    result = joined(ops, BODY_RUNS)
    assert time_of(result, 1) == 5
    assert result.self_time.tolist() == [25, 5]


def test_lines_that_an_op_calls_back_are_python_until_they_call_an_op() -> None:
    hook = stream((1, entered(BODY)), (2, 1), (20, entered(F)), (21, 2), (30, LEAVE), (95, LEAVE))
    ops = events({"name": "MyFunction", "start": 10, "end": 40}, {"name": "exp", "start": 24, "end": 28})
    result = joined(ops, hook)
    assert time_of(result, 1) == (20 - 10) + (40 - 30) + 0
    assert time_of(result, 2) == 4
    assert time_of(result, 2, "python_time") == 9 - 4
    assert result.self_time.tolist() == [20, 4]
    assert [line_of(result, op) for op in range(2)] == [1, 2]


def test_a_backward_op_belongs_to_the_last_op_with_its_number() -> None:
    ops = events(
        {"name": "linear", "start": 10, "end": 20, "seq": 5},
        {"name": "addmm", "start": 12, "end": 18, "seq": 5},
        {"name": "detach", "start": 30, "end": 31, "seq": 6},  # makes no node: the number is the next one's
        {"name": "exp", "start": 51, "end": 55, "seq": 6},
        {"name": "evaluate_function: Exp", "start": 60, "end": 80, "seq": 6, "fwd": 1},
        {"name": "ExpBackward0", "start": 61, "end": 79, "seq": 6, "fwd": 1, "scope": 1},
        {"name": "mul", "start": 62, "end": 78},
        {"name": "AddmmBackward0", "start": 81, "end": 90, "seq": 5, "fwd": 1, "scope": 1},
    )
    result = joined(ops, BODY_RUNS)
    caused = [result.tree.line[node] if node >= 0 else None for node in result.caused_by.tolist()]
    assert caused == [None, None, None, None, 2, 2, 2, 1]


def test_backward_on_a_thread_without_python_is_on_the_line_that_waits_for_it() -> None:
    result = joined(events(*BACKWARD), BODY_RUNS, natives=(MAIN, DEVICE))
    assert [line_of(result, op) for op in range(3)] == [1, 2, 2]
    assert [result.tree.thread[node] for node in result.node.tolist()] == [0, 1, 1]
    on_device = [n for n in range(len(result.tree)) if result.tree.thread[n] == 1 and result.tree.line[n] == 2]
    assert [int(result.torch_time[n]) for n in on_device] == [10]
    assert time_of(result, 2, "python_time") == 45  # the waiting


def test_a_python_thread_without_lines_gets_none_of_another_thread() -> None:
    ops = events({"name": "ExpBackward0", "start": 60, "end": 70, "seq": 3, "fwd": 1, "scope": 1, "native": WORKER})
    result = joined(ops, BODY_RUNS, natives=(MAIN, WORKER), with_python=frozenset({WORKER}))
    assert line_of(result, 0) == 0


def test_a_suspended_body_keeps_its_innermost_awaiting_line() -> None:
    awaiting = stream(
        (1, entered(BODY)), (2, 1), (5, entered(F)), (6, 2),
        (10, SUSPEND), (11, SUSPEND),  # f, then the body
        (30, entered(F)), (31, RESUMED + 2), (35, LEAVE),  # another task
        (50, entered(BODY)), (51, RESUMED + 1), (52, entered(F)), (53, RESUMED + 2), (54, LEAVE), (60, LEAVE),
    )  # fmt: skip
    result = joined(events(), awaiting, suspends=frozenset({BODY}))
    tree = result.tree
    waiting = next(n for n in range(len(tree)) if tree.line[n] == 2 and tree.line[tree.parent[n]] == 1)
    other_task = next(n for n in range(len(tree)) if tree.parent[n] == waiting and tree.line[n] == 2)
    assert result.python_time[waiting] == (10 - 6) + (30 - 11) + (50 - 35) + (54 - 53)
    assert result.python_time[other_task] == 4
    assert time_of(result, 0, "python_time") == 1 + 40  # before and after


def test_bytes_are_on_the_line_and_in_the_innermost_op_of_their_thread() -> None:
    ops = events({"name": "linear", "start": 10, "end": 30}, {"name": "mm", "start": 12, "end": 20})
    memory = events(
        {"name": "[memory]", "start": 13, "nbytes": 100},
        {"name": "[memory]", "start": 25, "nbytes": 50},
        {"name": "[memory]", "start": 40, "nbytes": -100},
        {"name": "[memory]", "start": 60, "nbytes": 30, "device": 1},
    )
    result = joined(ops, BODY_RUNS)
    held = attribute_bytes(result, memory)
    by_line = {line: node for node, line in enumerate(result.tree.line)}
    assert held.op_allocated.tolist() == [50, 100]
    assert held.op_freed.tolist() == [0, 0]
    assert held.op_peak.tolist() == [150, 100]
    assert (held.node_allocated[by_line[1]], held.node_freed[by_line[1]]) == (150, 100)
    assert held.node_allocated[by_line[2]] == 30
    assert (held.node_peak[by_line[1]], held.node_peak[by_line[2]]) == (150, 80)
    assert held.node_peak[0] == 80  # on no line: before the first, and after the last
    rows = line_rows(result, {"<cell>": Source("s", "<cell>", "x = 1\ny = 2\n", cell=1)})
    table = memory_timeline(result, rows, held)
    assert table["bytes"].tolist() == [100, 150, 50, 30]
    assert table["device"].tolist() == ["cpu", "cpu", "cpu", "cuda:0"]


def test_a_kernel_is_on_the_op_and_the_line_that_launched_it_however_late_it_runs() -> None:
    every = events(
        *KERNELS,
        {"name": "of another cell", "start": 5, "end": 8, "kind": "kernel", "corr": 400, "native": 7},
    )
    result = joined(every.where(every.is_op), BODY_RUNS)
    on_device = device_time(result, every)
    assert on_device is not None
    assert on_device.op.tolist() == [0, 20]
    assert on_device.op_total.tolist() == [20, 20]
    by_line = {result.tree.line[node]: int(ns) for node, ns in enumerate(on_device.node)}
    assert by_line == {0: 0, 1: 20, 2: 5}


def test_without_device_events_there_is_no_device_time() -> None:
    assert device_time(joined(events({"name": "mm", "start": 10, "end": 20}), BODY_RUNS), events()) is None


def test_the_kernels_of_a_replayed_graph_are_on_the_line_that_replays_it() -> None:
    """They were launched, on another line, when the graph was recorded; a replay is one call with one id."""
    every = events(
        {"name": "mm", "start": 10, "end": 30, "corr": 2},
        {"name": "cudaLaunchKernel", "start": 13, "kind": "cuda_runtime", "corr": 501, "link": 2},
        {"name": "cudaGraphLaunch", "start": 60, "end": 63, "kind": "cuda_runtime", "corr": 777},
        *(
            {"name": f"k{n}", "start": 70 + 4 * n, "end": 73 + 4 * n, "kind": "kernel", "corr": 777, "native": 7}
            for n in range(3)
        ),
    )
    result = joined(every.where(every.is_op), BODY_RUNS)
    on_device = device_time(result, every)
    assert on_device is not None
    assert on_device.op.tolist() == [0]
    assert {result.tree.line[node]: int(ns) for node, ns in enumerate(on_device.node)} == {0: 0, 1: 0, 2: 9}


def test_a_kernel_of_the_backward_thread_is_on_the_line_that_waits_and_caused_by_the_forward_line() -> None:
    ops = (
        {"name": "aten::mm", "start": 10, "end": 20, "seq": 5, "corr": 1},
        {"name": "MmBackward0", "start": 60, "end": 80, "seq": 5, "fwd": 1, "scope": 1, "native": DEVICE, "tid": 2,
         "corr": 2},
        {"name": "aten::mm", "start": 62, "end": 70, "native": DEVICE, "tid": 2, "corr": 3},
    )  # fmt: skip
    every = events(
        *ops,
        {"name": "cudaLaunchKernel", "start": 63, "kind": "cuda_runtime", "corr": 9, "native": DEVICE},
        {"name": "gemm", "start": 85, "end": 92, "kind": "kernel", "corr": 9, "native": 7, "device": 1},
    )
    result = joined(every.where(every.is_op), BODY_RUNS, natives=(MAIN, DEVICE))
    whole = join_the_rest(result, every, None)
    assert [result.tree.line[node] for node in whole.launches.node] == [2]
    source = Source("s", "<cell>", "x = 1\ny = 2\n", cell=1)
    trace = trace_of(whole, {"<cell>": source}, ["main", "autograd"])
    kernel = trace.events[trace.is_on_device].iloc[0]
    assert trace.names[kernel["name"]] == "gemm"
    assert trace.nodes["line"][kernel["caused_by"]] == 1
    assert trace.tracks[kernel["track"]].device == "cuda:0"
    (call,) = trace.events[trace.is_kind("runtime")].to_dict("records")
    assert trace.names[trace.events["name"][call["parent"]]] == "aten::mm"
    assert kernel["launched_by"] == 3  # the runtime call, which comes after the three ops


def test_runtime_calls_are_no_ops() -> None:
    every = events(
        {"name": "aten::mm", "start": 10, "end": 30},
        {"name": "cudaStreamSynchronize", "start": 12, "end": 28, "kind": "cuda_runtime"},
    )
    result = joined(every.where(every.is_op), BODY_RUNS)
    assert [result.ops.names[n] for n in result.ops.name] == ["aten::mm"]
    assert result.self_time.tolist() == [20]
    assert len(find_launches(result, every).call) == 1


def test_a_gradient_that_is_accumulated_is_caused_by_the_line_whose_node_made_it() -> None:
    engine = "autograd::engine::evaluate_function: "
    node = {"seq": 5, "fwd": 1}
    every = events(
        {"name": "aten::addmm", "start": 10, "end": 20, "seq": 5},
        {"name": "aten::mul", "start": 30, "end": 40, "seq": 6},
        {"name": f"{engine}MulBackward0", "start": 55, "end": 60, "seq": 6, "fwd": 1},
        {"name": f"{engine}AddmmBackward0", "start": 61, "end": 65, **node},
        {"name": f"{engine}torch::autograd::AccumulateGrad", "start": 66, "end": 72},
        {"name": "torch::autograd::AccumulateGrad", "start": 67, "end": 71},
        {"name": "aten::add_", "start": 68, "end": 70},
        {"name": "aten::zero_", "start": 80, "end": 82},
        {"name": f"{engine}torch::autograd::AccumulateGrad", "start": 84, "end": 86},
    )
    result = joined(every, stream((1, entered(BODY)), (2, 1), (25, 2), (50, 3), (95, LEAVE)))
    assert result.made_by.tolist() == [-1, -1, 1, 0, 0, 0, 0, -1, -1]
    assert [result.tree.line[node] for node in result.caused_by[3:7].tolist()] == [1, 1, 1, 1]
    assert time_of(result, 3) == 5 + 4 + 6 + 2 + 2, "it runs where backward was called all the same"


# ==== torch's own threads =============================================================================================
# Work on threads of torch's: an op that runs in parallel calls ops there, which stand on its line; forks on none.


POOL, OTHER = 21, 22


def forked_sines(x: torch.Tensor) -> torch.Tensor:
    for _ in range(200):
        x = x.sin()
    return x


def waits_for_sines(x: torch.Tensor) -> torch.Tensor:
    forked = torch.jit.fork(forked_sines, x)
    y = x.cos()
    return torch.jit.wait(forked) + y


def doubts(outcome: Any) -> list[str]:
    return [doubt.kind for doubt in outcome.profile.warnings]


def test_the_ops_of_a_fork_stand_on_no_line_and_that_is_said() -> None:
    given = {"torch": torch, "x": torch.ones(10_000), "waits_for_sines": torch.jit.script(waits_for_sines)}
    outcome = profiled("z = x.exp()\ny = waits_for_sines(x)\nz = x.tan()\n", given)
    ops = outcome.profile.ops
    assert ops[ops["op"] == "aten::sin"]["line"].isna().all()
    assert ops[ops["op"].isin(["aten::exp", "aten::tan"])]["line"].tolist() in ([1, 3], [3, 1])
    (said,) = [doubt for doubt in outcome.profile.warnings if doubt.kind == "torch-threads"]
    assert said.facts["ops"] >= 200


OMP = 31


def lines_in_region() -> list[int]:
    """The lines of the ops of a thread of OpenMP's, while ``attention`` runs on line 1 from 10 to 40."""
    ops = events(
        {"name": "attention", "start": 10, "end": 40},
        {"name": "empty", "start": 20, "end": 22, "native": OMP, "tid": 4},
        {"name": "late", "start": 38, "end": 42, "native": OMP, "tid": 4},
    )
    body = stream((0, entered(BODY)), (0, 1), (50, 2), (100, LEAVE))
    result = joined(ops, body, natives=(MAIN, OMP))
    where = [ops.names[name] in ("empty", "late") for name in ops.name]
    return [result.tree.line[node] for node in result.node[np.array(where)]]


def test_an_op_within_an_op_of_one_other_thread_is_on_its_line() -> None:
    assert lines_in_region() == [1, 0]


def test_a_thread_of_torchs_pool_may_run_a_fork_and_is_on_no_line_of_what_runs_beside() -> None:
    record = LineRecord("settrace", (stream((0, entered(BODY)), (0, 1), (50, 2), (100, LEAVE)),), CODES)
    ops = events({"name": "mm", "start": 10, "end": 40}, {"name": "sin", "start": 20, "end": 22, "native": POOL})
    threads = RunThreads((MAIN, POOL), of_pool=frozenset({POOL}))
    result = join_ops_and_lines(ops, record, Codes(CODES, {}, frozenset()), threads, (0, 100))
    assert result.tree.line[result.node[1]] == 0


def test_where_two_threads_run_ops_around_it_it_is_on_no_line() -> None:
    other = {"name": "mm", "start": 5, "end": 45, "native": OTHER, "tid": 5}
    body = stream((0, entered(BODY)), (0, 1), (50, 2), (100, LEAVE))
    second = stream((0, entered(BODY)), (0, 1), (100, LEAVE), native=OTHER)
    ops = events(
        {"name": "attention", "start": 10, "end": 40}, {"name": "empty", "start": 20, "end": 22, "native": OMP}, other
    )
    result = joined(ops, body, second, natives=(MAIN, OMP, OTHER))
    assert result.tree.line[result.node[ops.native == OMP][0]] == 0


def test_attention_at_two_threads_has_no_forked_work() -> None:
    given = {"torch": torch, "q": torch.randn(2, 4, 64, 32, requires_grad=True)}
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        text = "o = torch.nn.functional.scaled_dot_product_attention(q, q, q)\no.sum().backward()\n"
        outcome = profiled(text, given)
    finally:
        torch.set_num_threads(before)
    assert outcome.profile.ops["line"].notna().all()
    assert "torch-threads" not in doubts(outcome)
