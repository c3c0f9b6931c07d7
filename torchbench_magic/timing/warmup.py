"""Warm-up: when calls are warm, and what was compiled of each alternative before its first sample and after."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torchbench_magic.process import dynamo_internals
from torchbench_magic.process.compile_watch import CompileWatch, why_given_up
from torchbench_magic.process.contention import Clocks
from torchbench_magic.process.dynamo_internals import change_of
from torchbench_magic.process.interrupts import Progress
from torchbench_magic.process.output import SINK_CODES

from .blocks import BlockRequest, Steps, Timeable

# Warm-up, detected and not assumed: a call is warm when neither its time nor its page faults fall any more.

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
    made_ns: float | None = None,
    most: int | None = None,
) -> Steps[Warm]:
    """Call the block until it is warm: at least 3 calls and 10 ms, at most ``limit_ns`` nanoseconds and ``most`` calls.

    A chunk of calls is judged against the best one before it, by time and by minor faults a call. A call longer
    than the limit is made once (``first_ns`` is the call that was made before). ``before`` runs before each chunk;
    ``fixed_ns`` of a chunk are the clocks' and the synchronisation's. A call of about
    ``made_ns`` nanoseconds was recorded: where it is long it counts as one; no shorter one is compared with it.
    """
    wall, count_faults = clocks.wall, clocks.faults
    made = made_ns if made_ns is not None and 2 * made_ns > limit_ns else 0.0
    started, calls, size = wall() - round(made), int(made > 0), 1
    best, best_faults = (first_ns, float("inf")) if made_ns is None else (float("inf"), float("inf"))
    last = made or first_ns
    while True:
        spent = wall() - started
        if calls and (spent + last * size > limit_ns or calls == most):
            break
        size = size if most is None else min(size, most - calls)
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
    return Warm(max(min(best, last), 0.1), calls)


# ---- timed_compiles --------------------------------------------------------------------------------------------------
# What was compiled of each alternative of a timing: before its first sample, and among its samples.

Mark = tuple[float, int]
"""A moment: seconds of compiling until then, frames that were compiled."""


class TimedCompiles:
    """Notes from `start` to `stop` what is compiled between two marks; facts are fields of a ``Subject``."""

    def __init__(self, progress: Progress) -> None:
        self._watch = CompileWatch(progress)
        self.stop = self._watch.stop
        self._first: list[tuple[float, str]] = []  # of each alternative: seconds, why something was given up
        self._sampled_from = 0

    def start(self) -> None:
        """Begin. What takes the code's output is not compiled, as little as the stream whose place it has: dynamo is
        given every Python frame that begins in a call which it could not compile, `print` say."""
        dynamo_internals.leave_alone(SINK_CODES)
        self._watch.start()

    def mark(self) -> Mark:
        return self._watch.seconds, len(self._watch.frames)

    def first_called(self, since: Mark) -> None:
        """The first call of the next alternative has ended."""
        self._first.append((self._watch.seconds - since[0], self._given_up(since[1])))

    def prepared(self, since: Mark, index: int, *, is_first: bool) -> dict[str, Any]:
        """An alternative is warm: what compiling took, with its first call unless, at another thread count, the warm-up
        compiled it anew."""
        took, given_up = self._watch.seconds - since[0], self._given_up(since[1])
        before, refused = self._first[index]
        took += before if is_first or not took else 0.0
        return {"compile_time": took or math.nan, "fell_back": given_up or refused}

    def sampling(self) -> None:
        """Samples are taken from now on."""
        self._sampled_from = len(self._watch.frames)

    def until_now(self) -> tuple[int, int]:
        """How many compilations have ended, and how many frames the compiler was given: those that it refuses, at a
        limit, are among the latter only."""
        return self._watch.count, dynamo_internals.frames_given()

    def among_samples(self, count: int, fell_back: str) -> dict[str, Any]:
        """Of an alternative of which so many were compiled, or refused, among its samples."""
        if not count:
            return {}
        changes = (change_of(frame.guard, frame.after) for frame in reversed(self._watch.frames) if frame.guard)
        reasons = tuple(dict.fromkeys(change.text for change in changes))
        given_up = self._given_up(self._sampled_from) or fell_back
        return {"compiled_in_samples": count, "recompiled": reasons, "fell_back": given_up}

    def _given_up(self, since: int) -> str:
        """Why something was not compiled, of what came after so many frames; empty where all was."""
        return next(filter(None, map(why_given_up, self._watch.frames[since:])), "")
