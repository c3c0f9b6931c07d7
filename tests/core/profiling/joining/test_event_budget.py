"""``--max-events``: detail goes before ops do, what is left is right, and it is said what went."""

from __future__ import annotations

import linecache
import sys
import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torchbench_magic import profile  # noqa: E402
from torchbench_magic.cell_text import Body, CellText  # noqa: E402
from torchbench_magic.process.code import compile_body  # noqa: E402
from torchbench_magic.profiling.profile import Profile  # noqa: E402
from torchbench_magic.profiling.profiler import profile_body  # noqa: E402

from ..asking import asked  # noqa: E402

CELL = "<cell>"
LINEAR = """layer = torch.nn.Linear(4, 4)
x = torch.ones(2, 4)
for _ in range(50):
    y = layer(x)
"""


def run(text: str, **options: Any) -> Profile:
    cell = CellText.of(text, CELL, 7)
    linecache.cache[CELL] = (len(text), None, text.splitlines(True), CELL)
    body = compile_body(Body(text, CELL))
    names = {"torch": torch, "threading": threading}
    outcome = profile_body(body, asked(namespace=names, cells=lambda f: cell if f == CELL else None, **options))
    assert outcome.error is None
    return outcome.profile


def doubts(result: Profile) -> dict[str, Any]:
    return {doubt.kind: doubt for doubt in result.warnings}


def calls(result: Profile) -> dict[str, int]:
    return {str(op): int(n) for op, n in result.ops.groupby("op")["calls"].sum().items()}


def adds_up(result: Profile) -> None:
    own = result.lines[result.lines["thread"] == 0]
    assert (own["self_cpu_time"] + own["python_time"]).sum() == pytest.approx(result.wall_time, rel=0.01)


def test_within_the_budget_nothing_is_dropped() -> None:
    result = run(LINEAR, memory=True, shapes=True)
    assert not doubts(result).keys() & {"events-dropped", "lines-cut"}
    assert result.ops["input_shapes"].notna().any()


def test_memory_and_shapes_go_first_and_every_op_stays() -> None:
    whole = run(LINEAR, memory=True, shapes=True)
    ops = sum(calls(whole).values())
    result = run(LINEAR, memory=True, shapes=True, max_events=ops + 10)
    assert calls(result) == calls(whole)
    assert result.memory is None
    assert result.ops[["allocated", "input_shapes"]].isna().all(axis=None)
    assert doubts(result)["events-dropped"].facts["inner"] == 0
    assert "memory and shapes are left out" in str(doubts(result)["events-dropped"])
    adds_up(result)


def test_ops_inside_others_go_next_and_their_time_stays_in_those() -> None:
    result = run(LINEAR, max_events=120)
    assert calls(result)["aten::linear"] == 50
    assert "aten::addmm" not in calls(result)
    assert doubts(result)["events-dropped"].facts["ops"] == 0
    linear = result.ops[result.ops["op"] == "aten::linear"].iloc[0]
    assert linear["self_cpu_time"] == pytest.approx(linear["cpu_time"])
    assert linear["line"] == 4
    adds_up(result)


def test_ops_go_last_and_then_no_time_is_made_up() -> None:
    result = run(LINEAR, max_events=20)
    assert sum(calls(result).values()) == 20
    assert doubts(result)["events-dropped"].facts["ops"] > 0
    lines = result.lines
    assert lines[["self_cpu_time", "python_time"]].isna().all(axis=None)
    assert (lines["wall_time"] > 0).any()
    assert not result.has_op_times
    assert repr(result)


# ---- line events ------------------------------------------------------------------------------------------------

CALLS = """def work(x):
    y = x + 1
    return y * 2
def outer(x):
    for _ in range(10):
        work(x)
x = torch.ones(3)
for _ in range(100):
    outer(x)
z = x.sin()
"""


def test_above_the_budget_lines_end_and_calls_are_followed() -> None:
    result = run(CALLS, max_events=4000)
    ops = result.ops.dropna(subset="line").set_index(["op", "line"])["calls"]
    exact, by_function = ops["aten::add", 2], ops["aten::add", 1]
    assert exact + by_function == 1000, "no op is lost"
    assert exact > 100
    assert by_function > 100
    assert set(result.ops.dropna(subset="line").set_index("op").loc["aten::mul", "line"]) == {1, 3}
    assert result.ops.set_index("op").loc[["aten::sin"], "line"].isna().all(), "at the top of the cell"
    cut = doubts(result)["lines-cut"]
    assert 0 < cut.facts["after"] < result.wall_time
    assert "--max-events 4\u202f000" in str(cut)
    adds_up(result)


def test_a_line_before_the_budget_ended_has_its_own_ops_only() -> None:
    """No op that came after the end of the lines stands on the line that was the last to be seen."""
    text = """x = torch.ones(3)
for i in range(20):
    i
    i
    i
    i
    i
    x.exp()
for i in range(20):
    x.log()
"""
    result = run(text, max_events=100)
    placed = result.ops.dropna(subset="line")
    assert placed[placed["op"] == "aten::log"].empty
    exp = placed[placed["op"] == "aten::exp"]
    assert set(exp["line"]) == {8}
    assert exp["calls"].sum() == 14, "of 7 line events each"
    assert calls(result)["aten::exp"] == calls(result)["aten::log"] == 20


def test_calls_too_end_at_twice_the_budget() -> None:
    text = "def f(x): return x\nfor i in range(20000):\n    f(i)\ny = torch.ones(2).exp()\n"
    result = run(text, max_events=1000)
    assert result.n_line_events <= 2010
    assert calls(result)["aten::exp"] == 1


def test_a_loop_of_a_million_iterations_is_profiled_and_capped() -> None:
    text = "n = 0\nfor i in range(1_000_000):\n    n += i\ny = torch.ones(2).exp()\n"
    result = run(text, max_events=100_000)
    assert result.n_line_events <= 100_010
    assert "lines-cut" in doubts(result)
    assert calls(result)["aten::exp"] == 1
    adds_up(result)


def test_threads_have_a_budget_each() -> None:
    text = """def busy(x):
    for i in range(3000):
        i
    x.exp()
def quiet(x):
    x.log()
x = torch.ones(3)
for work in (busy, quiet):
    t = threading.Thread(target=work, args=(x,))
    t.start(); t.join()
"""
    result = run(text, max_events=1000)
    placed = result.ops.dropna(subset="line").set_index("op")["line"]
    assert placed["aten::exp"] == 1, "its function, since its lines ended"
    assert placed["aten::log"] == 6


def test_a_generator_that_goes_on_after_the_end_stands_on_its_function() -> None:
    text = """def items(x):
    for i in range(50):
        i
        i
        yield x.exp()
        x.log()
x = torch.ones(3)
for y in items(x):
    pass
"""
    result = run(text, max_events=200)
    placed = result.ops.dropna(subset="line")
    assert set(placed[placed["op"] == "aten::log"]["line"]) == {1, 6}
    assert calls(result)["aten::log"] == 50


def test_the_interpreter_is_left_without_a_hook() -> None:
    run("for i in range(1000): pass\n", max_events=10)
    assert sys.gettrace() is None
    result = profile("x = 1\ny = 2\n")
    assert result.lines["line"].dropna().tolist() == [1, 2]
