"""``python -m torchbench_magic demo`` and the notebooks it runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from torchbench_magic.__main__ import CellFailed, demo, main

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))
TABLE = "display({'text/plain': 'a  b\\n1  2', 'text/html': '<table id=shown></table>'}, raw=True)"


def write(folder: Path, *sources: str) -> Path:
    cells = [nbformat.v4.new_markdown_cell("## What it is about"), *map(nbformat.v4.new_code_cell, sources)]
    path = folder / "a notebook.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


@pytest.mark.kernel
def test_the_demo_prints_what_cells_show_and_writes_a_page_that_names_no_host(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    html = demo(write(tmp_path, "import sys; print(sys.executable)", TABLE))
    printed = capsys.readouterr().out
    assert "## What it is about" in printed
    assert f"> import sys; print(sys.executable)\n{sys.executable}" in printed, "the kernel is of this environment"
    assert "a  b\n1  2" in printed
    assert "make lab" in printed
    assert html == tmp_path / "output" / "a notebook.html"
    page = html.read_text(encoding="utf-8")
    assert '<table id="shown">' in page
    assert not re.findall(r"""(?:src|href)=["'](?!#)\S*""", page), "the page fetches nothing"


@pytest.mark.kernel
def test_a_cell_that_fails_ends_the_demo_with_its_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook = write(tmp_path, "print('before')", "1/0", "print('after')")
    with pytest.raises(CellFailed, match="ZeroDivisionError"):
        demo(notebook)
    assert main(["demo", str(notebook)]) == 1
    out, err = capsys.readouterr()
    assert "before" in out
    assert "after" not in out
    assert "ZeroDivisionError: division by zero" in err
    assert "\x1b" not in err, "colours are for a terminal"
    assert not (tmp_path / "output").exists()


@pytest.mark.parametrize("arguments", [[], ["dem"], ["demo", "--out", "x"]], ids=" ".join)
def test_what_the_command_line_does_not_know_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert "usage: python -m torchbench_magic" in capsys.readouterr().err


def test_a_notebook_that_is_not_there_is_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torchbench_magic", "demo", "nowhere.ipynb"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr.strip() == "nowhere.ipynb does not exist"


def test_the_list_of_examples_names_each_and_each_is_there() -> None:
    listed = (Path(__file__).parents[1] / "examples" / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"\[`(\w+)`\]\(\1\.ipynb\)", listed) == [path.stem for path in EXAMPLES]
    assert len(EXAMPLES) >= 2
