"""Work that scripted functions fork to torch's own threads: on the line that launched it, or said to be on none."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from torchbench_magic.profiling import recording
from torchbench_magic.profiling.attribution import FORKED, Forking, RunThreads, join_ops_and_lines
from torchbench_magic.profiling.line_events import LEAVE, LineRecord
from torchbench_magic.profiling.recording import Scripted, busy_threads, read_cpu, read_scripted
from torchbench_magic.profiling.segments import Codes

from ..profiling_text import profiled
from .test_attribution import BODY, CODES, MAIN, events, joined, stream
from .test_attribution import entered as begin

POOL, OTHER = 21, 22
SCRIPTED = 2  # RecordScope::TORCHSCRIPT_FUNCTION


def forked_sines(x: torch.Tensor) -> torch.Tensor:
    for _ in range(200):
        x = x.sin()
    return x


def waits_for_sines(x: torch.Tensor) -> torch.Tensor:
    forked = torch.jit.fork(forked_sines, x)
    y = x.cos()
    return torch.jit.wait(forked) + y


def waits_for_nested(x: torch.Tensor) -> torch.Tensor:
    forked = torch.jit.fork(waits_for_sines, x)
    return torch.jit.wait(forked).exp()


def launches_sines(x: torch.Tensor) -> torch.jit.Future[torch.Tensor]:
    return torch.jit.fork(forked_sines, x)


def forgets_in_a_branch(x: torch.Tensor, wait: bool) -> torch.Tensor:
    forked = torch.jit.fork(forked_sines, x)
    if wait:
        x = torch.jit.wait(forked)
    return x


def in_python(x: torch.Tensor) -> torch.Tensor:
    return x


in_python.__annotations__ = {"x": torch.Tensor, "return": torch.Tensor}  # TorchScript does not read text here
in_python = torch.jit.ignore(in_python)


def calls_python(x: torch.Tensor) -> torch.Tensor:
    return in_python(x)


def names() -> dict[str, Any]:
    of_script = (forked_sines, waits_for_sines, waits_for_nested, launches_sines)
    made = {each.__name__: torch.jit.script(each) for each in of_script}
    return made | {"torch": torch, "x": torch.ones(10_000)}


@pytest.fixture(scope="module", autouse=True)
def torchs_own_functions() -> None:
    """The first scripted call of a process scripts functions of torch, whose calls could have launched any fork."""
    made = names()
    made["waits_for_nested"](made["x"])


@pytest.fixture(autouse=True)
def torchs_pool_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was launched before a recording: each test waits for its forks.

    A thread of the pool that ran a moment ago, if only since a debugger or a signal stopped the process, counts as
    busy otherwise, and then the forks of the recording stand on no line.
    """
    monkeypatch.setattr(recording, "busy_threads", lambda before: frozenset())


def lines_of(ops: pd.DataFrame, op: str) -> dict[int | None, int]:
    """Line (None: none) -> calls."""
    rows = ops[ops["op"] == op]
    found: Counter[int | None] = Counter()
    for line, calls in zip(rows["line"], rows["calls"], strict=True):
        found[None if pd.isna(line) else int(line)] += int(calls)
    return dict(found)


def doubts(outcome: Any) -> list[str]:
    return [doubt.kind for doubt in outcome.profile.warnings]


def test_the_ops_of_a_fork_stand_on_the_line_that_called_the_scripted_function() -> None:
    outcome = profiled("z = x.exp()\ny = waits_for_sines(x)\nz = x.tan()\n", names())
    assert lines_of(outcome.profile.ops, "aten::sin") == {2: 200}
    assert lines_of(outcome.profile.ops, "aten::add") == {2: 1}  # it may run on torch's thread, where the wait ended
    assert "forked-work" not in doubts(outcome)


def test_their_time_stands_in_the_row_of_their_thread_and_not_among_what_is_not_attributed() -> None:
    lines = profiled("y = waits_for_sines(x)\n", names()).profile.lines
    there = lines[lines["thread"] > 0]
    assert set(there["line"].dropna()) == {1}
    assert float(there[there["line"] == 1]["self_cpu_time"].sum()) > 0
    assert float(there[there["line"].isna()]["self_cpu_time"].sum()) == 0


def test_functions_that_wait_for_their_forks_on_two_lines_keep_each_its_own() -> None:
    outcome = profiled("a = waits_for_sines(x)\nb = waits_for_nested(x)\nc = forked_sines(x)\n", names())
    assert lines_of(outcome.profile.ops, "aten::sin") == {1: 200, 2: 200, 3: 200}
    assert "forked-work" not in doubts(outcome)


