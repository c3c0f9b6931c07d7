"""Two cells whose calls of ``op(tag)`` note the moment, the thread and the tag; ``# @tag`` names the line.

Needs no torch: the line sources are tested with it on every Python at hand.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
import threading
import time
from dataclasses import dataclass, field
from typing import Any

__all__ = ["CELLS", "TRUTH", "Noted", "namespace"]

CELLS = {
    "<cell-1>": """
def inner(a):
    op(11); op(11)       # @11
    return W() @ 12      # @12
def deco(f):
    @functools.wraps(f)
    def wrapper(x):
        op(13)           # @13
        return f(x)
    return wrapper
def gen(n):
    for i in range(n):
        yield op(14)     # @14
        op(15)           # @15
@contextlib.contextmanager
def ctx():
    op(16)               # @16
    yield 3
    op(17)               # @17
def rec(n):
    if n == 0: return op(18)     # @18
    v = rec(n-1)
    op(19)               # @19
    return v
def boom():
    op(20)               # @20
    raise ValueError
async def aw(n):
    op(21)               # @21
    await asyncio.sleep(0.002)
    op(22)               # @22
    return n
async def agen():
    for i in range(2):
        yield op(23)     # @23
        await asyncio.sleep(0)
        op(24)           # @24
""",
    "<cell-2>": """
op(100)                  # @100
inner(1)
f = lambda a: op(101)    # @101
f(1); list(map(lambda v: op(102), [1, 2]))      # @102
l = [op(103) for i in range(3)]                 # @103
s = sum(op(104) for i in range(3))              # @104
d = {i: op(105)                                 # @105
     for i in range(2)
     if op(106)}                                # @106
@deco
def h(x): return op(107) # @107
h(1)
for v in gen(3):
    op(108)              # @108
g = gen(2); next(g); op(109); next(g); g.close()   # @109
def sub():
    yield from gen(2)
    op(110)              # @110
for _ in sub(): op(111)  # @111
str((
    op(112),             # @112
    inner(
      op(113)),          # @113
    op(114)))            # @114
with ctx() as v:
    op(115)              # @115
w = W(); w.t = 116
with w:                  # @116
    op(117)              # @117
for i in range(3): op(118)  # @118
i = 0
while op(119) and i < 2: # @119
    i += 1
    op(120)              # @120
try: boom()
except ValueError:
    op(121)              # @121
finally:
    op(122)              # @122
def outer():
    try: boom()
    finally: op(123)     # @123
try: outer()
except ValueError: pass
op(124)                  # @124
rec(3)
op(125)                  # @125
def work():
    for _ in range(3): op(126); time.sleep(.001)  # @126
ths = [threading.Thread(target=work) for _ in range(3)]
for t in ths: t.start()
for _ in range(5): op(127)   # @127
for t in ths: t.join()
exec("op(128)")          # @128
sorted([2, 1], key=lambda v: op(129))     # @129
def send():
    v = yield
    while True:
        v = yield op(130)    # @130
s = send(); next(s); s.send(1); s.send(2)
try: s.throw(ValueError)
except ValueError: op(131)   # @131
def catcher():
    while True:
        try: yield op(132)   # @132
        except ValueError: op(133)   # @133
c = catcher(); next(c); c.throw(ValueError); op(134)  # @134
async def main():
    op(135)              # @135
    await aw(1)
    r = await asyncio.gather(aw(1), aw(2))
    async for v in agen():
        op(136)          # @136
    op(137); await asyncio.sleep(0.001); op(137)  # @137
asyncio.run(main())
class A:
    @property
    def p(self): return op(138)    # @138
    x = op(139)          # @139
A().p
m = W() + 140 \\
    @ W() if False else op(141)    # @141
match op(142):           # @142
    case 142: op(143)    # @143
    case _: pass
try:
    raise ExceptionGroup('g', [ValueError()])
except* ValueError:
    op(144)              # @144
with contextlib.suppress(ValueError):
    boom()
op(145)                  # @145
""",
}

TRUTH = {
    int(tag): (file, number)
    for file, text in CELLS.items()
    for number, line in enumerate(text.splitlines(), 1)
    for tag in re.findall(r"# @(\d+)", line)
}


@dataclass
class Noted:
    """(moment in Unix ns, native thread id, tag) of each ``op``."""

    ops: list[tuple[int, int, int]] = field(default_factory=list)

    def op(self, tag: int) -> int:
        self.ops.append((time.time_ns(), threading.get_native_id(), tag))
        return tag


def namespace(noted: Noted) -> dict[str, Any]:
    """Globals of both cells."""

    class W:
        t = 0

        def __matmul__(self, tag: int) -> W:
            noted.op(tag)
            return self

        def __enter__(self) -> W:
            return self

        def __exit__(self, *error: object) -> None:
            noted.op(self.t)

    modules: dict[str, Any] = {m.__name__: m for m in (asyncio, contextlib, functools, threading, time)}
    return modules | {"op": noted.op, "W": W}
