"""The git commit of a folder, read when a result is stored: it takes a process and some milliseconds."""

from __future__ import annotations

import os
import subprocess

__all__ = ["read_commit"]


def read_commit(folder: str | os.PathLike[str] | None = None, *, timeout: float = 2.0) -> str | None:
    """The commit that the folder's files are of, 12 hex digits, with "+" where tracked files differ from it.

    None outside a repository, before the first commit, without git, and where git takes longer than ``timeout``
    seconds (a huge tree on a network disk).

    Args:
        folder: the working folder by default; for a notebook that is where its kernel was started.
    """
    # No hook, pager or watcher of the repository's configuration is run, and its index is not rewritten.
    git = ["git", "-c", "core.fsmonitor=false", "--no-optional-locks"]
    asked = [*git, "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"]
    try:
        said = subprocess.run(
            asked, cwd=folder, capture_output=True, text=True, timeout=timeout, check=True, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return said.stdout.strip() or None
