"""Long jobs: which steps are recorded, what stands where, and that nothing is lost."""

from __future__ import annotations

import itertools
import linecache
import math
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
import torch

import torchbench_magic
from torchbench_magic import profile, step_num
from torchbench_magic.cell_body import Body, CellText
from torchbench_magic.errors import BodyError, Busy, OptionError
from torchbench_magic.process.code import compile_body
from torchbench_magic.profiling import steps as steps_module
from torchbench_magic.profiling.kineto import torch_profiler_runs
from torchbench_magic.profiling.ops_view import operations
from torchbench_magic.profiling.options import Schedule
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.run import Outcome, profile_body, profile_body_async
from torchbench_magic.profiling.steps import SteppedRun, mark_loop

from .asking import asked
from .running import awaited

# ==== steps ===========================================================================================================


CELL = "<cell>"
TRAINING = """def train(n):
    for i in range(n):
        y = x.exp()
        if i % 2:
            y = y.log()
        torchbench_magic.step()
x = torch.ones(8)
train(8)
x.sin()
"""


def run(text: str, schedule: Schedule | str, *, in_loop: bool = False, **options: Any) -> Outcome:
    cell = CellText.of(text, CELL, 7)
    linecache.cache[CELL] = (len(text), None, text.splitlines(True), CELL)
    body = compile_body(Body(text, CELL), transform_ast=mark_loop if in_loop else None)
    names = {"torch": torch, "torchbench_magic": torchbench_magic, "time": time, **options.pop("names", {})}
    wanted = asked(
        namespace=names,
        cells=lambda file: cell if file == CELL else None,
        schedule=schedule if isinstance(schedule, Schedule) else Schedule.of(schedule),
        in_loop=in_loop,
        **options,
    )
    if body.is_coroutine:
        return awaited(profile_body_async(body, wanted))
    return profile_body(body, wanted)


def calls(result: Profile) -> dict[tuple[str, int], int]:
    """(op, line) -> calls."""
    ops = result.ops.dropna(subset="line")
    keys = zip(ops["op"], ops["line"].astype(int), strict=True)
    counted: Counter[tuple[str, int]] = Counter()
    for key, number in zip(keys, ops["calls"], strict=True):
        counted[key] += int(number)
    return dict(counted)


def line_calls(result: Profile) -> dict[int, int]:
    lines = result.lines.dropna(subset="line")
    return dict(zip(lines["line"].astype(int), lines["calls"], strict=True))


class Told(list[str]):
    """What a run tells of its progress."""

    def update(self, elapsed: float, total: float | None, text: str) -> None:
        self.append(text)


def kinds(result: Profile) -> list[str]:
    """Without what profiling cost, and whether a line waits: of a body of microseconds both differ from run to run."""
    return [doubt.kind for doubt in result.warnings if doubt.kind not in ("profiler-cost", "waits")]


def adds_up(result: Profile) -> None:
    own = result.lines[result.lines["thread"] == 0]
    assert (own["self_cpu_time"] + own["python_time"]).sum() == pytest.approx(result.wall_time, rel=0.01)
    assert 0 <= result.not_attributed <= 0.03 * result.wall_time + 0.005


# ---- which steps ------------------------------------------------------------------------------------------------

TRIED = [  # numbers of a schedule; jobs of how many steps
    ({"wait": 1, "warmup": 1, "active": 2}, (7, 8)),  # ends within its second cycle; with it
    ({"wait": 0, "warmup": 0, "active": 1}, (1, 4)),
    ({"wait": 0, "warmup": 1, "active": 2, "repeat": 1}, (1, 8)),
    ({"wait": 2, "warmup": 0, "active": 3, "repeat": 2}, (8,)),
    ({"skip_first": 3, "wait": 1, "warmup": 1, "active": 2, "repeat": 1}, (7,)),
    ({"skip_first": 2, "wait": 4, "warmup": 1, "active": 1, "skip_first_wait": 1}, (8,)),
    ({"wait": 0, "warmup": 7, "active": 5}, (8,)),
    ({"skip_first": 20, "wait": 0, "warmup": 0, "active": 1}, (7,)),
]


