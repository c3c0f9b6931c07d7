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


def _used_up(name: str, setup: str, body: str, words: str) -> Case:
    """The first call takes about 2 ms, later ones less than 1 us; ``words`` are said of that only."""
    return Case(
        f"{name} that the first call uses up",
        "inputs",
        (_WORK + setup, f"%%timer -t 1 --min-run-time 0.05 -o r\n# --- one\nbusy(40)\n# --- two\n{body}"),
        f"""
told = {words!r} in " ".join(outputs[1].split()) and r.frame["verdict"][1] == "undecided"
outcome = "right" if r.frame["median"][1] > 1e-3 else "said" if told else "wrong"
shows = f"{{r.frame['median'][1]:.2g}} s, {{r.frame['verdict'][1]}}"
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
        "did not do the work of the first",
    ),
    _used_up(
        "a takewhile",
        "q = itertools.takewhile(lambda x: True, map(val, range(N)))",
        "list(q)",
        "did not do the work of the first",
    ),
    _used_up(
        "a zip_longest",
        "q = itertools.zip_longest(map(val, range(N)), [1])",
        "list(q)",
        "did not do the work of the first",
    ),
    _used_up(
        "a cursor of sqlite3",
        "con = sqlite3.connect(':memory:'); con.execute('create table t(a)')\n"
        "con.executemany('insert into t values(?)', [(i,) for i in range(N)]); q = con.execute('select * from t')",
        "for row in q: val(row)",
        "did not do the work of the first",
    ),
    _used_up(
        "a bound __next__",
        "q = map(val, range(N)).__next__",
        "list(iter(q, None))",
        "did not do the work of the first",
    ),
    _used_up(
        "an iterator in a dataclass with slots",
        "@dataclasses.dataclass(slots=True)\nclass Held:\n    it: object\n    def go(self): return sum(self.it)\n"
        "q = Held(map(val, range(N)))",
        "q.go()",
        "did not do the work of the first",
    ),
    _used_up(
        "a UserList",
        "q = collections.UserList(range(N))",
        "while q: val(q.pop())",
        "q was emptied by the first call",
    ),
    _used_up(
        "a ChainMap",
        "q = collections.ChainMap(dict.fromkeys(range(N)))",
        "while q: val(q.popitem())",
        "was emptied by the first call",
    ),
    _used_up(
        "a position in a numpy array",
        "import numpy as np\npos = np.zeros(1, int)\ndef go():\n    while pos[0] < N: pos[0] += 1; val(0)",
        "go()",
        "did its work once and kept the result in pos",
    ),
]
