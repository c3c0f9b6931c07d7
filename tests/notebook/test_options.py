"""Every declared option of the measuring magics changes something that can be seen besides a title.

Each effect runs the magic without the option and with it, and says what differs. An option without an entry here
fails the test that enumerates the declarations.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

import torchbench_magic
from tests.timing.fake_clock import FakeClock
from torchbench_magic import load, load_trace
from torchbench_magic.notebook.option_parser import declared_options
from torchbench_magic.notebook.options import ProfilerOptions, TimerOptions
from torchbench_magic.profiling import recording_cost
from torchbench_magic.timing import task

Run = Callable[..., str]


@dataclass
class Bench:
    """A shell that runs one magic and gives its result.

    Attributes:
        shown: what the last run printed.
    """

    shell: Any
    run: Run
    magic: str
    base: str
    shown: str = ""

    def __call__(self, options: str = "", code: str = "x + 1", *, base: str | None = None) -> Any:
        """The result of ``code`` measured with ``options``."""
        for name in ("_timer", "_tprofile"):
            self.shell.user_ns.pop(name, None)
        line = f"%%{self.magic} {self.base if base is None else base} {options}".rstrip()
        self.shown = self.run(self.shell, f"{line}\n{code}")
        return self.shell.user_ns.get(f"_{self.magic}")

    @property
    def names(self) -> dict[str, Any]:
        return self.shell.user_ns


TWO = "# --- a\nx + 1\n# --- b\nx + 2"
NAP = "time.sleep(0.002)"


# ---- shared -----------------------------------------------------------------------------------------------------


def output_binds_the_result(bench: Bench) -> None:
    bench()
    assert "kept" not in bench.names
    for _ in range(2):  # a result may be replaced
        result = bench("-o kept")
        assert bench.names["kept"] is result


def quiet_shows_nothing(bench: Bench) -> None:
    bench()
    assert bench.shown.strip()
    bench("-q", "x + 1;")
    assert not bench.shown.strip()


def explore_shows_the_widget_in_a_kernel(bench: Bench) -> None:
    from torchbench_magic.notebook.display import bundle_of

    bench.shell.kernel = object()  # what tells a kernel from a terminal
    view = "application/vnd.jupyter.widget-view+json"
    result, published = bench("-q"), []
    assert view not in bundle_of(bench.shell, result)[0]
    bench.shell.display_pub.publish = lambda **sent: published.append(sent["data"])
    bench()
    bench("-w")
    published = [data for data in published if len(data) > 1]  # a slow machine shows a line while it waits
    assert [view in data for data in published] == [False, False, True]
    assert "<table>" in published[1]["text/html"], "what stays when the widget is lost"
    del bench.shell.display_pub.publish, bench.shell.kernel


# ---- %%timer ----------------------------------------------------------------------------------------------------


def threads_are_rows_and_torchs_own_number(bench: Bench) -> None:
    bench.names["seen"] = seen = set()
    result = bench("-t 1,2", "seen.add(torch.get_num_threads())", base="-n 2 -r 3")
    assert result.frame["num_threads"].tolist() == [1, 2]
    assert seen == {1, 2}


def min_run_time_is_spent(bench: Bench) -> None:
    """Calls of 20 ms at least: 0.2 s, which are spent otherwise, hold ten of them, and no stall makes them more."""
    assert len(bench("--min-run-time 0.02 --max-run-time 0.05", "time.sleep(0.02)", base="-t 1").samples) <= 3
    assert bench("--min-run-time 0.3 --max-run-time 0.5", "time.sleep(0.02)", base="-t 1").elapsed >= 0.3


def max_run_time_ends_a_run_that_wants_more(bench: Bench) -> None:
    """Calls of 20 ms at least, of which 0.03 s hold two, however the machine stalls."""
    wants = "--until 0.0001 --min-run-time 0.01 --max-run-time"
    assert len(bench(f"{wants} 0.03", "time.sleep(0.02)", base="-t 1").samples) <= 2
    assert bench(f"{wants} 0.3", "time.sleep(0.02)", base="-t 1").elapsed >= 0.25


def number_is_calls_in_a_block(bench: Bench) -> None:
    assert bench("-n 5 -r 2", base="").samples["number"].tolist() == [5, 5]


def repeat_is_the_number_of_blocks(bench: Bench) -> None:
    assert len(bench("-n 5 -r 4", base="").samples) == 4


def until_goes_on_until_the_interval_is_that_narrow(bench: Bench) -> None:
    wide = bench("--until 900 --min-run-time 0.01 --max-run-time 0.8", "x + 1", base="")
    narrow = bench("--until 0.0001 --min-run-time 0.01 --max-run-time 0.8", "x + 1", base="")
    assert narrow.elapsed >= 0.7
    assert len(wide.samples) < len(narrow.samples)


def adaptive_goes_on_until_the_spread_is_small(bench: Bench) -> None:
    loose = bench("--adaptive 9 --min-run-time 0.01 --max-run-time 0.8", "x + 1", base="")
    strict = bench("--adaptive 0.0000001 --min-run-time 0.01 --max-run-time 0.8", "x + 1", base="")
    assert strict.elapsed >= 0.7
    assert len(loose.samples) < len(strict.samples)


def margin_is_what_is_called_the_same(bench: Bench) -> None:
    """By a clock that only the cell moves: b takes four times as long."""
    bench.names["clock"] = clock = FakeClock()
    cell, plan = "# --- a\nclock.work(1000)\n# --- b\nclock.work(4000)", "-t 1 -n 1 -r 12"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task, "Task", partial(task.Task, clocks=clock.clocks))
        assert bench(plan, cell, base="").frame["verdict"][1] == "slower"
        result = bench(f"{plan} --margin 900", cell, base="")
    assert result.frame["verdict"][1] == "same"
    assert result.margin == pytest.approx(9)


def setup_runs_before(bench: Bench) -> None:
    assert bench("", "y + 1") is None
    assert "NameError" in bench.shown
    assert len(bench("--setup 'y = x'", "y + 1").frame) == 1


def label_names_the_measurement(bench: Bench) -> None:
    assert bench().frame["label"].tolist() == ["In[1]"]
    result = bench("--label L")
    assert result.frame["label"].tolist() == [result.measurements[0].task_spec.label] == ["L"]


def sub_label_names_the_input(bench: Bench) -> None:
    result = bench("--sub-label S")
    assert result.frame["sub_label"].tolist() == [result.measurements[0].task_spec.sub_label] == ["S"]


def description_names_the_alternative(bench: Bench) -> None:
    result = bench("--description D")
    assert result.frame["description"].tolist() == [result.measurements[0].task_spec.description] == ["D"]


def env_names_the_environment(bench: Bench) -> None:
    result = bench("--env E")
    assert result.frame["env"].tolist() == [result.measurements[0].env] == ["E"]


def baseline_is_what_ratios_refer_to(bench: Bench) -> None:
    assert bench("", TWO).frame["ratio"][0] == 1
    frame = bench("--baseline b", TWO).frame
    assert frame["verdict"][1] == "baseline"
    assert frame["ratio"][0] != 1


def device_is_the_one_waited_for(bench: Bench) -> None:
    assert bench("--device cpu").frame["device"].tolist() == ["cpu"]
    assert bench("--device cuda:77") is None
    assert "cuda" in bench.shown


def clock_is_what_the_figures_are_of(bench: Bench) -> None:
    assert bench("", NAP).frame["median"][0] > 0.0015
    result = bench("--clock cpu", NAP)
    assert result.frame["median"][0] < 0.0015
    assert result.clock == "cpu"


def cold_makes_every_sample_one_call(bench: Bench) -> None:
    assert set(bench("", base="-t 1 --min-run-time 0.01").samples["number"]) != {1}
    assert set(bench("--cold", base="-t 1 --min-run-time 0.01 --max-run-time 0.02").samples["number"]) == {1}


def check_compares_what_alternatives_return(bench: Bench) -> None:
    assert bench("", TWO) is not None
    assert bench("--check", TWO) is None
    assert "b" in bench.shown


def restore_gives_the_inputs_back(bench: Bench) -> None:
    bench.names["y"] = y = bench.names["torch"].zeros(2)
    bench("", "y.add_(1)")
    changed = y.sum().item()
    assert changed > 0
    bench("--restore", "y.add_(1)")
    assert y.sum().item() == changed


def gc_leaves_the_collector_on(bench: Bench) -> None:
    import gc

    seen: list[bool] = []
    bench.names.update(gc=gc, was_on=seen)
    for option, is_on in (("", False), ("--gc", True)):
        bench(option, "was_on.append(gc.isenabled())")
        assert seen[-1] is is_on
        assert ("garbage collector on" in bench.shown) is is_on


def processes_measure_one_after_the_other(bench: Bench) -> None:
    result = bench("--processes 2", TWO)
    assert result.frame["method"].tolist() == ["processes", "processes"]
    assert {1, 2} <= {*result.processes["process"]}  # and others in the place of those that do not count
    assert "Times as " in bench.shown
    assert "the median over processes" in " ".join(bench.shown.split())


def engines_measure_elsewhere(bench: Bench) -> None:
    from tests.engines.conftest import running_cluster

    bench("--engines nowhere")
    assert bench.shown.startswith("UsageError: --engines nowhere: ")
    assert "ipcluster start -n 2 --profile=nowhere" in bench.shown
    folder = Path("cluster")
    folder.mkdir()
    with running_cluster(folder.absolute(), 1) as own:
        bench.shell.ipython_dir = str(own.ipython_dir)
        result = bench(f"--engines {own.profile} --sweep n=[1,2]", "x + n")
    assert [subject.place.engine for subject in result.subjects] == [0, 0]
    assert {subject.place for subject in bench("--sweep n=[1,2]", "x + n").subjects} == {None}


def levers_are_tried_beside_the_body(bench: Bench) -> None:
    assert len(bench().frame) == 1
    result = bench("--try inference_mode", base="-t 1 -n 2 -r 6")
    assert result.frame["description"].tolist() == ["as it is", "inference_mode"]
    assert result.frame["result"].iloc[1] == "equal"
    assert "as it is" in bench.shown


def sweep_adds_an_axis(bench: Bench) -> None:
    assert bench("--sweep n=[1,2]", "x + n").frame["n"].tolist() == [1, 2]


def fuzz_draws_inputs(bench: Bench) -> None:
    result = bench("--fuzz unary:2", "x.sum()")
    assert len(result.frame) == 2
    assert result.frame["sub_label"].nunique() == 2


def seed_makes_the_order_repeat(bench: Bench) -> None:
    first, again, other = (bench(f"--seed {seed}", TWO, base="-t 1 -n 1 -r 20") for seed in (3, 3, 4))
    assert (first.seed, other.seed) == (3, 4)
    assert first.samples["measurement"].tolist() == again.samples["measurement"].tolist()
    assert first.samples["measurement"].tolist() != other.samples["measurement"].tolist()


def save_appends_to_a_file(bench: Bench) -> None:

    bench()
    assert not Path("runs.sqlite").exists()
    result = bench("--save runs.sqlite")
    assert load("runs.sqlite")[-1].samples["wall"].tolist() == result.samples["wall"].tolist()


def resume_takes_points_over(bench: Bench) -> None:
    first = bench("--save runs.sqlite --sweep n=[1]", "x + n")
    anew = bench("--save runs.sqlite --sweep n=[1]", "x + n")
    taken = bench("--save runs.sqlite --resume --sweep n=[1]", "x + n")
    assert anew.samples["wall"].tolist() != first.samples["wall"].tolist()
    assert taken.samples["wall"].tolist() in (first.samples["wall"].tolist(), anew.samples["wall"].tolist())


# ---- %%tprofile -------------------------------------------------------------------------------------------------


def efficiency_tells_how_near_the_roof_each_operation_is(bench: Bench) -> None:
    code = "a = torch.ones(256, 256)\nfor _ in range(20): y = a @ a"
    plain = bench("", code)
    assert plain.efficiency is None
    assert plain.ops["efficiency_class"].isna().all()
    made = bench("--efficiency", code)
    assert "of roof" in bench.shown
    row = made.ops[made.ops["op"] == "aten::mm"].iloc[0]
    assert row["bytes"] == 20 * 3 * 4 * 256**2
    assert made.efficiency.peaks.dispatch > 0


def _without_valgrind(bench: Bench, options: str) -> Any:
    """Counting takes a server and half a minute; that it was asked for shows without it (see test_timer.py)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", "/nowhere")
        return bench(options)


