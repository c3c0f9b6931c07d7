"""An IPython shell of its own for each test."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    """A bare shell without the extension; its history is kept in memory."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # a shell takes its place
    config = Config()
    config.HistoryManager.hist_file = ":memory:"
    config.InteractiveShell.colors = "nocolor"
    InteractiveShell.clear_instance()
    made = InteractiveShell.instance(config=config)  # IPython's tracebacks ask for "the" shell
    yield made
    if "torchbench_magic" in made.extension_manager.loaded:
        made.run_line_magic("unload_ext", "torchbench_magic")
    made.history_manager.end_session()
    InteractiveShell.clear_instance()


@pytest.fixture
def loaded(shell: InteractiveShell) -> InteractiveShell:
    """A shell with the extension loaded by ``%load_ext``."""
    shell.run_line_magic("load_ext", "torchbench_magic")
    return shell


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a cell and gives what it printed, results, errors and all."""

    def run_cell(shell: Any, source: str, **options: Any) -> str:
        capsys.readouterr()
        shell.run_cell(source, **{"store_history": True, **options})
        seen = capsys.readouterr()
        return re.sub(r"\x1b\[[0-9;]*m", "", seen.out + seen.err)

    return run_cell
