"""Is it told when later calls do other work than the first, and is nobody accused whose calls do the same?

The cells of ``planted_work.txt``, each in a fork of a process that has timed nothing yet, beside another alternative,
or with those that it names.
Told is a cell whose times get no verdict, or a doubt. ``python tests/benchmarks/work.py NAME ...`` runs some of them.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import time
import traceback
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from planted_work import cells
from record import Figure, record

OPTIONS = "-t 1 -q --min-run-time 0.05 --max-run-time 1 -o result_"
OF_WORK = ("grows", "changes-state", "changes-threads", "taken-items", "memory", "other-work")
LONGEST = 60  # seconds of a cell


def told(shell: Any, setup: str, body: str) -> dict[str, Any]:
    """What is said of a cell: "void", "doubt", "nothing", or "error"."""
    shell.run_cell(
        "import torch, numpy as np\ntorch.set_num_threads(1)\nOTHER = torch.rand(40, 40)\n" + setup
    ).raise_error()
    began = time.perf_counter()
    alternatives = body if body.startswith("# --- ") else f"# --- other\nOTHER @ OTHER\n# --- it\n{body}"
    ran = shell.run_cell(f"%%timer {OPTIONS}\n{alternatives}")
    took = round(time.perf_counter() - began, 2)
    if error := ran.error_in_exec or ran.error_before_exec:
        text = " ".join([str(error), *getattr(error, "__notes__", [])])
        later = any(words in text for words in ("first call worked", "has no items left", "used up by"))
        level = "void" if later else "error"
        return {"level": level, "told": [f"{type(error).__name__}: {' '.join(text.split())[-160:]}"], "s": took}
    found = shell.user_ns["result_"]
    used_up = [d.text for d in found.warnings if d.kind == "used-up"]
    doubts = [d.text for d in found.warnings if d.kind in OF_WORK]
    return {"level": "void" if used_up else "doubt" if doubts else "nothing", "told": used_up + doubts, "s": took}


def in_fork(shell: Any, setup: str, body: str) -> dict[str, Any]:
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        row: dict[str, Any] = {"level": "error", "told": [f"took over {LONGEST} s"]}
        try:
            signal.alarm(LONGEST)
            with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
                row = told(shell, setup, body)
        except BaseException:
            row["told"] = [traceback.format_exc()[-300:]]
        os.write(write, json.dumps(row).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return dict(json.loads(text)) if text else {"level": "error", "told": ["the process ended"]}


def main() -> int:
    from IPython.core.interactiveshell import InteractiveShell

    sys.path.pop(0)  # where `profile` is another than the standard library's
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "torchbench_magic")
    import torch  # noqa: F401  # each fork has it

    only, rows = sys.argv[1:], []
    for truth, kind, name, setup, body in cells():
        if only and name not in only:
            continue
        row = in_fork(shell, setup, body)
        good = row["level"] != "error" and (row["level"] != "nothing") == truth
        rows.append({"name": name, "kind": kind, "truth": "other" if truth else "same", **row})
        print("     " if good else "WRONG", row["level"], "|", name, "|", " // ".join(row["told"])[:240], flush=True)
    other, same = ([r for r in rows if r["truth"] == truth] for truth in ("other", "same"))
    figures = [
        Figure("cells that do other work later", len(other), ""),
        Figure("told, of these", sum(r["level"] in ("void", "doubt") for r in other), "", at_least=0.93 * len(other)),
        Figure("of these without a verdict", sum(r["level"] == "void" for r in other), ""),
        Figure("cells that do the same", len(same), ""),
        Figure("accused, of these", sum(r["level"] in ("void", "doubt") for r in same), "", at_most=0),
        Figure("errors", sum(r["level"] == "error" for r in rows), "", at_most=0),
        Figure("a cell, median", statistics.median(r.get("s", 0.0) for r in rows), "s"),
    ]
    return 0 if only else record("work", figures, cells=rows)


if __name__ == "__main__":
    sys.exit(main())
