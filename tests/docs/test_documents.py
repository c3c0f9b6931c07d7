"""The documents say what is so: their code runs, their options are the code's, their messages exist, their links lead
somewhere."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.kernel.conftest import by_files

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DOCUMENTS = sorted(DOCS.glob("*.md"))


def blocks(document: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)\n```$", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


SLOW = {"reading"}  # it profiles a dozen cells
RUN = [
    pytest.param(each, id=each.stem, marks=[pytest.mark.slow] if each.stem in SLOW else [])
    for each in DOCUMENTS
    if blocks(each)
]


@pytest.mark.kernel
@pytest.mark.parametrize("document", RUN)
def test_the_code_of_a_document_runs_from_top_to_bottom(document: Path, tmp_path: Path) -> None:
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in blocks(document)])
    NotebookClient(
        book, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}, config=by_files()
    ).execute()
    errors = [o for cell in book.cells for o in cell.outputs if o.output_type == "stream" and o.name == "stderr"]
    assert errors == []


def test_the_options_are_those_of_the_code() -> None:
    written = subprocess.run(
        [sys.executable, "-c", "import options; print(options.document(), end='')"],
        cwd=DOCS, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(ROOT), "PATH": ""},
    )  # fmt: skip
    assert (DOCS / "options.md").read_text(encoding="utf-8") == written.stdout, "run python docs/options.py"


@pytest.mark.parametrize("document", [*DOCUMENTS, ROOT / "README.md"], ids=lambda d: d.stem)
def test_links_between_files_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text(encoding="utf-8")):
        assert (document.parent / target).exists(), target


def texts_of_the_code() -> Iterator[str]:
    """Every constant text of the package, the parts of an f-string put together; of a script, all of it."""
    for file in (ROOT / "torchbench_magic").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
    for script in (ROOT / "torchbench_magic" / "show" / "static").glob("*.js"):
        yield script.read_text(encoding="utf-8")


OF_OTHERS = (
    *("Cell magic", "Line magic", "NameError for", "KeyboardInterrupt below"),
    *("Error displaying widget", "tables without sort"),
)


def messages() -> list[str]:
    """The first column of the table, without the marks of code."""
    lines = (DOCS / "troubleshooting.md").read_text(encoding="utf-8").splitlines()
    firsts = [line.split("|")[1].strip() for line in lines if line.startswith("|")][2:]
    return [first.replace("`", "").replace('"', "") for first in firsts]


def test_every_message_that_is_explained_exists() -> None:
    code = [re.sub(r"\s+", " ", text.replace("`", "")) for text in texts_of_the_code()]
    for message in messages():
        if message.startswith(OF_OTHERS):
            continue
        for alternative in message.split(", … "):
            fragments = [part.strip() for part in re.split(r"…|\b[NM]\b|\bNAME\b", alternative) if part.strip(" ,.:")]
            assert fragments
            found = any(all(fragment in text for fragment in fragments) for text in code)
            assert found, f"no message of the code holds {fragments}"


def steps() -> list[tuple[str, str]]:
    """(notebook, id of a cell) of every cell that the coverage names."""
    found = []
    for line in (DOCS / "coverage.md").read_text(encoding="utf-8").splitlines():
        for notebook, cells in re.findall(r"\]\(\.\./examples/([^)]+)\) ((?:`[^`]+`(?:, )?)+)", line):
            found += [(notebook, cell) for cell in re.findall(r"`([^`]+)`", cells)]
    return found


def test_every_step_has_its_cell_in_an_example_that_the_tests_run() -> None:
    named = steps()
    assert len(named) > 40
    tests = (ROOT / "tests" / "test_examples.py").read_text(encoding="utf-8")
    for notebook in {notebook for notebook, _ in named}:
        book = nbformat.read(ROOT / "examples" / notebook, as_version=4)
        code = {cell.id for cell in book.cells if cell.cell_type == "code"}
        assert {cell for name, cell in named if name == notebook} <= code, notebook
        assert notebook in tests, f"no test runs {notebook}"


def test_no_step_is_left_out() -> None:
    """Each row names a cell, or says that it is to come."""
    rows = [line for line in (DOCS / "coverage.md").read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    for row in rows:
        if not row.startswith("| step"):
            assert "examples/" in row or row.endswith("| to come |"), row