def callgrind_asks_for_instruction_counts(bench: Bench) -> None:
    assert [d.kind for d in bench().warnings].count("not-counted") == 0
    assert [d.kind for d in _without_valgrind(bench, "--callgrind 20").warnings].count("not-counted") == 1


def callgrind_form_is_the_form_that_is_counted(bench: Bench) -> None:
    from torchbench_magic.errors import CountError
    from torchbench_magic.timing import counted_alternatives

    forms: list[str] = []

    def count(job: Any, *_: object, **__: object) -> Any:
        forms.append(job.form)
        raise CountError("not in this test")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counted_alternatives, "count_instructions", count)
        bench("--callgrind")
        bench("--callgrind --callgrind-form module")
    assert forms == ["function", "module"]


def cpp_reads_the_cell_as_cpp(bench: Bench) -> None:
    code = "int n = 1;\nn++;"
    bench("", code)
    assert "SyntaxError" in bench.shown
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", "/nowhere")
        patch.delenv("CXX", raising=False)
        bench("--cpp", code)  # compiled for real in tests/cpp and tests/kernel/test_cpp.py
    assert bench.shown.startswith("UsageError: C++ snippets need a compiler, and g++ is not installed")


def global_setup_stands_at_the_level_of_the_file(bench: Bench) -> None:
    from torchbench_magic.cpp import run
    from torchbench_magic.errors import SnippetError

    texts: list[str] = []

    def compile_snippets(snips: Any, **_: object) -> Any:
        texts.append(snips["statement"].text)
        raise SnippetError("not in this test")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "compile_snippets", compile_snippets)
        bench("--cpp", "f();")
        bench('--cpp --global-setup "#include <mine.h>"', "f();")
    assert "mine.h" not in texts[0]
    assert texts[1].index("#include <mine.h>") < texts[1].index("torchbench_run")


