"""``--save``, ``--trace`` and ``--stacks`` of ``%%tprofile``: files that a profile is written to."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
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

    if options.save is not None and profile.environment is not None:
        from torchbench_magic.core.machine.commit import read_commit

        profile = replace(profile, environment=replace(profile.environment, commit=read_commit()))
    found = []
    for path, write, could_not, way in (
        (options.save, profile.save, "profile could not be stored", "`.save(PATH)` writes it"),
        (options.trace, profile.export_trace, "trace could not be written", "`.export_trace(PATH)` writes it"),
        (options.stacks, partial(profile.export_stacks, metric="time"), "stacks could not be written",
         "`.export_stacks(PATH)` writes them"),
    ):  # fmt: skip
        try:
            if path is not None:
                write(path)
        except InputError as error:
            found.append(Doubt("not-stored", f"The {could_not}: {error}.", f"{way}."))
    return replace(profile, warnings=[*found, *profile.warnings]) if found else profile
