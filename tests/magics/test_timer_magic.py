"""``%timer`` and ``%%timer`` in a shell, with the real core."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

Run = Callable[..., str]
QUICK = "-n 2 -r 3"


@pytest.fixture
def timed(loaded: InteractiveShell) -> InteractiveShell:
    """A shell with the extension and a tensor x."""
    import torch

    loaded.user_ns.update(torch=torch, x=torch.ones(8))
    return loaded


def test_the_result_is_returned_shown_once_and_kept(timed: Any, run: Run) -> None:
    shown = run(timed, f"r = %timer {QUICK} x + 1")
    assert shown.count("x + 1") == 1
    assert timed.user_ns["r"] is timed.user_ns["_timer"]
    shown = run(timed, f"%timer {QUICK} x + 1")
    assert shown.count("x + 1") == 1
    assert timed.user_ns["_"] is timed.user_ns["_timer"] is timed.user_ns["Out"][2]


def test_o_binds_the_result_and_may_replace_a_result(timed: Any, run: Run) -> None:
    run(timed, f"%timer {QUICK} -o kept x + 1")
    first = timed.user_ns["kept"]
    run(timed, f"%timer {QUICK} -o kept x + 2")
    assert timed.user_ns["kept"] is timed.user_ns["_timer"] is not first


def test_q_shows_nothing(timed: Any, run: Run) -> None:
    assert run(timed, f"%timer {QUICK} -q x + 1").strip() == ""
    assert len(timed.user_ns["_timer"].frame) == 1


@pytest.mark.parametrize(
    ("options", "column", "value"),
    [
        ("--label L", "label", ["L"]),
        ("--sub-label S", "sub_label", ["S"]),
        ("--description D", "description", ["D"]),
        ("--env E", "env", ["E"]),
        ("-t 1", "num_threads", [1]),
        ("-t 1,2", "num_threads", [1, 2]),
        ("-n 3 -r 4", "number_per_run", [3]),
        ("-n 3 -r 4", "samples", [4]),
        ("", "label", ["In[1]"]),
    ],
)
def test_an_option_reaches_the_result(timed: Any, run: Run, options: str, column: str, value: list[Any]) -> None:
    run(timed, f"%timer {'' if '-n' in options else QUICK} {options} -q x + 1")
    assert timed.user_ns["_timer"].frame[column].tolist() == value


def test_a_trait_sets_the_default(timed: Any, run: Run) -> None:
    run(timed, "%config TorchBench.min_run_time = 0.02")
    run(timed, "%timer --max-run-time 0.02 -q x + 1")
    assert timed.user_ns["_timer"].samples["wall"].sum() < 0.1


def test_setup_is_the_option_then_the_line_then_the_section(timed: Any, run: Run) -> None:
    cell = f"""%%timer {QUICK} --setup "log = ['option']" log.append('line')
# --- setup
log.append('section'); assert log == ['option', 'line', 'section']
y = x + 1
# --- a
log[0], y
# --- b
y"""
    assert "Traceback" not in run(timed, cell)
    assert timed.user_ns["_timer"].frame["description"].tolist() == ["a", "b"]
    assert "log" not in timed.user_ns
    assert "y" not in timed.user_ns


def test_setup_may_hold_ipython_syntax_and_a_star_import(timed: Any, run: Run) -> None:
    setup = "%pwd\n!echo hello \\\n  you\nfrom math import *"
    shown = run(timed, f"%%timer {QUICK}\n# --- setup\n{setup}\n# --- a\nsqrt(2)\n# --- b\npi")
    assert "a" in shown
    assert "Error" not in shown


def test_the_baseline_is_the_one_named(timed: Any, run: Run) -> None:
    run(timed, f"%%timer {QUICK} --baseline b -q\n# --- a\nx\n# --- b\nx + 1")
    frame = timed.user_ns["_timer"].frame.set_index("description")
    assert frame.loc["b", "verdict"] == "baseline"
    assert frame.loc["a", "ratio"] != 1


def test_multi_line_strings_are_measured_as_they_stand(timed: Any, run: Run) -> None:
    run(timed, f'%%timer {QUICK} -q\ns = """\n# --- a\n  two"""\nassert s == "\\n# --- a\\n  two"')
    assert len(timed.user_ns["_timer"].frame) == 1


