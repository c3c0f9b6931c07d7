"""How many bytes outputs leave in a saved notebook: the quickstart's cells, and a notebook of 50 outputs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median

import nbformat
from nbclient import NotebookClient
from record import Figure, record

QUICKSTART = Path(__file__).parents[2] / "examples" / "01_quickstart.ipynb"
SETUP = """\
%load_ext torchbench_magic
import torch
x, y = torch.rand(10000, 64), torch.rand(256, 64)
layers = [m for _ in range(2) for m in (torch.nn.Linear(64, 64), torch.nn.ReLU())]
model = torch.nn.Sequential(*layers, torch.nn.Linear(64, 1))
opt = torch.optim.Adam(model.parameters())"""
COMPARISON = """\
%%timer --baseline bmm
# --- bmm
torch.bmm(x.unsqueeze(1), x.unsqueeze(2)).flatten()  # {}
# --- mul_sum
x.mul(x).sum(-1)"""
PROFILE = """\
%%tprofile
for step in range(30):  # {}
    opt.zero_grad(); loss = model(y).mean(); loss.backward(); opt.step()"""
OF_EACH = 25
WIDGET = "from torchbench_magic.notebook.widgets import TableWidget\nprint(len(str(TableWidget._esm)))"


def main() -> int:
    book = nbformat.read(QUICKSTART, as_version=4)
    run(book)
    sizes = {
        f"In[{cell.execution_count}] {cell.source.splitlines()[0]}": size(cell.outputs)
        for cell in book.cells
        if cell.cell_type == "code"
    }
    figures = [Figure(name, bytes_, "bytes") for name, bytes_ in sizes.items()]
    figures.append(Figure("the largest cell", max(sizes.values()), "bytes", limit=300_000))
    return record("output_size", [*figures, *of_fifty()], notebook=QUICKSTART.name)


def of_fifty() -> list[Figure]:
    """A notebook of 25 comparisons and 25 profiles of a training step in turn. Those that bring the modules which draw
    them are counted apart: two cells do, and every eleventh after them."""
    texts = [text.format(n) for n in range(OF_EACH) for text in (COMPARISON, PROFILE)]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in (SETUP, *texts, WIDGET)])
    run(book)
    found: dict[str, list[int]] = {}
    for cell in book.cells[1:-1]:
        html = "".join(output.get("data", {}).get("text/html", "") for output in cell.outputs)
        kind = "a comparison" if cell.source.startswith("%%timer") else "a two-line training profile"
        brings = "that brings modules" if "<script data-brings=" in html else "whose modules other cells bring"
        found.setdefault(f"{kind} {brings}", []).append(size(cell.outputs))
    limits = {
        "a comparison whose modules other cells bring": 12_000,
        "a two-line training profile that brings": 80_000,
        "a two-line training profile whose modules other cells bring": 60_000,
    }
    figures = []
    for name, sizes in sorted(found.items()):
        limit = next((limit for start, limit in limits.items() if name.startswith(start)), None)
        figures.append(Figure(f"{name}: the largest of {len(sizes)}", max(sizes), "bytes", limit=limit))
        figures.append(Figure(f"{name}: their median", median(sizes), "bytes"))
    whole = len(nbformat.writes(book).encode())
    figures.append(Figure(f"a notebook of {OF_EACH} comparisons and {OF_EACH} such profiles", whole, "bytes"))
    text = book.cells[-1].outputs[0].text
    figures.append(Figure("module that a saved widget keeps with its state", int(text), "bytes"))
    return figures


def run(book: nbformat.NotebookNode) -> None:
    """Execute the notebook beside the quickstart."""
    where = {"metadata": {"path": str(QUICKSTART.parent)}}
    NotebookClient(book, timeout=600, kernel_name="python3", resources=where).execute()


def size(outputs: list[nbformat.NotebookNode]) -> int:
    """Bytes of the outputs as a notebook file stores them."""
    return len(json.dumps(outputs, ensure_ascii=False).encode()) if outputs else 0


if __name__ == "__main__":
    sys.exit(main())
