"""Ordinary notebook habits whose true answer is known: how often is a wrong one given without a word?

Each case runs in a fresh kernel, beside ``%timeit``, torch and line_profiler where they can run it. Arguments choose
cases by a part of their name or of what they are about; then nothing is written, but with ``--again`` in front these
cases take the place of what is stored of them.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parent)]

import nbformat  # noqa: E402
from nbclient import NotebookClient  # noqa: E402
from nbclient.exceptions import CellExecutionError  # noqa: E402
from ordinary_cases import CASES, Case  # noqa: E402
from record import RESULTS, Figure, record  # noqa: E402
from tabulate import tabulate  # noqa: E402

from tests.kernel.conftest import environment_of  # noqa: E402

OURS = "torchbench_magic"
PEERS = ("timeit", "torch", "line_profiler")
FAILED = "failed"


def main() -> int:
    is_again = sys.argv[1:2] == ["--again"]
    words = sys.argv[1 + is_again :]
    chosen = [c for c in CASES if not words or any(word in f"{c.item} {c.name}" for word in words)]
    missing = [case for case in chosen if case.needs and importlib.util.find_spec(case.needs) is None]
    for case in missing:
        print(f"left out, {case.needs} is not installed: {case.name}")
    chosen = [case for case in chosen if case not in missing]
    rows, judged = [], []
    for case in chosen:
        outcomes = {OURS: outcome_of(case.cells, case.judge, case, extension=True)}
        for peer, (cells, judge) in case.peers.items():
            outcomes[peer] = outcome_of(cells, judge, case, extension=False)
        judged.append(outcomes)
        rows.append((case.item, case.name, *(" ".join(outcomes.get(tool, ())) for tool in (OURS, *PEERS))))
        print(*rows[-1], sep="  |  ", flush=True)
    print(tabulate(rows, ("", "", OURS, *PEERS), "plain", disable_numparse=True))
    if any(FAILED in (outcome for outcome, _ in outcomes.values()) for outcomes in judged):
        print("Nothing is written: mend the judges that failed.")
        return 1
    table = [dict(zip(("item", "case", OURS, *PEERS), row, strict=True)) for row in rows]
    if words and not is_again:
        return int(any(outcomes[OURS][0] == "wrong" for outcomes in judged))
    if is_again:
        anew = {row["case"]: row for row in table}
        stored = json.loads((RESULTS / "ordinary.json").read_text())["conditions"]["cases"]
        table = [anew.pop(row["case"], row) for row in stored] + [*anew.values()]
    figures = [_share(tool, [row[tool].split()[0] for row in table if row[tool]]) for tool in (OURS, *PEERS)]
    return record("ordinary", [figure for figure in figures if figure is not None], cases=table)


def _share(tool: str, outcomes: Sequence[str]) -> Figure | None:
    if not outcomes:
        return None
    counts = Counter(outcomes)
    name = f"{tool}: wrong without a word, of {len(outcomes)} cases"
    return Figure(name, counts["wrong"], "cases", limit=1 if tool == OURS else None)


def outcome_of(cells: Sequence[str], judge: str, case: Case, *, extension: bool) -> tuple[str, str]:
    """Run the cells in a kernel of their own; the judge's (outcome, what it shows), or `FAILED` and its error."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in case.files.items():
            file = Path(folder, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        notebook = nbformat.v4.new_notebook()
        client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": folder}})
        with tempfile.TemporaryDirectory() as home, client.setup_kernel(env=environment_of(Path(home), quiet=False)):
            run(client, "import torch")
            if extension:
                run(client, "%load_ext torchbench_magic")
            outputs = [run(client, cell) for cell in cells]
            run(client, f"outputs = {outputs!r}")
            last = run(client, f"{judge}\nprint('\\x1e'.join(['', outcome, str(shows)]))")
    parts = last.split("\x1e")
    if len(parts) != 3 or parts[1] not in ("right", "said", "wrong"):
        print(f"{case.name}: the judge failed:\n{last}\n" + "\n".join(outputs))
        return FAILED, last.strip().splitlines()[-1]
    return parts[1], parts[2].strip()


def run(client: NotebookClient, source: str) -> str:
    """Run a cell, whatever comes of it; what it shows as plain text."""
    cell = nbformat.v4.new_code_cell(source)
    client.nb.cells.append(cell)
    with contextlib.suppress(CellExecutionError):  # the error is among the outputs
        client.execute_cell(cell, len(client.nb.cells) - 1)
    texts = []
    for output in cell.outputs:
        texts.append(output.get("text") or output.get("data", {}).get("text/plain") or "")
        texts.append("\n".join(output.get("traceback", ())))
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(text for text in texts if text))


if __name__ == "__main__":
    sys.exit(main())
