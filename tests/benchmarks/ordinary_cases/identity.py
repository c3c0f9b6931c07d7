"""A value that neither the source nor a shape tells, between two runs of one text."""

from __future__ import annotations

from .case import Case

_TWICE = """
ratio = second.frame["median"][0] / first.frame["median"][0]
text = " ".join(outputs[-1].split())
told = "taken from" in text and "Not compared" in text
outcome = "right" if ratio > 20 else "said" if told else "wrong"
shows = f"{ratio:.3g} times the first time (true: over 100)"
"""
_SAVED = "%timer -t 1 --min-run-time 0.05 --save s.sqlite --resume -o {name} {body}"


def _resumed(name: str, before: str, change: str, body: str, files: dict[str, str] | None = None) -> Case:
    cells = (before, _SAVED.format(name="first", body=body), change, _SAVED.format(name="second", body=body))
    return Case(f"--resume after {name}", "identity", cells, _TWICE, files or {})


CASES = [
    _resumed(
        "an entry of a dict was changed",
        "cfg = {'size': 10}",
        "cfg = {'size': 10_000}",
        "sum(range(cfg['size']))",
    ),
    _resumed(
        "an attribute of a class was changed",
        "class Cfg:\n    n = 10\ndef work(): return sum(range(Cfg.n))",
        "Cfg.n = 10_000",
        "work()",
    ),
    _resumed(
        "an attribute of an object was changed",
        "class Job:\n    n = 5\n    def run(self): return sum(range(self.n))\njob = Job(); job.n = 10",
        "job.n = 10_000",
        "job.run()",
    ),
    _resumed(
        "a global of a module was changed",
        "import mymod",
        "mymod.N = 10_000",
        "mymod.work()",
        {"mymod.py": "N = 10\ndef work(): return sum(range(N))\n"},
    ),
    _resumed(
        "a module was edited and reloaded",
        "import importlib, pathlib, mymod",
        (
            "f = pathlib.Path('mymod.py'); f.write_text(f.read_text().replace('(10)', '(10_000)'))\n"
            "importlib.invalidate_caches(); importlib.reload(mymod)"
        ),
        "mymod.work()",
        {"mymod.py": "def work(): return sum(range(10))\n"},
    ),
    _resumed(
        "a default argument was evaluated anew",
        "N = 10\ndef work(n=N): return sum(range(n))",
        "N = 10_000\ndef work(n=N): return sum(range(n))",
        "work()",
    ),
    _resumed(
        "a layer got another stride",
        "x = torch.zeros(1, 8, 256, 256); m = torch.nn.Conv2d(8, 8, 3, stride=64)",
        "m = torch.nn.Conv2d(8, 8, 3, stride=1)",
        "m(x)",
    ),
    Case(
        "--last after an entry of a dict was changed",
        "identity",
        (
            "cfg = {'size': 10, 'name': 'a'}",
            "%timer -t 1 --save s.sqlite sum(range(cfg['size']))",
            "cfg['size'] = 1000",
            "%timer -t 1 --save s.sqlite sum(range(cfg['size']))",
            "%tcompare --last s.sqlite",
        ),
        """
text = " ".join(outputs[-1].split()).replace("`", "")
outcome = "right" if "cfg['size'] was 10, is 1000" in text and "are the same" not in text else "wrong"
shows = text[-60:]
""",
    ),
    Case(
        "--resume when nothing changed",
        "identity",
        (
            "cfg = {'size': 10}; m = torch.nn.Linear(8, 8); x = torch.zeros(8, 8)",
            "%timer -t 1 --save s.sqlite --resume m(x), cfg['size']",
            "%timer -t 1 --save s.sqlite --resume m(x), cfg['size']",
        ),
        """
outcome = "right" if "1 point taken from" in " ".join(outputs[-1].split()) else "wrong"
shows = "taken over" if outcome == "right" else "measured again"
""",
    ),
    Case(
        "a magic in an inner function reads a name of the outer one",
        "identity",
        (
            (
                "a = torch.ones(3)\ndef outer():\n    a = torch.ones(4_000_000)\n    def inner():\n"
                "        r = %timer -t 1 -n 20 -r 5 a.sum()\n        return r\n    return inner()\nr = outer()"
            ),
        ),
        """
text = " ".join(outputs[-1].split()).replace("`", "")
told = "a is the notebook's a, not that of outer" in text
outcome = "right" if r.frame["median"][0] > 0.2e-3 else "said" if told else "wrong"
shows = f"{r.frame['median'][0]:.2g} s"
""",
        peers={
            "timeit": (
                (
                    (
                        "a = torch.ones(3)\ndef outer():\n    a = torch.ones(4_000_000)\n    def inner():\n"
                        "        r = %timeit -n 20 -r 5 -o a.sum()\n        return r\n    return inner()\nr = outer()"
                    ),
                ),
                """
outcome = "right" if r.best > 0.2e-3 else "wrong"
shows = f"{r.best:.2g} s"
""",
            )
        },
    ),
    Case(
        "--last of a run of another thread count",
        "identity",
        (
            "x = torch.ones(100)",
            "%timer -t 2 --save s.sqlite x.sum()",
            "%timer -t 1 x.sum()",
            "%tcompare --last s.sqlite",
        ),
        """
text = " ".join(outputs[-1].split())
outcome = "said" if "no stored run matches this result" in text else "wrong"
shows = text[-50:]
""",
    ),
]
