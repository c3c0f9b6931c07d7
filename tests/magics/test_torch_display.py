"""torch's own results, as the last value of a cell in a shell with the extension loaded."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from torchbench_magic.notebook import display

SETUP = """
import torch
from torch.utils.benchmark import Timer, Compare
made = Timer("x * x", globals={"x": torch.ones(8)}, description="one").timeit(5)
with torch.profiler.profile() as prof:
    torch.ones(8) * 2
events = prof.key_averages()
"""


@pytest.fixture
def filled(loaded: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> InteractiveShell:
    monkeypatch.setattr(loaded, "kernel", SimpleNamespace(), raising=False)  # a terminal keeps torch's text
    assert loaded.run_cell(SETUP).success
    return loaded


def shown(shell: InteractiveShell, expression: str) -> dict[str, Any]:
    data, _ = shell.display_formatter.format(shell.ev(expression))
    return data


@pytest.mark.parametrize("expression", ["made", "Compare([made])", "events", "prof", "prof.events()"])
def test_torchs_results_are_shown_richly(filled: InteractiveShell, expression: str) -> None:
    data = shown(filled, expression)
    assert "<table" in data["text/html"]
    assert "object at" not in data["text/plain"].splitlines()[-1]


def test_events_read_as_torchs_table_and_not_as_a_list(filled: InteractiveShell) -> None:
    assert shown(filled, "events")["text/plain"].startswith("----")


def test_text_mode_and_terminals_have_text_alone(filled: InteractiveShell) -> None:
    filled.run_line_magic("config", 'TorchBench.display = "text"')
    assert set(shown(filled, "made")) == {"text/plain"}
    filled.run_line_magic("config", 'TorchBench.display = "auto"')
    filled.kernel = None
    assert set(shown(filled, "made")) == {"text/plain"}


def test_unloading_leaves_torchs_own_display(filled: InteractiveShell) -> None:
    filled.run_line_magic("unload_ext", "torchbench_magic")
    for expression in ("made", "Compare([made])", "events", "prof"):
        assert set(shown(filled, expression)) == {"text/plain"}
    assert shown(filled, "events")["text/plain"].startswith("[<FunctionEventAvg")


def test_a_printer_of_the_users_own_stays(shell: InteractiveShell) -> None:
    formatter = shell.display_formatter.mimebundle_formatter
    mine = ("torch.utils.benchmark.utils.common", "Measurement")
    formatter.for_type_by_name(*mine, lambda value, **_: {"text/plain": "mine"})
    shell.run_line_magic("load_ext", "torchbench_magic")
    assert shell.run_cell(SETUP).success
    assert shown(shell, "made") == {"text/plain": "mine"}
    shell.run_line_magic("unload_ext", "torchbench_magic")
    assert shown(shell, "made") == {"text/plain": "mine"}


def test_the_names_are_those_that_the_views_know() -> None:
    from torchbench_magic.show import torch_results

    assert all(callable(getattr(torch_results, shower)) for shower in display._TORCHS.values())


@pytest.mark.interpreter
def test_the_types_are_where_torch_has_them_and_torch_is_not_imported_for_it() -> None:
    code = (
        "import sys\nfrom IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\nshell.run_line_magic('load_ext', 'torchbench_magic')\n"
        "assert 'torch' not in sys.modules\n"
        "from torchbench_magic.notebook.display import _TORCHS\nfrom importlib import import_module\n"
        "for module, name in _TORCHS: assert getattr(import_module(module), name).__module__ == module, name\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
