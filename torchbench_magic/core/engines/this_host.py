"""What tells this process's host and Python from an engine's."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import torchbench_magic

__all__ = ["THIS_PYTHON", "boot_id", "package_folder"]

THIS_PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"


@cache
def boot_id() -> str:
    """The same for all processes of a host until it starts anew; empty where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def package_folder() -> str:
    """Of torchbench_magic in this process."""
    return str(Path(torchbench_magic.__file__).parent)
