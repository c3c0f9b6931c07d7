"""What is asked of a profile: typed and frozen; which steps of a long job are recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from enum import Enum
from typing import Self

from torchbench_magic.errors import OptionError

# ---- schedule --------------------------------------------------------------------------------------------------------


class Action(Enum):
    """What the profiler does in a step, by the names of ``torch.profiler.ProfilerAction``."""

    NONE = "none"
    WARMUP = "warmup"
    RECORD = "record"
    RECORD_AND_SAVE = "record and save"

    @property
    def records(self) -> bool:
        return self in (Action.RECORD, Action.RECORD_AND_SAVE)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A schedule, called with the number of a step, as ``torch.profiler.schedule(...)`` makes one.

    The first ``skip_first`` steps are skipped; then cycles of ``wait`` + ``warmup`` + ``active`` steps follow, of
    which the last ``active`` ones are recorded, ``repeat`` times (0: until the job ends). With ``skip_first_wait``
    (0 or 1) the first cycle does not wait.

    Raises OptionError for numbers that make no schedule.
    """

    active: int
    wait: int = 0
    warmup: int = 0
    repeat: int = 0
    skip_first: int = 0
    skip_first_wait: int = 0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            least = 1 if name == "active" else 0
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise OptionError(f"schedule: {name}={value}: give a whole number of at least {least}")

    @classmethod
    def of(cls, given: str | Mapping[str, int]) -> Self:
        """From ``wait=1,warmup=1,active=3`` or the same as a mapping; ``active`` is needed.

        Raises:
            OptionError: a name that a schedule does not have, one given twice, a value that is no number.
        """
        known = [item.name for item in fields(cls)]
        form = "write skip_first=10,wait=5,warmup=1,active=3,repeat=2 (active is needed)"
        pairs = list(given.items()) if isinstance(given, Mapping) else [_pair(part, form) for part in given.split(",")]
        if unknown := [name for name, _ in pairs if name not in known]:
            raise OptionError(f"schedule: no {unknown[0]!r}; it has {', '.join(known)}")
        values = dict(pairs)
        if len(values) < len(pairs):
            raise OptionError(f"schedule: a number is given twice; {form}")
        if "active" not in values:
            raise OptionError(f"schedule: {form}")
        return cls(**values)

    def __call__(self, step: int) -> Action:
        """What happens in step number ``step``, counted from 0."""
        step -= self.skip_first
        if step < 0:
            return Action.NONE
        if self.skip_first_wait:
            step += self.wait
        cycle, within = divmod(step, self._length)
        if (self.repeat and cycle >= self.repeat) or within < self.wait:
            return Action.NONE
        if within < self.wait + self.warmup:
            return Action.WARMUP
        return Action.RECORD if within < self._length - 1 else Action.RECORD_AND_SAVE

    def awake(self, step: int) -> int | None:
        """Number of the first step, from ``step`` on, in which something happens; None where nothing will."""
        step = max(step, self.skip_first)
        cycle, within = divmod(step - self.skip_first + (self.wait if self.skip_first_wait else 0), self._length)
        if self.repeat and cycle >= self.repeat:
            return None
        return step + max(0, self.wait - within)

    @property
    def _length(self) -> int:
        return self.wait + self.warmup + self.active

    @property
    def first_recorded(self) -> int:
        """Number of the first step that is recorded."""
        return self.skip_first + self.warmup + (0 if self.skip_first_wait else self.wait)

    @property
    def steps(self) -> int | None:
        """How many steps it takes to its end; None where it has none."""
        if not self.repeat:
            return None
        return self.skip_first + self.repeat * self._length - (self.wait if self.skip_first_wait else 0)

    def __str__(self) -> str:
        """As `of` reads it, without what is 0."""
        return ",".join(f"{name}={value}" for name, value in asdict(self).items() if value)


def _pair(part: str, form: str) -> tuple[str, int]:
    name, equals, value = (piece.strip() for piece in part.partition("="))
    if not equals or not (value.isascii() and value.isdecimal() and len(value) < 20):
        raise OptionError(f"schedule: {part.strip()!r} is not a number of steps; {form}")
    return name, int(value)


# ---- options ---------------------------------------------------------------------------------------------------------

MAX_EVENTS = 5_000_000  # 80 MB of line events, 12 s to read torch's


@dataclass(frozen=True)
class ProfileOptions:
    """What was asked of the run.

    Attributes:
        threads: torch threads set for the run; None: as they were.
        memory: bytes per op and line.
        shapes: input shapes, dtypes and strides per op.
        lines_of: modules and paths whose lines were asked for besides the default.
        schedule: which steps are recorded; None for all of the body.
        in_loop: the steps are iterations of the body's loop.
        max_events: most line events of a thread, and most events of torch, that are kept with all detail.
        host_memory: what Python and numpy hold, per line.
        flops: floating point operations per op.
        twice: the body ran a second time, unprofiled.
        python: where Python time goes, by samples of the stack.
        concurrency: whether the cores were used well, by a process that looks at the threads.
        efficiency: how near ops came to what the machine can do; implies ``shapes`` and ``flops``.
        phases: the phases of a training loop alone: no operations, and lines only now and then.
    """

    threads: int | None = None
    memory: bool = False
    shapes: bool = False
    lines_of: tuple[str, ...] = ()
    schedule: Schedule | None = None
    in_loop: bool = False
    max_events: int = MAX_EVENTS
    host_memory: bool = False
    flops: bool = False
    twice: bool = False
    python: bool = False
    concurrency: bool = False
    efficiency: bool = False
    phases: bool = False

    @property
    def complete(self) -> ProfileOptions:
        """With what they imply."""
        flops = self.flops or self.efficiency
        return replace(self, shapes=self.shapes or flops, flops=flops)