def test_a_fork_that_python_waits_for_later_stands_on_the_line_that_launched_it() -> None:
    outcome = profiled("future = launches_sines(x)\ny = x.exp()\ny = future.wait()\n", names())
    assert lines_of(outcome.profile.ops, "aten::sin") == {1: 200}


def test_forks_that_either_of_two_lines_can_have_launched_stand_on_none_and_that_is_said() -> None:
    outcome = profiled("a = launches_sines(x)\nb = waits_for_sines(x)\ny = a.wait()\n", names())
    lines = lines_of(outcome.profile.ops, "aten::sin")
    (said,) = [doubt for doubt in outcome.profile.warnings if doubt.kind == "forked-work"]
    assert sum(lines.values()) == 400
    assert lines[None] >= 200
    assert set(lines) <= {1, None}  # some of the first may have run before the second began
    assert said.facts["ops"] >= 200


def test_one_line_that_launches_again_and_again_is_one_line() -> None:
    text = "futures = []\nfor _ in range(5):\n    futures.append(launches_sines(x))\nfor f in futures:\n    f.wait()\n"
    assert lines_of(profiled(text, names()).profile.ops, "aten::sin") == {3: 1000}


def test_backward_work_of_a_fork_is_caused_by_the_line_that_launched_it() -> None:
    given = names() | {"x": torch.ones(1000, requires_grad=True)}
    profile = profiled("y = waits_for_sines(x)\ny.sum().backward()\n", given).profile
    caused = profile.lines.groupby("line")["backward_cpu_time"].sum()
    ops = profile.ops.set_index("op")
    sines = ops.loc["autograd::engine::evaluate_function: SinBackward0"]
    assert (sines["line"], sines["calls"]) == (2, 200)
    assert caused[1] >= sines["cpu_time"] - 1e-9


def test_bytes_that_a_fork_allocates_stand_on_the_line_that_launched_it() -> None:
    given = names()
    waits = given["waits_for_sines"]
    waits(given["x"])
    lines = profiled("y = waits_for_sines(x)\n", given, memory=True).profile.lines
    assert float(lines[lines["line"] == 1]["allocated"].sum()) >= 200 * 40_000
    assert float(lines[lines["line"].isna()]["allocated"].sum()) == 0


def test_graphs_tell_which_functions_may_leave_work_behind() -> None:
    given = names()
    for function in (forgets_in_a_branch, calls_python):
        given[function.__name__] = torch.jit.script(function)
    found = read_scripted()
    assert "forked_sines" in found.without_forks
    assert {"waits_for_sines", "waits_for_nested", "forked_sines"} <= found.waiting
    assert not {"waits_for_sines", "waits_for_nested", "launches_sines"} & found.without_forks
    assert not {"launches_sines", "forgets_in_a_branch", "calls_python"} & found.waiting


# ---- synthetic: every time a round number ------------------------------------------------------------------------

BODY_STREAM = stream((0, begin(BODY)), (1, 1), (40, 2), (80, 3))


def of_forks(*calls: dict[str, Any], forking: Forking) -> dict[str, int]:
    """Lines 1 (1 to 40), 2 (to 80) and 3 of the cell; op -> line of the ops on torch's thread."""
    result = joined(events(*calls), BODY_STREAM, natives=(MAIN, POOL), forking=forking)
    at = np.flatnonzero(result.ops.native == POOL)
    return {result.ops.names[result.ops.name[i]]: result.tree.line[result.node[i]] for i in at.tolist()}


def call(name: str, start: int, end: int) -> dict[str, Any]:
    return {"name": name, "start": start, "end": end, "scope": SCRIPTED}


def fork(start: int, end: int) -> dict[str, Any]:
    return {"name": FORKED, "start": start, "end": end, "scope": SCRIPTED, "native": POOL}


def op(name: str, start: int, end: int) -> dict[str, Any]:
    return {"name": name, "start": start, "end": end, "native": POOL}


WAITING = Scripted(frozenset({"plain"}), frozenset({"plain", "waits"}))


def test_a_call_that_has_waited_for_its_forks_launches_nothing_later() -> None:
    work = (call("waits", 2, 20), call("open", 41, 45), fork(50, 60), op("late", 51, 59))
    assert of_forks(*work, forking=Forking(WAITING, ())) == {FORKED: 2, "late": 2}


def test_a_call_that_may_have_left_a_fork_behind_keeps_a_later_one_from_any_line() -> None:
    work = (call("open", 2, 20), call("waits", 41, 70), fork(50, 60), op("late", 51, 59))
    assert of_forks(*work, forking=Forking(WAITING, ())) == {FORKED: 0, "late": 0}


