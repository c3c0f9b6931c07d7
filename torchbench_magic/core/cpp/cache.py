"""Where compiled snippets are kept: a folder of the user's, by the hash of all that decides what comes out.

Every file is written under another name and then renamed, so that kernels that compile the same thing at once do not
meet. Where the folder cannot be written, a private one serves this process, and that is said.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

__all__ = ["Cache", "the_cache"]

_KEPT_DAYS = 30


class Cache:
    """One folder of compiled things.

    Attributes:
        folder: it; made when the first thing is compiled.
        why_private: why the user's own folder does not serve; empty where it does.
    """

    def __init__(self, folder: Path, why_private: str = "") -> None:
        self.folder, self.why_private = folder, why_private

    def path(self, name: str) -> Path:
        return self.folder / name

    def used(self, path: Path) -> bool:
        """Whether it is there; then it counts as used now."""
        try:
            os.utime(path)
        except FileNotFoundError:
            return False
        except OSError:  # another user's, or a file system without writing: it may be read nevertheless
            return path.exists()
        return True

    @contextlib.contextmanager
    def making(self, path: Path) -> Iterator[Path]:
        """A private folder to make ``path`` in; see `keep`. It is gone afterwards.

        Raises:
            OSError: the folder cannot be written.
        """
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        workshop = Path(tempfile.mkdtemp(prefix=f"{path.stem}-", suffix=".tmp", dir=path.parent))
        try:
            yield workshop
        finally:
            shutil.rmtree(workshop, ignore_errors=True)

    def keep(self, workshop: Path, path: Path) -> None:
        """Put in place what was made in ``workshop`` under the name of ``path``, at once and whole.

        Raises:
            OSError: it cannot be put there.
        """
        os.replace(workshop / path.name, path)

    def prune(self, days: float = _KEPT_DAYS) -> None:
        """Remove what was not used for so long."""
        before = time.time() - days * 86400
        with contextlib.suppress(OSError):
            for path in sorted(self.folder.rglob("*"), reverse=True):  # what is in a folder before the folder
                with contextlib.suppress(OSError):  # a folder that is not empty stays
                    if path.stat().st_mtime < before:
                        path.rmdir() if path.is_dir() else path.unlink()


@cache
def _at(folder: Path) -> Cache:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        return private_cache(f"{folder} cannot be written ({error.strerror})")
    return Cache(folder)


@cache
def _private_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="torchbench-cpp-"))
    owner = os.getpid()
    atexit.register(lambda: shutil.rmtree(folder, ignore_errors=True) if os.getpid() == owner else None)
    return folder


def private_cache(why: str) -> Cache:
    """A folder that ends with this process, for the reason given."""
    return Cache(_private_folder(), why)


def the_cache() -> Cache:
    """The user's cache; ``XDG_CACHE_HOME`` names another place for it."""
    asked = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(asked) if os.path.isabs(asked) else _platform_folder()
    return _at(home / "torchbench_magic" / "cpp")


def _platform_folder() -> Path:
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
