"""pytorch-autotune on the cells that have a module, of those that ``--try`` is measured on.

Its best way of use: ``autotune(model, batch, loss_fn=..., optimizer=...)`` with the cell's own model, batch, loss and
optimizer, and a budget of 40 seconds. It tunes training: a model that is frozen for inference is given to it with its
gradients on. It runs with one thread, as ``--try`` does here. Its documentation asks for a CUDA device; where there is
none it gets ``device="cpu"``, which it takes.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path

from .levers import GOOD, SLOW, Cell, tried
from .peer import Beside, CannotRun, run_quietly, shortened

__all__ = ["beside"]

BUDGET_S = 40


@dataclass(frozen=True)
class _Given:
    """What of a cell it is given.

    Attributes:
        batch, loss, optimizer: expressions; empty where it has a default of its own.
    """

    batch: str
    loss: str = "None"
    optimizer: str = "'adamw'"


_OWN = "lambda parameters: torch.optim"
_TRAINING = "torch.nn.functional.mse_loss"
_GIVEN = {
    "Adam over many small parameters": _Given("(x, y)", _TRAINING, f"{_OWN}.Adam(parameters)"),
    "AdamW over many small parameters": _Given("(x, y)", _TRAINING, f"{_OWN}.AdamW(parameters)"),
    "SGD with momentum": _Given("(x, y)", _TRAINING, f"{_OWN}.SGD(parameters, lr=0.001, momentum=0.9)"),
    "NAdam over many small parameters": _Given("(x, y)", _TRAINING, f"{_OWN}.NAdam(parameters)"),
    "two convolutions": _Given("x"),
    "a step with the fused optimizer": _Given("(x, y)", _TRAINING, f"{_OWN}.SGD(parameters, lr=0.001)"),
}
_WITHOUT = ("a chain of small operations", "columns of a transposed table")
_CURES = {"fused-optimizer": "fused", "channels_last": "channels_last", "compile": "compile=default"}
_WORDS_OF_BASE = "fp32_default compile=off"


def beside(python: Path, without: Container[str]) -> Iterator[Beside]:
    """A row for each cell but some; ``python`` is that of its environment."""
    code = "from importlib.metadata import version; print(version('pytorch-autotune'))"
    name = f"pytorch-autotune {run_quietly([python, '-c', code], Path.cwd(), _environment(), 60).stdout.strip()}"
    kinds = [("slow", cell) for cell in SLOW] + [("good", cell) for cell in GOOD]
    for kind, cell in kinds:
        if cell.name in without or (cell.name not in _GIVEN and cell.name not in _WITHOUT):
            continue
        found = tried(kind, cell)
        named = found["recommended"]
        said = [
            f"{row['lever']} makes it {1 / row['ratio']:.2f} times as fast ({1 / row['high']:.2f} … "
            f"{1 / row['low']:.2f}), the result is {row['result']}"
            for row in found["rows"] if row["lever"] in named
        ]  # fmt: skip
        ours = "; ".join(said) or "no lever makes it faster with the same result"
        is_ours_right = bool(set(named) & set(cell.cures)) if kind == "slow" else not named
        planted = f"slow: {' or '.join(cell.cures)}" if kind == "slow" else "nothing"
        theirs, is_theirs_right = _said(python, cell, kind)
        yield Beside(name, cell.name, planted, theirs, "no line", is_theirs_right, shortened(ours), "the cell",
                     is_ours_right)  # fmt: skip


def _said(python: Path, cell: Cell, kind: str) -> tuple[str, bool]:
    given = _GIVEN.get(cell.name)
    if given is None:
        return "not run: it tunes the training step of a module, and the cell has none", False
    text = (
        "import math, warnings\nwarnings.simplefilter('ignore')\nimport torch\nfrom torch import nn\n"
        f"import torch.nn.functional as F\ntorch.set_num_threads(1)\ntorch.manual_seed(0)\n{cell.setup}\n"
        "from pytorch_autotune import autotune\nmodel.requires_grad_(True)\n"
        "device = 'cuda' if torch.cuda.is_available() else 'cpu'\n"
        f"made = autotune(model, {given.batch}, loss_fn={given.loss}, optimizer={given.optimizer},"
        f" budget={BUDGET_S}, device=device, cache=False, verbose=False)\nprint(made.report)\nprint(made.summary())\n"
    )
    with tempfile.TemporaryDirectory() as path:
        (Path(path) / "cell.py").write_text(text, encoding="utf-8")
        try:
            done = run_quietly([python, "cell.py"], Path(path), _environment(), 5 * BUDGET_S)
        except CannotRun as reason:
            return f"not run: {reason}", False
    picked = re.search(r"autotune picked \[([^\]]*)\]: .*", done.stdout)
    if picked is None:
        return shortened(done.stdout.strip().splitlines()[-1]), False
    if kind == "good":
        return shortened(picked[0]), picked[1].strip() == _WORDS_OF_BASE
    return shortened(picked[0]), any(_CURES.get(cure, "\0") in picked[1] for cure in cell.cures)


def _environment() -> dict[str, str]:
    """Without this project's own paths."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