@pytest.mark.parametrize(("numbers", "jobs"), TRIED, ids=[str(Schedule(**numbers)) for numbers, _ in TRIED])
def test_cycles_hold_the_steps_and_ops_of_torchs_own_scheduled_profile(
    numbers: dict[str, int], jobs: tuple[int, ...]
) -> None:
    for steps in jobs:
        theirs: list[Counter[str]] = []
        steps_of_theirs: list[list[int]] = []

        def ready(running: Any, ops: list[Any] = theirs, of_steps: list[Any] = steps_of_theirs) -> None:
            ops.append(Counter(event.name for event in running.events()))
            raw = [event.name() for event in running.profiler.kineto_results.events()]
            of_steps.append(sorted(int(name.partition("#")[2]) for name in raw if "ProfilerStep#" in name))

        def job(step: Any, count: int = steps) -> None:
            for _ in range(count):
                torch.ones(3).exp()
                step()
            torch.ones(3).sin()

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plan = torch.profiler.schedule(**numbers)
            with torch.profiler.profile(schedule=plan, on_trace_ready=ready) as running:
                job(running.step)
        ours = profile(lambda job=job: job(torchbench_magic.step), schedule=numbers)
        assert [Counter(_ops(cycle)) for cycle in ours.cycles] == theirs, f"{steps} steps"
        assert [list(cycle.steps) for cycle in ours.cycles] == steps_of_theirs, f"{steps} steps"


def _ops(result: Profile) -> dict[str, int]:
    return {str(op): int(count) for op, count in result.ops.groupby("op")["calls"].sum().items()}


def test_ops_and_lines_of_recorded_steps_only_are_there_on_their_lines() -> None:
    result = run(TRAINING, "wait=1,warmup=1,active=2").profile
    assert result.steps == (2, 3, 6, 7)
    assert calls(result) == {("aten::exp", 3): 4, ("aten::log", 5): 2, ("ProfilerStep*", 6): 4}
    assert {line: n for line, n in line_calls(result).items() if line in (3, 4, 5, 6)} == {3: 4, 4: 4, 5: 2, 6: 4}
    # line 1, the def, ran before; lines 2 and 8 are active all along
    assert set(line_calls(result.cycles[0])) == {2, 3, 4, 5, 6, 8}
    assert [calls(cycle)["aten::exp", 3] for cycle in result.cycles] == [2, 2]
    assert kinds(result) == []


def test_rows_of_each_cycle_and_of_the_sum_add_up_to_the_recorded_part() -> None:
    started = time.perf_counter()
    result = run(TRAINING.replace("y = x.exp()", "y = x.exp(); time.sleep(0.002)"), "wait=1,warmup=1,active=2").profile
    took = time.perf_counter() - started
    for each in (*result.cycles, result):
        adds_up(each)
    assert result.wall_time == pytest.approx(sum(cycle.wall_time for cycle in result.cycles))
    assert 0.008 <= result.wall_time <= took - 0.008, "four steps of eight"
    by_line = result.lines.set_index("line")["python_time"]
    assert by_line[3] >= 0.008


def test_bytes_of_the_sum_are_the_bytes_of_the_cycles() -> None:
    text = "keep = []\nfor i in range(6):\n    keep.append(torch.empty(1000))\n    torchbench_magic.step()\n"
    result = run(text, "wait=1,warmup=0,active=2", memory=True).profile
    lines = result.lines.set_index("line")
    assert result.steps == (1, 2, 4, 5)
    assert (lines.loc[3, "allocated"], lines.loc[3, "net"], lines.loc[3, "peak"]) == (16000, 16000, 8000)
    assert result.memory is not None
    assert result.memory["bytes"].max() == 8000, "of the cycle with the highest peak"


def test_memory_of_the_sum_is_said_to_be_of_the_cycle_with_the_highest_peak() -> None:
    text = "keep = []\nfor i in range(6):\n    keep.append(torch.empty(1000 * (1 + i)))\n    torchbench_magic.step()\n"
    result = run(text, "wait=1,warmup=0,active=2", memory=True).profile
    assert result.memory is not None
    assert result.memory["bytes"].max() == 4000 * (5 + 6), "steps 4 and 5"
    assert result.bytes_before == result.cycles[1].bytes_before > result.cycles[0].bytes_before
    shown = " ".join(str(result).split())
    assert "Counted from the start of steps 4 and 5, the cycle with the highest peak" in shown


