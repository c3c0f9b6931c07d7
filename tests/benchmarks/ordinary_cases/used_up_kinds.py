"""Inputs of less common kinds that the first call uses up, beside code that works for 40 us each time."""

from __future__ import annotations

from .case import Case

_WORK = """import time, itertools, collections, sqlite3, dataclasses
def busy(us):
    end = time.perf_counter() + us / 1e6
    while time.perf_counter() < end: pass
def val(item): busy(20); return item
N = 100
"""


def _used_up(name: str, setup: str, body: str) -> Case:
    """The first call takes about 2 ms, later ones less than 1 us."""
    return Case(
        f"{name} that the first call uses up",
        "inputs",
        (_WORK + setup, f"%%timer -t 1 --min-run-time 0.05 -o r\n# --- one\nbusy(40)\n# --- two\n{body}"),
        """
told = any(d.kind in ("used-up", "other-work") for d in r.warnings)
told = told and r.frame["verdict"][1] not in ("faster", "slower", "same")
outcome = "right" if r.frame["median"][1] > 1e-3 else "said" if told else "wrong"
shows = f"{r.frame['median'][1]:.2g} s, {r.frame['verdict'][1]}"
""",
        peers={
            "timeit": (
                (_WORK + setup, f"%%timeit -r 3 -n 100 -o\n{body}", "t = _"),
                "outcome = 'right' if t.average > 1e-3 else 'wrong'; shows = f'{t.average:.2g} s'",
            )
        },
    )


CASES = [
    _used_up(
        "a branch of tee",
        "q = itertools.tee(map(val, range(N)))[0]",
        "list(q)",
    ),
    _used_up(
        "a takewhile",
        "q = itertools.takewhile(lambda x: True, map(val, range(N)))",
        "list(q)",
    ),
    _used_up(
        "a zip_longest",
        "q = itertools.zip_longest(map(val, range(N)), [1])",
        "list(q)",
    ),
    _used_up(
        "a cursor of sqlite3",
        "con = sqlite3.connect(':memory:'); con.execute('create table t(a)')\n"
        "con.executemany('insert into t values(?)', [(i,) for i in range(N)]); q = con.execute('select * from t')",
        "for row in q: val(row)",
    ),
    _used_up(
        "a bound __next__",
        "q = map(val, range(N)).__next__",
        "list(iter(q, None))",
    ),
    _used_up(
        "an iterator in a dataclass with slots",
        "@dataclasses.dataclass(slots=True)\nclass Held:\n    it: object\n    def go(self): return sum(self.it)\n"
        "q = Held(map(val, range(N)))",
        "q.go()",
    ),
    _used_up(
        "a UserList",
        "q = collections.UserList(range(N))",
        "while q: val(q.pop())",
    ),
    _used_up(
        "a ChainMap",
        "q = collections.ChainMap(dict.fromkeys(range(N)))",
        "while q: val(q.popitem())",
    ),
    _used_up(
        "a position in a numpy array",
        "import numpy as np\npos = np.zeros(1, int)\ndef go():\n    while pos[0] < N: pos[0] += 1; val(0)",
        "go()",
    ),
]
