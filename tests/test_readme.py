"""The README's cells run, and what it shows is what they showed when its figures were measured."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.kernel.conftest import by_files

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def stored(name: str) -> dict[str, Any]:
    """What ``tests/benchmarks`` wrote of this benchmark."""
    found: dict[str, Any] = json.loads((ROOT / f"tests/benchmarks/results/{name}.json").read_text(encoding="utf-8"))
    return found


FIGURES = stored("readme")
MOST_WORDS, MOST_LINES = 900, 110
LEAST_SHOWN = 36
FIRST_SCREEN = 30  # lines


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)\n```$", README, flags=re.MULTILINE | re.DOTALL)


def names(text: str) -> set[str]:
    """The lines of names and of source, without numbers and widths, as far as any width of columns shows them: what
    stays the same from run to run."""
    shown = r"alternative|faster|this cell|__getitem__|np\.random\.normal"
    kept = (line for line in text.splitlines() if re.search(shown, line))
    plain = [" ".join(re.sub(r"[\d.…<·|#−]+", " ", line).split()) for line in kept if "as fast as" not in line]
    return {line[:LEAST_SHOWN] if "noise" in line else line for line in plain}


def test_it_is_short_and_begins_with_a_picture_and_how_to_install_it() -> None:
    assert len(README.split()) <= MOST_WORDS
    lines = README.splitlines()
    assert len(lines) <= MOST_LINES
    assert next(at for at, line in enumerate(lines) if "pip install" in line) < FIRST_SCREEN
    assert next(at for at, line in enumerate(lines) if "tour-light.gif" in line) < FIRST_SCREEN


def test_its_figures_are_those_of_one_file() -> None:
    """Each line of a printed result is one of the run that was kept, in its order; ``…`` alone stands for some."""
    for printed, kept in zip(blocks("text"), FIGURES["conditions"]["texts"], strict=True):
        left = iter(kept.splitlines())
        assert [line for line in printed.splitlines() if line != "…" and line not in left] == []
    low, high = FIGURES["figures"][0]["spread"]
    assert f"{FIGURES['conditions']['runs']} sessions gave {low:.2f} to {high:.2f}" in README


def test_its_claims_are_what_was_measured() -> None:
    equal = [
        f for name in ("timing_aa", "verdicts_same") for f in stored(name)["figures"] if "false verdicts" in f["name"]
    ]
    trials = sum(int(re.search(r"of (\d+)", figure["name"])[1]) for figure in equal)
    assert f"different in {sum(figure['value'] for figure in equal)} of {trials} comparisons" in README
    planted = [f for f in stored("timing_power")["figures"] if "found in" in f["name"]]
    made = sum(int(figure["name"].rsplit(" of ", 1)[1]) for figure in planted)
    assert f"were found in {sum(figure['value'] for figure in planted)} of {made}." in README
    traps = stored("ordinary")
    outcomes = Counter(case["torchbench_magic"].split()[0] for case in traps["conditions"]["cases"])
    of_tool = {figure["name"].split(":")[0]: figure for figure in traps["figures"]}
    wrong = {tool: (figure["value"], re.search(r"of (\d+)", figure["name"])[1]) for tool, figure in of_tool.items()}
    assert wrong["torchbench_magic"] == (outcomes["wrong"], str(outcomes.total()))
    where = "[cells that mislead timers](docs/method.md#what-was-tested)"
    ours = f"{outcomes.total()} {where} none got a wrong verdict: {outcomes['right']} a right one, {outcomes['said']} a"
    assert ours in " ".join(README.split())
    theirs = [
        f"{wrong[tool][0]} of {wrong[tool][1]}" for tool in ("timeit", "torch", "line_profiler", "torchbench_magic")
    ]
    row = next(line for line in README.splitlines() if line.startswith("wrong without a warning"))
    assert re.findall(r"\d+ of \d+", row) == theirs


@pytest.mark.kernel
def test_its_cells_run_and_show_what_is_printed_below_them() -> None:
    cells = [nbformat.v4.new_code_cell(source) for source in blocks("python")]
    book = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(book, timeout=120, kernel_name="python3", config=by_files()).execute()
    texts = [output.data["text/plain"] for cell in book.cells for output in cell.outputs if "data" in output]
    for printed, now in zip(blocks("text"), texts, strict=True):
        assert names(printed)
        assert names(printed) <= names(now)
