"""Arguments of `Timer` that cannot be, refused in one line: torch fails at them later, or measures without an end."""

from __future__ import annotations

import math
from numbers import Integral, Real

from torchbench_magic.core.timing.plan import MOST, MOST_THREADS
from torchbench_magic.errors import OptionError

__all__ = ["check_calls", "check_seconds", "check_threads"]


def check_calls(number: object) -> None:
    """
    Raises:
        OptionError: no number of calls.
    """
    _check_whole("number", number, MOST)


def check_threads(num_threads: object) -> None:
    """
    Raises:
        OptionError: no number of threads.
    """
    _check_whole("num_threads", num_threads, MOST_THREADS)


def check_seconds(**given: object) -> None:
    """Of seconds and shares by their names: NaN and infinity end no loop. None is none, and 0 is as torch has it.

    Raises:
        OptionError: the name, and what it takes.
    """
    for name, value in given.items():
        is_real = isinstance(value, Real) and not isinstance(value, bool)
        if value is not None and not (is_real and 0 <= float(value) < math.inf):  # type: ignore[arg-type]
            raise OptionError(f"{name}: give a number of at least 0")


def _check_whole(name: str, value: object, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or not 1 <= int(value) <= most:
        raise OptionError(f"{name}: give a whole number from 1 to {most}")
