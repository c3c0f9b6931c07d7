"""Events of lines: every source names the line of every call, up to the budget of events."""

from __future__ import annotations

import asyncio
import gc
import linecache
import sys
import threading
import time
from collections.abc import Callable
from types import CodeType
from typing import Any

import numpy as np
import pytest
import torch

from torchbench_magic import profile
from torchbench_magic.cell_body import Body, CellText
from torchbench_magic.process.code import compile_body
from torchbench_magic.profiling.file_texts import Statements, read_statements
from torchbench_magic.profiling.line_events import LEAVE, SUSPEND, LineRecord, SettraceSource, entered
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.recorder import LineSource, NoLines, choose_line_source
from torchbench_magic.profiling.run import profile_body
from torchbench_magic.profiling.segments import Codes, LineTree, Segments, replay

from .asking import asked
from .line_cases import CELLS, TRUTH, Noted, namespace

# ==== line sources ====================================================================================================
# Every line source names the line of every call, without torch, on each Python at hand.


HAS_MONITORING = hasattr(sys, "monitoring")

if HAS_MONITORING:
    from torchbench_magic.profiling.line_events import MonitoringSource, free_tool


def settrace() -> LineSource:
    return SettraceSource(is_cell)


def monitoring() -> LineSource:
    tool = free_tool()
    assert tool is not None
    return MonitoringSource(is_cell, tool)


SOURCES = [settrace, *([monitoring] if HAS_MONITORING else [])]


def is_cell(file: str) -> bool:
    return file.startswith("<cell")


def compiled(text: str, file: str = "<cell>") -> CodeType:
    return compile(text, file, "exec")


def recorded(source: LineSource, run: Callable[[], object]) -> LineRecord:
    gc.collect()  # generators of cells that other tests left: they end, and run, when they are collected
    source.start()
    try:
        run()
    finally:
        record = source.stop()
    return record


def lines_of(record: LineRecord, texts: dict[str, str]) -> tuple[LineTree, list[Segments]]:
    tree = LineTree()
    statements = {file: read_statements(text) for file, text in texts.items()}
    codes, streams = Codes(record.codes, statements), enumerate(record.streams)
    return tree, [replay(stream, number, codes, tree) for number, stream in streams]


def calls_of(source: LineSource, text: str) -> dict[int, int]:
    """Line -> calls of a cell that is run as a whole."""
    record = recorded(source, lambda: exec(compiled(text), {"time": time}))
    tree, _ = lines_of(record, {"<cell>": text})
    found: dict[int, int] = {}
    for line, calls, code in zip(tree.line, tree.calls, tree.code, strict=True):
        if code >= 0 and calls:
            found[line] = found.get(line, 0) + calls
    return found


@pytest.mark.parametrize("make", SOURCES)
def test_every_call_is_on_its_line(make: Callable[[], LineSource]) -> None:
    noted = Noted()
    names = namespace(noted)
    first, second = (compiled(text, file) for file, text in CELLS.items())
    exec(first, names)  # an earlier cell
    record = recorded(make(), lambda: exec(second, names))
    tree, threads = lines_of(record, CELLS)
    by_native = {segments.native_id: segments for segments in threads}
    wrong = []
    for moment, native, tag in noted.ops:
        segments = by_native[native]
        node = segments.node[segments.at(np.array([moment]))[0]]
        place = (record.codes[tree.code[node]].co_filename, tree.line[node]) if tree.code[node] >= 0 else None
        if place != TRUTH[tag]:
            wrong.append((tag, place))
    assert wrong == []
    assert {tag for _, _, tag in noted.ops} == set(TRUTH)
    assert record.complete


@pytest.mark.parametrize("make", SOURCES)
def test_each_thread_ends_on_no_line(make: Callable[[], LineSource]) -> None:
    names = namespace(Noted())
    exec(compiled(CELLS["<cell-1>"], "<cell-1>"), names)
    record = recorded(make(), lambda: exec(compiled(CELLS["<cell-2>"], "<cell-2>"), names))
    tree, threads = lines_of(record, CELLS)
    assert len(threads) == 4
    assert all(tree.code[segments.node[-1]] < 0 for segments in threads)
    assert all(segments.depth[-1] == 0 for segments in threads)
    assert all((np.diff(segments.start) >= 0).all() for segments in threads)


@pytest.mark.parametrize("make", SOURCES)
def test_the_coroutine_that_awaits_the_recorded_one_is_no_part_of_it(make: Callable[[], LineSource]) -> None:
    """A cell that awaits is itself a coroutine of a cell's file, suspended and resumed with the body."""
    names: dict[str, Any] = {"asyncio": asyncio}
    exec(compiled("async def body():\n    for _ in range(3):\n        await asyncio.sleep(0)\n"), names)
    exec(compiled("async def cell(source, body):\n    source.start()\n    await body()\n"), names)
    source = make()
    try:
        asyncio.run(names["cell"](source, names["body"]))
    finally:
        record = source.stop()
    assert [code.co_name for code in record.codes] == ["body"]
    marks = record.streams[0].record[1::2].tolist()
    assert marks.count(entered(0)) == marks.count(SUSPEND) + marks.count(LEAVE) == 4


