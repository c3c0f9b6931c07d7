"""Warm-up, detected and not assumed: a call is warm when neither its time nor its page faults fall any more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..code.timed_loop import Timeable
from ..machine.clocks import Clocks
from .block_requests import BlockRequest, Steps

__all__ = ["Warm", "overheads", "warm_up"]

MIN_CALLS, MIN_NS, CHUNK_NS = 3, 10_000_000, 3_000_000
STILL_FALLING = 0.95


def overheads(
    block: Timeable, clocks: Clocks, synchronize: Callable[[], object]
) -> tuple[tuple[float, float], tuple[float, float]]:
    """(wall, cpu) nanoseconds of an empty block, and of one empty iteration: the smallest of several."""
    n = 1000
    fixed = [block.start_empty(0, clocks, synchronize) for _ in range(20)]
    loops = [block.start_empty(n, clocks, synchronize) for _ in range(8)]
    base = (float(min(w for w, _ in fixed)), float(min(c for _, c in fixed)))
    return base, (
        max(0.0, (min(w for w, _ in loops) - base[0]) / n),
        max(0.0, (min(c for _, c in loops) - base[1]) / n),
    )


@dataclass(frozen=True)
class Warm:
    """What the warm-up found.

    Attributes:
        call_ns: nanoseconds of a warm call.
        calls: how many calls it took.
    """

    call_ns: float
    calls: int


def warm_up(
    block: Timeable,
    clocks: Clocks,
    limit_ns: float,
    first_ns: float,
    before: Callable[[], None] | None = None,
    fixed_ns: float = 0.0,
) -> Steps[Warm]:
    """Call the block until it is warm: at least 3 calls and 10 ms, at most ``limit_ns`` nanoseconds.

    A chunk of calls is judged against the best one before it, by time and by minor faults a call. A call longer
    than the limit is made once (``first_ns`` is the call that was made before). ``before`` runs before each chunk;
    ``fixed_ns`` of a chunk are the clocks' and the synchronisation's.
    """
    wall, count_faults = clocks.wall, clocks.faults
    started, calls, size = wall(), 0, 1
    best, best_faults = first_ns, float("inf")
    last = first_ns
    while True:
        spent = wall() - started
        if calls and spent + last * size > limit_ns:
            break
        if before is not None:
            before()
        faults = count_faults()
        chunk, _ = yield BlockRequest(block, calls % len(block.replicas), size)
        calls += size
        last, per_call_faults = max(0.0, chunk - fixed_ns) / size, (count_faults() - faults) / size
        settled = last > STILL_FALLING * best and per_call_faults >= STILL_FALLING * min(best_faults, 1e9)
        best, best_faults = min(best, last), min(best_faults, per_call_faults)
        if settled and calls >= MIN_CALLS and wall() - started >= MIN_NS:
            break
        size = 1 if before is not None else max(1, min(2 * size, round(CHUNK_NS / max(last, 1.0))))
    return Warm(max(best, 0.1), calls)
