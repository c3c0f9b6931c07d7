"""``%tprofile`` and ``%%tprofile`` in a shell, with the real core: results, steps of long jobs, files."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

import torchbench_magic
from torchbench_magic import Comparison, Profile, ProfileDiff, load, load_trace
from torchbench_magic.notebook import tprofile

# ==== results and errors ==============================================================================================


Run = Callable[..., str]


@pytest.fixture
def profiled(loaded: InteractiveShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InteractiveShell:
    """A shell in an empty folder with the extension, a tensor x and, in cell 1, a function f."""
    import torch

    monkeypatch.chdir(tmp_path)
    loaded.user_ns.update(torch=torch, torchbench_magic=torchbench_magic, x=torch.ones(8))
    loaded.run_cell("def f(a):\n    b = a * 2\n    return b\n", store_history=True)
    return loaded


def rows(shell: Any) -> list[tuple[int, int, str]]:
    """(cell, line, source) of each attributed line."""
    frame = shell.user_ns["_tprofile"].lines.dropna(subset=["cell"])
    return [(int(r.cell), int(r.line), r.source.strip()) for r in frame.itertuples()]


def test_a_cell_runs_once_in_the_namespace_like_any_cell(profiled: Any, run: Run) -> None:
    run(profiled, "log = []")
    shown = run(profiled, "%%tprofile\nlog.append(1)\ny = f(x)\nprint('said')\n41 + 1")
    assert profiled.user_ns["log"] == [1]
    assert "y" in profiled.user_ns
    assert shown.splitlines().count("said") == 1
    assert "Out[3]: 42" in shown
    assert profiled.user_ns["Out"][3] == profiled.user_ns["_"] == 42


def test_lines_of_the_cell_and_of_an_earlier_one_are_named(profiled: Any, run: Run) -> None:
    run(profiled, "\n%%tprofile\n\ny = f(x)")
    assert {(2, 4, "y = f(x)"), (1, 2, "b = a * 2")} <= set(rows(profiled))


def test_an_interrupt_while_the_cell_is_read_says_that_nothing_was_recorded(
    profiled: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while torch's profiler is loaded, for seconds in the first cell of a session."""
    monkeypatch.setattr(tprofile, "import_libraries", lambda: signal.raise_signal(signal.SIGINT))
    run(profiled, "began = []")
    shown = run(profiled, "%%tprofile\nbegan.append(1)")
    assert shown.rstrip().endswith("KeyboardInterrupt: interrupted before the code began: nothing was recorded")
    assert profiled.user_ns["began"] == []
    assert "_tprofile" not in profiled.user_ns


def test_a_body_with_a_joined_shell_line_keeps_its_lines(profiled: Any, run: Run) -> None:
    run(profiled, "%%tprofile\n!true \\\n  a\n%pwd\ny = f(x)")
    assert (2, 5, "y = f(x)") in rows(profiled)


def test_lines_of_a_cell_that_ipython_compiles_with_other_numbers_are_the_visible_ones(profiled: Any, run: Run) -> None:
    cell = "\n\n!true \\\n  a\ndef g(a):\n    return a * 3\n%tprofile -q g(x)"
    run(profiled, cell)
    assert {(2, 6, "return a * 3"), (2, 7, "%tprofile -q g(x)")} <= set(rows(profiled))


def test_the_semicolon_keeps_the_value_from_being_shown(profiled: Any, run: Run) -> None:
    assert "Out[2]" not in run(profiled, "%%tprofile\nf(x);")


def test_a_shell_line_that_is_no_python_does_not_upset_the_semicolon(profiled: Any, run: Run) -> None:
    shown = run(profiled, "%%tprofile\n!echo '('\nf(x)")
    assert "Out[2]: tensor" in shown
    assert "Error" not in shown