Effect = Callable[[Bench], None]
SHARED: dict[str, Effect] = {
    "output": output_binds_the_result,
    "quiet": quiet_shows_nothing,
    "explore": explore_shows_the_widget_in_a_kernel,
}
TIMER: dict[str, Effect] = SHARED | {
    "threads": threads_are_rows_and_torchs_own_number,
    "min_run_time": min_run_time_is_spent,
    "max_run_time": max_run_time_ends_a_run_that_wants_more,
    "number": number_is_calls_in_a_block,
    "repeat": repeat_is_the_number_of_blocks,
    "until": until_goes_on_until_the_interval_is_that_narrow,
    "adaptive": adaptive_goes_on_until_the_spread_is_small,
    "margin": margin_is_what_is_called_the_same,
    "setup": setup_runs_before,
    "label": label_names_the_measurement,
    "sub_label": sub_label_names_the_input,
    "description": description_names_the_alternative,
    "env": env_names_the_environment,
    "baseline": baseline_is_what_ratios_refer_to,
    "device": device_is_the_one_waited_for,
    "clock": clock_is_what_the_figures_are_of,
    "cold": cold_makes_every_sample_one_call,
    "check": check_compares_what_alternatives_return,
    "restore": restore_gives_the_inputs_back,
    "gc": gc_leaves_the_collector_on,
    "processes": processes_measure_one_after_the_other,
    "engines": engines_measure_elsewhere,
    "levers": levers_are_tried_beside_the_body,
    "sweep": sweep_adds_an_axis,
    "fuzz": fuzz_draws_inputs,
    "seed": seed_makes_the_order_repeat,
    "callgrind": callgrind_asks_for_instruction_counts,
    "callgrind_form": callgrind_form_is_the_form_that_is_counted,
    "cpp": cpp_reads_the_cell_as_cpp,
    "global_setup": global_setup_stands_at_the_level_of_the_file,
    "save": save_appends_to_a_file,
    "resume": resume_takes_points_over,
}
def engines_make_the_cell_a_job_of_ranks(bench: Bench) -> None:
    from tests.engines.conftest import PROFILE as CLUSTER
    from tests.engines.conftest import running_cluster
    from torchbench_magic.cluster.job_profile import RankProfile

    folder = Path("cluster")
    folder.mkdir()
    with running_cluster(folder.absolute(), 1) as running:
        bench.shell.ipython_dir = str(running.ipython_dir)
        made = bench(f"--engines {CLUSTER}", "torch.ones(3).sin();")
    assert isinstance(made, RankProfile)
    assert (made.world_size, len(made.profiles)) == (1, 1)
    assert not isinstance(bench("", "x.sin();"), RankProfile)


