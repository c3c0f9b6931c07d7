"""From the text of an option to its value. Each raises ValueError with what is valid."""

from __future__ import annotations

import keyword
import math
import re
from typing import TYPE_CHECKING, TypeVar

from torchbench_magic.core.timing.plan import MOST, MOST_PROCESSES, MOST_THREADS
from torchbench_magic.errors import OptionError

if TYPE_CHECKING:
    from torchbench_magic.core.counting.count_options import Form
    from torchbench_magic.results.profiling.schedule import Schedule
    from torchbench_magic.results.timing.across_runs.side_by_side import SideBy
    from torchbench_magic.results.timing.subject import Clock

__all__ = [
    "read_by",
    "read_clock",
    "read_count",
    "lever_names",
    "looks_like_levers",
    "read_form",
    "read_from_zero",
    "read_levers",
    "read_not_empty",
    "read_per_cent",
    "read_processes",
    "read_rows",
    "read_schedule",
    "read_seconds",
    "read_seed",
    "read_thread_counts",
    "read_threads",
    "read_threshold",
    "read_variable",
]


Name = TypeVar("Name", bound=str)

_MOST_DIGITS = 20
"""Python reads no number of thousands of digits, and says so in other words."""


def read_count(text: str, most: int = MOST) -> int:
    try:
        value = int(text)
    except ValueError:  # of thousands of digits too
        value = 0
    if value < 1:
        raise ValueError("give a whole number of at least 1")
    if value > most:
        raise ValueError(f"give a whole number up to {most}")
    return value


def read_levers(text: str) -> tuple[str, ...]:
    from torchbench_magic.core.levers.asked import check_levers

    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if not names:
        raise ValueError("give lever names, such as compile,bf16, or none for all that apply")
    try:
        check_levers(names)
    except OptionError as error:
        raise ValueError(str(error).removeprefix("--try: ").removeprefix("--try ")) from None
    return names


def lever_names() -> tuple[str, ...]:
    from torchbench_magic.core.levers.asked import LEVERS

    return tuple(LEVERS)


_LEVERS = re.compile(r"[a-z][a-z0-9_-]*(:[\w.+-]*)?(,[a-z][a-z0-9_-]*(:[\w.+-]*)?)*", re.IGNORECASE)
_NEAR = 0.75


def looks_like_levers(text: str) -> bool:
    """Whether a word is a list of levers, rather than the code after them: one of its names is a lever's, nearly."""
    import difflib

    from torchbench_magic.core.levers.asked import LEVERS

    if _LEVERS.fullmatch(text) is None:
        return False
    names = [part.partition(":")[0] for part in text.split(",")]
    return any(difflib.get_close_matches(name, list(LEVERS), n=1, cutoff=_NEAR) for name in names)


def read_processes(text: str) -> int:
    if not _is_whole(text) or int(text) < 2:
        raise ValueError("give a whole number of at least 2; without --processes, this kernel measures")
    return read_count(text, MOST_PROCESSES)


def read_thread_counts(text: str) -> tuple[int, ...]:
    try:
        counts = tuple(read_count(part, MOST_THREADS) for part in text.split(","))
    except ValueError:
        raise ValueError(f"give thread counts from 1 to {MOST_THREADS}, such as 1 or 1,2") from None
    if len(set(counts)) != len(counts):
        raise ValueError("a thread count is given twice")
    return counts


def read_seconds(text: str) -> float:
    return _between(text, 0, math.inf, "give seconds above 0")


def read_per_cent(text: str) -> float:
    """A share, written in per cent."""
    return _between(text.removesuffix("%"), 0, 1000, "give a percentage above 0, such as 1 or 0.5") / 100


def read_threshold(text: str) -> float:
    return _between(text, 0, 10, "give IQR / median to reach, such as 0.1")


def _between(text: str, low: float, high: float, valid: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not low < value < high:
        raise ValueError(valid)
    return value


def read_clock(text: str) -> Clock:
    return _one_of(("wall", "cpu", "device"), text)


def read_by(text: str) -> SideBy:
    return _one_of(("description", "env"), text)


def read_form(text: str) -> Form:
    return _one_of(("function", "module"), text)


def _one_of(names: tuple[Name, ...], text: str) -> Name:
    for name in names:
        if text == name:
            return name
    raise ValueError(f"give {', '.join(names[:-1])} or {names[-1]}")


def read_seed(text: str) -> int:
    if not (_is_whole(text) and int(text) < 2**32):
        raise ValueError("give a whole number from 0 to 4294967295")
    return int(text)


def read_schedule(text: str) -> Schedule:
    from torchbench_magic.results.profiling.schedule import Schedule

    try:
        return Schedule.of(text)
    except OptionError as error:
        raise ValueError(str(error).removeprefix("schedule: ")) from None


def read_from_zero(text: str) -> int:
    if not _is_whole(text):
        raise ValueError("give a whole number of at least 0")
    return read_count(text) if int(text) else 0


def read_threads(text: str) -> int:
    return read_count(text, MOST_THREADS)


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS


def read_rows(text: str) -> int:
    if text == "-1":  # torch's way to say: all of them
        return -1
    try:
        return read_count(text)
    except ValueError:
        raise ValueError("give a whole number of at least 1, or -1 for all rows") from None


def read_variable(text: str) -> str:
    if not text.isidentifier() or keyword.iskeyword(text):
        raise ValueError("give the name of a variable, such as -o result")
    return text


def read_not_empty(text: str) -> str:
    if not text.strip():
        raise ValueError("give a value that is not empty")
    return text
