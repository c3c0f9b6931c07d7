"""How fast the processor is at the moment: the time of a fixed piece of work.

A processor that is shared with others runs at half its speed one moment and at all of it the next.
"""

from __future__ import annotations

import statistics
import time
from functools import partial

__all__ = ["clock", "pace", "work"]

_TEXT = "def f(x, y=1):\n    z = [x + i for i in range(y)]\n    return g(z, k='a')[0]\n" * 2
work = partial(compile, _TEXT, "<pace>", "exec", dont_inherit=True)
"""Branches and allocations of C code, as the dispatch of an op has them: the ratio of the two moves by 2 % where either
time moves by 13 (beside a busy process by 6 and 25; adding numbers up: 9). No profiler, no trace function sees it."""
_TIMES = 9
clock = time.thread_time if time.get_clock_info("thread_time").resolution <= 1e-6 else time.perf_counter


def pace() -> float:
    """Seconds of this thread's CPU time that the work takes, the median of a few; about 0.1 ms each."""
    took = []
    for _ in range(_TIMES):
        started = clock()
        work()
        took.append(clock() - started)
    return statistics.median(took)