def overwrite_replaces_a_file_of_another_kind(bench: Bench) -> None:
    Path("stacks.txt").write_text("dear diary")
    bench("--stacks stacks.txt", "y = x.sin();")
    assert "stacks.txt: already exists and is not a file of stacks" in bench.shown
    assert Path("stacks.txt").read_text() == "dear diary"
    bench("--stacks stacks.txt --overwrite", "y = x.sin();")
    assert "aten::sin" in Path("stacks.txt").read_text()


def concurrency_gives_the_verdict_on_the_cores(bench: Bench) -> None:
    """Which verdict it is depends on the machine: tests/profiling/cores/ has them.

    None of the runs below has one.
    """
    seen = bench("--concurrency", "time.sleep(0.5);").concurrency
    assert (seen.verdict == "not available") == (not Path("/proc/self/schedstat").exists())
    assert f"cores: {seen.verdict}" in " ".join(bench.shown.split())
    assert bench.shown.rstrip().endswith(seen.proof_line)


def phases_records_these_and_no_operations(bench: Bench) -> None:
    code = (
        "net = torch.nn.Linear(4, 1)\noptimizer = torch.optim.SGD(net.parameters(), 0.1)\nfor _ in range(3):\n"
        "    optimizer.zero_grad()\n    net(torch.ones(4)).sum().backward()\n    optimizer.step()"
    )
    assert len(bench("", code).ops)
    made = bench("--phases", code)
    assert made.ops.empty
    assert made.lines.empty
    assert made.phases["step"].nunique() == 3
    assert bench.shown.startswith("a step takes ")


