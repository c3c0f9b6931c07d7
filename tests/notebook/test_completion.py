"""Tab on the line of a magic."""

from __future__ import annotations

import runpy
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

from torchbench_magic.notebook.completion import completions_at

# ==== completion ======================================================================================================
# What can stand at the cursor (``|``) of a magic's line.


class Shell:
    def is_ours(self, magic: str, *, cell: bool) -> bool:
        return True

    def results(self) -> Sequence[str]:
        return ["before", "after"]

    def alternatives(self, results: Iterable[str]) -> Sequence[str]:
        return [f"one of {name}" for name in results] or ["any"]


def at_cursor(cell: str) -> list[str] | None:
    """The texts; None where this package has no say."""
    before, _, after = cell.partition("|")
    line, column = before.count("\n"), len(before.rpartition("\n")[2])
    found = completions_at(before + after, line, column, Shell())
    if found is not None:
        assert before.endswith(found.fragment)
    return None if found is None else list(found.texts)


def test_the_options_of_each_magic() -> None:
    timer, profile = at_cursor("%timer --|"), at_cursor("%%tprofile --|\nx")
    assert timer is not None
    assert profile is not None
    assert {"--threads", "--sweep"} <= {*timer}
    assert {"--memory", "--steps"} <= {*profile}
    assert "--memory" not in timer
    assert all(text.startswith("--") for text in timer)
    assert at_cursor("%timer -|") is not None
    assert "-t" in (at_cursor("%timer -|") or [])


@pytest.mark.parametrize(
    ("cell", "texts"),
    [
        ("%timer --clo|", ["--clock"]),
        ("r = %timer --clo|", ["--clock"]),
        ("for i in x: %timer --clo|", ["--clock"]),
        ("%timer -n 3 --callgrind --clo|", ["--clock"]),
        ("%timer --clock |", ["wall", "cpu", "device"]),
        ("%timer --clock d|", ["device"]),
        ("%timer --clock=c|", ["cpu"]),
        ("%timer --clock w|all x.sum()", ["wall"]),
        ("%timer --fuzz sparse|", ["sparse-binary", "sparse-unary"]),
        ("%%tprofile --group-by s|\nf()", ["shape", "stack"]),
        ("%tcompare --by e|", ["env"]),
        ("%tcompare |", ["before", "after"]),
        ("%tcompare before a|", ["after"]),
        ("%tcompare before --baseline |", ["'one of before'", "before"]),
        ("%timer -o b|", ["before"]),
        ("%%timer --baseline |\n# --- setup\nx = 1\n# --- a\nx\n# --- two words\nx +", ["a", "'two words'"]),
        ("%%timer --baseline 't|\n# --- a\nx\n# --- two words\nx", ["'two words'"]),
        ("%%timer --cpp --baseline |\n// --- global setup\n#include <a>\n// --- push\nx;", ["push"]),
    ],
)
def test_what_stands_at_the_cursor(cell: str, texts: list[str]) -> None:
    assert at_cursor(cell) == texts


@pytest.mark.parametrize(
    "cell",
    [
        "%timer x.su|",  # a statement
        "%timer -n 3 x --cl|",
        "%timer -- --cl|",
        "%%timer x = 1; --cl|\nx",
        "%timer |",  # a statement may begin here
        "%timer --save run|",  # a file: IPython's own matcher knows
        "%timer --min-run-time |",
        "%timeit --|",
        "timer --|",
        "x = 1\n%%timer --|",  # no cell magic
        "%%timer\n--|",
        "%timer --nosuch|",
    ],
)
def test_elsewhere_nothing_is_said(cell: str) -> None:
    assert at_cursor(cell) is None


def test_an_option_that_was_given_is_not_offered_again_but_one_that_repeats_is() -> None:
    texts = at_cursor("%timer -t 1 --sweep n=[1] --|") or []
    assert "--threads" not in texts
    assert "--sweep" in texts


# ==== completing ======================================================================================================
# Tab in a shell, by IPython's own completer.


STARTUP = Path(__file__).parents[2] / "jupyter-config" / "50-torchbench_magic.py"


def tab(shell: InteractiveShell, cell: str) -> list[str]:
    """The cell with each completion in its place, as a front end would put it there."""
    before, _, after = cell.partition("|")
    with provisionalcompleter():
        found = list(shell.Completer.completions(before + after, len(before)))
    return [before[: each.start] + each.text + (before + after)[each.end :] for each in found]


def test_options_values_sections_and_results_are_completed(loaded: InteractiveShell) -> None:
    assert tab(loaded, "%timer --clo|") == ["%timer --clock"]
    assert tab(loaded, "%timer --clock |") == [f"%timer --clock {name}" for name in ("wall", "cpu", "device")]
    cell = "%%timer --baseline |\n# --- first\n1\n# --- the second one\n2"
    assert tab(loaded, cell) == [cell.replace("|", name) for name in ("first", "'the second one'")]
    loaded.run_cell("%timer -q -n 2 -r 2 -o kept 1 + 1")
    assert tab(loaded, "%tcompare k|")[0] == "%tcompare kept"


def test_a_statement_is_completed_as_ever(loaded: InteractiveShell) -> None:
    loaded.user_ns["velocity"] = [1]
    assert "%timer velocity.append" in tab(loaded, "%timer velocity.app|")
    assert "%timer -n 3 velocity.append" in tab(loaded, "%timer -n 3 velocity.app|")


def test_before_the_magics_are_loaded_and_never_for_a_magic_of_the_users(shell: InteractiveShell) -> None:
    runpy.run_path(str(STARTUP))
    assert tab(shell, "%timer --clo|") == ["%timer --clock"]
    assert "torchbench_magic" not in shell.extension_manager.loaded
    shell.register_magic_function(lambda line: None, "line", "timer")
    assert tab(shell, "%timer --clo|") == []


def test_unloading_leaves_no_matcher(loaded: InteractiveShell) -> None:
    assert len(loaded.Completer.custom_matchers) == 1
    loaded.run_line_magic("unload_ext", "torchbench_magic")
    assert loaded.Completer.custom_matchers == []
