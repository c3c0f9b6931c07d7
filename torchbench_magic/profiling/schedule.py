"""Which steps of a long job are recorded: the numbers of ``torch.profiler.schedule``, and what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import Enum
from typing import Self

from torchbench_magic.errors import OptionError


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
