"""The files of /proc, /sys and /dev, below a root that a test sets; what cannot be read is None, never an error."""

from __future__ import annotations

import os
from dataclasses import dataclass

__all__ = ["THIS_MACHINE", "SystemFiles"]

_CHUNK = 1 << 16


@dataclass(frozen=True)
class SystemFiles:
    """A tree of system files.

    Attributes:
        root: what stands before ``/proc``; empty is this machine.
    """

    root: str = ""

    def text(self, path: str) -> str | None:
        """The text of the file at an absolute path, stripped; None where it is missing, hidden or unreadable."""
        try:
            file = os.open(self.root + path, os.O_RDONLY)
        except (OSError, ValueError):
            return None
        try:
            parts = []
            while part := os.read(file, _CHUNK):  # a file of /proc gives a page or so at a time
                parts.append(part)
        except OSError:
            return None
        finally:
            os.close(file)
        return b"".join(parts).decode("utf-8", "replace").strip()

    def names(self, folder: str) -> list[str]:
        """What stands in a folder, sorted; nothing where it is missing or unreadable."""
        try:
            return sorted(os.listdir(self.root + folder))
        except (OSError, ValueError):
            return []

    def has(self, path: str) -> bool:
        """Whether there is a file or folder of that name."""
        return os.path.exists(self.root + path)


THIS_MACHINE = SystemFiles()
