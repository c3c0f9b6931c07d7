"""Objects that give their items once and show nothing of it: iterators of users' classes, queues, files in memory."""

from __future__ import annotations

from .case import Case

_ITERATOR = """class Items:
    def __init__(self, n): self.n, self.at = n, 0
    def __iter__(self): return self
    def __next__(self):
        self.at += 1
        if self.at > self.n: raise StopIteration
        return self.at
items = Items(1000)"""
_SIMPLE = "import queue\nq = queue.SimpleQueue()\nfor i in range(1000): q.put(i)"
_MEMORY = "import io\nf = io.BytesIO(b'1,2,3\\n' * 100_000)"


def _undecided(name: str, setup: str, statement: str) -> Case:
    """A verdict would compare nothing with a sum."""
    return Case(
        name,
        "inputs",
        (setup, f"%%timer -o r\n# --- reads\n{statement}\n# --- sum\nsum(range(1000))"),
        """
row = r.frame.iloc[-1]
decided = row.verdict in ("faster", "slower", "same")
outcome = "said" if not decided and any(d.kind in ("used-up", "other-work") for d in r.warnings) else "wrong"
shows = f"{row.verdict} {row.ratio:.3g}"
""",
        peers={
            "timeit": (
                (setup, f"t = %timeit -o -q -r 3 -n 100 {statement}"),
                "outcome = 'right' if t.average > 50e-6 else 'wrong'; shows = f'{t.average * 1e6:.3g} us'",
            )
        },
    )


CASES = [
    _undecided(
        "an iterator of an own class, read to its end by the first call",
        _ITERATOR,
        "sum(items)",
    ),
    _undecided(
        "a SimpleQueue that the first call empties",
        _SIMPLE,
        "while not q.empty(): q.get()",
    ),
    _undecided(
        "a BytesIO that the first call reads to its end", _MEMORY, "f.read()"
    ),
]