def test_frames_and_trace_of_the_sum_hold_all_cycles(tmp_path: Path) -> None:
    result = run(TRAINING, "wait=1,warmup=1,active=2").profile
    for columns in (["self_time", "self_cpu_time"], ["calls"]):
        parts = sum(cycle.frames[columns].sum() for cycle in result.cycles)
        assert result.frames[columns].sum().to_numpy() == pytest.approx(parts.to_numpy())
    tops = result.frames[(result.frames["parent"] < 0) & (result.frames["thread"] == 0)]
    assert tops["wall_time"].sum() == pytest.approx(result.wall_time, rel=0.01)
    assert len(tops) == 1
    assert (result.frames[result.frames["kind"] == "op"].groupby("name")["calls"].sum()["aten::exp"]) == 4
    assert result.trace is not None
    names = [result.trace.names[i] for i in result.trace.events["name"]]
    assert names.count("aten::exp") == 4
    result.export_trace(tmp_path / "all.json")
    again = torchbench_magic.load_trace(tmp_path / "all.json")
    assert _ops(again) == _ops(result)
    assert again.wall_time >= result.wall_time, "with the gaps"
    assert calls(again) == calls(result)


def test_the_number_of_the_step_can_be_asked() -> None:
    seen: list[int | None] = []
    text = "for i in range(3):\n    seen.append(torchbench_magic.step_num())\n    torchbench_magic.step()\n"
    run(text, "active=1", names={"seen": seen})
    assert seen == [0, 1, 2]
    assert step_num() is None
    torchbench_magic.step()  # where no scheduled profile runs it does nothing


def test_threads_keep_their_numbers_from_cycle_to_cycle() -> None:
    text = """from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(1, "late") as late, ThreadPoolExecutor(1, "early") as early:
    early.submit(torch.ones, 3).result()
    late.submit(torch.ones, 3).result()
    for i in range(4):
        (late if i < 2 else early).submit(torch.exp, torch.ones(3)).result()
        late.submit(torch.log, torch.ones(3)).result()
        torchbench_magic.step()
"""
    result = run(text, "active=2,repeat=2").profile
    by_thread = result.ops[result.ops["op"].isin(["aten::exp", "aten::log"])].set_index("op")
    names = {op: {result.threads[t] for t in by_thread.loc[[op], "thread"]} for op in ("aten::exp", "aten::log")}
    assert names == {"aten::exp": {"late_0", "early_0"}, "aten::log": {"late_0"}}


def test_an_awaiting_body_is_recorded_in_its_steps() -> None:
    text = """import asyncio
async def work():
    x = torch.ones(4)
    await asyncio.sleep(0.001)
    x.exp()
for i in range(4):
    await work()
    torch.ones(2).log()
    torchbench_magic.step()
"""
    result = run(text, "wait=1,warmup=1,active=2,repeat=1").profile
    found = {key: n for key, n in calls(result).items() if key[0] in ("aten::exp", "aten::log")}
    assert found == {("aten::exp", 5): 2, ("aten::log", 8): 2}
    adds_up(result)


def test_backward_in_a_recorded_step_stands_on_its_forward_line_too() -> None:
    text = """w = torch.ones(64, 64, requires_grad=True)
for i in range(4):
    y = (w @ w).sum()
    y.backward()
    torchbench_magic.step()
"""
    result = run(text, "wait=1,warmup=1,active=2,repeat=1").profile
    lines = result.lines.set_index("line")
    assert lines.loc[3, "backward_cpu_time"] > 0
    assert calls(result)["MmBackward0", 4] == 2


# ---- --steps: the iterations of the loop -----------------------------------------------------------------------

