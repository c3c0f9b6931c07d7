"""A notebook run by papermill: results are in the saved file, and an error stops the run there."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest

from .conftest import ROOT, ipython_folder

pytestmark = pytest.mark.kernel
papermill = pytest.importorskip("papermill")

CELLS = [
    "import torch\nx = torch.ones(8)\ndef f(a):\n    return a * 2",
    "%timer -n 3 -r 3 f(x)",
    "%%tprofile\nfrom asyncio import sleep\nawait sleep(0)\nf(x).sum().item()",
]


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(ipython_folder(tmp_path / "ipython", startup=True)))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))


def run(folder: Path, cells: list[str]) -> nbformat.NotebookNode:
    written = folder / "in.ipynb"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbformat.write(notebook, written)
    papermill.execute_notebook(
        written, folder / "out.ipynb", cwd=str(folder), kernel_name="python3", progress_bar=False
    )
    return nbformat.read(folder / "out.ipynb", as_version=4)


@pytest.mark.slow
def test_results_are_in_the_saved_notebook(tmp_path: Path) -> None:
    kinds = [[o.output_type for o in cell.outputs] for cell in run(tmp_path, CELLS).cells]
    assert kinds == [[], ["display_data"], ["execute_result", "display_data"]]


@pytest.mark.slow
def test_the_users_exception_stops_the_run(tmp_path: Path) -> None:
    with pytest.raises(papermill.exceptions.PapermillExecutionError) as caught:
        run(tmp_path, [CELLS[0], "%%timer\nf(x)\n1 / 0", "never = 1"])
    assert caught.value.ename == "ZeroDivisionError"
    assert "torchbench_magic" not in str(caught.value)
    saved = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    assert saved.cells[-1].execution_count is None
