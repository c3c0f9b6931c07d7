"""Tab in a shell, by IPython's own completer."""

from __future__ import annotations

import runpy
from pathlib import Path

from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

STARTUP = Path(__file__).resolve().parents[3] / "jupyter-config" / "50-torchbench_magic.py"


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
