"""The entrances for scripts, headers of sections, and what is said when nothing was measured."""

from __future__ import annotations

from .case import Case

_SLOW = "import time\ndef rows():\n    for i in range(3):\n        time.sleep(0.01)\n        yield i"
_STOP = "import time\ndef stops():\n    time.sleep(0.2)\n    raise KeyboardInterrupt"
_REFUSED = """
said = "runs none of its code" in outputs[1]
outcome = "said" if said else "wrong"
shows = "refused" if said else "a result"
"""

CASES = [
    Case(
        "profile() of a generator function",
        "entrances",
        (_SLOW, "from torchbench_magic import profile\nprofile(rows)"),
        _REFUSED,
    ),
    Case(
        "compare() of generator functions",
        "entrances",
        (_SLOW, "from torchbench_magic import compare\ncompare({'a': rows, 'b': rows}, min_run_time=0.05)"),
        _REFUSED,
    ),
    Case(
        "a statement that only makes a generator",
        "entrances",
        (_SLOW, "%timer --min-run-time 0.1 -o r rows()"),
        """
said = "returns a generator that has not begun" in " ".join(outputs[1].split())
seconds = float(r.frame["median"][0])
outcome = "right" if seconds > 0.02 else "said" if said else "wrong"
shows = f"{seconds:.2g} s of 0.03 s"
""",
        peers={
            "timeit": (
                (_SLOW, "r = %timeit -o -q rows()"),
                'outcome = "right" if r.best > 0.02 else "wrong"\nshows = f"{r.best:.2g} s of 0.03 s"',
            )
        },
    ),
    *(
        Case(
            f"a second of three headers written {header!r}",
            "headers",
            (
                "x = torch.ones(8)",
                f"%%timer -t 1 --min-run-time 0.05\n# --- one\nx + 1\n{header}\nx * 2\n# --- three\nx - 1",
            ),
            """
said = "looks like a header" in outputs[1]
outcome = "said" if said else "wrong"
shows = "one line" if said else "one ran both"
""",
        )
        for header in ("# --- two ---", "# — two", "# === two", " # --- two")
    ),
    Case(
        "an interrupt before the first sample",
        "interrupts",
        (_STOP, "%%timer\n# --- a\n1 + 1\n# --- b\nstops()"),
        """
said = "Nothing was measured yet: interrupted after" in outputs[1] and "first call of b" in outputs[1]
outcome = "said" if said else "wrong"
shows = "the stage and the seconds" if said else "a bare interrupt"
""",
    ),
]
