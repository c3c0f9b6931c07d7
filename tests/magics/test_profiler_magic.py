"""``%tprofile`` and ``%%tprofile`` in a shell, with the real core."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

Run = Callable[..., str]


@pytest.fixture
def profiled(loaded: InteractiveShell) -> InteractiveShell:
    """A shell with the extension, a tensor x and, in cell 1, a function f."""
    import torch

    loaded.user_ns.update(torch=torch, x=torch.ones(8))
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


def test_o_and_q(profiled: Any, run: Run) -> None:
    assert run(profiled, "%tprofile -q -o kept f(x)").strip() == ""
    assert profiled.user_ns["kept"] is profiled.user_ns["_tprofile"]


@pytest.mark.parametrize(
    ("line", "test"),
    [
        ("-t 1", lambda p: p.num_threads == 1),
        ("--memory", lambda p: p.memory is not None),
        ("--shapes", lambda p: p.ops["input_shapes"].notna().any()),
        ("", lambda p: p.memory is None and p.ops["input_shapes"].isna().all()),
    ],
)
def test_an_option_reaches_the_result(profiled: Any, run: Run, line: str, test: Callable[[Any], bool]) -> None:
    shown = run(profiled, f"%tprofile -q {line} torch.ones(9).mul(2)")
    assert shown.strip() == ""
    assert test(profiled.user_ns["_tprofile"])


def test_lines_of_gives_a_module_its_lines(profiled: Any, run: Run) -> None:
    run(profiled, "import textwrap")
    run(profiled, "%tprofile -q --lines-of textwrap textwrap.dedent('a')")
    files = profiled.user_ns["_tprofile"].lines["file"].dropna()
    assert files.str.endswith("textwrap.py").any()
    run(profiled, "%tprofile -q textwrap.dedent('a')")
    assert not profiled.user_ns["_tprofile"].lines["file"].dropna().str.endswith("textwrap.py").any()


def test_the_order_and_the_number_of_rows_are_the_asked_ones(profiled: Any, run: Run) -> None:
    cell = "torch.ones(3).mul(2).add(1).sub(1).div(2)"
    assert "torch.ones" in run(profiled, f"%tprofile -l 2 -s calls {cell}")
    short = run(profiled, f"%tprofile -l 1 {cell}")
    full = run(profiled, f"%tprofile -l -1 {cell}")
    assert sum("aten::" in line for line in short.splitlines()) < sum("aten::" in line for line in full.splitlines())


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