def test_the_line_magic_gives_the_profile(profiled: Any, run: Run) -> None:
    shown = run(profiled, "p = %tprofile f(x)")
    assert profiled.user_ns["p"] is profiled.user_ns["_tprofile"]
    assert shown.count(", this cell") == 1
    run(profiled, "%tprofile -q f(x)")
    assert profiled.user_ns["_"] is not profiled.user_ns["_tprofile"], "what was not shown is in no output"


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("%tprofile", "nothing to profile"),
        ("%%tprofile\n# nothing\n", "nothing to profile"),
        ("%%tprofile f(x)\nf(x)", "takes no code on its line: f(x)"),
        ("%tprofile -t 1,2 f(x)", "whole number of at least 1"),
        ("%tprofile -t 4097 f(x)", "whole number up to 4096"),
        ("%tprofile --mem f(x)", "write --memory (options are not abbreviated)"),
        ("%tprofile -s bogus f(x)", "'bogus'"),
        ("%tprofile -l 0 f(x)", "-1 for all rows"),
        ("%tprofile -o x f(x)", "x holds a Tensor"),
        ("%tprofile --lines-of no.such.module f(x)", "no.such.module"),
        ("%tprofile await f(x)", "begins with %%tprofile"),
        ("%%tprofile --steps 2\nx + 1", "has none: call torchbench_magic.step()"),
        ("%%tprofile --steps 2\nfor i in x: i\nfor i in x: i", "has 2 (lines 2, 3)"),
        ("%%tprofile --steps 0\nfor i in x: i", "whole number of at least 1"),
        ("%%tprofile --warmup 2\nfor i in x: i", "--warmup says what runs before --steps: give both"),
        ("%%tprofile --steps 2 --warmup -1\nfor i in x: i", "whole number of at least 0"),
        ("%%tprofile --steps 2 --schedule active=1\nfor i in x: i", "leave out one of them"),
        ("%%tprofile --schedule wait=1\nx", "active is needed"),
        ("%%tprofile --schedule active=1,repeats=1\nx", "no 'repeats'; it has active, wait"),
        ("%%tprofile --on-trace x\nx", "x is a Tensor, not a function; write ./x for a folder"),
        ("%%tprofile --on-trace /proc/nowhere/x\nx", "give a folder, or the name of a function"),
        ("%%tprofile --max-events none\nx", "whole number of at least 1"),
        ("%%tprofile --max-events inf\nx", "whole number of at least 1"),
        (f"%%tprofile --steps 2 --warmup {'9' * 5000}\nfor i in x: i", "whole number of at least 0"),
        (f"%%tprofile --steps 2 --warmup {10**15}\nfor i in x: i", "whole number up to 1000000000000"),
        (f"%%tprofile --schedule active={'9' * 5000}\nx", "is not a number of steps"),
    ],
)
def test_bad_input_is_one_clear_line(profiled: Any, run: Run, cell: str, message: str) -> None:
    shown = run(profiled, cell).strip()
    assert shown.startswith("UsageError: ")
    assert message in shown
    assert "\n" not in shown
    assert "_tprofile" not in profiled.user_ns


def test_an_exception_is_the_users_own_and_what_ran_is_shown_and_kept(profiled: Any, run: Run) -> None:
    shown = run(profiled, "%%tprofile\ny = f(x)\n1 / 0\nz = 1")
    assert shown.count("ZeroDivisionError") == 3, "the partial profile's doubt, and the traceback's two ends"
    assert "Partial: ended by ZeroDivisionError" in shown
    assert shown.index("wall time") < shown.index("ZeroDivisionError: division by zero")
    assert shown.count("Traceback") == 1
    assert "In[2], line 3" in shown
    assert "> 3 1 / 0" in shown
    assert "torchbench_magic" not in shown
    assert "hidden" not in shown
    assert "z" not in profiled.user_ns
    assert profiled.user_ns["_tprofile"].partial


def test_a_syntax_error_names_the_visible_line(profiled: Any, run: Run) -> None:
    shown = run(profiled, "\n%%tprofile\nx\ny = = 1")
    assert "In[2], line 4" in shown
    assert "File" not in shown


def test_ctrl_c_shows_the_partial_profile_and_keeps_it(profiled: Any, run: Run) -> None:
    shown = run(profiled, "%%tprofile\ny = f(x)\nraise KeyboardInterrupt")
    assert "Partial: interrupted" in shown
    assert "KeyboardInterrupt" in shown
    assert "Cell In[2], line 3\n" in shown, "the line that was interrupted, not that of the magic"
    assert "wall time" in shown
    assert profiled.user_ns["_tprofile"].partial
    assert "torchbench_magic" not in shown


