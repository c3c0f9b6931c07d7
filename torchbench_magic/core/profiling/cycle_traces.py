"""A trace file for each cycle of a long job."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from torchbench_magic.errors import OptionError
from torchbench_magic.results.profiling.profile import Profile
from torchbench_magic.results.written_files import path_of

__all__ = ["traces_into"]


def traces_into(folder: str | os.PathLike[str]) -> Callable[[Profile], Path]:
    """What writes the profile of each cycle into ``folder`` (made where there is none), and says where.

    Files are named by the cycle and its steps, ``cycle-1-steps-2-4.json.gz``; without a schedule ``trace.json.gz``.

    Raises:
        OptionError: the folder cannot be made.
    """
    path = path_of(folder, OptionError)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"--on-trace {folder}: {error.strerror}; give a folder, or the name of a function") from None
    written = 0

    def write(profile: Profile) -> Path:
        nonlocal written
        written += 1
        steps = f"cycle-{written}-steps-{profile.steps[0]}-{profile.steps[-1]}" if profile.steps else "trace"
        file = path / f"{steps}.json.gz"
        profile.export_trace(file)
        return file

    return write
