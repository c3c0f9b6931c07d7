"""The plan of a timing: what the options ask for, also of the count; typed and frozen."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal

from torchbench_magic.errors import OptionError

if TYPE_CHECKING:
    from torchbench_magic.counting.count import Form

    from .samples import Clock

Processes = int | Literal["auto"]
MOST_PROCESSES = 1000
MOST = 10**12
"""Of whatever is counted: so many empty iterations of a loop take hours, and what holds the number has 64 bits."""
MOST_THREADS = 4096
"""torch starts as many as it is told, and systems end a process that asks for more than they allow."""
MOST_SEED = 2**32 - 1


def _is_above_zero(value: object) -> bool:
    """Whether it is a number, neither infinite nor NaN."""
    return not isinstance(value, bool) and isinstance(value, Real) and 0 < float(value) < math.inf


def _is_count(value: object, most: int = MOST) -> bool:
    return not isinstance(value, bool) and isinstance(value, Integral) and 1 <= int(value) <= most


def thread_counts(threads: Any) -> tuple[int, ...] | None:
    """The thread counts of an argument that takes one, several or None; a `Plan` refuses what they cannot be."""
    if threads is None or (isinstance(threads, Iterable) and not isinstance(threads, str)):
        return None if threads is None else tuple(threads)
    return (threads,)


def tolerances_asked(check: bool | str) -> tuple[float | None, float | None] | None:
    """(rtol, atol) of ``Plan.check``, None for one that is not given; None: neither is.

    Raises:
        OptionError: no text of that kind.
    """
    if isinstance(check, bool):
        return None
    found: dict[str, float] = {}
    try:
        for part in check.split(","):
            name, _, number = part.partition("=")
            found[name.strip()] = float(number)
    except (AttributeError, ValueError):
        found = {}
    if not found or found.keys() - {"rtol", "atol"} or not all(0 <= value < math.inf for value in found.values()):
        raise OptionError("check: give tolerances of at least 0, such as rtol=1e-3,atol=1e-5")
    return found.get("rtol"), found.get("atol")


@dataclass(frozen=True)
class Plan:
    """The options of one timing run.

    Attributes:
        threads: torch thread counts to visit; None is the current one.
        min_run_time: wall seconds that are always spent, per alternative and thread count.
        max_run_time: wall seconds per alternative and thread count after which an undecided run ends; None is
            5 x min_run_time, stretched up to 30 s where slow code needs it to reach the rounds of an exact interval.
            Both count what a user waits for, untimed calls, waiting and Python between blocks included, the maximum
            also the warm-up;
            the first calls are apart, and code slower than that is called once to warm up and sampled once.
        number: calls in a block (with ``repeat``: timeit's mode; min and max do not apply); None is autorange.
        repeat: rounds of timeit's mode; None with ``number`` is 7.
        label, sub_label, description, env: as in ``torch.utils.benchmark.Timer``.
        baseline: name of the alternative that others are compared to; None is the first.
        margin: ratios inside 1 +- margin are called the same (a fraction).
        until: go on until the interval of each ratio (of the median, for a lone statement) is that narrow, as a
            fraction of it, or the maximum is reached.
        adaptive: go on until IQR / median is below this, as torch's ``adaptive_autorange`` does, or the maximum is
            reached.
        clock: what the figures are of: "wall" time, "cpu" (processor time of the process), "device" (time between
            two events on the accelerator).
        device: "auto" (the accelerator, if there is one), "cpu" (never synchronise), or a device such as "cuda:1".
        cold: each sample is one call, made after the caches were emptied.
        check: the alternatives must return close values; a text such as "rtol=1e-3,atol=1e-5" says how close.
        restore: the state that the code reaches (tensors, gradients, optimizers) is put back before each block (each
            call with ``number=1``) and after the run.
        seed: of the order of blocks; None draws one, and the result tells it.
        gc: the garbage collector is on in timed code; setup can switch it on too (``gc.enable()``), as in timeit.
        processes: measure in so many fresh interpreters, one after the other, and judge the ratios over them; "auto" is
            the fewest that have an interval; None is this process alone.
        engines: measure on the engines of this ipyparallel cluster (a profile, or the id of a cluster); None is here.
        levers: names of what is tried on the one body (see `levers`); none of them: all that apply; None tries
            nothing.
    """

    threads: tuple[int, ...] | None = None
    min_run_time: float = 0.2
    max_run_time: float | None = None
    number: int | None = None
    repeat: int | None = None
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    baseline: str | None = None
    margin: float = 0.01
    until: float | None = None
    adaptive: float | None = None
    clock: Clock = "wall"
    device: str = "auto"
    cold: bool = False
    check: bool | str = False
    restore: bool = False
    seed: int | None = None
    gc: bool = False
    processes: Processes | None = None
    engines: str | None = None
    levers: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.threads is not None and not (
            self.threads and all(_is_count(count, MOST_THREADS) for count in self.threads)
        ):
            raise OptionError(f"threads: give whole numbers from 1 to {MOST_THREADS}, such as 1,2")
        for name in ("min_run_time", "max_run_time"):
            seconds = getattr(self, name)
            if not _is_above_zero(seconds) and (name == "min_run_time" or seconds is not None):
                raise OptionError(f"{name}: give seconds above 0")
        if self.max_run_time is not None and self.max_run_time < self.min_run_time:
            raise OptionError(
                f"max_run_time ({self.max_run_time:g} s) is below min_run_time ({self.min_run_time:g} s):"
                " use a larger maximum or a smaller minimum"
            )
        for name in ("number", "repeat"):
            value = getattr(self, name)
            if value is not None and not _is_count(value):
                raise OptionError(f"{name}: give a whole number from 1 to {MOST}")
        for name in ("margin", "until", "adaptive"):
            share = getattr(self, name)
            if share is not None and not (_is_above_zero(share) and share < 10):
                raise OptionError(f"{name}: give a share above 0")
        if self.seed is not None and not (self.seed == 0 or _is_count(self.seed, MOST_SEED)):
            raise OptionError(f"seed: give a whole number from 0 to {MOST_SEED}")
        numbers = range(2, MOST_PROCESSES + 1) if isinstance(self.processes, int) else (None, "auto")
        if self.processes not in numbers:
            raise OptionError(
                f'processes: give a whole number from 2 to {MOST_PROCESSES}, or "auto"; one session alone is measured'
                " without it"
            )
        if self.engines is not None and self.processes is not None:
            raise OptionError("use either processes (this machine) or engines (a cluster)")
        tolerances_asked(self.check)
        if self.clock not in ("wall", "cpu", "device"):
            raise OptionError(f"clock: {self.clock!r} is not one of wall, cpu, device")
        if self.until is not None and self.adaptive is not None:
            raise OptionError("until and adaptive both say when to stop: use one")
        if self.rounds_asked is not None and (self.until is not None or self.adaptive is not None):
            raise OptionError("number and repeat fix the amount of work: until and adaptive do not apply")
        if self.cold and self.number not in (None, 1):
            raise OptionError("cold: each sample is one call; leave out number")

    @property
    def goes_on(self) -> bool:
        """A precision was asked for: the run goes on until it has it."""
        return self.until is not None or self.adaptive is not None

    @property
    def rounds_asked(self) -> int | None:
        """Rounds of timeit's mode, or None when time decides."""
        if self.number is None and self.repeat is None:
            return None
        return self.repeat if self.repeat is not None else 7


# ---- count_options ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Counting:
    """Instructions are to be counted besides.

    Attributes:
        number: calls that are counted.
        form: "function", the loop that is timed, or "module", as torch's collector counts.
    """

    number: int = 100
    form: Form = "function"
