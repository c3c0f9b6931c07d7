"""How many bytes each cell of the quickstart leaves in the saved notebook."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from record import Figure, record

QUICKSTART = Path(__file__).parents[2] / "examples" / "01_quickstart.ipynb"


def main() -> int:
    book = nbformat.read(QUICKSTART, as_version=4)
    client = NotebookClient(
        book, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(QUICKSTART.parent)}}
    )
    client.execute()
    sizes = {
        f"In[{cell.execution_count}] {cell.source.splitlines()[0]}": size(cell.outputs)
        for cell in book.cells
        if cell.cell_type == "code"
    }
    figures = [Figure(name, bytes_, "bytes") for name, bytes_ in sizes.items()]
    figures.append(Figure("the largest cell", max(sizes.values()), "bytes", limit=300_000))
    return record("output_size", figures, notebook=QUICKSTART.name)


def size(outputs: list[nbformat.NotebookNode]) -> int:
    """Bytes of the outputs as a notebook file stores them."""
    return len(json.dumps(outputs, ensure_ascii=False).encode()) if outputs else 0


if __name__ == "__main__":
    sys.exit(main())
