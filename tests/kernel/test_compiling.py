"""What torch.compile did, in a real kernel: in the cell that compiles, and in later cells that call what it gave up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Kernel

pytestmark = pytest.mark.kernel

DEFINED = """\
import torch
torch._dynamo.config.recompile_limit = 3
def f(x, n):
    y = x * n
    print(end="")
    return y.sin()
def named(x, name):
    for _ in range(200):
        x = x + len(name)
    return x
def plain(x):
    for _ in range(200):
        x = x + 1
    return x
g = torch.compile(f, backend="eager")
h = torch.compile(named, backend="eager")
x = torch.ones(4)
"""
BROKEN = """\
%%tprofile
g(x, 1)
g(x, 2)
"""
REFUSED = """\
for n in range(5):
    h(x, "n" * n)
"""
KINDS = "print([each.kind for each in _tprofile.insights])"
ROWS = "print(_tprofile.compilations[['function', 'cell', 'line', 'kind']].values.tolist())"
FELL_BACK = "print(_tprofile.compilations['fell_back'].dropna().tolist())"


@pytest.fixture(scope="module")
def one_kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    return start_kernel()


@pytest.fixture
def kernel(one_kernel: Kernel) -> Kernel:
    """With the functions made anew, none of which was compiled."""
    assert not one_kernel.run("import torch\ntorch.compiler.reset()").error
    assert not one_kernel.run(DEFINED).error
    return one_kernel


def said(kernel: Kernel, code: str) -> str:
    ran = kernel.run(code)
    assert not ran.error
    return ran.stdout.strip()


def test_a_cell_that_compiles_shows_frames_the_break_with_its_line_and_the_recompile_with_its_guard(
    kernel: Kernel,
) -> None:
    cell = kernel.number
    ran = kernel.run(BROKEN)
    assert not ran.error
    shown = " ".join(ran.text().split())
    assert "`print` cannot be compiled" in shown.replace("print cannot", "`print` cannot")
    assert "n was 1, now 2" in shown.replace("`", "")
    rows = said(kernel, ROWS)
    assert rows.startswith(f"[['f', {cell}, 3, 'first'], ['f', {cell}, 5, 'resume'], ['f', {cell}, 3, 'recompile']")
    assert said(kernel, "print(_tprofile.graph_breaks[['cell', 'line']].values.tolist())") == f"[[{cell}, 5]]"
    assert "'n == 1'" in said(kernel, "print(_tprofile.compilations['guard'].dropna().tolist())")
    assert said(kernel, FELL_BACK) == "[]"


@pytest.mark.parametrize("magic", ["%%tprofile\n", ""])
def test_a_later_cell_that_calls_what_was_given_up_earlier_shows_that_it_fell_back(kernel: Kernel, magic: str) -> None:
    """Whether the limit was reached in a profiled cell or in another."""
    cell = kernel.number
    assert not kernel.run(magic + REFUSED).error
    if magic:
        assert said(kernel, FELL_BACK) == "['recompile_limit of 3 reached']"
    ran = kernel.run("%%tprofile\nfor i in range(20):\n    h(x, 'another')")
    assert not ran.error
    assert said(kernel, FELL_BACK) == "['recompile_limit of 3 reached before this run']"
    assert said(kernel, ROWS) == f"[['named', {cell}, 7, 'earlier']]"
    assert "fell-back" in said(kernel, KINDS)
    shown = " ".join(ran.text().split()).replace("`", "")
    assert "named runs uncompiled (recompile_limit of 3 reached before this run)" in shown
    assert "torch.compiler.reset()" in said(kernel, "print(_tprofile.insights[0].cures)")


LOOP = """\
def looped(x):
    for i in range(200):
        x = x + i
        print(end="")
    return x
class Net(torch.nn.Module):
    def forward(self, x):
        return looped(x) * 2
c, net = torch.compile(looped, backend="eager"), torch.compile(Net(), backend="eager")
c(x)
"""


def test_a_later_cell_that_calls_what_a_graph_break_ended_earlier_shows_the_line_and_the_reason(kernel: Kernel) -> None:
    assert not kernel.run(LOOP).error
    cell = kernel.number
    ran = kernel.run("%%tprofile\nfor i in range(20):\n    c(x)")
    assert not ran.error
    why = f"it could not continue after a graph break before this run: `print` cannot be compiled, at `In[{cell}]:4`"
    assert said(kernel, FELL_BACK) == repr([why])
    assert said(kernel, ROWS) == f"[['looped', {cell}, 1, 'earlier']]"
    assert said(kernel, "print(len(_tprofile.graph_breaks))") == "0"
    assert f"looped runs uncompiled ({why})".replace("`", "") in " ".join(ran.text().split()).replace("`", "")


def test_a_function_that_a_graph_break_ended_and_that_is_called_by_itself_is_not_said(kernel: Kernel) -> None:
    assert not kernel.run(LOOP).error
    for calls in ("looped(x)", "looped(x); h(x, 'n')"):
        assert not kernel.run(f"%%tprofile\nfor i in range(20):\n    {calls}").error
        assert "fell-back" not in said(kernel, KINDS), calls
        assert "earlier" not in said(kernel, ROWS), calls


def test_of_a_call_that_finds_its_compiled_code_and_of_one_that_asks_for_none_nothing_is_said(kernel: Kernel) -> None:
    assert not kernel.run(REFUSED).error
    for calls in ("h(x, 'n')", "named(x, 'another')", "plain(x)", "h(x, 'n'); named(x, 'another')"):
        assert not kernel.run(f"%%tprofile\nfor i in range(20):\n    {calls}").error
        assert said(kernel, ROWS) == "[]", calls
        assert "fell-back" not in said(kernel, KINDS)


def test_after_a_reset_the_function_is_compiled_again_and_that_is_what_is_said(kernel: Kernel) -> None:
    cell = kernel.number
    assert not kernel.run(REFUSED).error
    assert not kernel.run("torch.compiler.reset()").error
    assert not kernel.run("%%tprofile\nfor i in range(20):\n    h(x, 'another')").error
    assert said(kernel, ROWS) == f"[['named', {cell}, 7, 'first']]"
    assert said(kernel, FELL_BACK) == "[]"


@pytest.mark.slow
def test_a_cell_compiles_as_many_frames_profiled_as_without(kernel: Kernel) -> None:
    counts = []
    counted = "print(sorted((r.co_name, str(r.recompile_reason)) for r in get_compilation_metrics()))"
    cell = "g(x, 1)\ng(x, 2)\nh(x, 'a')\nh(x, 'ab')\nh(x, 'ab')"
    profiled = [f"%%tprofile -q {option}\n" for option in ("", "--phases", "--memory", "--python")]
    anew = (
        "torch.compiler.reset()\nfrom torch._dynamo.utils import clear_compilation_metrics, get_compilation_metrics\n"
        "clear_compilation_metrics()"
    )
    for magic in ("", *profiled, "%%timer -q --max-run-time 0.5\n"):
        assert not kernel.run(anew).error
        assert not kernel.run(magic + cell).error
        counts.append(said(kernel, counted))
    assert len(set(counts)) == 1, counts
    assert counts[0].count("(") > 3