def test_a_nested_profile_is_refused_and_leaves_the_outer_one_alone(profiled: Any, run: Run) -> None:
    cell = "%%tprofile -q\nget_ipython().run_line_magic('tprofile', 'f(x)')"
    assert "UsageError" in run(profiled, cell)
    import torch

    assert not torch.autograd._profiler_enabled()


def test_a_function_of_an_earlier_cell_that_is_compiled_stands_on_that_cell(profiled: Any, run: Run) -> None:
    import torch

    torch._dynamo.reset()
    run(profiled, "g = torch.compile(f, backend='eager')")
    shown = run(profiled, "%%tprofile\ng(x)\ng(torch.ones(2, 2))")
    table = profiled.user_ns["_tprofile"].compilations
    assert [(row.cell, row.line, row.function, row.kind) for row in table.itertuples()] == [
        (1, 1, "f", "first"),
        (1, 1, "f", "recompile"),
    ]
    assert "In[1]:1" in shown
    assert "`f`" in profiled.user_ns["_tprofile"].insights[0].text
    run(profiled, "%%tprofile\ng(x)")
    assert profiled.user_ns["_tprofile"].compilations.empty
    torch._dynamo.reset()


# ==== steps ===========================================================================================================
# ``%%tprofile`` of long jobs: --schedule, --steps, --on-trace, and what a cell that fails shows.


LOOP = "for i in range(6):\n    y = x.exp()\n    {end}\n"
STEPS = LOOP.format(end="torchbench_magic.step()")
ITERATIONS = LOOP.format(end="z = y.log()")


def calls(result: Any) -> dict[tuple[str, int], int]:
    rows = zip(result.ops["op"], result.ops["line"], result.ops["calls"], strict=True)
    return {(op, int(line)): int(n) for op, line, n in rows}


def test_a_schedule_records_its_steps_on_the_visible_lines(profiled: Any, run: Run) -> None:
    shown = run(profiled, f"%%tprofile --schedule wait=1,warmup=1,active=2,repeat=1\n{STEPS}")
    result = profiled.user_ns["_tprofile"]
    assert result.steps == (2, 3)
    assert calls(result) == {("aten::exp", 3): 2, ("ProfilerStep*", 4): 2}
    assert "steps 2 and 3 recorded" in shown


def test_iterations_of_the_loop_are_recorded_without_a_word_in_the_cell(profiled: Any, run: Run) -> None:
    names = set(profiled.user_ns)
    run(profiled, f"%%tprofile -q --steps 2 --warmup 3\n{ITERATIONS}")
    result = profiled.user_ns["_tprofile"]
    assert result.steps == (3, 4)
    found = {key: n for key, n in calls(result).items() if key[0].startswith("aten")}
    assert found == {("aten::exp", 3): 2, ("aten::log", 4): 2}
    assert {name for name in set(profiled.user_ns) - names if not name.startswith("_")} == {"i", "y", "z"}
    run(profiled, f"%%tprofile -q --steps 9\n{ITERATIONS}")
    assert profiled.user_ns["_tprofile"].steps == (1, 2, 3, 4, 5)


def test_its_error_reads_as_the_cells_own_and_the_profile_is_shown_before(profiled: Any, run: Run) -> None:
    run(profiled, "def look(cycle):\n    raise OSError('disk full')\n")
    shown = run(profiled, f"%%tprofile --schedule active=2 --on-trace look\n{STEPS}")
    assert shown.index("Partial: ended by OSError") < shown.index("disk full")
    assert "----> 4     torchbench_magic.step()" in shown
    assert "raise OSError('disk full')" in shown
    assert "core/profiling" not in shown
    assert profiled.user_ns["_tprofile"].steps == (0, 1)


def test_a_folder_gets_a_trace_of_each_cycle(profiled: Any, run: Run) -> None:
    run(profiled, f"%%tprofile --steps 2 --on-trace traces/deep\n{ITERATIONS}")
    (file,) = Path("traces/deep").iterdir()
    assert file.name == "cycle-1-steps-1-2.json.gz"
    assert load_trace(file).ops.groupby("op")["calls"].sum()["aten::exp"] == 2
    run(profiled, "%%tprofile --on-trace traces\nx.exp()")
    assert Path("traces/trace.json.gz").exists()


