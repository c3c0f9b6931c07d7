"""The magics in a function see its local variables, as ``%timeit`` does."""

from __future__ import annotations

import itertools
import sys
import textwrap
import time
from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., str]
QUICK = "-q -t 1 -n 2 -r 3"


@pytest.fixture
def cell(loaded: Any, run: Run) -> Callable[[str], dict[str, Any]]:
    """Runs a cell in a shell with a global ``a`` of a million elements; the shell's names."""

    def run_cell(source: str) -> dict[str, Any]:
        shown = run(loaded, textwrap.dedent(source))
        assert "Error" not in shown, shown
        loaded.user_ns["shown"] = shown
        return loaded.user_ns

    run_cell("import torch; a = torch.ones(1_000_000); seen = []")
    return run_cell


def test_a_statement_sees_the_local_and_not_the_global_of_that_name(cell: Any) -> None:
    names = cell(f"""
        def g(a):
            r = %timer {QUICK} seen.append(a.numel())
            return r
        result = g(torch.ones(3))
        %timer {QUICK} seen.append(-a.numel())
    """)
    assert set(names["seen"]) == {3, -1_000_000}
    assert type(names["result"]).__name__ == "Comparison"


def test_timeit_sees_the_same(cell: Any) -> None:
    names = cell("""
        def g(a):
            %timeit -q -n 1 -r 1 seen.append(a.numel())
        g(torch.ones(3))
    """)
    assert set(names["seen"]) == {3}


def test_setup_sweeps_and_cells_see_locals(cell: Any) -> None:
    names = cell(f"""
        def g(a, sizes, k):
            %timer {QUICK} --setup "b = a[:k]" --sweep "n=sizes" seen.append((a.numel(), b.numel(), n))
            body = "# --- x\\nseen.append(k)\\n# --- y\\nseen.append([k for _ in (1,)][0])"
            get_ipython().run_cell_magic("timer", "{QUICK}", body)
        g(torch.ones(3), [5, 6], 2)
    """)
    assert set(names["seen"]) == {(3, 2, 5), (3, 2, 6), 2}


def test_functions_go_on_reading_the_notebooks_own_globals(cell: Any) -> None:
    names = cell(f"""
        def size(): return a.numel()
        def g(a):
            def inner(): return a.numel()
            %timer {QUICK} seen.append((size(), inner(), a.numel(), (lambda: a.numel())(), sum(a.numel() for _ in "x")))
        g(torch.ones(3))
    """)
    assert set(names["seen"]) == {(1_000_000, 3, 3, 3, 3)}
    assert [d.kind for d in names["_timer"].warnings if d.kind == "used-up"] == []


def test_comprehensions_see_their_own_variable(cell: Any) -> None:
    names = cell(f"""
        def g(k):
            return [get_ipython().run_line_magic("timer", "{QUICK} seen.append((b, k))") for b in (k, 8)]
        g(7)
        [get_ipython().run_line_magic("timer", "{QUICK} seen.append(c)") for c in (9,)]
    """)
    assert set(names["seen"]) == {(7, 7), (8, 7), 9}


def test_a_local_tensor_that_is_changed_in_place_is_said(cell: Any) -> None:
    names = cell(f"""
        def g(b):
            c = torch.zeros(3)
            def inner(): c.add_(1)
            %timer {QUICK} b.add_(1); inner()
        g(torch.ones(3))
    """)
    (doubt,) = [d for d in names["_timer"].warnings if d.kind == "in-place"]
    assert set(doubt.facts["changes"]) == {"b", "c"}


def test_output_cannot_be_bound_to_a_local_and_says_so(loaded: Any, run: Run) -> None:
    run(loaded, "def g(r, x=1):\n    %timer -q -t 1 -n 1 -r 1 -o r x + 1\ng(None)")
    shown = run(loaded, "g(None)")
    assert "-o r: r is a local variable of the calling function" in shown
    assert "r" not in loaded.user_ns
    run(loaded, "def h(x):\n    %timer -q -t 1 -n 1 -r 1 -o r x + 1\n    return r\nkept = h(1)")
    assert loaded.user_ns["kept"] is loaded.user_ns["r"]


def test_a_profile_sees_locals_and_writes_to_the_notebook(cell: Any) -> None:
    names = cell("""
        def g(a):
            %tprofile -q found = a.numel(), sum(a.numel() for _ in "x"); del gone; a = 5
            return a
        gone = 1
        value = g(torch.ones(3))
    """)
    assert names["found"] == (3, 3)
    assert "gone" not in names
    assert names["a"].numel() == 1_000_000
    assert names["value"].numel() == 3, "as with %time: a local variable is not set"