CALLS: dict[str, dict[int, int]] = {
    "x = 1\nfor i in range(3):\n    x += 1\n": {1: 1, 2: 4, 3: 3},
    "for i in range(3): x = i\n": {1: 1},
    "x = [i for i in range(5)]\n": {1: 1},
    "n = 0\nwhile True:\n    n += 1\n    if n == 3: break\n": {1: 1, 2: 3, 3: 3, 4: 3},
    "x = max(\n    1,\n    abs(\n        2),\n)\n": {1: 1, 2: 1, 3: 1, 4: 1},
    "for i in range(2):\n    x = max(\n        i,\n        abs(i))\n": {1: 3, 2: 2, 3: 2, 4: 2},
    "def f(x):\n    return x\nf(1)\nf(2)\n": {1: 3, 2: 2, 3: 1, 4: 1},
    "def f():\n    yield 1\n    yield 2\nlist(f())\n": {1: 2, 2: 1, 3: 1, 4: 1},
    "import contextlib\nfor i in range(2):\n    with contextlib.suppress():\n        i\n    i\n": {
        1: 1,
        2: 3,
        3: 2,
        4: 2,
        5: 2,
    },
    "def d(f): return f\n@d\ndef g():\n    pass\ng()\n": {1: 2, 2: 1, 3: 2, 4: 1, 5: 1},
    "f = lambda x: x\nf(1)\n": {1: 2, 2: 1},
    "class A:\n    x = 1\n": {1: 1, 2: 1},
}


@pytest.mark.parametrize("make", SOURCES)
def test_calls_says_how_often_a_line_ran(make: Callable[[], LineSource]) -> None:
    assert {text: calls_of(make(), text) for text in CALLS} == CALLS


@pytest.mark.parametrize("make", SOURCES)
@pytest.mark.parametrize("empty", ["", "# a package\n", "\n\n"])
def test_lines_go_on_after_an_empty_file_was_imported(make: Callable[[], LineSource], empty: str) -> None:
    text = "x = 1\nexec(empty)\ny = 2\n\nz = 3\n"
    code, names = compiled(text), {"empty": compiled(empty, "<cell empty>")}
    record = recorded(make(), lambda: exec(code, names))
    (stream,) = record.streams
    assert [mark for mark in stream.record[1::2] if mark > 0] == [1, 2, 3, 5]
    assert [mark for mark in stream.record[1::2] if mark == LEAVE] == [LEAVE]


@pytest.mark.parametrize("make", SOURCES)
def test_code_outside_the_scope_is_not_recorded(make: Callable[[], LineSource]) -> None:
    library: dict[str, object] = {}
    exec(compiled("def f(g):\n    return g()\n", "library.py"), library)
    names = {"f": library["f"]}
    record = recorded(make(), lambda: exec(compiled("x = f(\n lambda:\n 3)\n"), names))
    assert {code.co_filename for code in record.codes} == {"<cell>"}


@pytest.mark.parametrize("make", SOURCES)
def test_what_runs_after_the_stop_is_not_recorded(make: Callable[[], LineSource]) -> None:
    names: dict[str, object] = {}
    text = "def gen():\n    for i in range(9):\n        yield i\ng = gen()\nnext(g)\n"
    record = recorded(make(), lambda: exec(compiled(text), names))
    count = record.n_events
    exec(compiled("list(g)"), names)
    assert record.n_events == count


@pytest.mark.parametrize("make", SOURCES)
def test_a_thread_left_running_stops_recording(make: Callable[[], LineSource]) -> None:
    turns = [0]

    def more_turns() -> None:
        until = turns[0] + 3
        while turns[0] < until:
            time.sleep(0.0001)

    names: dict[str, Any] = {"threading": threading, "turns": turns, "end": threading.Event(), "sleep": time.sleep}
    names["more_turns"] = more_turns
    text = (
        "def work():\n    while not end.is_set():\n        turns[0] += 1; sleep(0.0001)\n"
        "thread = threading.Thread(target=work)\nthread.start()\nmore_turns()\n"
    )
    record = recorded(make(), lambda: exec(compiled(text), names))
    more_turns()
    first = record.n_events
    more_turns()
    second = record.n_events
    names["end"].set()
    names["thread"].join()
    assert len(record.streams) == 2
    assert first == second == record.n_events