def test_a_function_without_forks_is_no_candidate() -> None:
    work = (call("plain", 2, 20), call("waits", 41, 70), fork(50, 60), op("late", 51, 59))
    assert of_forks(*work, forking=Forking(Scripted(frozenset(), WAITING.waiting - {"plain"}), ()))["late"] == 0
    assert of_forks(*work, forking=Forking(WAITING, ()))["late"] == 2


def test_a_call_has_returned_when_python_goes_on_even_if_another_thread_ends_its_event_later() -> None:
    work = (call("waits", 2, 65), call("waits", 41, 70), fork(50, 60), op("late", 51, 59))
    assert of_forks(*work, forking=Forking(WAITING, ())) == {FORKED: 2, "late": 2}


def test_what_may_have_been_launched_before_the_recording_stands_on_no_line() -> None:
    work = (call("waits", 41, 70), fork(50, 60), op("late", 51, 59))
    assert of_forks(*work, forking=Forking(WAITING, ()))["late"] == 2
    assert of_forks(*work, forking=Forking(WAITING, {POOL}))["late"] == 0
    assert of_forks(*work, forking=Forking(WAITING, None))["late"] == 0


def test_work_on_torchs_thread_that_no_scripted_function_is_open_for_stands_on_no_line() -> None:
    work = (call("waits", 2, 30), fork(5, 10), op("inside", 6, 9), op("goes on", 20, 25), op("else", 35, 38))
    assert of_forks(*work, forking=Forking(WAITING, ())) == {FORKED: 1, "inside": 1, "goes on": 1, "else": 0}


def test_a_thread_at_work_is_busy_and_a_waiting_one_is_not() -> None:
    stop, ready, natives = threading.Event(), threading.Barrier(3), {}

    def sleeps() -> None:
        natives["sleeps"] = threading.get_native_id()
        ready.wait()
        stop.wait()

    def works() -> None:
        natives["works"] = threading.get_native_id()
        ready.wait()
        while not stop.is_set():
            pass

    workers = [threading.Thread(target=target) for target in (sleeps, works)]
    for worker in workers:
        worker.start()
    try:
        ready.wait()
        while Path(f"/proc/self/task/{natives['sleeps']}/stat").read_text().rpartition(")")[2].split()[0] != "S":
            time.sleep(0.001)
        before = read_cpu()
        while (busy := busy_threads(before)) is not None and natives["sleeps"] in busy:
            before = read_cpu()  # it was on its way to its wait, and shall have been there all the time
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    assert busy is not None
    assert natives["works"] in busy
    assert natives["sleeps"] not in busy


# ---- parallel regions: an op calls ops on OpenMP's threads ----------------------------------------------------------

OMP = 31


def lines_in_region() -> list[int]:
    """The lines of the ops of a thread of OpenMP's, while ``attention`` runs on line 1 from 10 to 40."""
    ops = events(
        {"name": "attention", "start": 10, "end": 40},
        {"name": "empty", "start": 20, "end": 22, "native": OMP, "tid": 4},
        {"name": "late", "start": 38, "end": 42, "native": OMP, "tid": 4},
    )
    body = stream((0, begin(BODY)), (0, 1), (50, 2), (100, LEAVE))
    result = joined(ops, body, natives=(MAIN, OMP))
    where = [ops.names[name] in ("empty", "late") for name in ops.name]
    return [result.tree.line[node] for node in result.node[np.array(where)]]


def test_an_op_within_an_op_of_one_other_thread_is_on_its_line() -> None:
    assert lines_in_region() == [1, 0]


def test_a_thread_of_torchs_pool_may_run_a_fork_and_is_on_no_line_of_what_runs_beside() -> None:
    record = LineRecord("settrace", (stream((0, begin(BODY)), (0, 1), (50, 2), (100, LEAVE)),), CODES)
    ops = events({"name": "mm", "start": 10, "end": 40}, {"name": "sin", "start": 20, "end": 22, "native": POOL})
    threads = RunThreads((MAIN, POOL), of_pool=frozenset({POOL}))
    result = join_ops_and_lines(ops, record, Codes(CODES, {}, frozenset()), threads, (0, 100))
    assert result.tree.line[result.node[1]] == 0


def test_where_two_threads_run_ops_around_it_it_is_on_no_line() -> None:
    other = {"name": "mm", "start": 5, "end": 45, "native": OTHER, "tid": 5}
    body = stream((0, begin(BODY)), (0, 1), (50, 2), (100, LEAVE))
    second = stream((0, begin(BODY)), (0, 1), (100, LEAVE), native=OTHER)
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
    assert not {"forked-work", "torch-threads"} & set(doubts(outcome))