def test_no_step_is_said_where_the_table_would_be_empty(profiled: Any, run: Run) -> None:
    shown = run(profiled, "%%tprofile --schedule wait=1,active=1\nx.exp();")
    assert "never called torchbench_magic.step()" in shown
    assert "no step was recorded" in shown
    assert profiled.user_ns["_tprofile"].ops.empty


def test_an_awaiting_cell_has_steps_too(profiled: Any, run: Run) -> None:
    cell = "import asyncio\nfor i in range(4):\n    await asyncio.sleep(0)\n    x.exp()\n"
    run(profiled, f"%%tprofile --steps 2\n{cell}")
    assert profiled.user_ns["_tprofile"].steps == (1, 2)
    assert calls(profiled.user_ns["_tprofile"])["aten::exp", 5] == 2


def test_a_name_with_markup_quotes_and_newlines_stays_text(profiled: Any, run: Run) -> None:
    name = "a'b\"c</script><b>\\nnew"
    run(profiled, f'%%tprofile\nwith torch.profiler.record_function("""{name}"""):\n    x.exp()\nNone')
    result = profiled.user_ns["_tprofile"]
    assert "a'b\"c</script><b>\nnew" in set(result.ops["op"])
    from torchbench_magic.show.renderers import mimebundle

    html = mimebundle(result)["text/html"]
    assert "</script><b>" not in html
    assert "<b>new" not in html


# ==== files ===========================================================================================================
# ``%%tprofile --trace`` and ``--save``, and ``%tcompare`` of two profiles, in a shell with the real core.