def test_nothing_is_written_to_the_namespace(timed: Any, run: Run) -> None:
    before = set(timed.user_ns)
    run(timed, f"%%timer {QUICK} -q k = 1\nz = x + k\nimport math")
    assert {name for name in set(timed.user_ns) - before if not name.startswith("_")} == set()


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("%timer --foo x", "%timer has no option --foo"),
        ("%timer --thr 1 x", "write --threads (options are not abbreviated)"),
        ("%timer -t 0 x", "give thread counts from 1 to"),
        ("%timer -t x", "give thread counts from 1 to"),
        ("%timer", "nothing to time"),
        ("%timer -n 3", "nothing to time"),
        ("%%timer\n\n# only a comment\n", "nothing to time"),
        ("%timer -o 1abc x", "give the name of a variable"),
        ("%timer -o x + 1", "x holds a Tensor, which is not replaced"),
        ("%timer -o x + 1", "-o NAME -- STMT"),
        ("%%timer\n# --- a\nx\n# --- a\nx", "lines 2 and 4: two sections have the name 'a'"),
        ("%%timer\n# --- setup\nx\n# --- setup\nx\n# --- a\nx", "lines 2 and 4: two setup sections"),
        ("%%timer\n# --- a\nx", "line 2: 'a' is the only section"),
        ("\n\n%%timer\n# --- a\nx", "line 4: 'a' is the only section"),
        ("%%timer --description d\n# --- a\nx\n# --- b\nx", "--description"),
        ("%%timer --baseline c\n# --- a\nx\n# --- b\nx", "'c'"),
        ("%%timer\nx\n!ls", "line 3: `!ls` is a shell command; only Python can be timed: write `subpr"),
        ("%%timer\ny = !ls", "line 2: `y = !ls` is a shell command; only Python can be timed: write `subproc"),
        ("%%timer\n%time x", "line 2: `%time x` is a magic; only Python can be timed: write what it d"),
        ("%%timer\ny = %pwd", "line 2: `y = %pwd` is a magic; only Python can be timed"),
        ("%%timer\nfor i in x:\n    !ls -l", "line 3: `!ls -l` is a shell command; only Python can be timed"),
        ("%%timer\n?x", "line 2: `?x` is IPython syntax; only Python can be timed: leave it out, or move it"),
        ("%%timer\nfrom math import *", "line 2: `from math import *` cannot be timed"),
        ("%timer --max-run-time 0.1 --min-run-time 1 x", "is below min_run_time"),
    ],
)
def test_bad_input_is_one_clear_line_and_leaves_everything_as_it_was(
    timed: Any, run: Run, cell: str, message: str
) -> None:
    import torch

    threads, names = torch.get_num_threads(), set(timed.user_ns)
    shown = run(timed, cell).strip()
    assert shown.startswith("UsageError: ")
    assert message in shown
    assert "\n" not in shown
    assert torch.get_num_threads() == threads
    assert {name for name in set(timed.user_ns) - names if not name.startswith("_")} == set()
    assert "_timer" not in timed.user_ns


@pytest.mark.parametrize(
    ("cell", "line"),
    [
        ("%%timer\nx\ny = = 1", 3),
        ("%%timer\n# --- setup\ny = 1\n# --- a\nx\n# --- b\nx = = 2", 7),
        ("%%timer\n# --- setup\ny = = 1\n# --- a\nx\n# --- b\nx", 3),
        ("%%timer\n# --- setup\n!echo \\\n  a\ny = = 1\n# --- a\nx\n# --- b\nx", 5),
        ("%%timer\nx\nreturn x", 3),
        ("%timer x = = 1", 1),
        ("1\n%timer --setup 'y = = 1' x", 2),
    ],
)
def test_a_syntax_error_names_the_visible_line_and_nothing_of_the_machinery(
    timed: Any, run: Run, cell: str, line: int
) -> None:
    shown = run(timed, cell)
    assert f"In[1], line {line}" in shown
    assert "SyntaxError" in shown
    assert "File" not in shown
    assert "_timer" not in timed.user_ns


