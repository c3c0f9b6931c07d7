"""``--save`` and ``--resume``, a store of results beside a timing; ``--save``, ``--trace`` and ``--stacks``, the files
that a profile is written to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from torchbench_magic.errors import InputError, Interrupted, OptionError
from torchbench_magic.process.interrupts import Progress, hear_interrupt

from .options import ProfilerOptions, TimerOptions

if TYPE_CHECKING:
    from torchbench_magic.cluster.job_profile import RankProfile
    from torchbench_magic.profiling.profile import Profile
    from torchbench_magic.storage.resume import Recording
    from torchbench_magic.storage.store import Store

Stored = TypeVar("Stored", "Profile", "RankProfile")


@contextmanager
def keeping(options: TimerOptions, progress: Progress) -> Iterator[Recording | None]:
    """Open the store that the options name, before anything is measured; None without one.

    Args:
        progress: told while another process holds the store; a Ctrl-C ends the wait.

    Raises:
        Interrupted: in the block; its partial result has what is to be said of the store.
        OptionError: ``--resume`` without a store.
        StoreError: the store cannot be written.
    """
    if options.save is None:
        if options.resume:
            raise OptionError("--resume needs a file of results: give --save PATH, or set %config TorchBench.store")
        yield None
        return
    from torchbench_magic.process.environment import read_commit, read_environment
    from torchbench_magic.storage.resume import Recording

    environment = replace(read_environment(), commit=read_commit())
    counting = None if options.counting is None else (options.counting.number, options.counting.form)
    kept = Recording(open_store(options.save, progress), environment, resume=options.resume, counting=counting)
    try:
        yield kept
    except Interrupted as interrupt:
        partial: Any = interrupt.partial
        if partial is not None and not kept.is_finished:
            try:
                partial = kept.finish(partial)
            except Interrupted as again:
                partial = again.partial
            interrupt.partial = partial
        raise


def open_store(path: str, progress: Progress) -> Store:
    """A store where a Ctrl-C ends the wait for another process that holds it."""
    from torchbench_magic.storage.store import Store

    def waiting(passed: float) -> None:
        hear_interrupt()
        progress.update(passed, made.patience, f"waiting for {made.path}, locked by another process")

    made = Store(path, waiting=waiting)
    return made


def check_files(options: ProfilerOptions) -> None:
    """Find out before the code runs whether the files can be written, but for the store.

    Raises:
        InputError: one cannot, and why.
        OptionError: two are one file.
    """
    named = filter(None, (options.save, options.trace, options.stacks))
    given = [os.path.abspath(os.path.expanduser(path)) for path in named]
    if len({*given}) < len(given):
        raise OptionError("--save, --trace and --stacks each write their own file: give different names")
    if options.trace is not None or options.stacks is not None:
        from torchbench_magic.files import STACKS, TRACE, check_target

        for target, kind in ((options.trace, TRACE), (options.stacks, STACKS)):
            if target is not None:
                check_target(target, kind, overwrite=options.overwrite)


def check_store(options: ProfilerOptions, progress: Progress) -> None:
    """The same of the store, which may have to be waited for.

    Raises:
        StoreError: it cannot be written, and why.
    """
    if options.save is not None:
        open_store(options.save, progress).check()


def write_files(profile: Profile, options: ProfilerOptions, progress: Progress) -> tuple[Profile, bool]:
    """Write what was asked for. A file that cannot be written costs a warning: the result is here all the same.

    Returns:
        the profile, and whether a Ctrl-C ended the wait for a store.
    """
    if options.save is not None and profile.environment is not None:
        from torchbench_magic.process.environment import read_commit

        profile = replace(profile, environment=replace(profile.environment, commit=read_commit()))
    stacks = partial(profile.export_stacks, metric="time", overwrite=options.overwrite)
    trace = partial(profile.export_trace, overwrite=options.overwrite)
    return _written(
        profile,
        (options.save, _append(profile, progress), "profile could not be stored", "`.save(PATH)` writes it"),
        (options.trace, trace, "trace could not be written", "`.export_trace(PATH)` writes it"),
        (options.stacks, stacks, "stacks could not be written", "`.export_stacks(PATH)` writes them"),
    )


def write_job(profile: RankProfile, options: ProfilerOptions, progress: Progress) -> tuple[RankProfile, bool]:
    """The same of the ranks of a job."""
    trace = partial(profile.merged_trace, overwrite=options.overwrite)
    return _written(
        profile,
        (options.save, _append(profile, progress), "job could not be written", "`.save(PATH)` writes it"),
        (options.trace, trace, "job could not be written", "`.merged_trace(PATH)` writes it"),
    )


def _append(result: Any, progress: Progress) -> Callable[[str], object]:
    return lambda path: open_store(path, progress).append(result)


def _written(result: Stored, *files: tuple[str | None, Callable[[str], object], str, str]) -> tuple[Stored, bool]:
    from torchbench_magic.result_base import Doubt

    found: list[Doubt] = []
    is_interrupted = False
    for path, write, could_not, way in files:
        try:
            if path is not None:
                write(path)
        except InputError as error:
            found.append(Doubt("not-stored", f"The {could_not}: {error}.", f"{way}."))
        except KeyboardInterrupt:
            why = f"interrupted while another process had locked {path}"
            found.append(Doubt("not-stored", f"The {could_not}: {why}.", f"{way}."))
            is_interrupted = True
    return (replace(result, warnings=[*found, *result.warnings]) if found else result), is_interrupted
