"""``%%tprofile`` of long jobs: --schedule, --steps, --on-trace, and what a cell that fails shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from torchbench_magic import load_trace

Run = Callable[..., str]
LOOP = "for i in range(6):\n    y = x.exp()\n    {end}\n"
STEPS = LOOP.format(end="torchbench_magic.step()")
ITERATIONS = LOOP.format(end="z = y.log()")


@pytest.fixture
def job(loaded: InteractiveShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    import torch

    import torchbench_magic

    monkeypatch.chdir(tmp_path)
    loaded.user_ns.update(torch=torch, torchbench_magic=torchbench_magic, x=torch.ones(8))
    return loaded


def calls(result: Any) -> dict[tuple[str, int], int]:
    rows = zip(result.ops["op"], result.ops["line"], result.ops["calls"], strict=True)
    return {(op, int(line)): int(n) for op, line, n in rows}


def test_a_schedule_records_its_steps_on_the_visible_lines(job: Any, run: Run) -> None:
    shown = run(job, f"%%tprofile --schedule wait=1,warmup=1,active=2,repeat=1\n{STEPS}")
    result = job.user_ns["_tprofile"]
    assert result.steps == (2, 3)
    assert calls(result) == {("aten::exp", 3): 2, ("ProfilerStep*", 4): 2}
    assert "steps 2 and 3 recorded" in shown


def test_iterations_of_the_loop_are_recorded_without_a_word_in_the_cell(job: Any, run: Run) -> None:
    names = set(job.user_ns)
    run(job, f"%%tprofile -q --steps 2 --warmup 3\n{ITERATIONS}")
    result = job.user_ns["_tprofile"]
    assert result.steps == (3, 4)
    found = {key: n for key, n in calls(result).items() if key[0].startswith("aten")}
    assert found == {("aten::exp", 3): 2, ("aten::log", 4): 2}
    assert {name for name in set(job.user_ns) - names if not name.startswith("_")} == {"i", "y", "z"}
    run(job, f"%%tprofile -q --steps 9\n{ITERATIONS}")
    assert job.user_ns["_tprofile"].steps == (1, 2, 3, 4, 5)


def test_a_function_of_the_notebook_gets_each_cycle(job: Any, run: Run) -> None:
    run(job, "seen = []\ndef look(cycle):\n    seen.append(cycle.steps)\n")
    run(job, f"%%tprofile -q --schedule active=2 --on-trace look\n{STEPS}")
    assert job.user_ns["seen"] == [(0, 1), (2, 3), (4, 5), (6,)]


def test_its_error_reads_as_the_cells_own_and_the_profile_is_shown_before(job: Any, run: Run) -> None:
    run(job, "def look(cycle):\n    raise OSError('disk full')\n")
    shown = run(job, f"%%tprofile --schedule active=2 --on-trace look\n{STEPS}")
    assert shown.index("Partial: ended by OSError") < shown.index("disk full")
    assert "----> 4     torchbench_magic.step()" in shown
    assert "raise OSError('disk full')" in shown
    assert "core/profiling" not in shown
    assert job.user_ns["_tprofile"].steps == (0, 1)


def test_a_folder_gets_a_trace_of_each_cycle(job: Any, run: Run) -> None:
    run(job, f"%%tprofile --steps 2 --on-trace traces/deep\n{ITERATIONS}")
    (file,) = Path("traces/deep").iterdir()
    assert file.name == "cycle-1-steps-1-2.json.gz"
    assert load_trace(file).ops.groupby("op")["calls"].sum()["aten::exp"] == 2
    run(job, "%%tprofile --on-trace traces\nx.exp()")
    assert Path("traces/trace.json.gz").exists()


@pytest.mark.parametrize(
    ("cell", "message"),
    [
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
def test_bad_input_is_one_clear_line(job: Any, run: Run, cell: str, message: str) -> None:
    shown = run(job, cell).strip()
    assert shown.startswith("UsageError: ")
    assert message in shown
    assert "\n" not in shown
    assert "_tprofile" not in job.user_ns


def test_no_step_is_said_where_the_table_would_be_empty(job: Any, run: Run) -> None:
    shown = run(job, "%%tprofile --schedule wait=1,active=1\nx.exp();")
    assert "never called torchbench_magic.step()" in shown
    assert "no step was recorded" in shown
    assert job.user_ns["_tprofile"].ops.empty


def test_an_exception_shows_what_ran_until_then_and_then_the_traceback(job: Any, run: Run) -> None:
    shown = run(job, "%%tprofile\ny = x.exp()\n1 / 0")
    assert "Partial: ended by ZeroDivisionError" in shown
    assert shown.index("aten::exp") < shown.index("ZeroDivisionError: division by zero")
    assert shown.count("Traceback") == 1
    assert job.user_ns["_tprofile"].partial


def test_an_interrupt_in_a_step_shows_the_cycles_until_then(job: Any, run: Run) -> None:
    shown = run(job, f"%%tprofile --schedule active=2\n{STEPS}    if i == 3: raise KeyboardInterrupt\n")
    assert "Partial: interrupted" in shown
    assert "KeyboardInterrupt" in shown
    assert job.user_ns["_tprofile"].steps == (0, 1, 2, 3, 4)


def test_an_awaiting_cell_has_steps_too(job: Any, run: Run) -> None:
    cell = "import asyncio\nfor i in range(4):\n    await asyncio.sleep(0)\n    x.exp()\n"
    run(job, f"%%tprofile --steps 2\n{cell}")
    assert job.user_ns["_tprofile"].steps == (1, 2)
    assert calls(job.user_ns["_tprofile"])["aten::exp", 5] == 2


def test_a_name_with_markup_quotes_and_newlines_stays_text(job: Any, run: Run) -> None:
    name = "a'b\"c</script><b>\\nnew"
    run(job, f'%%tprofile\nwith torch.profiler.record_function("""{name}"""):\n    x.exp()\nNone')
    result = job.user_ns["_tprofile"]
    assert "a'b\"c</script><b>\nnew" in set(result.ops["op"])
    from torchbench_magic.show.renderers import mimebundle

    html = mimebundle(result)["text/html"]
    assert "</script><b>" not in html
    assert "<b>new" not in html
