"""``%%tprofile --trace`` and ``--save``, and ``%tcompare`` of two profiles, in a shell with the real core."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from torchbench_magic import Comparison, Profile, ProfileDiff, load

Run = Callable[..., str]


@pytest.fixture
def shell(loaded: InteractiveShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InteractiveShell:
    """A shell in an empty folder, with torch and a tensor."""
    import torch

    monkeypatch.chdir(tmp_path)
    loaded.user_ns.update(torch=torch, x=torch.ones(64, 64))
    return loaded


BEFORE = "%%tprofile -q -o before --memory\ny = x @ x\nz = y.sin()"
AFTER = "%%tprofile -q -o after --memory\ny = x @ x\nw = y @ y\nz = w.sin()"


def test_two_profiles_of_edited_code_stand_side_by_side(shell: Any, run: Run) -> None:
    run(shell, BEFORE)
    run(shell, AFTER)
    shown = run(shell, "d = %tcompare before after")
    diff = shell.user_ns["d"]
    assert isinstance(diff, ProfileDiff)
    assert diff is shell.user_ns["_tcompare"]
    assert diff.names == ("before", "after")
    lines = diff.lines.set_index("source")
    assert lines.loc["w = y @ y", "match"] == "new"
    assert lines.loc["y = x @ x", ["baseline_line", "line"]].tolist() == [2, 2]
    assert lines.loc["y = x @ x", "allocated"] == lines.loc["y = x @ x", "baseline_allocated"] == 64 * 64 * 4
    assert shown.splitlines()[0].startswith("after takes ")
    ops = diff.ops.set_index("op")
    assert (ops.loc["aten::mm", "baseline_calls"], ops.loc["aten::mm", "calls"]) == (1, 2)


def test_the_baseline_may_be_the_second_and_results_may_lie_in_a_file(shell: Any, run: Run) -> None:
    run(shell, BEFORE.replace("-q", "-q --save runs.sqlite"))
    run(shell, AFTER.replace("-q", "-q --save runs.sqlite"))
    run(shell, "%tcompare before after --baseline after -o d")
    assert shell.user_ns["d"].names == ("after", "before")
    run(shell, "%tcompare runs.sqlite -o e")
    assert shell.user_ns["e"].names == ("runs.sqlite[0]", "runs.sqlite[1]")
    assert shell.user_ns["e"].other.wall_time == shell.user_ns["after"].wall_time


def test_last_is_the_last_stored_profile_of_the_same_code(shell: Any, run: Run) -> None:
    cell = "%%tprofile -q --save runs.sqlite -o NAME\ny = x @ x"
    run(shell, cell.replace("NAME", "first"))
    assert "holds no other profile" in run(shell, "%tcompare --last runs.sqlite"), "it is the only one"
    run(shell, BEFORE.replace("-q", "-q --save runs.sqlite"))
    run(shell, cell.replace("NAME", "second"))
    shown = run(shell, "%tcompare second --last runs.sqlite -o d")
    diff = shell.user_ns["d"]
    assert diff.names == ("last stored run", "this run")
    assert diff.baseline.wall_time == shell.user_ns["first"].wall_time
    assert diff.other.wall_time == shell.user_ns["second"].wall_time
    assert shown.startswith("this run takes ")
    run(shell, "%tcompare --last runs.sqlite -o newest")
    assert shell.user_ns["newest"].other.wall_time == shell.user_ns["second"].wall_time


def test_what_cannot_be_compared_is_one_line(shell: Any, run: Run) -> None:
    from tests.results.samples import lone

    lone(1e-3).save("runs.sqlite")
    run(shell, BEFORE)
    shell.user_ns.update(after=shell.user_ns["before"], third=shell.user_ns["before"], timing=lone(1e-3))
    for line, said in (
        ("before", "puts two profiles side by side, not 1"),
        ("before after third", "not 3: before, after, third"),
        ("before timing", "before holds a profile, the others timings"),
        ("before after --by env", "--by is for timings"),
        ("before after --baseline none", "the profiles are before and after"),
        ("before --last runs.sqlite", "runs.sqlite holds no other profile of this code"),
    ):
        shown = run(shell, f"%tcompare {line}")
        assert said in shown, line
        assert "Traceback" not in shown, line


def test_a_trace_that_cannot_be_written_is_said_before_anything_runs(shell: Any, run: Run) -> None:
    shown = run(shell, "%%tprofile --trace none/run.json\nran = True")
    assert "folder none does not exist" in shown
    assert "ran" not in shell.user_ns
    Path("text.sqlite").write_text("no store")
    shown = run(shell, "%%tprofile --save text.sqlite\nran = True")
    assert "is not a store of results" in shown
    assert "ran" not in shell.user_ns


def test_a_file_that_is_lost_during_the_run_costs_a_warning_not_the_result(shell: Any, run: Run) -> None:
    os.mkdir("folder")
    shown = run(shell, "%%tprofile --trace folder/run.json\nimport os; os.rmdir('folder')")
    assert "The trace could not be written" in shown
    assert isinstance(shell.user_ns["_tprofile"], Profile)


def test_what_ran_before_an_exception_is_written_too(shell: Any, run: Run) -> None:
    run(shell, "%%tprofile --trace run.json --save runs.sqlite\nx.sin()\n1 / 0")
    names = {event["name"] for event in json.loads(Path("run.json").read_text())["traceEvents"]}
    assert "aten::sin" in names
    (kept,) = load("runs.sqlite")
    assert isinstance(kept, Profile)
    assert kept.partial


def test_timings_and_profiles_of_one_file_are_told_apart(shell: Any, run: Run) -> None:
    run(shell, "%timer -n 1 -r 2 -q --save runs.sqlite x.sin()")
    run(shell, BEFORE.replace("-q", "-q --save runs.sqlite"))
    assert [type(result) for result in load("runs.sqlite")] == [Comparison, Profile]
    run(shell, "%timer -n 1 -r 2 -q --save runs.sqlite x.sin()")
    assert "Traceback" not in run(shell, "%tcompare --last runs.sqlite")