def test_a_syntax_error_on_a_magic_line_points_into_that_line(timed: Any, run: Run) -> None:
    shown = run(timed, "%timer x = = 1").splitlines()
    written = next(line for line in shown if "%timer" in line)
    caret = next(line for line in shown if set(line.strip()) == {"^"})
    assert written[caret.index("^")] == "="
    assert caret.index("^") > written.index("=")


@pytest.mark.parametrize(
    ("cell", "line"),
    [
        ("%%timer\nx\n1 / 0", 3),
        ("\n%%timer\n\nx\n1 / 0", 5),
        ("%%timer\n# --- setup\n!true \\\n  a\n1 / 0\n# --- a\nx\n# --- b\nx", 5),
        ("%%timer\n# --- a\nx\n# --- b\n1 / 0", 5),
        ("x\n%timer 1 / 0", 2),
        ("%timer --setup 1/0 x", 1),
    ],
)
def test_the_users_exception_shows_the_cells_own_line_once(timed: Any, run: Run, cell: str, line: int) -> None:
    shown = run(timed, cell)
    assert shown.count("ZeroDivisionError") == 2  # head and foot of one traceback
    assert shown.count("In[1], line") == 1
    assert f"In[1], line {line}" in shown
    assert f"> {line} {cell.splitlines()[line - 1]}" in shown
    assert "torchbench_magic" not in shown
    assert "hidden" not in shown


def test_an_exception_in_a_function_shows_the_call_and_the_function(timed: Any, run: Run) -> None:
    run(timed, "def f():\n    1 / 0")
    shown = run(timed, "%%timer\nx\nf()")
    assert "In[2], line 3" in shown
    assert "In[1], line 2, in f()" in shown
    assert "torchbench_magic" not in shown


def test_a_body_that_prints_is_heard_once(timed: Any, run: Run) -> None:
    shown = run(timed, f"%%timer {QUICK}\nprint('hello')")
    assert shown.splitlines()[0] == "hello"
    assert shown.splitlines().count("hello") == 1


def test_divider_comments_are_only_comments(timed: Any, run: Run) -> None:
    shown = run(timed, f"%%timer {QUICK}\n# -----\n# --- load data ---\nx + 1\n# =====")
    assert "UsageError" not in shown
    assert len(timed.user_ns["_timer"].frame) == 1


def test_a_statement_of_several_lines_is_named_by_its_first_and_says_that_there_are_more(timed: Any, run: Run) -> None:
    shown = run(timed, f"%%timer {QUICK}\n# -----\n# sums\n\ny = x + 1\ny.sum()")
    assert shown.startswith("y = x + 1 …  ")


def test_ctrl_c_shows_what_was_measured_and_keeps_it(timed: Any, run: Run) -> None:
    cell = "%%timer --min-run-time 9\n# --- a\nstop()\n# --- b\nx"
    calls = itertools.count()

    def stop() -> None:
        time.sleep(0.001)
        if next(calls) == 800:  # long after the first block
            raise KeyboardInterrupt

    timed.user_ns["stop"] = stop
    shown = run(timed, cell)
    assert "KeyboardInterrupt" in shown
    assert "torchbench_magic" not in shown
    assert timed.user_ns["_timer"].partial
    assert "artial" in shown


def test_the_help_lists_the_options(timed: Any) -> None:
    text = timed.find_cell_magic("timer").__doc__
    for name in ("-t, --threads N[,N...]", "--min-run-time S", "-o NAME", "-q", "-w, --explore", "--baseline NAME"):
        assert name in text
