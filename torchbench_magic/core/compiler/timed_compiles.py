"""What was compiled of each alternative of a timing: before its first sample, and among its samples."""

from __future__ import annotations

import math
from typing import Any

from torchbench_magic.core.process.run_settings import SINK_CODES
from torchbench_magic.core.progress import Progress

from . import dynamo
from .compile_watch import CompileWatch
from .given_up import why_given_up
from .guards import change_of

__all__ = ["TimedCompiles"]

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
        dynamo.leave_alone(SINK_CODES)
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
        return self._watch.count, dynamo.frames_given()

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
