"""``--processes`` beside the other options of ``%%timer``, in a shell."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from torchbench_magic import load

Run = Callable[..., str]
TWO = "# --- setup\nq = list(range(n))\n# --- one\nsum(q)\n# --- other\nsum(q) + 0"
QUICK = "--min-run-time 0.05 --max-run-time 0.2"


@pytest.fixture
def at(loaded: InteractiveShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InteractiveShell:
    monkeypatch.chdir(tmp_path)
    loaded.user_ns.update(n=50)
    return loaded


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--processes 0", "--processes '0': give a whole number of at least 2; without --processes, this session"),
        ("--processes 1", "--processes '1': give a whole number of at least 2; without --processes, this session"),
        ("--processes 2.5", "--processes '2.5': "),
        ("--processes 9999", "--processes '9999': give a whole number up to 1000"),
        pytest.param("--processes 2 --clock device", "--clock device", marks=pytest.mark.slow),  # these start processes
        pytest.param(
            "--processes 2 --device nowhere", "--device: 'nowhere' is not a device", marks=pytest.mark.slow
        ),
        ("--processes 2 --callgrind", "--callgrind counts the same in every process"),
    ],
)
def test_what_cannot_be_asked_is_said_in_one_line(at: Any, run: Run, options: str, said: str) -> None:
    shown = run(at, f"%timer {options} n + 1").strip()
    assert said in shown
    assert "\n" not in shown
    assert "_timer" not in at.user_ns


def test_a_lone_word_before_a_cell_is_no_number_of_processes(at: Any, run: Run) -> None:
    shown = run(at, "%%timer --processes x\nn + 1").strip()
    assert shown.startswith("UsageError: %%timer: --processes 'x': give a whole number of at least 2")
    assert "\n" not in shown


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("g = (i for i in range(3))", "`g` (generator) cannot be sent to another process"),
        ("g = open('f.txt', 'w+')", "`g`"),
        ("import threading\ng = threading.Lock()", "`g`"),
    ],
    ids=["generator", "file", "lock"],
)
def test_what_belongs_to_this_process_is_one_line(at: Any, run: Run, made: str, said: str) -> None:
    run(at, made)
    shown = run(at, "%timer --processes 2 g and n").strip()
    assert said in shown
    assert "\n" not in shown
    assert "_timer" not in at.user_ns
    run(at, "g.close()")  # the file


@pytest.mark.slow
def test_the_other_options_hold_in_each_process(at: Any, run: Run) -> None:
    asked = f"--processes 2 {QUICK} --until 50 -t 1,2 --sweep 'n=[10, 20]' --check --save runs.sqlite"
    run(at, f"%%timer {asked}\n{TWO}")
    first = at.user_ns["_timer"]
    assert first.frame[["num_threads", "n"]].drop_duplicates().values.tolist() == [[1, 10], [2, 10], [1, 20], [2, 20]]
    assert {*first.frame["method"]} == {"processes"}
    assert first.options["until"] == 0.5
    assert {*first.processes["process"]} >= {1, 2}
    assert [len(one.frame) for one in load("runs.sqlite")] == [8]
    run(at, f"%%timer {asked} --resume\n{TWO}")
    assert at.user_ns["_timer"].samples.equals(first.samples)  # nothing was measured anew
    differ = TWO.replace("sum(q) + 0", "sum(q) + 1")
    assert "--check" in run(at, f"%%timer --processes 2 {QUICK} --check\n{differ}")


@pytest.mark.slow
def test_what_calls_change_is_restored_in_each_process(at: Any, run: Run) -> None:
    run(at, "import torch\ny = torch.zeros(4)\nd = {'calls': []}")
    shown = run(at, "%timer --processes 2 -n 1 -r 20 --restore y.add_(1); d['calls'].append(1); assert y[0] == 1")
    assert "Error" not in shown
    assert {*at.user_ns["_timer"].processes["process"]} == {1, 2}
    assert at.user_ns["d"] == {"calls": []}
    assert at.user_ns["y"].tolist() == [0] * 4


@pytest.mark.slow
def test_a_module_that_was_edited_is_the_edited_one_there(at: Any, run: Run) -> None:
    Path("mine.py").write_text("def f():\n    return 1\n")
    run(at, "import sys; sys.path.insert(0, '.'); import mine")
    run(at, "mine.f = lambda: 1 / 0")
    assert "ZeroDivisionError" in run(at, f"%timer --processes 2 {QUICK} mine.f()")
    Path("mine.py").write_text("def f():\n    return [][1]\n")
    run(at, "import importlib; importlib.reload(mine)")
    Path("mine.py").write_text("def f():\n    return 2\n")
    assert "IndexError" in run(at, f"%timer --processes 2 {QUICK} mine.f()")


@pytest.mark.slow
def test_two_kernels_may_do_it_at_once_and_share_a_store(tmp_path: Path) -> None:
    code = (
        "from torchbench_magic import compare\n"
        "compare({'a': 'sum(q)', 'b': '(sum(q))'}, globals={'q': [1] * 50}, processes=2, min_run_time=0.05)"
        ".save('runs.sqlite')"
    )
    both = [subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path) for _ in range(2)]
    assert [process.wait(timeout=240) for process in both] == [0, 0]
    stored = load(tmp_path / "runs.sqlite")
    assert [{*one.frame["method"]} for one in stored] == [{"processes"}] * 2
    assert len({one.kernel for one in stored}) == 2
