"""Work of other threads: torch's own, which scripted functions fork to, and those of Python."""

from __future__ import annotations

from .case import Case

_FORKS = """
import torch


@torch.jit.script
def work(x):
    for _ in range(3):
        x = (x @ x).tanh()
    return x


@torch.jit.script
def both(x):
    forked = torch.jit.fork(work, x)
    y = x.sin()
    return torch.jit.wait(forked) + y


@torch.jit.script
def start(x):
    return torch.jit.fork(work, x)
"""
_SETUP = "import forks; x = torch.rand(300, 300) / 300; _ = [(forks.both(x), forks.start(x).wait()) for _ in range(3)]"
_THREAD = """%%tprofile -o p
def work():
    for _ in range(20):
        y = x @ x
t = threading.Thread(target=work)
t.start()
"""
_LINES_OF = """
def lines_of(op):
    rows = p.ops[p.ops["op"] == op]
    found = {}
    for n, c in zip(rows["line"], rows["calls"]):
        found[None if str(n) == "<NA>" else int(n)] = found.get(None if str(n) == "<NA>" else int(n), 0) + int(c)
    return found
"""

CASES = [
    Case(
        "two lines call a scripted function that forks",
        "threads",
        (_SETUP, "%%tprofile -o p\na = forks.both(x)\nb = x.cos()\nfor _ in range(2):\n    c = forks.both(x)"),
        f"""{_LINES_OF}
mm, told = lines_of("aten::mm"), "on no line" in " ".join(outputs[1].split())
outcome = "right" if mm == {{2: 3, 5: 6}} and not told else "said" if told and None in mm else "wrong"
shows = f"forked mm on {{mm}}"
""",
        files={"forks.py": _FORKS},
    ),
    Case(
        "a fork is left running while another line forks",
        "threads",
        (_SETUP, "%%tprofile -o p\na = forks.start(x)\nb = forks.both(x)\nc = a.wait()"),
        f"""{_LINES_OF}
mm, told = lines_of("aten::mm"), "on no line" in " ".join(outputs[1].split())
outcome = "right" if mm == {{2: 3, 3: 3}} else "said" if told and None in mm and mm.get(3, 0) <= 3 else "wrong"
shows = f"forked mm on {{mm}}"
""",
        files={"forks.py": _FORKS},
    ),
    Case(
        "--memory of a scripted function that forks",
        "threads",
        (_SETUP, "%%tprofile --memory -o p\na = forks.both(x)\nb = x.cos()"),
        """
sentence = " ".join(outputs[1].partition("\\n\\n")[0].split())
on_two = int(p.lines[p.lines["line"] == 2]["allocated"].sum())
right = on_two >= 7 * 360_000 and ":2 allocates most" in sentence
outcome = "right" if right else "said" if "on no line" in sentence else "wrong"
shows = sentence[-60:]
""",
        files={"forks.py": _FORKS},
    ),
    Case(
        "a thread of Python's works and the cell joins it",
        "threads",
        (
            "import threading; x = torch.rand(700, 700)",
            _THREAD + "t.join()",
        ),
        """
sentence = " ".join(outputs[1].partition("\\n\\n")[0].split())
beside = " of it waiting, beside thread" in sentence and "torch work is at In[4]:4" in sentence
right = beside and "--lines-of" not in sentence
outcome, shows = ("right" if right else "wrong"), sentence
""",
    ),
    Case(
        "an operation of two threads stands on two lines",
        "threads",
        (
            "import threading; x = torch.rand(700, 700)",
            _THREAD + "for _ in range(20):\n    z = x @ x\nt.join()",
        ),
        """
row = next(line for line in outputs[1].splitlines() if line.startswith("aten::mm"))
footer = " ".join(outputs[1].split())
right = "%) and 1 more" in row and "ran on 2 threads in parallel" in footer
outcome, shows = ("right" if right else "wrong"), " ".join(row.split())
""",
    ),
]
