"""A machine that does nothing but the test: what the system counts of other load reads as none.

What is said of a busy machine has tests of its own, with planted counters (`tests/process/test_contention.py`,
`tests/profiling/test_warnings.py`). Everywhere else it would be said by chance.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType

from torchbench_magic.process import contention

usage, living_children = contention._usage, contention._living_children


def _usage() -> tuple[float, float, float]:
    return *usage()[:2], 0.0


def _stat() -> tuple[float, float]:
    return sum(usage()[:2]) + living_children(), 0.0


def _schedstat(threads: object) -> tuple[float, float]:
    return _stat()


def _pressure() -> float:
    return 0.0


def _throttled() -> float:
    return 0.0


def _clock_share() -> float:
    return 1.0


READERS: tuple[FunctionType, ...] = (_usage, _stat, _schedstat, _pressure, _throttled, _clock_share)  # type: ignore[assignment]
for reader in READERS:  # what a profile does not show of the package's own reading, it does not show of this either
    reader.__code__ = reader.__code__.replace(co_filename=contention.__file__)


def quiet(put: Callable[[object, str, object], None]) -> None:
    """Replace the readers by ``put(module, name, reader)``: ``setattr`` for good, `MonkeyPatch.setattr` for a test."""
    for reader in READERS:
        put(contention, reader.__name__, reader)
    put(contention, "thread_times", dict)  # not known; a builtin: it is in no table of lines