PROFILE: dict[str, Effect] = {
    "explore": explore_shows_the_widget_in_a_kernel,
    "overwrite": overwrite_replaces_a_file_of_another_kind,
    "engines": engines_make_the_cell_a_job_of_ranks,
    "concurrency": concurrency_gives_the_verdict_on_the_cores,
    "phases": phases_records_these_and_no_operations,
    "efficiency": efficiency_tells_how_near_the_roof_each_operation_is,
}


# ---- several options of the profile in one run ------------------------------------------------------------------

# Each is asked for in other runs than any other, so that what is seen in exactly these runs is its effect.
LOOKED_AT = """\
y = x.cos()
for _ in range(4): x.sin()
x.sin()
torch.ones(2, 3).sin()
y = torch.ones(4, 5) @ torch.ones(5, 6)
z = torch.ones(1000)
b = bytes(3_000_000)
textwrap.dedent('a')
n = torch.get_num_threads()
ran.append(1)
def nap():
    time.sleep(pause)
nap()
"""

TOGETHER: dict[str, tuple[str, set[int]]] = {
    "output": ("-o kept", {0, 4}),
    "quiet": ("-q", {2}),
    "threads": ("-t 3", {3, 4}),
    "memory": ("--memory", {0, 1, 3}),
    "shapes": ("--shapes", {1, 2}),
    "host_memory": ("--host-memory", {2, 3, 4}),
    "flops": ("--flops", {2, 3}),
    "twice": ("--twice", {0}),
    "python": ("--python", {1}),
    "sort_by": ("-s name", {1, 4}),
    "row_limit": ("-l 2", {0, 1}),
    "group_by": ("--group-by line", {4}),
    "lines_of": ("--lines-of textwrap", {0, 3}),
    "trace": ("--trace run.json.gz", {1, 3}),
    "save": ("--save runs.sqlite", {0, 2}),
    "stacks": ("--stacks stacks.txt", {2, 4}),
}
"""Option -> how it is asked for, and in which of five runs."""


