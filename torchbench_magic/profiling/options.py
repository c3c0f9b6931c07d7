"""What is asked of a profile: typed and frozen."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .schedule import Schedule

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
