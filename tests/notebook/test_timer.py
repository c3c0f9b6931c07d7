"""``%timer`` and ``%%timer`` in a shell, with the real core, and their options beside each other."""

from __future__ import annotations

import gc
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from torchbench_magic import load
from torchbench_magic.errors import OptionError
from torchbench_magic.notebook.option_parser import read_line
from torchbench_magic.notebook.options import TimerOptions
from torchbench_magic.timing.equality import Numbers
from torchbench_magic.timing.plan import Plan, tolerances_asked

# ==== results and errors ==============================================================================================


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


def test_code_is_called_from_few_frames_more_than_a_cell(timed: Any, run: Run) -> None:
    """They are in the time of code that walks the stack, such as `torch.manual_seed`."""
    depths: set[int] = set()
    timed.user_ns["look"] = lambda: depths.add(len(traceback.extract_stack()))
    run(timed, "look()")
    (plain,) = depths
    run(timed, f"%%timer {QUICK} -q\nlook()")
    assert max(depths) - plain <= 13


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
        ("%timer --processes 0 x", "--processes '0': give a whole number of at least 2; without --processes, this"),
        ("%timer --processes 1 x", "--processes '1': give a whole number of at least 2; without --processes, this"),
        ("%timer --processes 2.5 x", "--processes '2.5': "),
        ("%timer --processes 9999 x", "--processes '9999': give a whole number up to 1000"),
        ("%%timer --processes x\nx", "%%timer: --processes 'x': give a whole number of at least 2"),
        ("%timer --processes 2 --callgrind x", "--callgrind counts the same in every process"),
        pytest.param("%timer --processes 2 --clock device x", "--clock device", marks=pytest.mark.slow),
        pytest.param("%timer --processes 2 --device nowhere x", "'nowhere' is not a device", marks=pytest.mark.slow),
        ("%timer --callgrind-form module x", "give both"),
        ("%timer --callgrind-form cell x", "give function or module"),
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


def test_the_help_lists_the_options(timed: Any) -> None:
    text = timed.find_cell_magic("timer").__doc__
    for name in ("-t, --threads N[,N...]", "--min-run-time S", "-o NAME", "-q", "-w, --explore", "--baseline NAME",
                 '--sweep "NAME=EXPR"', "--fuzz KIND[:COUNT]", "--seed N"):  # fmt: skip
        assert name in text


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


# ==== --check =========================================================================================================
# ``%%timer --check`` in a shell.


SHORT = "-t 1 -n 2 -r 6"
READY = """
import threading, weakref
import numpy as np, torch
w = torch.ones(23)
refs = []
def kept(value):
    refs.append(weakref.ref(value))
    return value
"""


@pytest.fixture
def ready(loaded: Any, run: Run) -> Any:
    run(loaded, READY)
    return loaded


@pytest.mark.parametrize(
    ("line", "check", "rest"),
    [
        ("--check", True, ""),
        ("--check --restore", True, ""),
        ("--check y = 1", True, "y = 1"),
        ("--check tol = 1", True, "tol = 1"),
        ("--check rtol=1e-3,atol=1e-5", "rtol=1e-3,atol=1e-5", ""),
        ("--check=rtol=1e-3 y = 1", "rtol=1e-3", "y = 1"),
        ("--check 'atol=0, rtol=1' -n 2", "atol=0, rtol=1", ""),
        ("", False, ""),
    ],
)
def test_tolerances_are_told_from_the_setup_after_them(line: str, check: object, rest: str) -> None:
    options, left = read_line(TimerOptions, "%%timer", line)
    assert (options.check, left.strip()) == (check, rest)
    assert options.plan(label=None).check == check


@pytest.mark.parametrize(
    "text", ["rtol", "rtol=", "rtol=x", "rtol=-1", "rtol=nan", "rtol=inf", "rtol=1,btol=1", "1e-3", "rtol=1,"]
)
def test_other_tolerances_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(OptionError, match="give tolerances of at least 0, such as rtol=1e-3,atol=1e-5") as caught:
        read_line(TimerOptions, "%%timer", f"--check={text}")
    assert "\n" not in str(caught.value)
    with pytest.raises(OptionError, match=r"^check: give tolerances"):
        Plan(check=text)


def test_what_is_not_given_is_left_to_the_dtype() -> None:
    assert tolerances_asked("rtol=1e-3") == (1e-3, None)
    assert tolerances_asked(" atol = 0 ") == (None, 0.0)
    assert tolerances_asked(True) is None