@dataclass
class OfOneRun:
    """What there is after a run: its profile, what was shown, names of the notebook, files."""

    bench: Bench
    made: Any

    def rows(self, start: str = "aten::") -> list[str]:
        return [line.split()[0] for line in self.bench.shown.splitlines() if line.startswith(start)]

    @property
    def naps(self) -> float:
        python = self.made.python
        return 0.0 if python is None else python.loc[python["function"] == "nap", "total_time"].item()

    def traced(self) -> bool:
        """Whether a trace was written; it is read back."""
        if not Path("run.json.gz").exists():
            return False
        read = load_trace("run.json.gz")
        assert "aten::sin" in read.ops["op"].tolist()
        assert read.ops["op"].tolist() == self.made.ops["op"].tolist()
        assert read.wall_time == self.made.wall_time
        return True

    def stacked(self) -> bool:
        """Whether stacks were written; they add up to the time."""
        if not Path("stacks.txt").exists():
            return False
        lines = Path("stacks.txt").read_text().splitlines()
        assert any("y = x.cos();aten::cos " in line.replace("\\x3b", "") for line in lines)
        summed = sum(int(line.rpartition(" ")[2]) for line in lines)
        assert summed == pytest.approx(self.made.wall_time * 1e9, rel=1e-6)
        return True

    def seen(self, ran: int, before: int) -> dict[str, set[bool]]:
        """Option -> whether each of what it makes is there; ``before``: torch's own number of threads."""
        made, names, shown = self.made, self.bench.names, self.bench.shown
        ops, lines = made.ops, made.lines
        quiet = not shown.strip()
        found: dict[str, set[bool]] = {
            "output": {names.get("kept") is made, "kept" in names},
            "quiet": {quiet},
            "memory": {made.memory is not None, ops["allocated"].sum() >= 4000, lines["allocated"].sum() >= 4000},
            "shapes": {bool(ops["input_shapes"].notna().any())},
            "host_memory": {bool(lines["host_net"].notna().any()), 2_900_000 < (_most(lines["host_net"])) < 3_200_000},
            "flops": {bool(ops["flops"].notna().any()), ops["flops"].sum() == 2 * 4 * 5 * 6},
            "twice": {made.unprofiled_time is not None, (made.unprofiled_time or 0) > 0, ran > 1},
            "python": {made.python is not None, self.naps > 0},
            "lines_of": {"textwrap.py" in {Path(file).name for file in lines["file"].dropna()}},
            "trace": {self.traced()},
            "stacks": {self.stacked()},
            "threads": {made.num_threads == names["n"] == 3 != before, made.num_threads != before},
        }
        once_or_in_pairs = 1 if len(made.repeats) == 1 else 2 * len(made.repeats)
        assert ran == 1 + once_or_in_pairs
        if not quiet:
            assert ("where Python time goes" in shown) == (made.python is not None)
            found["sort_by"] = {self.rows()[0] == "aten::cos", self.rows()[0] != "aten::sin"}
            found["row_limit"] = {len(self.rows()) == 2}
            found["group_by"] = {len(self.rows("aten::sin ")) == 3, len(self.rows("aten::sin ")) > 1}
        return found


def _most(column: Any) -> float:
    return float(column.fillna(0).max())


# ---- steps of a loop ------------------------------------------------------------------------------------------------

TWELVE = "for i in range(12):\n    x.exp()\n    torchbench_magic.step()\n"
BY_STEPS = {"schedule", "steps", "warmup", "on_trace", "max_events"}


def _exps(result: Any) -> int:
    return int(result.ops.loc[result.ops["op"] == "aten::exp", "calls"].sum())


@pytest.fixture
def measuring(
    loaded: InteractiveShell, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str], Bench]:
    """A shell in a folder of its own, with torch, time and a tensor x."""
    import time

    import torch

    monkeypatch.chdir(tmp_path)
    loaded.user_ns.update(torch=torch, time=time, x=torch.ones(8))
    return lambda magic, base: Bench(loaded, run, magic, base)


def slow_ones_marked(effects: dict[str, Effect]) -> list[Any]:
    """The options; those that need engines, processes or the machine's peaks take seconds."""
    slow = {"engines", "processes", "efficiency"}
    return [pytest.param(option, marks=[pytest.mark.slow] if option in slow else []) for option in effects]


@pytest.mark.parametrize(
    ("options", "effects"), [(TimerOptions, {*TIMER}), (ProfilerOptions, {*PROFILE, *TOGETHER, *BY_STEPS})]
)
def test_every_declared_option_has_an_effect_below(options: type, effects: set[str]) -> None:
    assert set(declared_options(options)) == effects


