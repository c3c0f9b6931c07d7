"""Where this user's programs keep what can be made again."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["user_cache_folder"]


def user_cache_folder() -> Path:
    """``XDG_CACHE_HOME`` where it names a place, else the platform's.

    Raises:
        RuntimeError: this user has no home folder.
    """
    asked = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(asked):
        return Path(asked)
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