LOOPS = {
    "for": "for i in range(9):\n    x.exp()\n",
    "while": "i = 0\nwhile i < 9:\n    x.exp(); i += 1\n",
    "continue": "for i in range(9):\n    x.exp()\n    continue\n    x.log()\n",
    "break": "for i in range(99):\n    x.exp()\n    if i == 8:\n        break\nx.tan()\n",
    "while True": "i = 0\nwhile True:\n    x.exp()\n    i += 1\n    if i == 9: break\nx.tan()\n",
    "in a with": "with torch.no_grad():\n    for i in range(9):\n        x.exp()\n",
    "else": "for i in range(9):\n    x.exp()\nelse:\n    x.tan()\n",
    "inner loops": "for i in range(9):\n    for j in range(3):\n        if j: break\n    x.exp()\n",
    "match": "for i in range(20):\n    x.exp()\n    match i:\n        case 8:\n            break\n",
    "try": "for i in range(20):\n    try:\n        x.exp()\n        if i == 8: break\n    finally:\n        i\n",
}


def test_iterations_are_steps_in_every_kind_of_loop() -> None:
    wrong = {}
    for name, text in LOOPS.items():
        outcome = run(text, "wait=1,warmup=1,active=3,repeat=1", in_loop=True, names={"x": torch.ones(4)})
        result = outcome.profile
        line = next(n for n, source in enumerate(text.splitlines(), 1) if "x.exp()" in source)
        found = (outcome.error, result.steps, _ops(result), calls(result).get(("aten::exp", line)))
        if found != (None, (2, 3, 4), {"aten::exp": 3, "ProfilerStep*": 3}, 3):
            wrong[name] = found
        adds_up(result)
    assert not wrong


ENDS = ("for", "while True", "else", "try")
"""One loop of each way to end; those that end likewise are in the slow tier."""


@pytest.mark.parametrize(
    "loops",
    [pytest.param(ENDS, id="ends"), pytest.param(LOOPS.keys() - set(ENDS), id="others", marks=pytest.mark.slow)],
)
def test_a_loop_shorter_than_the_steps_ends_the_recording(loops: Collection[str]) -> None:
    wrong = {}
    for name in loops:
        text = LOOPS[name]
        names = {"x": torch.ones(4)}
        result = run(text, "wait=5,warmup=1,active=30,repeat=1", in_loop=True, names=names).profile
        found = (result.steps, kinds(result), result.warnings[0].text, "aten::tan" in _ops(result))
        said = "3 of 30 steps were recorded: the loop ended after 9 iterations."
        if found != ((6, 7, 8), ["short-cycle"], said, False) or _ops(result)["aten::exp"] != 3:
            wrong[name] = (*found, _ops(result))
    assert not wrong
    shown = [row.key for group in operations(result).groups for row in group.rows]
    assert "aten::exp" in shown
    assert "ProfilerStep*" not in shown, "the range of a step is no operation"


