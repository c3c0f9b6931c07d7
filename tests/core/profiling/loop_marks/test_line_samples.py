"""Which line runs, looked at by another thread: a look that came late, and what is known then. By planted waits."""

from __future__ import annotations

import itertools
import sys
import threading
from types import FrameType

import pytest

from torchbench_magic.profiling.loops import marks
from torchbench_magic.profiling.loops.marks import LineSamples

LATE, IN_TIME = 0.002, 0.0001


def places(monkeypatch: pytest.MonkeyPatch, *late: float) -> list[int]:
    """Of each look, with waits that are so late one after another: 0 for the line that ran, -1 where it is unknown."""
    samples, left = LineSamples(), iter(late)
    monkeypatch.setattr(samples, "_wait", lambda pause: next(left, None))
    monkeypatch.setattr(samples.book, "place_of", lambda frame: 0 if isinstance(frame, FrameType) else 1)
    samples._look()
    assert next(left, None) is None, "all of them were waited for"
    return list(samples.record[1::2])


def test_a_late_look_is_believed_where_the_next_one_is_late_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert places(monkeypatch, IN_TIME, IN_TIME) == [0, 0]
    assert places(monkeypatch, LATE, LATE, IN_TIME) == [0, 0], "the code held the lock, and wanted it back"
    assert places(monkeypatch, LATE, IN_TIME, IN_TIME) == [-1, 0], "it let go of the lock: where, is not known"


def test_looks_lie_a_tenth_of_a_second_apart_in_the_mean_and_never_equally_far(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    samples, pauses = LineSamples(), list[float]()
    monkeypatch.setattr(samples, "_wait", lambda pause: pauses.append(pause) or (None if len(pauses) > 200 else 0.0))
    samples._look()
    assert 0.06 <= min(pauses) <= max(pauses) <= 0.14
    assert sum(pauses) / len(pauses) == pytest.approx(0.1, rel=0.02)
    assert all(abs(one - other) > 0.01 for one, other in itertools.pairwise(pauses))


def test_it_looks_at_the_thread_that_made_it_until_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "_SHORTEST", 0.0)
    monkeypatch.setattr(marks, "_SPREAD", 0.0)
    samples = LineSamples()
    before = threading.active_count()
    samples.start()
    here = sys._getframe().f_code
    while here not in {code for code, _ in samples.book.places}:
        sum(range(1000))
    samples.stop()
    while threading.active_count() > before:  # `stop` waits for a second
        sum(range(1000))
