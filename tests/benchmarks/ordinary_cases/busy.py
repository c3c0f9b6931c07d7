"""Measuring beside other busy processes: what is right is told, and what is not is withheld with its reason."""

from __future__ import annotations

from .case import Case

START = (
    "import subprocess, sys, time\n"
    "busy = [subprocess.Popen([sys.executable, '-c', 'while True: pass']) for _ in range({count})]\n"
    "time.sleep(0.3)"
)
STOP = "for process in busy: process.kill(); process.wait()"

DOT = """
x = torch.randn(10000, 64)
def mul_sum(a, b): return a.mul(b).sum(-1)
def bmm(a, b): return torch.bmm(a.unsqueeze(1), b.unsqueeze(2)).flatten()
torch.set_num_threads(2)
"""
NOT_SLOWER = """
row = r.frame.iloc[1]
withheld = row.verdict == "undecided" and "is undecided" in outputs[2] and "No verdict on mul_sum" in outputs[2]
contradicts = row.verdict != "undecided" and "No verdict on mul_sum" in outputs[2]
right = row.verdict in ("faster", "undecided", "same") and not contradicts
outcome = "said" if withheld else "right" if right else "wrong"
shows = f"{row.verdict} {row.ratio:.2f} ({row.ratio_low:.2f} … {row.ratio_high:.2f})"
"""
"""On an idle machine mul_sum takes 0.72 to 0.96 of the time of bmm at two threads."""

PEER = """
outcome = "right" if two / one < 1.05 else "wrong"
shows = f"{two / one:.2f}"
"""
TIMEIT = (
    DOT,
    START.format(count=3),
    "one = %timeit -o -q bmm(x, x)\none = one.average",
    "two = %timeit -o -q mul_sum(x, x)\ntwo = two.average",
    STOP,
)
TORCH = (
    DOT + "from torch.utils.benchmark import Timer",
    START.format(count=3),
    "one = Timer('bmm(x, x)', globals=globals(), num_threads=2).blocked_autorange().median",
    "two = Timer('mul_sum(x, x)', globals=globals(), num_threads=2).blocked_autorange().median",
    STOP,
)

CASES = [
    Case(
        "two threads beside three busy processes",
        "verdict",
        (DOT, START.format(count=3), "%%timer -t 2 -o r\n# --- bmm\nbmm(x, x)\n# --- mul_sum\nmul_sum(x, x)", STOP),
        NOT_SLOWER,
        peers={"timeit": (TIMEIT, PEER), "torch": (TORCH, PEER)},
    ),
    Case(
        "two threads beside one busy process",
        "verdict",
        (DOT, START.format(count=1), "%%timer -t 2 -o r\n# --- bmm\nbmm(x, x)\n# --- mul_sum\nmul_sum(x, x)", STOP),
        NOT_SLOWER,
    ),
    Case(
        "one thread beside three busy processes, 10 % apart",
        "verdict",
        (
            START.format(count=3),
            "%%timer -t 1 -o r\n# --- a\nfor i in range(1000): pass\n# --- b\nfor i in range(1100): pass",
            STOP,
        ),
        """
row = r.frame.iloc[1]
right = row.verdict == "slower" and 1.08 < row.ratio < 1.13 and "No verdict" not in outputs[1]
outcome = "right" if right else "said" if "No verdict on b" in outputs[1] else "wrong"
shows = f"{row.verdict} {row.ratio:.3f}"
""",
    ),
    Case(
        "a sleep beside a busy process",
        "verdict",
        (START.format(count=1), "%%timer -t 1 -n 1 -r 20 -o r\ntime.sleep(0.005)", STOP),
        """
outcome = "wrong" if "times CPU time" in outputs[1] else "right"
shows = outputs[1].splitlines()[0]
""",
    ),
]
