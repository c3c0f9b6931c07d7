"""Beside others: what was planted, what a peer said of it, what this project says, as a table.

The peers are those on the package index that say something about the same: ``tlparse`` about ``torch.compile``,
``traceml-ai`` about training loops and memory, ``pytorch-autotune`` about settings that make training faster. Each has
an environment of its own, which this script is told of:

    python -m venv --system-site-packages peer-tlparse   && peer-tlparse/bin/pip install tlparse
    python -m venv --system-site-packages peer-traceml   && peer-traceml/bin/pip install traceml-ai
    python -m venv --system-site-packages peer-autotune  && peer-autotune/bin/pip install pytorch-autotune
    python tests/benchmarks/cures_peers.py tlparse=peer-tlparse traceml=peer-traceml traceml-leaks=peer-traceml \
        autotune=peer-autotune

(``--system-site-packages`` is for torch, so that all run the same; where torch is itself in an environment, write the
path of its ``site-packages`` into a ``.pth`` file of the new one.) How each is used is said in its module of
``cure_cases``: at its best, as its documentation has it. A peer that cannot be run is a row that says so. A few minutes
for each: one whose environment is not given keeps the rows of its last run, and with ``--missing`` only cells that have
no row yet are run; after a Ctrl-C what there is by then is written. On a machine that is not idle, times of autotune
and of ``--try`` are rough.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Container, Iterator
from dataclasses import asdict
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parent)]

import torch  # noqa: E402
from cure_cases import peer_autotune, peer_tlparse, peer_traceml  # noqa: E402
from cure_cases.peer import Beside, CannotRun  # noqa: E402
from record import RESULTS, Figure, record  # noqa: E402
from tabulate import tabulate  # noqa: E402

PEERS: dict[str, tuple[str, Callable[[Path, Container[str]], Iterator[Beside]]]] = {
    "tlparse": ("tlparse", peer_tlparse.beside),
    "traceml": ("python", peer_traceml.beside_loops),
    "traceml-leaks": ("python", peer_traceml.beside_leaks),
    "autotune": ("python", peer_autotune.beside),
}
"""Word -> (the program of its environment that is run, what makes its rows but those of some cells)."""


def main() -> int:
    given = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
    only_missing = "--missing" in sys.argv[1:]
    others = {word for word in sys.argv[1:] if "=" not in word} - {"--missing"}
    if unknown := (given.keys() - PEERS.keys()) | others:
        print(f"no such peer: {', '.join(unknown)}; give PEER=ENVIRONMENT with one of {', '.join(PEERS)}")
        return 2
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    by_word, absent = _of_last_run()
    for word, (program, beside) in PEERS.items():
        if word not in given:
            if word not in by_word:
                absent.setdefault(word, "no environment was given")
            continue
        rows_of_it = by_word.setdefault(word, [])
        if not only_missing:
            rows_of_it.clear()
        absent.pop(word, None)
        try:
            for row in beside(Path(given[word]).absolute() / "bin" / program, {row.cell for row in rows_of_it}):
                rows_of_it.append(row)
                print(f"{row.peer}: {row.cell}: {row.theirs} ({row.their_line})", flush=True)
        except CannotRun as reason:
            absent[word] = str(reason)
        except KeyboardInterrupt:
            break
    rows = [row for word in PEERS for row in by_word.get(word, ())]
    header = ("peer", "cell", "planted", "they said", "their line", "", "we said", "our line", "")
    shown = [
        (row.peer, row.cell, row.planted, row.theirs, row.their_line, _word(row.is_theirs_right), row.ours,
         row.our_line, _word(row.is_ours_right))
        for row in rows
    ]  # fmt: skip
    shown += [(word, *[""] * 2, f"not run: {reason}", *[""] * 5) for word, reason in absent.items()]
    print(tabulate(shown, header, "plain", maxcolwidths=[12, 20, 20, 48, 10, 5, 48, 10, 5]))
    threads = torch.get_num_threads()
    cells = {word: [asdict(row) for row in by_word[word]] for word in PEERS if word in by_word}
    return record("cures_peers", list(_figures(rows)), cells=cells, not_run=absent, torch=torch.__version__,
                  threads=threads)  # fmt: skip


def _of_last_run() -> tuple[dict[str, list[Beside]], dict[str, str]]:
    """Word -> rows, and word -> why it was not run."""
    kept = RESULTS / "cures_peers.json"
    if not kept.exists():
        return {}, {}
    conditions = json.loads(kept.read_text(encoding="utf-8"))["conditions"]
    return {word: [Beside(**row) for row in rows] for word, rows in conditions["cells"].items()}, conditions["not_run"]


def _figures(rows: list[Beside]) -> Iterator[Figure]:
    """Of each peer, how many causes it names, and how many with the line, beside ours on the same cells."""
    for peer in dict.fromkeys(row.peer for row in rows):
        mine = [row for row in rows if row.peer == peer]
        of = f"of {len(mine)}"
        yield Figure(f"{peer}: right by them", sum(row.is_theirs_right for row in mine), of)
        yield Figure(f"{peer}: right by this project", sum(row.is_ours_right for row in mine), of)
        planted = [row for row in mine if row.planted != "nothing"]
        lines = sum(row.is_theirs_right and row.their_line != "no line" for row in planted)
        yield Figure(f"{peer}: right, with a line, by them", lines, f"of {len(planted)}")
        lines = sum(row.is_ours_right and row.our_line != "no line" for row in planted)
        yield Figure(f"{peer}: right, with a line, by this project", lines, f"of {len(planted)}")


def _word(is_right: bool) -> str:
    return "right" if is_right else "no"


if __name__ == "__main__":
    sys.exit(main())