def test_settrace_puts_the_hooks_back_that_were_there() -> None:
    def hook(frame: object, event: str, arg: object) -> None:
        return None

    threading.settrace(hook)
    sys.settrace(hook)
    try:
        recorded(SettraceSource(is_cell), lambda: exec(compiled("x = 1"), {}))
        assert sys.gettrace() is hook
        assert threading.gettrace() is hook
    finally:
        sys.settrace(None)
        threading.settrace(None)


def test_a_hook_taken_away_by_the_code_is_said_and_ends_the_lines() -> None:
    source = SettraceSource(is_cell)
    record = recorded(source, lambda: exec(compiled("import sys\nx = 1\nsys.settrace(None)\ny = 2\nz = 3\n"), {}))
    assert not record.complete
    tree = LineTree()
    segments = replay(record.streams[0], 0, Codes(record.codes, {"<cell>": Statements()}), tree, blind_from=1)
    assert tree.line[segments.node[-1]] == 0
    assert 4 not in tree.line


@pytest.mark.skipif(HAS_MONITORING, reason="before 3.12 a debugger's trace hook is the only way to lines")
def test_an_active_trace_hook_leaves_no_line_source() -> None:
    sys.settrace(lambda frame, event, arg: None)
    try:
        source = choose_line_source(is_cell)
    finally:
        sys.settrace(None)
    assert isinstance(source, NoLines)
    record = recorded(source, lambda: None)
    assert record.source == "none"
    assert "uses Python's trace hook" in record.reason


@pytest.mark.skipif(not HAS_MONITORING, reason="sys.monitoring came with 3.12")
def test_a_debugger_does_not_stand_in_the_way_of_monitoring() -> None:
    sys.settrace(lambda frame, event, arg: None)
    try:
        assert choose_line_source(is_cell).name == "monitoring"
    finally:
        sys.settrace(None)


@pytest.mark.skipif(not HAS_MONITORING, reason="sys.monitoring came with 3.12")
def test_without_a_free_tool_there_are_no_lines() -> None:
    taken = [tool for tool in (2, 3, 4) if sys.monitoring.get_tool(tool) is None]
    for tool in taken:
        sys.monitoring.use_tool_id(tool, "other")
    try:
        source = choose_line_source(is_cell)
    finally:
        for tool in taken:
            sys.monitoring.free_tool_id(tool)
    assert isinstance(source, NoLines)


@pytest.mark.skipif(not HAS_MONITORING, reason="settrace sees new threads only")
def test_monitoring_sees_threads_that_ran_before() -> None:
    there, go, done = threading.Event(), threading.Event(), threading.Event()
    noted = Noted()
    names = {"there": there, "go": go, "done": done, "op": noted.op}
    text = "def work():\n    there.set(); go.wait()\n    op(4)\n    done.set()\n\ndef other():\n    op(7)\n"
    exec(compiled(text), names)
    thread = threading.Thread(target=names["work"])
    thread.start()
    there.wait()
    record = recorded(monitoring(), lambda: (go.set(), done.wait()))
    thread.join()
    tree, threads = lines_of(record, {"<cell>": text})
    (moment, native, _) = noted.ops[0]
    segments = next(segments for segments in threads if segments.native_id == native)
    node = segments.node[segments.at(np.array([moment]))[0]]
    assert tree.line[node] == 3


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring came with Python 3.12")
def test_a_frame_that_begins_as_the_run_ends_raises_nothing_in_its_thread() -> None:
    source: Any = choose_line_source(lambda file: True)
    source.start()
    source.stop()
    source._watch_lines(compile("x = 1", "<late>", "exec"))


# ==== event budget ====================================================================================================
# ``--max-events``: detail goes before ops do, what is left is right, and it is said what went.


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

MANY_CALLS = """def work(x):
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


def test_what_runs_above_the_budget_is_on_no_line() -> None:
    result = run(MANY_CALLS, max_events=4000)
    ops = result.ops.set_index("op")
    assert calls(result)["aten::add"] == calls(result)["aten::mul"] == 1000, "no op is lost"
    on_lines = result.ops.dropna(subset="line").set_index(["op", "line"])["calls"]
    assert 100 < on_lines["aten::add", 2] < 1000
    assert set(ops.loc["aten::mul", "line"].dropna()) == {3}
    assert ops.loc[["aten::sin"], "line"].isna().all()
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


def test_calls_end_with_the_budget_too() -> None:
    text = "def f(x): return x\nfor i in range(20000):\n    f(i)\ny = torch.ones(2).exp()\n"
    result = run(text, max_events=1000)
    assert result.n_line_events <= 1010
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
    assert "aten::exp" not in placed
    assert placed["aten::log"] == 6


def test_the_interpreter_is_left_without_a_hook() -> None:
    run("for i in range(1000): pass\n", max_events=10)
    assert sys.gettrace() is None
    result = profile("x = 1\ny = 2\n")
    assert result.lines["line"].dropna().tolist() == [1, 2]
