"""``--save`` and ``--resume``: a store of results beside a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from torchbench_magic.errors import Interrupted, OptionError

from .reading.options import TimerOptions

if TYPE_CHECKING:
    from torchbench_magic.results.storage.resumed_runs import Recording
    from torchbench_magic.results.timing.comparison import Comparison

__all__ = ["Kept", "keeping"]


class Kept:
    """The store beside one run, or none."""

    def __init__(self, recording: Recording | None) -> None:
        self._recording = recording
        self.keep = None if recording is None else recording.keep
        self.skip = None if recording is None else recording.skip

    def finish(self, result: Comparison) -> Comparison:
        """The result, with what is to be said of the store."""
        return result if self._recording is None else self._recording.finish(result)


@contextmanager
def keeping(options: TimerOptions) -> Iterator[Kept]:
    """Open the store that the options name, before anything is measured.

    Raises:
        OptionError: ``--resume`` without a store.
        StoreError: the store cannot be written.
    """
    if options.save is None:
        if options.resume:
            raise OptionError("--resume needs a file of results: give --save PATH, or set %config TorchBench.store")
        yield Kept(None)
        return
    from torchbench_magic.core.machine.commit import read_commit
    from torchbench_magic.core.machine.environment import read_environment
    from torchbench_magic.results.storage.resumed_runs import Recording
    from torchbench_magic.results.storage.store import Store

    environment = replace(read_environment(), commit=read_commit())
    counting = None if options.counting is None else (options.counting.number, options.counting.form)
    kept = Kept(Recording(Store(options.save), environment, resume=options.resume, counting=counting))
    try:
        yield kept
    except Interrupted as interrupt:
        if interrupt.partial is not None:
            interrupt.partial = kept.finish(interrupt.partial)  # type: ignore[arg-type]  # of a timing
        raise