def test_reduced_precision_is_compared_with_the_tolerances_given(ready: Any, run: Run) -> None:
    cell = "# --- single\nw * 2\n# --- half\n(w * 2.001).bfloat16()"
    assert "return the same numbers as bfloat16 and float32;" in run(ready, f"%%timer {SHORT} --check\n{cell}")
    run(ready, f"%%timer {SHORT} --check rtol=1e-2\n{cell}")
    assert "`half` and `single` return the same numbers (within rtol=0.01" in str(ready.user_ns["_timer"].warnings)
    assert "--check rtol=1e-2" in ready.user_ns["_timer"].to_markdown()


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ("kept(w * 3)", "return different values"),
        ("kept((w * 2).double())", "return the same numbers as"),
        ("[kept(w * 2), threading.Lock()]", "cannot be compared"),
        ("held = kept(w * 2)\nheld[100]", "IndexError"),
    ],
)
def test_a_failed_check_keeps_no_result_alive(ready: Any, run: Run, other: str, said: str) -> None:
    ready.user_ns["refs"].clear()
    shown = run(ready, f"%%timer {SHORT} --check\n# --- a\nkept(w * 2)\n# --- b\n{other}")
    assert said in shown
    assert sys.last_value.__traceback__ is not None, "what a debugger would walk"
    gc.collect()
    refs = ready.user_ns["refs"]
    assert len(refs) >= 2
    wanted = 1 if said == "IndexError" else 0  # the local variable of the user's own frame, in the user's traceback
    assert sum(ref() is not None for ref in refs) == wanted
    assert not [each for each in gc.get_objects() if type(each) is Numbers and each.values.shape == (23,)]


# ==== --sweep and --fuzz ==============================================================================================
# ``--sweep``, ``--fuzz`` and ``--seed`` of ``%%timer``, with the real core.


ONE_THREAD = "-n 2 -r 3 -t 1"


@pytest.fixture
def swept(loaded: InteractiveShell) -> InteractiveShell:
    """A shell with the extension, torch, and a fuzzer of small tensors."""
    import torch

    from torchbench_magic.benchmark import FuzzedParameter, FuzzedTensor, Fuzzer

    mine = Fuzzer(
        [FuzzedParameter("k", minval=1, maxval=50, distribution="uniform")], [FuzzedTensor("v", size=("k",))], seed=1
    )
    loaded.user_ns.update(torch=torch, mine=mine)
    return loaded


def test_a_sweep_has_a_column_and_a_point_for_each_value(swept: Any, run: Run) -> None:
    run(swept, f'%%timer {ONE_THREAD} -q --sweep "n=[2**k for k in range(3)]"\n# --- setup\nx = torch.ones(n)\n'
        "# --- a\nx + 1\n# --- b\nx + n")  # fmt: skip
    frame = swept.user_ns["_timer"].frame
    assert frame["n"].tolist() == [1, 1, 2, 2, 4, 4]
    assert frame["description"].tolist() == ["a", "b"] * 3
    assert frame["sub_label"].unique().tolist() == ["n=1", "n=2", "n=4"]
    assert frame["verdict"].tolist()[::2] == ["baseline"] * 3


def test_setup_runs_once_for_each_point_and_all_alternatives_share_it(swept: Any, run: Run) -> None:
    swept.user_ns["log"] = []
    run(swept, f'%%timer {ONE_THREAD} -q --sweep "n=[3, 4]"\n# --- setup\nlog.append(n); own = object()\n'
        "# --- a\nlog.append(own)\n# --- b\nlog.append(own)")  # fmt: skip
    log = swept.user_ns["log"]
    assert log.count(3) == log.count(4) == 1
    first = log[1 : log.index(4)]
    assert len(set(first)) == 1
    assert set(first) != set(log[log.index(4) + 1 :])


def test_nothing_of_the_sweep_is_left_in_the_notebook(swept: Any, run: Run) -> None:
    swept.user_ns["n"] = "mine"
    run(swept, f'%timer {ONE_THREAD} -q --sweep "n=[3, 4]" --sweep "m=[1]" n + m')
    assert swept.user_ns["n"] == "mine"
    assert "m" not in swept.user_ns
    assert swept.user_ns["_timer"].frame[["n", "m"]].to_numpy().tolist() == [[3, 1], [4, 1]]


def test_a_fuzzer_of_the_notebook_is_found_by_its_name(swept: Any, run: Run) -> None:
    swept.user_ns["sizes"] = []
    run(swept, f"%timer {ONE_THREAD} -q --fuzz mine:4 sizes.append((len(v), k))")
    frame = swept.user_ns["_timer"].frame
    sizes = list(dict.fromkeys(swept.user_ns["sizes"]))
    assert all(a == b for a, b in sizes)
    assert [label.partition(",")[0] for label in frame["sub_label"]] == [str(a) for a, _ in sizes]