def test_a_profiled_cell_frees_what_it_binds_anew(loaded: Any, run: Run) -> None:
    shown = run(loaded, "import torch, weakref\ny = torch.rand(1000)\ngone = weakref.ref(y)")
    shown += run(loaded, "%%tprofile -q --memory\ny = None\nfreed = gone() is None")
    assert loaded.user_ns["freed"], shown


def test_a_profile_cell_in_a_function_sees_locals_after_an_error_too(loaded: Any, run: Run) -> None:
    shown = run(
        loaded,
        "def g(k):\n    get_ipython().run_cell_magic('tprofile', '-q', 'made = k + 1\\nk / 0')\ng(4)",
    )
    assert "ZeroDivisionError" in shown
    assert loaded.user_ns["made"] == 5
    assert "k" not in loaded.user_ns


@pytest.mark.skipif(sys.platform == "win32", reason="valgrind")
def test_locals_travel_to_the_process_that_counts(cell: Any) -> None:
    from torchbench_magic.process.send import pack_variables

    names = cell(f"""
        def g(b):
            def inner(): return b.sum()
            %timer {QUICK} inner(); b
            return inner
        made = g(torch.ones(3))
    """)
    with pack_variables(
        ["inner", "b"], {"inner": names["made"], "b": names["made"].__closure__[0].cell_contents}
    ) as parcel:
        assert parcel.data


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_what_was_seen_before_the_run_is_said_of_a_part_of_it_too(loaded: Any, run: Run, error: Any) -> None:
    calls = itertools.count()

    def stop_late() -> None:
        time.sleep(0.001)
        if next(calls) == 400:  # long after the first block
            raise error

    loaded.user_ns |= {"a": 0, "stop_late": stop_late}
    run(
        loaded,
        """
def outer():
    a = 1
    def inner():
        %timer -q --min-run-time 9 a; stop_late()
    return inner
outer()()
""",
    )
    kept = loaded.user_ns["_timer"]
    assert kept.partial
    assert any("not that of outer" in doubt.text for doubt in kept.warnings)


def said(shown: str) -> list[str]:
    """The warnings of names that are not those of an enclosing function."""
    return [part for part in " ".join(shown.split()).split("!") if "can see the variable of" in part]


@pytest.mark.parametrize("magic", ["timer -t 1 -n 2 -r 3", "tprofile"])
@pytest.mark.parametrize("is_returned", [False, True])
def test_a_name_of_an_enclosing_function_is_the_notebooks_and_that_is_said(
    cell: Any, magic: str, is_returned: bool
) -> None:
    names = cell(f"""
        def outer():
            a = torch.ones(3)
            def inner():
                %{magic} seen.append(a.numel())
            return {"inner" if is_returned else "inner()"}
        outer(){"()" if is_returned else ""}
    """)
    assert set(names["seen"]) == {1_000_000}, "as Python has it: the text of a magic is a string in inner"
    (text,) = said(names["shown"].replace("`", ""))
    assert "a is the notebook's a, not that of outer" in text
    assert "Give it to inner as an argument." in text


@pytest.mark.parametrize(
    "inner",
    [
        "a; %timer {} seen.append(a.numel())",
        "%timer {} a = 1; seen.append(a)",
        "%timer {} seen.append(1)",
    ],
)
def test_nothing_is_said_of_a_name_that_is_captured_bound_or_not_read(cell: Any, inner: str) -> None:
    first, _, second = inner.rpartition("; %") if inner.startswith("a;") else ("pass", "", inner.lstrip("%"))
    names = cell(f"""
        def outer():
            a = torch.ones(3)
            def inner():
                {first}
                %{second.format("-t 1 -n 2 -r 3")}
            inner()
        outer()
        def alone():
            %timer -t 1 -n 2 -r 3 seen.append(a)
        alone()
    """)
    assert not said(names["shown"])


def test_an_enclosing_method_and_a_function_two_levels_out_are_found(cell: Any) -> None:
    names = cell("""
        class Job:
            def run(self):
                a = 1
                def middle():
                    def inner():
                        %timer -t 1 -n 2 -r 3 seen.append(a)
                    return inner
                return middle()
        Job().run()()
    """)
    assert "not that of run" in " ".join(names["shown"].split())
