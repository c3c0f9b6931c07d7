"""Ctrl-C in a timing: while instructions are counted, and where nothing is shown."""

from __future__ import annotations

from .case import Case

_PRESSED = """
import signal
from torchbench_magic.counting import client
was = client._read
def read(*of):
    signal.raise_signal(signal.SIGINT)
    return was(*of)
client._read = read
"""

_QUIET = """%%timer -q --save runs.sqlite --min-run-time 30
# --- setup
end = time.monotonic() + 1.0
# --- a
if time.monotonic() > end: signal.raise_signal(2)
"""

CASES = [
    Case(
        "a cell that counts is interrupted after it was timed",
        "interrupts",
        (
            "x = torch.ones(64)",
            "%timer -q --callgrind 5 -n 1 -r 1 x.sum()",  # valgrind is there
            _PRESSED,
            "%%timer --callgrind 200000 --min-run-time 0.2\n# --- sin\nx.sin()\n# --- cos\nx.cos()",
        ),
        """
whole = not _timer.partial and (_timer.frame["samples"] > 5).all()
told = "times are complete" in " ".join(outputs[3].split()) and "Partial" not in outputs[3]
outcome = "said" if whole and told else "wrong"
shows = f"whole: {whole}, told: {told}"
""",
    ),
    Case(
        "a timing that shows nothing and is stored is interrupted",
        "interrupts",
        (
            "import signal, time",
            _QUIET,
        ),
        """
import os
from torchbench_magic import load
told = "finished points only, not the interrupted one" in " ".join(outputs[1].split())
try:
    stored = len(load("runs.sqlite"))
except Exception:
    stored = 0
outcome = "right" if stored else "said" if told else "wrong"
shows = f"{stored} stored, told: {told}"
""",
    ),
]
