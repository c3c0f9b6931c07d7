"""Frames of this package are in no traceback, unless this package is what failed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import IPython
import pytest
from IPython.core.interactiveshell import InteractiveShell

Run = Callable[..., str]


def test_the_exception_itself_carries_no_frame_of_ours(loaded: InteractiveShell) -> None:
    result = loaded.run_cell("%%timer\n1 / 0", store_history=True)
    assert isinstance(result.error_in_exec, ZeroDivisionError)
    tb, files = result.error_in_exec.__traceback__, []
    while tb is not None:
        files.append(tb.tb_frame.f_code.co_filename)
        tb = tb.tb_next
    assert not [file for file in files if "torchbench_magic" in file]
    assert files[-1].startswith("<ipython-input-1")


@pytest.mark.parametrize("mode", ["Plain", "Context", "Verbose"])
def test_in_every_traceback_mode(loaded: InteractiveShell, run: Run, mode: str) -> None:
    run(loaded, f"%xmode {mode}")
    for cell in ("%%timer\n1 / 0", "%%tprofile\n1 / 0"):
        shown = run(loaded, cell)
        assert "ZeroDivisionError" in shown
        assert "torchbench_magic" not in shown


def test_an_operator_that_raises_in_a_recorded_call_shows_the_line_that_called_it(loaded: Any, run: Run) -> None:
    shown = run(loaded, "import torch; x = torch.ones(3)\n%timer x @ torch.ones(4)")
    assert "RuntimeError: inconsistent tensor size" in shown
    assert "x @ torch.ones(4)" in shown
    assert "torchbench_magic" not in shown
    assert "_ops.py" not in shown


def test_a_chain_of_exceptions_stays_a_chain(loaded: InteractiveShell, run: Run) -> None:
    shown = run(loaded, "%%tprofile\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    raise KeyError('k')")
    assert "During handling of the above exception" in shown
    assert "KeyError: 'k'" in shown
    assert "torchbench_magic" not in shown


@pytest.mark.skipif(IPython.version_info < (9,), reason="IPython 8 prints groups itself, one level deep")
@pytest.mark.parametrize("magic", ["%%timer -n 1 -r 2", "%%tprofile"])
def test_a_group_of_exceptions_shows_no_frame_of_ours(loaded: Any, run: Run, magic: str) -> None:
    """IPython leaves groups to Python's own printing."""
    shown = run(loaded, f"{magic}\nx = 1\nraise ExceptionGroup('g', [ValueError('v')])")
    assert "ExceptionGroup: g (1 sub-exception)" in shown
    assert "line 3, in <module>" in shown
    assert "torchbench_magic" not in shown
    assert "line 1, in <module>" not in shown  # the magic line
    assert "run_cell_magic" not in shown


def test_an_interrupt_before_the_first_sample_is_one_line_and_leaves_the_last_result(loaded: Any, run: Run) -> None:
    run(loaded, "def stop():\n    raise KeyboardInterrupt\n%timer -n 1 -r 2 -q 1 + 1")
    last = loaded.user_ns["_timer"]
    shown = run(loaded, "%%timer\n# --- a\n1 + 1\n# --- b\nstop()")
    assert "Nothing was measured yet: interrupted after " in shown
    assert "while running the first call of b. First call: a " in shown
    assert not [word for word in ("torchbench_magic", "drive", "_first_calls") if word in shown]
    assert loaded.user_ns["_timer"] is last


def test_a_failure_of_this_package_keeps_its_frames(loaded: Any, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise AttributeError("a bug")

    monkeypatch.setattr("torchbench_magic.notebook.timer.split_sections", broken)
    shown = run(loaded, "%%timer\n1")
    assert "AttributeError: a bug" in shown
    assert "timer.py" in shown


def test_a_function_of_this_package_that_refuses_its_argument_shows_the_cell_and_its_line(
    loaded: Any, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "bad.json").write_text("{}")
    said = run(loaded, f"import torchbench_magic\ntorchbench_magic.load_trace('{tmp_path}/bad.json')")
    assert "has no traceEvents" in said
    assert "load_trace.py" not in said
    assert "torchbench_magic.load_trace" in said


def test_tracebacks_of_other_cells_are_as_they_were(shell: InteractiveShell, run: Run) -> None:
    before = run(shell, "def f():\n    return 1 / 0\nf()")
    shell.run_line_magic("load_ext", "torchbench_magic")
    after = run(shell, "def f():\n    return 1 / 0\nf()")
    assert after.replace("In[2]", "In[1]") == before


@pytest.mark.parametrize("call", ["compare({'a': fails})", "compare({'a': deep.fails})", "profile(deep.fails)"])
def test_a_callable_that_raises_shows_the_frames_of_the_user_and_the_line_that_called(
    loaded: Any, run: Run, call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deep.py").write_text("def fails():\n    return 1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    run(loaded, "import deep\nfrom torchbench_magic import compare, profile\ndef fails():\n    return 1 / 0")
    shown = run(loaded, call)
    assert "ZeroDivisionError" in shown
    assert "return 1 / 0" in shown
    assert call in shown
    assert not [name for name in ("torchbench_magic", "core/timing", "driven(", "hidden", "<a>") if name in shown]


def test_a_statement_that_raises_shows_its_text(loaded: Any, run: Run) -> None:
    shown = run(loaded, "from torchbench_magic import compare\ncompare({'a': '1 / nil'}, globals={'nil': 0})")
    assert "1 / nil" in shown.splitlines()[-3]
    assert "torchbench_magic/" not in shown
