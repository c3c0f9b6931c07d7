"""``%%timer --callgrind``, with the real core."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

Run = Callable[..., str]
QUICK = "-n 2 -r 3"


@pytest.fixture
def timed(loaded: InteractiveShell) -> InteractiveShell:
    import torch

    loaded.user_ns.update(torch=torch)
    return loaded


def test_a_process_that_is_still_starting_is_held_while_something_is_measured(
    timed: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchbench_magic.counting import client

    done = timed.user_ns["done"] = []
    server = client.Server()
    monkeypatch.setattr(client, "_server", server)
    monkeypatch.setattr(server, "hold", lambda: done.append("held") or True)
    monkeypatch.setattr(server, "go_on", lambda: done.append("went on"))
    for line in ("%timer -n 1 -r 2 done.append('ran')", "%tprofile done.append('ran')"):
        run(timed, line)
        assert done[0] == "held", line
        assert "ran" in done, line
        assert done[-1] == "went on", line
        done.clear()


@pytest.mark.valgrind
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_a_cell_is_counted_and_its_difference_is_shown(timed: Any, run: Run) -> None:
    from torchbench_magic.counting.client import the_server

    run(timed, "x = torch.randn(32, 32)\ndef twice(x):\n    return (x + x) * 2")
    shown = run(
        timed, f"%%timer {QUICK} --callgrind 20\n# --- setup\ny = x[:, :1]\n# --- A\nx * x\n# --- B\ntwice(x * y)"
    )
    result = timed.user_ns["_timer"]
    assert list(result.counts) == [("A", None, 1), ("B", None, 1)]
    assert result.counts["A"].number_per_run == 20
    frame = result.frame
    assert frame["instructions"].tolist()[0] < frame["instructions"].tolist()[1]
    assert "more instructions per call than A" in shown
    assert "total without allocator and lookup" in shown
    assert "from 20 calls at 1 thread" in shown
    first = result.counts["A"].counts()

    run(timed, f"%%timer {QUICK} -q --callgrind 20\n# --- A\nx * x\n# --- gone\nnext(gone)\n")  # fails in the timing
    run(timed, "import types; gone = (i for i in range(10**9))")
    shown = run(timed, f"%%timer {QUICK} --callgrind 20\n# --- A\nx * x\n# --- gone\nnext(gone)")
    again = timed.user_ns["_timer"]
    assert again.counts["A"].counts() == first  # the same cell, the same number
    assert "gone was not counted: gone (generator) cannot be sent" in " ".join(shown.replace("`", "").split())
    assert again.frame["median"].notna().all()

    run(timed, f"%timer {QUICK} -q -t 1,2 --callgrind 20 --callgrind-form module x * x")
    result = timed.user_ns["_timer"]
    assert list(result.counts) == [(None, None, 1), (None, None, 2)]
    assert result.counts.form == "module"
    assert result.counts[None, None, 1].counts() != first

    server = the_server().pid
    assert server is not None
    run(timed, "%unload_ext torchbench_magic")
    assert the_server().pid is None
    assert os.path.exists(f"/proc/{server}")  # for the next kernel


def test_without_valgrind_one_line_says_so_and_the_times_still_come(
    timed: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    shown = run(timed, f"%%timer {QUICK} --callgrind\n# --- A\n1 + 1\n# --- B\nsum(range(9))")
    assert "sudo apt-get install valgrind" in " ".join(shown.split())
    result = timed.user_ns["_timer"]
    assert len(result.counts) == 0
    assert result.frame["median"].notna().all()
    assert [doubt.kind for doubt in result.warnings].count("not-counted") == 1


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--callgrind-form module x", "give both"),
        ("--callgrind-form cell x", "give function or module"),
    ],
)
def test_what_does_not_go_together_is_said_in_one_line(timed: Any, run: Run, line: str, told: str) -> None:
    shown = run(timed, f"%timer {line}")
    assert shown.startswith("UsageError")
    assert told in shown


@pytest.mark.valgrind
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
@pytest.mark.slow
def test_saved_counts_come_back_and_a_point_without_them_is_measured_again(
    timed: Any, run: Run, tmp_path: Path
) -> None:
    from torchbench_magic import load

    run(timed, "x = torch.ones(32)")
    cell = f"%%timer {QUICK} -q {{}} --save {tmp_path / 'runs.sqlite'}\n# --- A\nx * x\n# --- B\nx + x * x"
    run(timed, cell.format(""))
    run(timed, cell.format("--resume --callgrind 20"))
    counted = timed.user_ns["_timer"]
    assert "resumed" not in [doubt.kind for doubt in counted.warnings], "what was stored had no counts"
    (stored,) = [one for one in load(tmp_path / "runs.sqlite") if one.counts]
    assert stored.diff().frame.equals(counted.diff().frame)
    assert stored.diff().callees("PyNumber_Multiply")["calls"].tolist()[0] == 1

    run(timed, cell.format("--resume --callgrind 20"))
    again = timed.user_ns["_timer"]
    assert "resumed" in [doubt.kind for doubt in again.warnings]
    assert again.frame["instructions"].tolist() == counted.frame["instructions"].tolist()
    run(timed, cell.format("--resume --callgrind 30"))
    assert timed.user_ns["_timer"].counts["A"].number_per_run == 30
    run(timed, "%unload_ext torchbench_magic")
