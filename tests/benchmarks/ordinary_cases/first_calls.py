"""What only the first calls do: results kept in variables, queues that run dry; and what tells two runs apart."""

from __future__ import annotations

from .case import Case

_WORK = "x = torch.randn(300, 300)\ndef work(): return torch.linalg.eigvalsh(x @ x.T)\n"


def _kept(name: str, cell: str, call: str = "get()") -> Case:
    """The median of a lone statement is the time of a look-up."""
    return Case(
        f"a lone statement that keeps its result in {name}",
        "inputs",
        (_WORK + cell, f"%timer -t 1 --min-run-time 0.05 -o r {call}"),
        """
told = any(d.kind in ("used-up", "other-work") for d in r.warnings)
outcome = "right" if r.frame["median"][0] > 1e-3 else "said" if told else "wrong"
shows = f"{r.frame['median'][0]:.2g} s"
""",
        peers={
            "timeit": (
                (_WORK + cell, f"t = %timeit -o -q -r 3 -n 100 {call}"),
                "outcome = 'right' if t.average > 1e-3 else 'wrong'; shows = f'{t.average:.2g} s'",
            )
        },
    )


_ALONE = """
words = "a later call waits at line"
outcome = "said" if words in outputs[-1] and "fill it in the code" in outputs[-1] else "wrong"
shows = outputs[-1].strip()[:60]
"""
_RESUMED = "%timer -t 1 --min-run-time 0.05 --save s.sqlite --resume -o {name} work()"

CASES = [
    _kept(
        "a global",
        "cache = None\ndef get():\n    global cache\n    if cache is None: cache = work()\n    return cache",
    ),
    _kept(
        "an attribute",
        "class Lazy:\n    _v = None\n    @property\n    def v(self):\n        if self._v is None: self._v = work()\n"
        "        return self._v\nlazy = Lazy()",
        "lazy.v",
    ),
    _kept(
        "an attribute of its class",
        "class Config:\n    _one = None\n    @classmethod\n    def get(cls):\n"
        "        if cls._one is None: cls._one = work()\n        return cls._one",
        "Config.get()",
    ),
    _kept(
        "a variable of the enclosing function",
        "def make():\n    kept = None\n    def get():\n        nonlocal kept\n"
        "        if kept is None: kept = work()\n        return kept\n    return get\nget = make()",
    ),
    Case(
        "--resume after an environment variable was changed",
        "identity",
        (
            "import os\nos.environ['SIZE'] = '10'\ndef work(): return sum(range(int(os.environ['SIZE'])))",
            _RESUMED.format(name="first"),
            "os.environ['SIZE'] = '10000'",
            _RESUMED.format(name="second"),
        ),
        """
ratio = second.frame["median"][0] / first.frame["median"][0]
text = " ".join(outputs[-1].split())
told = "since the stored run differs: os.environ holds other values" in text
outcome = "right" if ratio > 20 and told else "wrong"
shows = f"{ratio:.3g} times the first time (true: over 100)"
""",
    ),
    *(
        Case(
            f"--check of sections that end with a {block} block and differ",
            "verdict",
            (
                "x = torch.ones(1000)",
                f"%%timer -t 1 --min-run-time 0.05 --check -o r\n# --- a\n{code.format(1)}\n# --- b\n{code.format(2)}",
            ),
            f"""
outcome = "said" if {words!r} in " ".join(outputs[1].split()) else "wrong"
shows = outputs[1].strip()[:60]
""",
        )
        for block, code, words in (
            ("with", "with torch.no_grad():\n    x * {0}", "`b` and `a` return different values"),
            ("for", "for i in range(2):\n    y = x * {0}", "`a` ends with a `for` block, which has no value"),
        )
    ),
    Case(
        "--check of sections that return None and differ",
        "verdict",
        (
            "x, kept = torch.ones(1000), []",
            (
                "%%timer -t 1 --min-run-time 0.05 --check -o r\n# --- a\ny = x * 1\nkept.append(y)\n"
                "# --- b\ny = x * 2\nkept.append(y)"
            ),
        ),
        """
outcome = "said" if "`a` and `b` return None, so nothing is compared" in " ".join(outputs[1].split()) else "wrong"
shows = outputs[1].strip()[:60]
""",
    ),
    Case(
        "--last of a profile after its input was changed",
        "identity",
        (
            "x, cfg = torch.ones(4, 8), {'n': 1}",
            "%%tprofile --save s.sqlite\ny = x.sum() * cfg['n']",
            "x, cfg = torch.ones(4000, 8), {'n': 2}",
            "%%tprofile --save s.sqlite\ny = x.sum() * cfg['n']",
            "%tcompare --last s.sqlite",
        ),
        """
text = " ".join(outputs[-1].split())
told = "x was 4 × 8 float32, is 4000 × 8 float32" in text and "cfg['n'] was 1, is 2" in text
outcome = "said" if told else "wrong"
shows = "x told" if told else text[:60]
""",
    ),
    *(
        Case(
            f"a bare get of a {kind} that earlier calls emptied",
            "inputs",
            (f"import queue\nq = queue.{kind}()\nfor i in range(100): q.put(i)", "%timer -t 1 q.get()"),
            _ALONE,
        )
        for kind in ("Queue", "SimpleQueue")
    ),
    Case(
        "a bare await of a get of an asyncio.Queue that earlier calls emptied",
        "inputs",
        (
            "import asyncio\nq = asyncio.Queue()\nfor i in range(100): q.put_nowait(i)",
            "%%timer -t 1\nawait q.get()",
        ),
        _ALONE,
    ),
]