@pytest.mark.parametrize("option", slow_ones_marked(TIMER))
def test_an_option_of_the_timer_has_its_effect(measuring: Callable[[str, str], Bench], option: str) -> None:
    TIMER[option](measuring("timer", "-t 1 -n 2 -r 3"))


@pytest.mark.parametrize("option", slow_ones_marked(PROFILE))
def test_an_option_of_the_profile_has_its_effect(measuring: Callable[[str, str], Bench], option: str) -> None:
    PROFILE[option](measuring("tprofile", ""))


def test_each_of_several_options_of_the_profile_has_its_effect_where_it_is_asked_for_and_nowhere_else(
    measuring: Callable[[str, str], Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    where = {frozenset(runs) for _, runs in TOGETHER.values()}
    assert len(where - {frozenset(), frozenset(range(5))}) == len(TOGETHER), "or an effect may be another's"
    monkeypatch.setenv("COLUMNS", "400")  # no table in parts
    monkeypatch.setattr(recording_cost, "PAIRS", 2)
    bench = measuring("tprofile", "")
    threads = bench.names["torch"].get_num_threads()
    bench.names["textwrap"] = textwrap
    saved = []
    for run in range(5):
        asked = {option for option, (_, runs) in TOGETHER.items() if run in runs}
        bench.names["ran"] = ran = []
        bench.names.pop("kept", None)
        bench.names["pause"] = 0.05 if "python" in asked else 0.0
        for file in ("run.json.gz", "stacks.txt"):
            Path(file).unlink(missing_ok=True)
        line = " ".join(TOGETHER[option][0] for option in TOGETHER if option in asked)
        line += " -s calls" * ("sort_by" not in asked) + " -l -1" * ("row_limit" not in asked)
        made = bench(line, LOOKED_AT)
        assert bench.names["torch"].get_num_threads() == threads, "as it was before the run"
        assert made.concurrency is None
        assert made.efficiency is None
        assert "cores: " not in bench.shown
        if "save" in asked:
            saved.append(made.wall_time)
        assert [kept.wall_time for kept in load("runs.sqlite")] == saved
        for option, there in OfOneRun(bench, made).seen(len(ran), threads).items():
            implied = option == "shapes" and "flops" in asked
            assert there == {option in asked or implied}, f"{option} with {line!r}"


def test_operations_are_grouped_by_shape_too_which_records_shapes(measuring: Callable[[str, str], Bench]) -> None:
    bench = measuring("tprofile", "")
    made = bench("-l -1 --group-by shape", "y = x.sin()\ny = y.sin()\ny = torch.ones(2, 3).sin();")
    assert len(OfOneRun(bench, made).rows("aten::sin ")) == 2
    assert made.options.shapes, "there is nothing to group by otherwise"
    bench("--group-by shapes", "x.sin()")
    assert bench.shown.startswith("UsageError: group_by 'shapes' is unknown; use op, shape, line, module, stack or")


def test_options_of_steps_have_their_effects(measuring: Callable[[str, str], Bench]) -> None:
    bench = measuring("tprofile", "-q")
    bench.names.update(torchbench_magic=torchbench_magic, look=(seen := []).append)
    assert _exps(bench("", TWELVE)) == 12
    assert seen == []
    scheduled = bench("--schedule wait=1,warmup=1,active=3,repeat=2 --on-trace look --shapes", TWELVE)
    assert _exps(scheduled) == 6
    assert [cycle.steps for cycle in scheduled.cycles] == [(2, 3, 4), (7, 8, 9)]
    assert seen == list(scheduled.cycles)
    assert scheduled.ops["input_shapes"].notna().any()
    loop = TWELVE.replace("    torchbench_magic.step()\n", "")
    by_default, more = bench("--steps 2", loop), bench("--steps 5 --warmup 4 --on-trace look", loop)
    assert (_exps(by_default), by_default.steps) == (2, (1, 2))
    assert (_exps(more), more.steps) == (5, (4, 5, 6, 7, 8))
    assert len(seen) == 3
    assert seen[2:] == list(more.cycles)
    cut = bench("--steps 11 --warmup 0 --shapes --max-events 10", loop)
    assert cut.steps == tuple(range(11))
    assert cut.ops["input_shapes"].isna().all()
    assert {"events-dropped", "lines-cut"} <= {doubt.kind for doubt in cut.warnings}
