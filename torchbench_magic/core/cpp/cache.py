"""Where compiled snippets are kept: a folder of the user's, by the hash of all that decides what comes out.

Every file is written under another name and then renamed, so that kernels that compile the same thing at once do not
meet. Where the folder cannot be written, a private one serves this process, and that is said.

What is kept is loaded into the kernel. So a file counts only where it, and the folders up to the cache's, belong to
this user and can be written by nobody else, and where its bytes are among those that were once put there: a library
that was cut off would end the kernel as it is loaded. The hashes stand beside it in ``NAME.sums``, one line for each
kernel that has compiled it.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from torchbench_magic.core.machine.cache_folder import user_cache_folder

__all__ = ["Cache", "the_cache"]

_KEPT_DAYS = 30
_MOST_BYTES = 2 << 30  # precompiled headers are 460 MB for each compiler and torch
_IN_USE = 3600.0  # seconds since a kernel took it
_BESIDE = (".sums", ".returned")
"""Endings of what belongs to a file: its hashes, and that it was seen to return."""


class Cache:
    """One folder of compiled things.

    Attributes:
        folder: it; made when the first thing is compiled.
        why_private: why the user's own folder does not serve; empty where it does.
        refused: file that was there -> why it was not taken.
    """

    def __init__(self, folder: Path, why_private: str = "") -> None:
        self.folder, self.why_private = folder, why_private
        self.refused: dict[Path, str] = {}

    def path(self, name: str) -> Path:
        return self.folder / name

    def used(self, path: Path) -> bool:
        """Whether it is there and can be trusted; then it counts as used now. Why not stands in `refused`."""
        if not path.exists() and not path.is_symlink():
            return False
        why = self._why_not(path)
        if why:
            self.refused[path] = why
            for ending in _BESIDE:
                with contextlib.suppress(OSError):
                    path.with_name(path.name + ending).unlink()
            return False
        with contextlib.suppress(OSError):  # a file system without writing: it may be read nevertheless
            os.utime(path)
        return True

    def _why_not(self, path: Path) -> str:
        folders = [folder for folder in path.parents if folder == self.folder or self.folder in folder.parents]
        why = next(filter(None, map(why_not_ours, [*reversed(folders), path])), "")
        if why:
            return why
        try:
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            known = path.with_name(f"{path.name}.sums").read_text(encoding="ascii", errors="replace").split()
        except OSError:
            return f"{path} has no hash beside it"
        return "" if found in known else f"{path} was truncated or changed after compiling"

    @contextlib.contextmanager
    def making(self, path: Path) -> Iterator[Path]:
        """A private folder to make ``path`` in; see `keep`. It is gone afterwards.

        Raises:
            OSError: the folder cannot be written.
        """
        for folder in (self.folder.parent, self.folder, path.parent):  # each with the mode; `parents` has the umask's
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
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
        made = workshop / path.name
        made.chmod(made.stat().st_mode & ~0o022)
        with made.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        sums = os.open(path.with_name(f"{path.name}.sums"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(sums, f"{digest}\n".encode())
        finally:
            os.close(sums)
        os.replace(made, path)

    def prune(self, days: float = _KEPT_DAYS, most: int = _MOST_BYTES) -> None:
        """Remove what was not used for so long, and beyond so many bytes what was not used for longest."""
        before = time.time() - days * 86400
        with contextlib.suppress(OSError):
            for path in sorted(self.folder.rglob("*"), reverse=True):  # what is in a folder before the folder
                with contextlib.suppress(OSError):  # a folder that is not empty stays
                    if path.stat().st_mtime < before and path.suffix not in _BESIDE:
                        path.rmdir() if path.is_dir() else _remove(path)
            self._shrink(most)

    def _shrink(self, most: int) -> None:
        kept = [path for path in self.folder.rglob("*") if path.is_file() and path.suffix not in _BESIDE]
        known = [(path.stat(), path) for path in kept]
        size, now = sum(about.st_size for about, _ in known), time.time()
        for about, path in sorted(known, key=lambda one: one[0].st_mtime):
            if size <= most or now - about.st_mtime < _IN_USE:
                break
            with contextlib.suppress(OSError):
                _remove(path)
                size -= about.st_size


def _remove(path: Path) -> None:
    path.unlink()
    for ending in _BESIDE:
        path.with_name(path.name + ending).unlink(missing_ok=True)


def why_not_ours(path: Path) -> str:
    """Why what stands at ``path`` may not be this user's own; empty where it is."""
    try:
        about = path.lstat()
    except FileNotFoundError:  # it is made when something is compiled
        return ""
    if stat.S_ISLNK(about.st_mode):
        return f"{path} is a link"
    if hasattr(os, "geteuid") and about.st_uid != os.geteuid():
        return f"{path} belongs to another user"
    if hasattr(os, "geteuid") and about.st_mode & 0o022:
        return f"{path} can be written by other users"
    return ""


@cache
def _at(folder: Path) -> Cache:
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # whatever the umask: group-writable is refused
        folder.mkdir(mode=0o700, exist_ok=True)
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
    try:
        home = user_cache_folder()
    except RuntimeError:  # neither HOME nor an entry of the user
        return private_cache("this user has no home folder")
    found = _at(home / "torchbench_magic" / "cpp")
    if not found.why_private:
        why = why_not_ours(found.folder.parent) or why_not_ours(found.folder)
        if why:
            return private_cache(why)
    found.refused.clear()
    return found
