"""What changed since the last time: code, inputs, environments; and callables and repeats in a script's words."""

from __future__ import annotations

from .case import Case

_LAST = "%tcompare --last s.sqlite -o since"
_TIMES = (
    "ms = [B.Timer(s, globals={'n': n}, label='L', sub_label='s', description='d').timeit(200)"
    " for s, n in (('sum(range(n))', 10), ('sum(range(n)) ', 5000))]"
)

CASES = [
    Case(
        "the same name, three times slower since the last stored run",
        "changes",
        (
            "def work():\n    for i in range(3000): i * i",
            "%timer -t 1 --label L --save s.sqlite work()",
            "def work():\n    for i in range(9000): i * i",
            "%timer -t 1 --label L --save s.sqlite work()",
            _LAST,
        ),
        """
row = since.frame.iloc[-1]
shows = f"{row.verdict} {row.ratio:.2f}"
known = "cannot separate" in outputs[-1] or "held up" in outputs[-1]
right = row.verdict == "slower" and 2 < row.ratio < 4.5
outcome = "right" if right else "said" if row.verdict == "undecided" and known else "wrong"
""",
    ),
    Case(
        "nothing changed between two stored runs",
        "changes",
        (
            "x = torch.randn(64, 64)",
            "%timer -t 1 --save s.sqlite x.sum()",
            "%timer -t 1 --save s.sqlite x.sum()",
            _LAST,
        ),
        """
row = since.frame.iloc[-1]
same = "source, inputs, options and environment are the same" in " ".join(outputs[-1].split())
outcome = "right" if row.verdict in ("undecided", "same") and same else "wrong"
shows = f"{row.verdict} {row.ratio:.2f}"
""",
    ),
    Case(
        "one source, another size of input since the last stored run",
        "changes",
        (
            "x = torch.ones(4, 8)",
            "%timer -t 1 --save s.sqlite x.sum()",
            "x = torch.ones(4000, 8)",
            "%timer -t 1 --save s.sqlite x.sum()",
            _LAST,
        ),
        """
text = " ".join(outputs[-1].split())
outcome = "right" if "4 × 8 float32, is 4000 × 8 float32" in text and "are the same" not in text else "wrong"
shows = f"ratio {since.frame['ratio'].iloc[-1]:.2f}"
""",
    ),
    Case(
        "--resume after the input became larger",
        "changes",
        (
            "data = [1] * 10",
            "%timer -t 1 --save s.sqlite --resume -o first sum(data)",
            "data = [1] * 10000",
            "%timer -t 1 --save s.sqlite --resume -o second sum(data)",
        ),
        """
ratio = second.frame["median"][0] / first.frame["median"][0]
outcome = "right" if ratio > 20 else "said" if "taken from" in outputs[-1] and "10000" in outputs[-1] else "wrong"
shows = f"{ratio:.3g} times the first time (true: over 100)"
""",
    ),
    Case(
        "an edited function: what was edited?",
        "changes",
        (
            "def f(x):\n    y = x * 2\n    return y.sum()",
            "x = torch.randn(8)\n%timer -t 1 --save s.sqlite f(x)",
            "def f(x):\n    y = x * 2\n    y = y + 1\n    return y.sum()",
            "%timer -t 1 --save s.sqlite f(x)",
            _LAST,
        ),
        """
outcome = "right" if "+    y = y + 1" in outputs[-1] else "wrong"
shows = "a diff" if outcome == "right" else "no diff"
""",
    ),
    Case(
        "an alternative became 4 times slower, the machine too: the other is the yardstick",
        "changes",
        (
            "def manual():\n    for i in range(2000): i * i",
            "def other():\n    for i in range(4000): i * i",
            "%%timer -t 1 --label L --save s.sqlite\n# --- manual\nmanual()\n# --- other\nother()",
            "def manual():\n    for i in range(8000): i * i",
            "%%timer -t 1 --label L --save s.sqlite\n# --- manual\nmanual()\n# --- other\nother()",
            _LAST,
        ),
        """
row = since.frame[since.frame["description"] == "manual"].iloc[-1]
near = 3.5 < row.ratio < 4.5
outcome = "right" if row.verdict == "slower" and near else "said" if row.verdict == "undecided" else "wrong"
shows = f"{row.verdict} {row.ratio:.2f}, true 4"
""",
    ),
    Case(
        "five runs in each of two environments, --by env",
        "changes",
        (
            "def work(n):\n    for i in range(n): i * i",
            *(
                f"%timer -t 1 --env {env} --label L --save s.sqlite work({n})"
                for _ in range(5)
                for env, n in (("old", 1000), ("new", 5000))
            ),
            "%tcompare s.sqlite --by env -o envs",
        ),
        """
frame = envs.frame
outcome = "right" if len(frame) == 2 and list(frame["verdict"]) == ["baseline", "slower"] else "wrong"
if len(frame) == 2 and frame["verdict"].iloc[-1] == "undecided" and "held up" in outputs[-1]:
    outcome = "said"
shows = f"{len(frame)} rows, {frame['verdict'].iloc[-1]} {frame['ratio'].iloc[-1]:.2f}"
""",
    ),
    Case(
        "compare() of callables, and of text without its names",
        "changes",
        (
            "import torchbench_magic as tb\nx = torch.randn(64, 64)",
            "r = tb.compare({'one': lambda: x @ x, 'four': lambda: (x @ x) @ (x @ x) @ x}, threads=1)\nr.frame",
            "tb.compare({'a': 'x @ x', 'b': 'x.matmul(x)'}, threads=1)",
            "tb.compare({'m': torch.nn.Linear(4, 4)}, threads=1)",
        ),
        """
verdict = r.frame["verdict"].iloc[1] if "r" in globals() else "no result"
last = [text.strip().splitlines()[-1] for text in outputs[2:]]
lines = "globals=globals()" in last[0] and "needs an argument (input)" in last[1]
outcome = "right" if verdict == "slower" and lines else "wrong"
shows = f"{verdict}; {last[0][-60:]}"
""",
    ),
    Case(
        "torch's Compare over a function that was edited between two runs",
        "changes",
        (
            "from torchbench_magic import benchmark as B",
            _TIMES,
            "print(B.Compare(ms))",
        ),
        """
rows = [line for line in outputs[-1].splitlines() if "|" in line]
marked = "unlike" in outputs[-1] and "*" in outputs[-1]
outcome = "right" if len(rows) == 2 and marked else "said" if marked else "wrong"
shows = f"{len(rows) - 1} row, {'marked' if marked else 'not marked'}"
""",
        peers={
            "torch": (
                (
                    "from torch.utils import benchmark as B",
                    _TIMES,
                    "print(B.Compare(ms))",
                ),
                """
rows = [line for line in outputs[-1].splitlines() if "|" in line]
outcome = "said" if "unlike" in outputs[-1] or len(rows) > 2 else "wrong"
shows = f"{len(rows) - 1} row"
""",
            )
        },
    ),
]