@pytest.fixture
def shell_in_a_folder(loaded: InteractiveShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InteractiveShell:
    """A shell in an empty folder, with torch and a tensor."""
    import torch

    monkeypatch.chdir(tmp_path)
    loaded.user_ns.update(torch=torch, x=torch.ones(64, 64))
    return loaded


BEFORE = "%%tprofile -q -o before --memory\ny = x @ x\nz = y.sin()"
AFTER = "%%tprofile -q -o after --memory\ny = x @ x\nw = y @ y\nz = w.sin()"


def test_two_profiles_of_edited_code_stand_side_by_side(shell_in_a_folder: Any, run: Run) -> None:
    run(shell_in_a_folder, BEFORE)
    run(shell_in_a_folder, AFTER)
    shown = run(shell_in_a_folder, "d = %tcompare before after")
    diff = shell_in_a_folder.user_ns["d"]
    assert isinstance(diff, ProfileDiff)
    assert diff is shell_in_a_folder.user_ns["_tcompare"]
    assert diff.names == ("before", "after")
    lines = diff.lines.set_index("source")
    assert lines.loc["w = y @ y", "match"] == "new"
    assert lines.loc["y = x @ x", ["baseline_line", "line"]].tolist() == [2, 2]
    assert lines.loc["y = x @ x", "allocated"] == lines.loc["y = x @ x", "baseline_allocated"] == 64 * 64 * 4
    assert shown.splitlines()[0].startswith("after takes ")
    ops = diff.ops.set_index("op")
    assert (ops.loc["aten::mm", "baseline_calls"], ops.loc["aten::mm", "calls"]) == (1, 2)


def test_the_baseline_may_be_the_second_and_results_may_lie_in_a_file(shell_in_a_folder: Any, run: Run) -> None:
    run(shell_in_a_folder, BEFORE.replace("-q", "-q --save runs.sqlite"))
    run(shell_in_a_folder, AFTER.replace("-q", "-q --save runs.sqlite"))
    run(shell_in_a_folder, "%tcompare before after --baseline after -o d")
    assert shell_in_a_folder.user_ns["d"].names == ("after", "before")
    run(shell_in_a_folder, "%tcompare runs.sqlite -o e")
    assert shell_in_a_folder.user_ns["e"].names == ("runs.sqlite[0]", "runs.sqlite[1]")
    assert shell_in_a_folder.user_ns["e"].other.wall_time == shell_in_a_folder.user_ns["after"].wall_time


def test_last_is_the_last_stored_profile_of_the_same_code(shell_in_a_folder: Any, run: Run) -> None:
    cell = "%%tprofile -q --save runs.sqlite -o NAME\ny = x @ x"
    run(shell_in_a_folder, cell.replace("NAME", "first"))
    assert "holds no other profile" in run(shell_in_a_folder, "%tcompare --last runs.sqlite"), "it is the only one"
    run(shell_in_a_folder, BEFORE.replace("-q", "-q --save runs.sqlite"))
    run(shell_in_a_folder, cell.replace("NAME", "second"))
    shown = run(shell_in_a_folder, "%tcompare second --last runs.sqlite -o d")
    diff = shell_in_a_folder.user_ns["d"]
    assert diff.names == ("last stored run", "this run")
    assert diff.baseline.wall_time == shell_in_a_folder.user_ns["first"].wall_time
    assert diff.other.wall_time == shell_in_a_folder.user_ns["second"].wall_time
    assert shown.startswith("this run takes ")
    run(shell_in_a_folder, "%tcompare --last runs.sqlite -o newest")
    assert shell_in_a_folder.user_ns["newest"].other.wall_time == shell_in_a_folder.user_ns["second"].wall_time


def test_what_cannot_be_compared_is_one_line(shell_in_a_folder: Any, run: Run) -> None:
    from tests.timing.samples import lone

    lone(1e-3).save("runs.sqlite")
    run(shell_in_a_folder, BEFORE)
    shell_in_a_folder.user_ns.update(
        after=shell_in_a_folder.user_ns["before"], third=shell_in_a_folder.user_ns["before"], timing=lone(1e-3)
    )
    for line, said in (
        ("before", "puts two profiles side by side, not 1"),
        ("before after third", "not 3: before, after, third"),
        ("before timing", "before holds a profile, the others timings"),
        ("before after --by env", "--by is for timings"),
        ("before after --baseline none", "the profiles are before and after"),
        ("before --last runs.sqlite", "runs.sqlite holds no other profile of this code"),
    ):
        shown = run(shell_in_a_folder, f"%tcompare {line}")
        assert said in shown, line
        assert "Traceback" not in shown, line


def test_a_trace_that_cannot_be_written_is_said_before_anything_runs(shell_in_a_folder: Any, run: Run) -> None:
    shown = run(shell_in_a_folder, "%%tprofile --trace none/run.json\nran = True")
    assert "folder none does not exist" in shown
    assert "ran" not in shell_in_a_folder.user_ns
    Path("text.sqlite").write_text("no store")
    shown = run(shell_in_a_folder, "%%tprofile --save text.sqlite\nran = True")
    assert "is not a store of results" in shown
    assert "ran" not in shell_in_a_folder.user_ns


def test_a_file_that_is_lost_during_the_run_costs_a_warning_not_the_result(shell_in_a_folder: Any, run: Run) -> None:
    os.mkdir("folder")
    shown = run(shell_in_a_folder, "%%tprofile --trace folder/run.json\nimport os; os.rmdir('folder')")
    assert "The trace could not be written" in shown
    assert isinstance(shell_in_a_folder.user_ns["_tprofile"], Profile)


def test_what_ran_before_an_exception_is_written_too(shell_in_a_folder: Any, run: Run) -> None:
    run(shell_in_a_folder, "%%tprofile --trace run.json --save runs.sqlite\nx.sin()\n1 / 0")
    names = {event["name"] for event in json.loads(Path("run.json").read_text())["traceEvents"]}
    assert "aten::sin" in names
    (kept,) = load("runs.sqlite")
    assert isinstance(kept, Profile)
    assert kept.partial


def test_timings_and_profiles_of_one_file_are_told_apart(shell_in_a_folder: Any, run: Run) -> None:
    run(shell_in_a_folder, "%timer -n 1 -r 2 -q --save runs.sqlite x.sin()")
    run(shell_in_a_folder, BEFORE.replace("-q", "-q --save runs.sqlite"))
    assert [type(result) for result in load("runs.sqlite")] == [Comparison, Profile]
    run(shell_in_a_folder, "%timer -n 1 -r 2 -q --save runs.sqlite x.sin()")
    assert "Traceback" not in run(shell_in_a_folder, "%tcompare --last runs.sqlite")