def test_the_seed_is_the_fuzzers_and_the_orders(swept: Any, run: Run) -> None:
    def labels(seed: int) -> list[str]:
        run(swept, f"%timer {ONE_THREAD} -q --fuzz mine:4 --seed {seed} v + 1")
        assert swept.user_ns["_timer"].seed == seed
        return swept.user_ns["_timer"].frame["sub_label"].tolist()

    assert labels(3) == labels(3) != labels(4)


def test_a_sweep_and_a_fuzzer_meet_at_every_pair(swept: Any, run: Run) -> None:
    run(swept, f'%timer {ONE_THREAD} -q --fuzz mine:2 --sweep "n=[1, 2]" v + n')
    assert swept.user_ns["_timer"].frame["n"].tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ('--sweep "n=["', "SyntaxError"),
        ('--sweep "median=[1]"', "a column of the result"),
        ('--sweep "n=nowhere"', "NameError"),
        ('--sweep "n=[1]" --sub-label S', "leave it out"),
        ("--fuzz torch:2", "torch is a module"),
        ("--fuzz unknown", "unknown is not defined"),
        ("--seed -1", "whole number from 0"),
    ],
)
def test_what_cannot_be_swept_is_one_line_and_runs_nothing(swept: Any, run: Run, options: str, message: str) -> None:
    swept.user_ns["log"] = []
    shown = run(swept, f"%timer {ONE_THREAD} {options} log.append(1)")
    (line,) = [part for part in shown.splitlines() if part.startswith("UsageError")]
    assert message in line
    assert swept.user_ns["log"] == []


@pytest.mark.parametrize("asked", ["--fuzz mine:1", "--fuzz mine:2", '--fuzz mine:2 --sweep "n=[1, 2]"'])
def test_no_cell_is_said_to_repeat_fuzzed_inputs(swept: Any, run: Run, asked: str) -> None:
    swept.user_ns["v"] = swept.user_ns["torch"].ones(2)
    run(swept, f"%timer {ONE_THREAD} -q v + 1")
    assert json.loads(swept.user_ns["_timer"].to_json())["repeat"]["cell"] is not None
    run(swept, f"%timer {ONE_THREAD} -q {asked} v + {'n' if 'sweep' in asked else 1}")
    assert json.loads(swept.user_ns["_timer"].to_json())["repeat"]["cell"] is None


# ==== --processes =====================================================================================================
# ``--processes`` beside the other options of ``%%timer``, in a shell.


TWO = "# --- setup\nq = list(range(n))\n# --- one\nsum(q)\n# --- other\nsum(q) + 0"
BRIEF = "--min-run-time 0.05 --max-run-time 0.2"


@pytest.fixture
def at(loaded: InteractiveShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InteractiveShell:
    monkeypatch.chdir(tmp_path)
    loaded.user_ns.update(n=50)
    return loaded


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
    asked = f"--processes 2 {BRIEF} --until 50 -t 1,2 --sweep 'n=[10, 20]' --check --save runs.sqlite"
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
    assert "--check" in run(at, f"%%timer --processes 2 {BRIEF} --check\n{differ}")


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
    assert "ZeroDivisionError" in run(at, f"%timer --processes 2 {BRIEF} mine.f()")
    Path("mine.py").write_text("def f():\n    return [][1]\n")
    run(at, "import importlib; importlib.reload(mine)")
    Path("mine.py").write_text("def f():\n    return 2\n")
    assert "IndexError" in run(at, f"%timer --processes 2 {BRIEF} mine.f()")


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


# ==== --callgrind =====================================================================================================
# ``%%timer --callgrind``, with the real core.


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
    first = timed.user_ns["_timer"]
    assert "resumed" not in [doubt.kind for doubt in first.warnings], "what was stored had no counts"
    (stored,) = [one for one in load(tmp_path / "runs.sqlite") if one.counts]
    assert stored.diff().frame.equals(first.diff().frame)
    assert stored.diff().callees("PyNumber_Multiply")["calls"].tolist()[0] == 1

    run(timed, cell.format("--resume --callgrind 20"))
    again = timed.user_ns["_timer"]
    assert "resumed" in [doubt.kind for doubt in again.warnings]
    assert again.frame["instructions"].tolist() == first.frame["instructions"].tolist()
    run(timed, cell.format("--resume --callgrind 30"))
    assert timed.user_ns["_timer"].counts["A"].number_per_run == 30
    run(timed, "%unload_ext torchbench_magic")
