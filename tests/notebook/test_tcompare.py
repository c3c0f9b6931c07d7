"""``%tcompare``, ``--save`` and ``--resume`` in a shell, with the real core."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from tests.timing.samples import lone, pair
from torchbench_magic import load
from torchbench_magic.timing.samples import AXIS

Run = Callable[..., str]
QUICK = "-n 1 -r 2"


@pytest.fixture
def at(loaded: InteractiveShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InteractiveShell:
    """A shell in an empty folder, with two results in variables."""
    monkeypatch.chdir(tmp_path)
    loaded.user_ns.update(before=pair(1e-3, 2e-3), after=pair(1e-3, 1e-3, seed=1), x=[1])
    return loaded


def rows(shell: Any, name: str = "_tcompare") -> list[tuple[str, str, str]]:
    frame = shell.user_ns[name].frame
    return list(zip(frame[AXIS], frame["description"].fillna(""), frame["verdict"].fillna(""), strict=True))


# ---- results in variables and in files ----------------------------------------------------------------------


def test_variables_stand_side_by_side_and_the_result_is_kept(at: Any, run: Run) -> None:
    shown = run(at, "r = %tcompare before after")
    assert "before" in shown
    assert "undecided" in shown
    assert "_timer" not in shown
    assert at.user_ns["r"] is at.user_ns["_tcompare"]
    assert rows(at) == [
        ("before", "mul", "baseline"),
        ("before", "bmm", "baseline"),
        ("after", "mul", "undecided"),
        ("after", "bmm", "undecided"),
    ]


def test_it_is_shown_once(at: Any, run: Run) -> None:
    assert run(at, "%tcompare before after").count("threads  alternative") == 1


def test_files_and_variables_mix(at: Any, run: Run) -> None:
    pair(3e-3, 1e-3, seed=2).save("one.sqlite")
    for seed in (3, 4):
        pair(3e-3, 1e-3, seed=seed).save("two.sqlite")
    run(at, "%tcompare before one.sqlite two.sqlite")
    assert [name for name, *_ in rows(at)][::2] == ["before", "one.sqlite", "two.sqlite[0]", "two.sqlite[1]"]


def test_lists_items_and_torchs_measurements_are_results_too(at: Any, run: Run) -> None:
    at.user_ns["runs"] = [at.user_ns["before"], at.user_ns["after"]]
    at.user_ns["torchs"] = lone(5e-3, description="mul").measurements
    run(at, "%tcompare runs")
    assert [name for name, *_ in rows(at)] == ["runs[0]", "runs[0]", "runs[1]", "runs[1]"]
    run(at, "%tcompare runs[-1] torchs")
    assert rows(at)[-1] == ("torchs", "mul", "undecided")


def test_baseline_by_o_and_q_reach_the_result(at: Any, run: Run) -> None:
    run(at, "%tcompare before --baseline bmm after")
    assert [verdict for *_, verdict in rows(at)] == ["faster", "baseline", "same", "baseline"]
    run(at, "%tcompare before after --baseline=after -o kept")
    assert [verdict for *_, verdict in rows(at, "kept")] == ["undecided", "undecided", "baseline", "baseline"]
    at.user_ns["new"] = lone(1.0, "f(x)", description="mul", env="new")
    assert run(at, "%tcompare -q before new --by env").strip() == ""
    assert [verdict for *_, verdict in rows(at)] == ["baseline", "", "slower"]  # a thousand times


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "%tcompare needs results: give variables that hold one, or results files"),
        ("nope", "%tcompare: there is no variable and no file named nope"),
        ("x", "%tcompare: x holds a list, not a result"),
        ("x[5]", "%tcompare x[5]: IndexError: list index out of range"),
        ("before before", "%tcompare: before is given twice"),
        ("before --baseline nope", "no alternative or result is called 'nope'; known: before, bmm, mul"),
        ("before after --by env", "--by env compares environments, but there is only one, unnamed"),
        ("before --by device", "%tcompare: --by 'device': give description or env"),
        ("before -o x", "-o x: x holds a list, which is not replaced"),
        ("notes.txt", "notes.txt: is not a store of results (no SQLite file); give another name"),
        ("--last", "%tcompare --last needs one file of results: give its PATH, or set %config TorchBench.store"),
        ("--last a b", "%tcompare --last takes one result and one file: a, b are several"),
        ("--last before after s.sqlite", "%tcompare --last compares one result, not 2: give one, such as runs[-1]"),
        ("--last before s.sqlite --by env", "%tcompare --last compares with the last stored run: leave out --baseline"),
        ("--last before s.sqlite", "s.sqlite: no such file"),
        ("--last before t.sqlite", "no stored run matches this result"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_said_in_one_line(at: Any, run: Run, line: str, said: str) -> None:
    Path("notes.txt").write_text("notes\n")
    lone(1.0, "other()").save("t.sqlite")
    shown = run(at, f"%tcompare {line}".rstrip()).strip()
    assert shown.startswith(f"UsageError: {said}")
    assert "\n" not in shown
    assert "_tcompare" not in at.user_ns


# ---- stored while it runs -----------------------------------------------------------------------------------


def test_save_appends_with_commit_and_options_and_last_compares(at: Any, run: Run) -> None:
    run(at, f"%timer {QUICK} --label L --save runs.sqlite sum(x)")
    assert "no stored run matches this result" in run(at, "%tcompare --last runs.sqlite")  # it is the only one
    run(at, "%config TorchBench.store = 'runs.sqlite'")
    run(at, f"%timer {QUICK} --label L max(x)")
    shown = run(at, "%tcompare --last")
    assert "Since the last stored run: source, line 1: sum(x) -> max(x)." in shown
    assert [name for name, *_ in rows(at)] == ["last stored run", "this run"]
    assert rows(at)[0][-1] == "baseline"  # what two blocks of one call decide, where anything, is not this test's
    first, second = load("runs.sqlite")
    assert first.options["repeat"] == second.options["repeat"] == 2
    assert len(second.frame) == 1


def test_last_takes_a_named_result_or_the_newest_stored_one(at: Any, run: Run) -> None:
    for seed in (2, 3):
        pair(1e-3 * seed, 2e-3, seed=seed).save("runs.sqlite")
    run(at, "%tcompare --last runs.sqlite")
    assert list(at.user_ns["_tcompare"].frame["median"].round(4)) == [2e-3, 2e-3, 3e-3, 2e-3]
    run(at, "%tcompare before --last runs.sqlite")
    assert list(at.user_ns["_tcompare"].frame["median"].round(4)) == [3e-3, 2e-3, 1e-3, 2e-3]


def test_last_decides_where_four_runs_on_either_side_are_stored(at: Any, run: Run) -> None:
    for i, (median, stmt) in enumerate([(1e-3, "f(x)")] * 4 + [(3e-3, "g(x)")] * 4):
        lone(median * (1 + i / 1000), stmt, label="L", seed=i).save("runs.sqlite")
    with closing(sqlite3.connect("runs.sqlite")) as connection:
        connection.execute("UPDATE record SET saved = strftime('%Y-%m-%dT%H:%M:%fZ', saved, (10 * id) || ' seconds')")
        connection.commit()
    at.user_ns["now"] = load("runs.sqlite")[-1]
    assert "the same" in run(at, "%tcompare now --last runs.sqlite")
    at.user_ns["edited"] = lone(1e-3, "f(x)", label="L", seed=99)
    run(at, "%tcompare edited --last runs.sqlite")
    assert [verdict for *_, verdict in rows(at)] == ["baseline", "faster"]


def test_a_sweep_that_was_stopped_goes_on_with_resume(at: Any, run: Run) -> None:
    stops = "%%timer -n 1 -r 2 --save runs.sqlite --sweep 'n=[1, 2, 3]' {}\nbody(n)"
    at.user_ns.update(calls=(calls := set()), stop=(stop := Path("stop")))
    stop.touch()  # a variable that is set would be another value, with which all is measured again
    run(at, "def body(n):\n    calls.add(n)\n    if n == 3 and stop.exists(): raise KeyboardInterrupt")
    run(at, stops.format(""))
    assert list(at.user_ns["_timer"].frame["n"]) == [1, 2]
    assert at.user_ns["_timer"].partial
    assert list(load("runs.sqlite")[0].frame["n"]) == [1, 2]
    calls.clear()
    stop.unlink()
    shown = run(at, stops.format("--resume"))
    assert calls == {3}
    assert "2 points taken from runs.sqlite, measured there before." in shown
    assert list(load("runs.sqlite")[0].frame["n"]) == [1, 2, 3]


def test_resume_measures_again_what_an_edited_function_changes(at: Any, run: Run) -> None:
    cell = f"%%timer {QUICK} --save runs.sqlite --resume --sweep 'n=[1, 2]'\nbody(n)"
    run(at, "def body(n): return n")
    run(at, cell)
    assert "points taken" in run(at, cell)
    run(at, "def body(n): return n + 1")
    assert "points taken" not in run(at, cell)
    assert len(load("runs.sqlite")) == 2


@pytest.mark.parametrize("setup", ["", "# --- setup\ny = data\n# --- a\nlen(y)\n# --- b\n"])
def test_resume_measures_again_what_was_given_other_inputs(at: Any, run: Run, setup: str) -> None:
    cell = f"%%timer {QUICK} --save runs.sqlite --resume\n{setup}len(data)"
    at.user_ns["data"] = [1] * 4
    run(at, cell)
    at.user_ns["data"] = [1] * 4
    assert "taken from" in run(at, cell)
    for other in ([1] * 4000, [2] * 4):
        at.user_ns["data"] = other
        assert "taken from" not in run(at, cell)


def test_resume_measures_again_where_the_inputs_were_not_recorded(at: Any, run: Run) -> None:
    cell = f"%timer {QUICK} --save runs.sqlite --resume sum(x)"
    run(at, cell)
    with closing(sqlite3.connect("runs.sqlite")) as connection:
        (header,) = connection.execute("SELECT header FROM record").fetchone()
        kept = json.loads(header)
        for subject in kept["subjects"]["tuple"]:
            del subject["Subject"]["inputs"], subject["Subject"]["given"]
        connection.execute("UPDATE record SET header = ?", (json.dumps(kept),))
        connection.commit()
    assert "taken from" not in run(at, cell)


def test_last_says_in_words_what_the_code_was_given(at: Any, run: Run) -> None:
    run(at, "import torch\nx = torch.ones(4, 8)")
    run(at, f"%timer {QUICK} --save runs.sqlite x.sum()")
    run(at, "x = torch.ones(4000, 8)")
    run(at, f"%timer {QUICK} --save runs.sqlite x.sum()")
    shown = run(at, "%tcompare --last runs.sqlite")
    assert "`x` was 4 × 8 float32, is 4000 × 8 float32" in " ".join(shown.split()).replace("x was", "`x` was")
    assert "are the same" not in shown


def test_last_of_a_profile_says_what_the_code_was_given_and_what_it_read(at: Any, run: Run) -> None:
    run(at, "import torch, os\nx, cfg, kept = torch.ones(4, 8), {'n': 3}, []\nos.environ['TB_MODE'] = '1'")
    cell = "%%tprofile -q --save runs.sqlite\ny = x.sum() * cfg['n']\nkept.append(os.environ['TB_MODE'])"
    run(at, cell)
    run(at, cell)
    shown = " ".join(run(at, "%tcompare --last runs.sqlite").split())
    assert "The cell's text, its inputs and the number of threads are the same in both." in shown
    assert "Not compared: kept (the code changes it)" in shown
    run(at, "x, cfg = torch.ones(4000, 8), {'n': 5}\nos.environ['TB_MODE'] = '2'")
    run(at, cell)
    shown = " ".join(run(at, "%tcompare --last runs.sqlite").split())
    assert "x was 4 × 8 float32, is 4000 × 8 float32" in shown
    assert "cfg['n'] was 3, is 5" in shown
    assert "os.environ['TB_MODE'] was '1', is '2'" in shown
    assert "its inputs" not in shown


def test_last_of_a_profile_of_an_older_version_says_that_inputs_were_not_recorded(at: Any, run: Run) -> None:
    cell = "%%tprofile -q --save runs.sqlite\nsum(x)"
    run(at, cell)
    with closing(sqlite3.connect("runs.sqlite")) as connection:
        (header,) = connection.execute("SELECT header FROM record").fetchone()
        kept = {name: value for name, value in json.loads(header).items() if name not in ("inputs", "values")}
        connection.execute("UPDATE record SET header = ?", (json.dumps(kept),))
        connection.commit()
    run(at, cell)
    shown = " ".join(run(at, "%tcompare --last runs.sqlite").split())
    assert "The inputs of last stored run were not recorded: they may differ." in shown


def test_last_shows_an_edited_function_as_a_diff(at: Any, run: Run) -> None:
    for text in ("return sum(x)", "y = [v + 1 for v in x]\n    return sum(y)"):
        run(at, f"def f(x):\n    {text}")
        run(at, f"%timer {QUICK} --save runs.sqlite f(x)")
    shown = run(at, "%tcompare --last runs.sqlite")
    assert "f was edited: 1 line removed, 2 lines added" in shown
    assert "-    return sum(x)" in shown
    assert "+    return sum(y)" in shown


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--resume", "--resume needs a file of results: give --save PATH, or set %config TorchBench.store"),
        ("--save notes.txt", "notes.txt: is not a store of results"),
        ("--save .", "is a folder; name a file in it"),
        ("--save no/where.sqlite", "no/where.sqlite: folder no does not exist"),
    ],
)
def test_a_store_that_cannot_be_used_is_said_before_anything_runs(at: Any, run: Run, options: str, said: str) -> None:
    Path("notes.txt").write_text("notes\n")
    shown = run(at, f"%timer {QUICK} {options} x.append(2)").strip()
    assert shown.startswith("UsageError: ")
    assert said in shown
    assert "\n" not in shown
    assert at.user_ns["x"] == [1]


def test_a_store_that_fails_during_the_run_is_said_and_the_result_is_there(at: Any, run: Run) -> None:
    run(at, "import os\ndef body():\n    open('runs.sqlite', 'w').write('gone')")
    shown = run(at, f"%timer {QUICK} --save runs.sqlite body()")
    assert "1 finished point could not be stored: runs.sqlite: is not a store of results" in " ".join(shown.split())
    assert len(at.user_ns["_timer"].frame) == 1
    at.user_ns["_timer"].save("other.sqlite")
    assert len(load("other.sqlite")) == 1


def test_unloading_leaves_no_store_open(at: Any, run: Run) -> None:
    run(at, f"%timer {QUICK} --save runs.sqlite x")
    run(at, "%unload_ext torchbench_magic")
    open_files = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    assert not [name for name in open_files if "runs.sqlite" in name]
    assert "tcompare" not in at.magics_manager.magics["line"]


@pytest.mark.parametrize("name", ["--save PATH", "--resume", "--by description|env", "--last"])
def test_the_help_lists_the_options(at: Any, run: Run, name: str) -> None:
    assert name in run(at, "%timer?") + run(at, "%tcompare?")
