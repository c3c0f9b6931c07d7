"""The replay of line marks: its short cut for lines that simply run once more changes nothing."""

from __future__ import annotations

import random
from array import array
from collections import defaultdict
from types import CodeType
from typing import Any

import pytest

from torchbench_magic.profiling import segments
from torchbench_magic.profiling.file_texts import read_statements
from torchbench_magic.profiling.line_events import LEAVE, RESUMED, SOMEWHERE, SUSPEND, Stream, entered
from torchbench_magic.profiling.segments import Codes, LineTree, replay

TEXT = """
@decorated
def f(x):
    y = (x +
         x)
    with open(
        "a") as g:
        with b as (
            c):
            d
        e
    with a:
        with b as (
            c):
            d
            e
    return [i
            for i in x]
def g():
    for i in range(3):
        f(
         1,
         g)
class C:
    async def h(self):
        await x
    z = 1
f(1); g()
for i in (lambda: 3)(): pass
"""
LINES = TEXT.count("\n")


class Forgetful(dict[tuple[int, int], int]):
    """Steps that are never known: every event is worked out."""

    def get(self, *key: object) -> None:  # type: ignore[override]
        return None


def codes_of(code: CodeType) -> list[CodeType]:
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return [code, *(found for each in inner for found in codes_of(each))]


def some_marks(rnd: random.Random, codes: int) -> list[int]:
    """Lines in loops, calls, returns (some that nobody saw entered), generators, and lines that stopped."""
    loop = [rnd.randrange(1, LINES + 1) for _ in range(rnd.randrange(1, 8))]
    weights = (6, 6, 4, 3, 1, 1, rnd.random() < 0.2)
    kinds = rnd.choices(("loop", "line", "enter", "leave", "suspend", "resume", "somewhere"), weights, k=150)
    made: dict[str, Any] = {
        "loop": lambda: loop,
        "line": lambda: [rnd.choice(loop)],
        "enter": lambda: [entered(rnd.randrange(codes))],
        "leave": lambda: [LEAVE],
        "suspend": lambda: [SUSPEND],
        "resume": lambda: [RESUMED + rnd.choice(loop)],
        "somewhere": lambda: [SOMEWHERE],
    }
    return [mark for kind in kinds for mark in made[kind]()]


def outcome(marks: list[int], codes: list[CodeType], suspends: frozenset[int], ends_blind: bool) -> tuple[Any, ...]:
    record = array("q", [number for at, mark in enumerate(marks) for number in (1000 + at, mark)])
    tree = LineTree()
    statements = {"<cell>": read_statements(TEXT)}
    found = replay(Stream(1, "a thread", record), 1, Codes(codes, statements, suspends), tree, ends_blind=ends_blind)
    assert found.ran is not None
    columns = (found.start, found.node, found.depth, found.ran)
    return tree.parent, tree.code, tree.line, tree.calls, *(column.tolist() for column in columns)


def test_known_steps_give_what_working_each_event_out_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = codes_of(compile(TEXT, "<cell>", "exec"))
    rnd = random.Random(0)
    back_into_a_long_with = [entered(1), 12, 16, 13, 14, 12, 16, 13, 14]
    for marks in (back_into_a_long_with, *(some_marks(rnd, len(codes)) for _ in range(400))):
        suspends = frozenset(rnd.sample(range(len(codes)), rnd.randrange(2)))
        given = marks, codes, suspends, rnd.random() < 0.3
        quick = outcome(*given)
        with monkeypatch.context() as patch:
            patch.setattr(segments, "defaultdict", lambda kind: defaultdict(Forgetful))
            assert outcome(*given) == quick


def test_depth_never_falls_below_the_first_frame_that_was_seen() -> None:
    codes = codes_of(compile(TEXT, "<cell>", "exec"))
    marks = [LEAVE, LEAVE, entered(1), 4, entered(2), LEAVE, SUSPEND, LEAVE, entered(1)]
    assert outcome(marks, codes, frozenset(), False)[6] == [0, 0, 1, 1, 2, 1, 0, 0, 1]
