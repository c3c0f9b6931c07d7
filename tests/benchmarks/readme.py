"""What the README's cells print, in fresh sessions: the one place its figures come from.

    python tests/benchmarks/readme.py

Its ``python`` blocks run as cells of one notebook, some times over. The texts of the run whose ratio is the median one
are kept for the README, whose ``text`` blocks are lines of them (a test says so), with the range over all runs.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from record import Figure, record

README = Path(__file__).parents[2] / "README.md"
RUNS = 9
RATIO = re.compile(r"is ([\d.]+) times as fast as")
SHARE = re.compile(r"(\d+) % waits for input")


def main() -> int:
    """The status of `record`."""
    sources = re.findall(r"^```python\n(.*?)\n```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    runs = sorted((_texts(sources) for _ in range(RUNS)), key=lambda texts: _found(RATIO, texts))
    shown = runs[len(runs) // 2]
    shares = sorted(_found(SHARE, texts) for texts in runs)
    ratios = [_found(RATIO, texts) for texts in runs]
    figures = [
        Figure("mul_sum against bmm", _found(RATIO, shown), "times", spread=(ratios[0], ratios[-1])),
        Figure("share of a step that waits for input", shares[len(shares) // 2], "%", spread=(shares[0], shares[-1])),
    ]
    return record("readme", figures, runs=RUNS, texts=shown)


def _texts(sources: list[str]) -> list[str]:
    """What each cell of one session prints, of those that print something."""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    NotebookClient(book, timeout=120, kernel_name="python3").execute()
    outputs = (output for cell in book.cells for output in cell.outputs if "data" in output)
    return [output.data["text/plain"] for output in outputs]


def _found(number: re.Pattern[str], texts: list[str]) -> float:
    """The number in the one text that has it; a headline may be broken between any two words."""
    (found,) = (match for text in texts if (match := number.search(" ".join(text.split()))))
    return float(found[1])


if __name__ == "__main__":
    sys.exit(main())
