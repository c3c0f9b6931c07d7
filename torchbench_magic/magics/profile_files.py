"""``--save``, ``--trace`` and ``--stacks`` of ``%%tprofile``: files that a profile is written to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from torchbench_magic.errors import InputError

from .reading.options import ProfilerOptions

if TYPE_CHECKING:
    from torchbench_magic.results.profiling.profile import Profile

__all__ = ["check_files", "write_files"]


def check_files(options: ProfilerOptions) -> None:
    """Find out before the code runs whether the files can be written.

    Raises:
        StoreError, TraceError: one cannot, and why.
    """
    if options.save is not None:
        from torchbench_magic.results.storage.store import Store

        Store(options.save).check()
    if options.trace is not None or options.stacks is not None:
        from torchbench_magic.results.storage.chrome_trace import check_target

        for target in (options.trace, options.stacks):
            if target is not None:
                check_target(target)


def write_files(profile: Profile, options: ProfilerOptions) -> Profile:
    """Write what was asked for. A file that cannot be written costs a warning: the result is here all the same."""
    from torchbench_magic.results.doubts import Doubt

    found = []
    if options.save is not None:
        from torchbench_magic.core.machine.commit import read_commit

        if profile.environment is not None:
            profile = replace(profile, environment=replace(profile.environment, commit=read_commit()))
        try:
            profile.save(options.save)
        except InputError as error:
            found.append(Doubt("not-stored", f"The profile could not be stored: {error}.", "`.save(PATH)` writes it."))
    if options.trace is not None:
        try:
            profile.export_trace(options.trace)
        except InputError as error:
            text = f"The trace could not be written: {error}."
            found.append(Doubt("not-stored", text, "`.export_trace(PATH)` writes it."))
    if options.stacks is not None:
        try:
            profile.export_stacks(options.stacks, metric="time")
        except InputError as error:
            text = f"The stacks could not be written: {error}."
            found.append(Doubt("not-stored", text, "`.export_stacks(PATH)` writes them."))
    return replace(profile, warnings=[*found, *profile.warnings]) if found else profile
