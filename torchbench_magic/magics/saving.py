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

__all__ = ["keeping"]


@contextmanager
def keeping(options: TimerOptions) -> Iterator[Recording | None]:
    """Open the store that the options name, before anything is measured; None without one.

    Raises:
        OptionError: ``--resume`` without a store.
        StoreError: the store cannot be written.
    """
    if options.save is None:
        if options.resume:
            raise OptionError("--resume needs a file of results: give --save PATH, or set %config TorchBench.store")
        yield None
        return
    from torchbench_magic.core.machine.commit import read_commit
    from torchbench_magic.core.machine.environment import read_environment
    from torchbench_magic.results.storage.resumed_runs import Recording
    from torchbench_magic.results.storage.store import Store

    environment = replace(read_environment(), commit=read_commit())
    counting = None if options.counting is None else (options.counting.number, options.counting.form)
    kept = Recording(Store(options.save), environment, resume=options.resume, counting=counting)
    try:
        yield kept
    except Interrupted as interrupt:
        if interrupt.partial is not None:
            interrupt.partial = kept.finish(interrupt.partial)  # type: ignore[arg-type]  # of a timing
        raise
