"""tlparse on the cells that ``torch.compile`` has trouble with.

Its best way of use: the cell as a script in a process of its own, with ``TORCH_TRACE`` set before torch is imported,
and the whole report read: the reasons of graph breaks and recompilations, the metrics of each compilation. A line
counts as named wherever in these it stands: of a recompilation, or a limit, also where it is the stack of another page
of the same frame, and any line of the function is right.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sys
import tempfile
from collections.abc import Container, Iterator
from html import unescape
from pathlib import Path

from .compile_cells import CELLS, CompileCell
from .compiled import our_words
from .peer import Beside, CannotRun, run_quietly, shortened

__all__ = ["beside"]

_RUN = """\
import torch, warnings
warnings.simplefilter("ignore")
def call(function):
    function()
    function()
names = {"torch": torch, "x": torch.ones(16), "call": call, "__name__": "__main__"}
exec(compile(open("cell.py").read(), "cell.py", "exec"), names)
"""
"""Its lines are those of the cell."""
_WORDS = {
    "print": "`print`", "data-dependent branch": "data-dependent", "item": "item", "nested functions": "sleep",
    "int": "n == 1", "float": "rate", "shape": "size mismatch", "rank": "rank mismatch", "dtype": "dtype mismatch",
    "device": "dispatch key", "attribute of a module": "scale", "training of a module": "training",
    "limit reached": "recompile_limit", "print in a loop": "`print`", "module of a library": "rank mismatch",
}  # fmt: skip
"""What must stand in its words for the cause: torch's own, as it hands them on."""


def beside(tlparse: Path, without: Container[str]) -> Iterator[Beside]:
    """A row for each cell but some; ``tlparse`` is its program."""
    name = run_quietly([tlparse, "--version"], Path.cwd(), os.environ, 60).stdout.strip()
    for cell in CELLS:
        if cell.name in without:
            continue
        ours, our_line, is_ours_right = our_words(cell)
        try:
            theirs, line, is_right = _said(tlparse, cell)
        except CannotRun as reason:
            theirs, line, is_right = f"not run: {reason}", "no line", False
        planted = f"{cell.name}, at `{cell.marked}`"
        yield Beside(name, cell.name, planted, theirs, line, is_right, ours, our_line, is_ours_right)


def _said(tlparse: Path, cell: CompileCell) -> tuple[str, str, bool]:
    """(its words, the line that it names, whether both are right)."""
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        trace, out = folder / "trace", folder / "out"
        (folder / "cell.py").write_text(cell.text, encoding="utf-8")
        (folder / "run.py").write_text(_RUN, encoding="utf-8")
        run_quietly([sys.executable, "run.py"], folder, {**os.environ, "TORCH_TRACE": str(trace)}, 300)
        logs = sorted(trace.glob("*.log"))
        if not logs:
            raise CannotRun("torch wrote no trace")
        run_quietly([tlparse, logs[0], "-o", out, "--no-browser"], folder, os.environ, 60)
        found = list(_reasons(cell, out))
    causes = [each for each in found if _WORDS[cell.name].lower() in each[0].lower()]
    for text, file, line in causes:
        if at := _in_cell(cell, file, line):
            return shortened(text), at, True
    text, file, line = [*causes, *found, ("nothing of it", "", 0)][0]
    return shortened(text), f"{Path(file).name}:{line}" if line else "no line", bool(causes)


def _reasons(cell: CompileCell, out: Path) -> Iterator[tuple[str, str, int]]:
    """(text, file, line) of all that the report says of such a cause."""
    if cell.table == "break":
        for page in sorted(out.rglob("dynamo_graph_break_reason*.txt")):
            text = page.read_text(encoding="utf-8")
            at = re.search(r"Graph break in user code at (\S+):(\d+)", text)
            inner = re.findall(r'File "([^"]+)", line (\d+)', text.partition("Traceback (most recent")[0])
            files = [(at[1], int(at[2]))] if at else []
            for file, line in [*files, *((file, int(line)) for file, line in inner)]:
                yield _explained(text), file, line
    if cell.table == "recompile":
        for page in sorted(out.rglob("recompile_reasons*.json")):
            text = re.sub(r"\S+site-packages/", "", _as_text(page))
            where = re.search(r"(\S*\.py):(\d+) in ", text)
            stack = re.findall(r'File "([^"]+)", line (\d+)', text)
            places = [(where[1], int(where[2]))] if where else []
            for file, line in [*places, *((file, int(line)) for file, line in stack), *_of_frame(cell, page)]:
                yield text.partition("User stack trace")[0], file, line
            yield text, "", 0
    if cell.table == "fell_back":
        for page in sorted(out.rglob("compilation_metrics*.html")):
            text = _plain(page.read_text(encoding="utf-8"))
            failed = re.search(r"Failure Reason:(.*?)(?:No restarts|Cache Metrics|$)", text, re.DOTALL)
            if failed is None or "N/A" in failed[1][:20] or not failed[1].strip():
                continue
            for file, line in [*_of_frame(cell, page), ("", 0)]:
                yield _explained(failed[1]), file, line


def _of_frame(cell: CompileCell, page: Path) -> Iterator[tuple[str, int]]:
    """Where the function stands by the pages of the same frame: of ``-_0_8_0`` those in ``-_0_*``."""
    frame = page.parent.name.split("_")[1]
    for one in sorted(page.parent.parent.glob(f"-_{frame}_*/compilation_metrics*.html")):
        stack = re.findall(r"(\S+\.py):(\d+) in (\S+)", _plain(one.read_text(encoding="utf-8")))
        yield from ((file, int(line)) for file, line, name in stack if name == cell.function.rpartition(".")[2])


def _explained(text: str) -> str:
    """The first line of the reason and its explanation."""
    reason = re.search(r"Graph Break Reason: .*\n+(.*)", text)
    explanation = re.search(r"Explanation: (.*)", text)
    said = [found[1].strip().removeprefix("Explanation: ").rstrip(".") for found in (reason, explanation) if found]
    return ". ".join(dict.fromkeys(said)) or text


def _as_text(page: Path) -> str:
    text = page.read_text(encoding="utf-8")
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return "; ".join(map(str, value)) if isinstance(value, list) else str(value)


def _plain(page: str) -> str:
    return unescape(re.sub(r"<[^>]*>", " ", page.partition("<body")[2] or page))


def _in_cell(cell: CompileCell, file: str, line: int) -> str:
    """The line as it names it, where it is the planted one, or of a recompilation in that function; else empty."""
    if not file.endswith("cell.py"):
        return f"{Path(file).name}" if cell.marked == Path(file).name else ""
    lines = cell.text.splitlines()
    if not 1 <= line <= len(lines):
        return ""
    marked = next((at for at, text in enumerate(lines, 1) if cell.marked in text), 0)
    if line == marked:
        return f"line {line}"
    spans = [(node.lineno, node.end_lineno or 0) for node in ast.walk(ast.parse(cell.text))
             if isinstance(node, ast.FunctionDef) and node.lineno == marked]  # fmt: skip
    is_inside = any(begin <= line <= end for begin, end in spans)
    return f"line {line}" if is_inside and cell.table != "break" else ""
