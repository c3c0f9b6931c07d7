"""TraceML on the training loops and the leaks.

Its best way of use: the loop as a script of its own under ``traceml run``, with ``traceml.init(mode="auto")`` and the
body of each step within ``traceml.trace_step(model)``, as its quickstart has it, and what is no DataLoader within
``traceml.wrap_dataloader_fetch(...)``; the whole is repeated, so that it sees more steps than its own least numbers (20
for a sure diagnosis of time, 50 for one of memory). What is read is its final summary: verdict, reason, advice, and
what it says of a step's memory.
"""

from __future__ import annotations

import ast
import os
import re
import tempfile
from collections.abc import Container, Iterator
from pathlib import Path

from tests.insights.insight_runs import Planted

from .leak_cells import IMPORT, LEAKING, LeakCell
from .leaks import is_right, measured
from .loops import HEALTHY, OUTLIER, PLANTED, said_of
from .peer import Beside, CannotRun, run_quietly, shortened

__all__ = ["beside_leaks", "beside_loops"]

_TIMES = 8
_TIMES_OF_LEAKS = 4
_WORDS = {
    "input-bound": "INPUT", "optimizer-loop": "optimizer", "no-zero-grad": "grad", "grad-unused": "grad",
    "eval-mode": "eval", OUTLIER: "RESIDUAL",
}  # fmt: skip
"""What must stand in its verdict, reason or advice for the cause."""
_FINE = ("BALANCED", "COMPUTE-BOUND", "COMPUTE BOUND", "NO BOTTLENECK", "NORMAL")
_STEP_OF = re.compile(r"^(optimizer|opt|of_\w+)$")
_MODELS = ("net", "maker", "model")


def beside_loops(python: Path, without: Container[str]) -> Iterator[Beside]:
    """A row for each loop but some; ``python`` is that of its environment."""
    name = _name(python)
    for loop in (each for each in (*PLANTED, *HEALTHY) if each.name not in without):
        yield _loop(name, python.parent / "traceml", loop)


def beside_leaks(python: Path, without: Container[str]) -> Iterator[Beside]:
    """A row for each leak but some."""
    name = _name(python)
    for leak in (each for each in LEAKING if each.name not in without):
        yield _leak(name, python.parent / "traceml", leak)


def _name(python: Path) -> str:
    code = "from importlib.metadata import version; print(version('traceml-ai'))"
    return f"traceml-ai {run_quietly([python, '-c', code], Path.cwd(), _environment(), 60).stdout.strip()}"


def _loop(name: str, traceml: Path, loop: Planted) -> Beside:
    said = said_of(loop)
    ours = next((text for kind, line, text in said if (kind, line) == (loop.kind, loop.line)), "")
    is_ours_right = bool(ours) if loop.kind else not said
    ours = ours or "; ".join(text for _, _, text in said)
    line = f"line {loop.line}" if loop.kind and is_ours_right else "no line"
    planted = f"{loop.kind}, line {loop.line}" if loop.kind else "nothing"
    try:
        theirs = _summary(traceml, f"import numpy as np\n{loop.setup}", _traced(loop.body), _TIMES)
        wanted = _WORDS.get(loop.kind, "")
        is_theirs_right = wanted.lower() in theirs.lower() if loop.kind else any(word in theirs for word in _FINE)
    except CannotRun as reason:
        theirs, is_theirs_right = f"not run: {reason}", False
    return Beside(name, loop.name, planted, shortened(theirs), _line(theirs), is_theirs_right, shortened(ours), line,
                  is_ours_right)  # fmt: skip


def _leak(name: str, traceml: Path, leak: LeakCell) -> Beside:
    _, said = measured(leak)
    ours = " | ".join(each.text for each in said)
    line = f"line {said[0].places[0].line}" if said and said[0].places else "no line"
    planted = f"leak, {leak.holder}" + (f", line {leak.line}" if leak.line else "")
    body = _traced(leak.body, is_training=False)
    try:
        if body == leak.body:
            raise CannotRun("the cell has no loop, and keeps by what a notebook alone has")
        # in a script an earlier cell that raises would end it
        setup = "\n".join([IMPORT, *(text for text in leak.before if text != "fails()")])
        theirs = _summary(traceml, setup, body, _TIMES_OF_LEAKS)
        is_right_ = "CREEP" in theirs or "RISING" in theirs
    except CannotRun as reason:
        theirs, is_right_ = f"not run: {reason}", False
    return Beside(name, leak.name, planted, shortened(theirs), _line(theirs), is_right_, shortened(ours), line,
                  is_right(leak, said))  # fmt: skip


def _traced(body: str, *, is_training: bool = True) -> str:
    """The body with each step of its loop within ``trace_step``."""
    tree = ast.parse(body)
    for node in ast.walk(tree):
        if isinstance(node, ast.For) and not any(isinstance(below, ast.For) for below in _below(node)):
            if is_training and not _steps(node):
                continue
            step = ast.parse("with traceml.trace_step(_model):\n    pass").body[0]
            assert isinstance(step, ast.With)
            step.body = node.body
            node.body = [step]
            if "loader" not in ast.unparse(node.iter):
                wrapped = ast.parse("traceml.wrap_dataloader_fetch(_)", mode="eval").body
                assert isinstance(wrapped, ast.Call)
                wrapped.args = [node.iter]
                node.iter = wrapped
    made = ast.unparse(ast.fix_missing_locations(tree))
    return made if "trace_step" in made else body


def _below(loop: ast.For) -> Iterator[ast.AST]:
    return (node for statement in loop.body for node in ast.walk(statement))


def _steps(loop: ast.For) -> bool:
    """Whether it calls the ``step`` of an optimizer."""
    calls = [node.func for node in _below(loop) if isinstance(node, ast.Call)]
    attributes = [f for f in calls if isinstance(f, ast.Attribute) and f.attr == "step"]
    return any(isinstance(f.value, ast.Name) and _STEP_OF.match(f.value.id) for f in attributes)


def _summary(traceml: Path, setup: str, body: str, times: int) -> str:
    """Its verdict, reason and advice, and the status of what it says of memory."""
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        indented = "\n".join(f"    {line}" for line in body.splitlines())
        models = f"next((globals()[name] for name in {_MODELS!r} if name in globals()), None)"
        text = (
            "import torch\nimport traceml_ai as traceml\ntraceml.init(mode='auto')\ntorch.set_num_threads(1)\n"
            f"torch.manual_seed(0)\n{setup}\n_model = {models} or torch.nn.Identity()\n"
            f"for _time in range({times}):\n{indented}\n"
        )
        (folder / "train.py").write_text(text, encoding="utf-8")
        run_quietly([traceml, "run", "train.py", "--run-name", "planted", "--logs-dir", "logs"], folder,
                    _environment(), 300)  # fmt: skip
        found = sorted(folder.glob("logs/**/final_summary.txt"))
        if not found:
            raise CannotRun("it wrote no summary")
        return _read(found[0].read_text(encoding="utf-8"))


def _read(text: str) -> str:
    """Two columns stand in it side by side."""
    parts = [part.strip(" |+-.") for line in text.splitlines() for part in line.split("||")]
    heads = ("Verdict:", "Why:", "Next:", "STEP TIME:", "STEP MEMORY:")
    return ". ".join(" ".join(part.split()) for part in parts if part.startswith(heads))


def _line(text: str) -> str:
    found = re.search(r"\w+\.py:(\d+)|line (\d+)", text)
    return f"line {found[1] or found[2]}" if found is not None else "no line"


def _environment() -> dict[str, str]:
    """Without this project's own paths."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
