"""``--save`` and ``--resume``, a store of results beside a timing; ``--save``, ``--trace`` and ``--stacks``, the files
that a profile is written to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from torchbench_magic.errors import InputError, Interrupted, OptionError

from .reading.options import ProfilerOptions, TimerOptions

if TYPE_CHECKING:
    from torchbench_magic.results.profiling.profile import Profile
    from torchbench_magic.results.storage.resumed_runs import Recording

__all__ = ["check_files", "keeping", "write_files"]


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


def check_files(options: ProfilerOptions) -> None:
    """Find out before the code runs whether the files can be written.

    Raises:
        StoreError, TraceError: one cannot, and why.
        OptionError: two are one file.
    """
    named = filter(None, (options.save, options.trace, options.stacks))
    given = [os.path.abspath(os.path.expanduser(path)) for path in named]
    if len({*given}) < len(given):
        raise OptionError("--save, --trace and --stacks write files of their own: give each another name")
    if options.save is not None:
        from torchbench_magic.results.storage.store import Store

        Store(options.save).check()
    if options.trace is not None or options.stacks is not None:
        from torchbench_magic.results.written_files import STACKS, TRACE, check_target

        for target, kind in ((options.trace, TRACE), (options.stacks, STACKS)):
            if target is not None:
                check_target(target, kind, overwrite=options.overwrite)


def write_files(profile: Profile, options: ProfilerOptions) -> Profile:
    """Write what was asked for. A file that cannot be written costs a warning: the result is here all the same."""
    from torchbench_magic.results.doubts import Doubt

    if options.save is not None and profile.environment is not None:
        from torchbench_magic.core.machine.commit import read_commit

        profile = replace(profile, environment=replace(profile.environment, commit=read_commit()))
    found = []
    for path, write, could_not, way in (
        (options.save, profile.save, "profile could not be stored", "`.save(PATH)` writes it"),
        (options.trace, partial(profile.export_trace, overwrite=options.overwrite), "trace could not be written",
         "`.export_trace(PATH)` writes it"),
        (options.stacks, partial(profile.export_stacks, metric="time", overwrite=options.overwrite),
         "stacks could not be written",
         "`.export_stacks(PATH)` writes them"),
    ):  # fmt: skip
        try:
            if path is not None:
                write(path)
        except InputError as error:
            found.append(Doubt("not-stored", f"The {could_not}: {error}.", f"{way}."))
    return replace(profile, warnings=[*found, *profile.warnings]) if found else profile