@pytest.mark.parametrize(
    "loop", ["for i in range(9): x.exp()", "i = 0\nwhile i < 9:\n    i += 1; net(x)"], ids=["for op", "while module"]
)
def test_what_ends_a_step_and_begins_the_next_is_no_time_of_the_cell(
    loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = 0.02
    sleeping = eval("lambda self: sleep(slept)", {"sleep": time.sleep, "slept": slept})  # no line of this file
    monkeypatch.setattr(SteppedRun, "tell", sleeping)
    names = {"x": torch.ones(4), "net": torch.nn.Tanh()}
    result = run(loop, "wait=1,warmup=1,active=3,repeat=1", in_loop=True, names=names).profile
    (cycle,) = result.cycles
    assert cycle.steps == (2, 3, 4)
    assert cycle.wall_time <= cycle.trace.duration / 1e9 - 2 * slept, "there are two ends of steps in the cycle"
    own = cycle.frames[cycle.frames["thread"] == 0]
    assert own["self_time"].sum() == pytest.approx(cycle.wall_time)
    assert cycle.ops.loc[cycle.ops["op"] == "ProfilerStep*", "cpu_time"].sum() <= cycle.wall_time + 1e-9
    adds_up(result)


def test_what_fetches_an_item_is_part_of_its_step() -> None:
    text = "def items():\n    for i in range(6):\n        yield x.log()\nfor item in items():\n    item.exp()\n"
    result = run(text, "active=2,repeat=1", in_loop=True, names={"x": torch.ones(4)}).profile
    assert _ops(result) == {"aten::log": 2, "aten::exp": 2, "ProfilerStep*": 2}
    assert calls(result)["aten::log", 3] == 2


def test_the_marked_loop_runs_its_lines_as_often_as_the_plain_one() -> None:
    text = "for i in range(5):\n    if i == 3: break\n    y = i\nz = 1\n"
    marked = run(text, "active=9,repeat=1", in_loop=True).profile
    plain = profile(text)
    on_loop = {line: n for line, n in line_calls(plain).items() if line < 4}
    on_loop[1] -= 1  # the recording begins in the middle of the first run of this line
    assert line_calls(marked) == on_loop


def test_a_cell_without_one_loop_is_told_what_to_do() -> None:
    cells = {
        "x = 1\n": "has none",
        "for i in range(2): pass\nwhile False: pass\n": "has 2 (lines 1, 2)",
        "def f():\n    for i in range(3): pass\nf()\n": "has none",
        "[i for i in range(3)]\n": "has none",
    }
    for text, said in cells.items():
        with pytest.raises(BodyError, match=r"call torchbench_magic\.step\(\)") as caught:
            compile_body(Body(text, CELL), transform_ast=mark_loop)
        assert said in str(caught.value), text


def test_an_error_of_the_iterator_shows_no_frame_of_ours() -> None:
    text = "def items():\n    yield 1\n    raise KeyError('k')\nfor i in items():\n    pass\n"
    outcome = run(text, "active=1,repeat=1", in_loop=True)
    assert isinstance(outcome.error, KeyError)
    assert [frame.lineno for frame in traceback.extract_tb(outcome.error.__traceback__)] == [4, 3]


# ---- what is said when there is less than asked ----------------------------------------------------------------


def test_a_cell_without_a_step_says_so() -> None:
    result = run("torch.ones(3).exp()\n", "wait=1,active=1").profile
    assert result.ops.empty
    assert kinds(result) == ["no-steps"]
    assert "never called torchbench_magic.step()" in str(result.warnings[0])
    recorded = run("torch.ones(3).exp()\n", "active=1").profile
    assert kinds(recorded) == ["no-steps"]
    assert "aten::exp" in _ops(recorded)


def test_too_few_steps_say_which_would_have_been_recorded() -> None:
    result = run(TRAINING, "skip_first=10,wait=5,warmup=1,active=3").profile
    assert result.ops.empty
    assert result.cycles == ()
    assert kinds(result) == ["no-steps"]
    assert "the first recorded step is 16, and there were 9 steps" in str(result.warnings[0])
    assert repr(result)


def test_an_empty_loop_says_so() -> None:
    result = run("for i in []:\n    pass\n", "active=1,repeat=1", in_loop=True).profile
    assert kinds(result) == ["no-steps"]
    assert "no iteration" in str(result.warnings[0])


def test_a_cycle_during_the_codes_own_profiler_is_left_out_and_said() -> None:
    text = """for i in range(4):
    if i == 1:
        with torch.profiler.profile() as own:
            x.exp()
            torchbench_magic.step()
            x.log()
    else:
        torchbench_magic.step()
"""
    names: dict[str, Any] = {"x": torch.ones(3)}
    outcome = run(text, "wait=2,warmup=0,active=1,repeat=1", names=names)
    assert outcome.error is None
    assert kinds(outcome.profile) == ["cycles-skipped"]
    assert not torch_profiler_runs()


# ---- each cycle's profile, at once ------------------------------------------------------------------------------


def test_a_function_gets_each_cycles_profile_as_soon_as_it_ends() -> None:
    seen: list[tuple[int | None, tuple[int, ...]]] = []
    run(TRAINING, "wait=1,warmup=1,active=2", on_trace=lambda cycle: seen.append((step_num(), cycle.steps)))
    assert seen == [(4, (2, 3)), (8, (6, 7))]


def test_without_a_schedule_the_function_gets_the_whole_profile() -> None:
    seen: list[Profile] = []
    result = profile(lambda: torch.ones(3).exp(), on_trace=seen.append)
    assert seen == [result]


def test_an_error_of_the_function_ends_the_cell_and_loses_nothing() -> None:
    def fails(cycle: Profile) -> None:
        raise RuntimeError("disk full")

    outcome = run(TRAINING, "wait=1,warmup=1,active=2", on_trace=fails)
    assert isinstance(outcome.error, RuntimeError)
    frames = [(frame.name, frame.lineno) for frame in traceback.extract_tb(outcome.error.__traceback__)]
    assert frames[:2] == [("<module>", 8), ("train", 6)]
    assert frames[2][0] == "fails"
    assert len(frames) == 3
    assert [cycle.steps for cycle in outcome.profile.cycles] == [(2, 3)]
    assert outcome.profile.partial
    assert sys.gettrace() is None
    assert not torch_profiler_runs()


def test_an_error_of_the_function_after_the_body_is_raised_too() -> None:
    def fails(cycle: Profile) -> None:
        raise RuntimeError("disk full")

    outcome = run("torch.ones(3).exp()\n", "active=1", on_trace=fails)
    assert isinstance(outcome.error, RuntimeError)
    assert "aten::exp" in _ops(outcome.profile)
    with pytest.raises(RuntimeError, match="disk full"):
        profile("x = 1", on_trace=fails)


def test_a_step_inside_the_function_is_refused() -> None:
    outcome = run(TRAINING, "wait=1,warmup=1,active=2", on_trace=lambda cycle: torchbench_magic.step())
    assert isinstance(outcome.error, BodyError)
    assert "--on-trace" in str(outcome.error)


# ---- what it leaves, and what it costs --------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 1, 2, 3], ids=["waiting", "warming up", "recording", "afterwards"])
def test_an_error_in_any_step_gives_what_was_recorded_and_leaves_everything_off(at: int) -> None:
    text = f"for i in range(4):\n    x.exp()\n    if i == {at}: raise KeyError(i)\n    torchbench_magic.step()\n"
    outcome = run(text, "wait=1,warmup=1,active=1", names={"x": torch.ones(3)}, threads=1)
    assert isinstance(outcome.error, KeyError)
    assert outcome.profile.partial
    assert kinds(outcome.profile)[0] == "partial"
    assert outcome.profile.steps == ((2,) if at >= 2 else ())
    assert step_num() is None
    assert sys.gettrace() is None
    assert threading.gettrace() is None
    assert not torch_profiler_runs()
    assert profile("x = 1").wall_time > 0


def test_a_scheduled_profile_within_another_is_refused() -> None:
    def nested() -> None:
        with pytest.raises(Busy, match="schedule is already running"):
            profile(lambda: None, schedule="active=1")

    profile(nested, schedule="wait=5,active=1")


def test_steps_that_are_not_recorded_run_without_trace_and_profiler() -> None:
    seen = []
    text = "for i in range(4):\n    see()\n    torchbench_magic.step()\n"

    def see() -> None:
        traced = sys.gettrace() is not None or _monitored()
        seen.append((traced, torch_profiler_runs()))

    run(text, "wait=1,warmup=1,active=1", names={"see": see})
    assert seen == [(False, False), (False, False), (True, True), (False, False)]


def _monitored() -> bool:
    return hasattr(sys, "monitoring") and sys.monitoring.get_tool(2) is not None


def test_progress_says_the_step_and_what_takes_most_time(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()
    monkeypatch.setattr(steps_module, "_RARELY", math.inf)  # only what changes is told

    run(TRAINING, "wait=1,warmup=1,active=2,repeat=2", progress=told)
    steps = [line for line in told if line.startswith("step")]
    assert steps[0] == "step 0 of 8"
    assert steps[2] == "step 2 of 8, recording cycle 1"
    assert not any(line.startswith("step 3") for line in steps), "it would take time of the recorded steps"
    assert "most time in aten::" in next(line for line in steps if line.startswith("step 4"))
    assert len(steps) == 7


def test_a_trace_is_written_for_each_cycle(tmp_path: Path) -> None:
    from torchbench_magic.profiling.steps import traces_into

    run(TRAINING, "wait=1,warmup=1,active=2", on_trace=traces_into(tmp_path / "traces"))
    names = sorted(path.name for path in (tmp_path / "traces").iterdir())
    assert names == ["cycle-1-steps-2-3.json.gz", "cycle-2-steps-6-7.json.gz"]
    loaded = torchbench_magic.load_trace(tmp_path / "traces" / names[1])
    assert _ops(loaded)["aten::exp"] == 2


def test_steps_that_are_not_recorded_cost_no_summary_and_are_rarely_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()

    summaries: list[Profile] = []
    summary = steps_module._most_time_in
    monkeypatch.setattr(steps_module, "_most_time_in", lambda cycle: summaries.append(cycle) or summary(cycle))
    monkeypatch.setattr(steps_module, "_RARELY", math.inf)  # only what changes is told
    text = "for _ in range(200):\n    y = x + 1\n    step()\n"
    names = {"x": torch.ones(2), "step": torchbench_magic.step}
    profile(text, globals=names, schedule="wait=1,warmup=0,active=2,repeat=2", progress=told)
    assert len(summaries) == 2, "one for each cycle"
    assert len([each for each in told if each.startswith("step")]) <= 6


@pytest.mark.parametrize("text", ["x = 1", "torch.ones(50).sum()", "for i in range(10):\n    torch.ones(50).sum()"])
def test_a_first_step_that_does_not_end_takes_what_its_lines_take(text: str) -> None:
    result = profile(text, globals={"torch": torch}, schedule="wait=0,warmup=0,active=1")
    lines = result.lines
    took = lines["self_cpu_time"].sum() + lines["python_time"].sum()
    assert result.wall_time > 0
    assert took <= result.wall_time * (1 + 1e-6)


def test_steps_that_an_exception_ends_hold_no_time_from_before_them() -> None:
    text = "import time\nfor i in range(5):\n    torch.ones(3).exp()\n    if i == 2:\n        raise ValueError(i)\n"
    spans: list[tuple[int, int, int]] = []
    kept = SteppedRun._keep

    def keep(self: SteppedRun, of: Any, error: BaseException | None) -> Profile:
        made = kept(self, of, error)
        spans.append((round(made.wall_time * 1e9), of.end - of.begin, sum(b - a for a, b in of.between_steps)))
        return made

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SteppedRun, "_keep", keep)
        assert isinstance(run(text, "active=3,repeat=1", in_loop=True).error, ValueError)
    ((wall, recorded, between),) = spans
    assert wall <= recorded
    assert between > 0


@pytest.mark.parametrize("loop", ["for i in range(9):", "i = -1\nwhile i < 8:\n    i += 1"], ids=["for", "while"])
def test_a_step_ends_before_anything_is_done_for_the_next_one(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stretches: list[tuple[int, int]] = []
    moved: list[int] = []
    keep, move = SteppedRun._keep, SteppedRun._move_to

    def kept(self: SteppedRun, of: Any, error: BaseException | None) -> Profile:
        stretches.extend(of.between_steps)
        return keep(self, of, error)

    monkeypatch.setattr(SteppedRun, "_keep", kept)
    monkeypatch.setattr(SteppedRun, "_move_to", lambda *args: moved.append(time.time_ns()) or move(*args))
    assert run(f"{loop}\n    pass\n", "wait=1,active=3,repeat=1", in_loop=True).error is None
    ended = [begin for begin, _ in stretches[1:]]  # the first begins with the recording
    assert all(a <= b for a, b in zip(ended, moved[2:], strict=True)), (ended, moved)


@pytest.mark.parametrize("loop", ["for i in range(2000):", "i = -1\nwhile i < 1999:\n    i += 1"], ids=["for", "while"])
def test_a_step_that_is_not_recorded_is_counted_and_nothing_else(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    moves: list[int] = []
    move = SteppedRun._move_to
    monkeypatch.setattr(SteppedRun, "_move_to", lambda self, *at: moves.append(at[0]) or move(self, *at))
    seen: list[int | None] = []
    text = f"{loop}\n    seen.append(step_num())\nafter = step_num()\n"
    names: dict[str, Any] = {"seen": seen, "step_num": step_num}
    found = run(text, "skip_first=500,active=2,warmup=1,repeat=1", in_loop=True, names=names)
    assert found.error is None
    assert seen == list(range(2000))
    assert found.profile.steps == (501, 502)
    assert moves == [0, 500, 501, 502, 503]


def test_steps_of_the_code_itself_are_counted_too_and_those_of_other_threads_refused() -> None:
    refused: list[str] = []

    def elsewhere() -> None:
        try:
            torchbench_magic.step()
        except BodyError as error:
            refused.append(str(error))

    def job() -> None:
        for _ in range(50):
            torchbench_magic.step()
        other = threading.Thread(target=elsewhere)
        other.start()
        other.join()
        assert step_num() == 50

    assert profile(job, schedule="wait=2,active=1,repeat=1").steps == (2,)
    assert ["thread that runs the cell" in each for each in refused] == [True]


def test_a_long_loop_tells_where_it_is_while_it_records_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()

    monkeypatch.setattr(steps_module, "_RARELY", 0.0)
    run("for i in range(20):\n    pass", "wait=3,active=1,repeat=1", in_loop=True, progress=told)
    steps = [text.partition(",")[0] for text in told if text.startswith("step")]
    assert steps[-4:] == ["step 17", "step 18", "step 19", "step 20"], "where the loop ends, a step has begun"


def test_a_schedule_knows_when_something_happens_next() -> None:
    for numbers, _ in TRIED:
        schedule = Schedule(**numbers)
        acts = [step for step in range(200) if schedule(step).value != "none"]
        awake = [schedule.awake(step) for step in range(100)]
        assert awake == [next((at for at in acts if at >= step), None) for step in range(100)], schedule


# ==== schedule ========================================================================================================
# Which steps are recorded: as ``torch.profiler.schedule`` has it, for every set of numbers.


RANGES = {
    "wait": (0, 1, 2, 5),
    "warmup": (0, 1, 3),
    "active": (1, 2, 3),
    "repeat": (0, 1, 2),
    "skip_first": (0, 1, 10),
    "skip_first_wait": (0, 1),
}
SETS = [dict(zip(RANGES, values, strict=True)) for values in itertools.product(*RANGES.values())]


def test_each_step_does_what_torchs_schedule_does_in_it() -> None:
    profiler = pytest.importorskip("torch").profiler
    different = []
    for numbers in SETS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, about a warmup of 0
            theirs = profiler.schedule(**numbers)
        ours = Schedule(**numbers)
        different += [(numbers, step) for step in range(40) if ours(step).name != theirs(step).name]
    assert len(SETS) == 648
    assert different == []


@pytest.mark.parametrize("numbers", SETS[::37], ids=str)
def test_the_first_recorded_step_and_the_end_are_known(numbers: dict[str, int]) -> None:
    schedule = Schedule(**numbers)
    recorded = [step for step in range(60) if schedule(step).records]
    assert schedule.first_recorded == recorded[0]
    assert (schedule.steps is None) == (numbers["repeat"] == 0)
    if schedule.steps is not None:
        assert recorded[-1] == schedule.steps - 1


def test_it_is_written_and_read_back() -> None:
    schedule = Schedule.of("skip_first=10, wait=5,warmup=1,active=3,repeat=2")
    assert schedule == Schedule(skip_first=10, wait=5, warmup=1, active=3, repeat=2)
    assert Schedule.of(str(schedule)) == schedule
    assert Schedule.of({"active": 2}) == Schedule.of("active=2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wait=1", "active is needed"),
        ("active=0", "active=0: give a whole number of at least 1"),
        ("active=1,wait=-1", "'wait=-1' is not a number"),
        ("active=1,activ=2", "no 'activ'; it has active, wait"),
        ("active=1,active=2", "given twice"),
        ("3", "'3' is not a number"),
        ("", "write skip_first="),
        ("active=x", "'active=x' is not a number"),
    ],
)
def test_what_makes_no_schedule_is_one_line(text: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        Schedule.of(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
