"""Files that are written: whole or not at all, and never over what is something else.

A page, a trace or a file of stacks is made under another name in the same folder and then renamed. What stands there
already is replaced only where it is of the same kind (a trace over a trace, whoever wrote it), or where the caller
says so. What can be found out about a name is found out by `check_target`, before anything is measured.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torchbench_magic.errors import InputError, TraceError

_LOOKED_AT = 1 << 16
_LONGEST_NAME = 255 - len(".12345678.part")


@dataclass(frozen=True)
class FileKind:
    """A kind of file.

    Attributes:
        name: with its article, for messages.
        example: a name of one.
        is_one: whether a file that begins with these bytes (after gzip) is one.
        error: raised where one cannot be written.
    """

    name: str
    example: str
    is_one: Callable[[bytes], bool]
    error: type[InputError] = InputError


def _is_stacks(start: bytes) -> bool:
    lines = start.splitlines()
    whole = lines[:-1] if len(start) == _LOOKED_AT else lines
    return bool(whole) and all(b";" in line and line.rpartition(b" ")[2].isdigit() for line in whole)


def _is_page(start: bytes) -> bool:
    return start.lower().startswith(b"<!doctype html>") and b"<title>torchbench_magic: " in start


def _is_trace(start: bytes) -> bool:
    return start.lstrip()[:1] in (b"{", b"[") and any(
        word in start for word in (b'"traceEvents"', b'"schemaVersion"', b'"torchbench_magic"', b'"ph"')
    )


PAGE = FileKind("a page of ours", "result.html", _is_page)
STACKS = FileKind("a file of stacks", "stacks.txt", _is_stacks)
TRACE = FileKind("a trace", "trace.json.gz", _is_trace, TraceError)


def path_of(name: str | os.PathLike[str], error: type[InputError] = InputError) -> Path:
    """The path that ``name`` means, ``~`` replaced.

    Raises:
        InputError (``error``): no file can have that name, and why.
    """
    name = os.fsdecode(name)  # bytes are a name too
    shown = ascii(name)
    try:
        path = Path(name).expanduser()
        mode = path.stat().st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    except RuntimeError:
        raise error(f"{shown}: there is no user of that name; a file of the name itself is './~...'") from None
    except UnicodeError:
        raise error(f"{shown}: not a valid file name: it contains an incomplete character") from None
    except ValueError:
        raise error(f"{shown}: not a valid file name: it contains the character NUL") from None
    except OSError as problem:
        if problem.errno == errno.ENAMETOOLONG:
            raise error(f"{shown[:60]}...: file name too long; use a shorter one") from None
        if problem.errno == errno.ENOTDIR:
            raise error(f"{path}: folder {path.parent} does not exist") from None
        raise error(f"{path}: cannot be used ({problem.strerror or problem})") from None
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # opening a pipe waits for its other end
        raise error(f"{path}: is a pipe or a device, not a file; use another name")
    return path


def check_target(name: str | os.PathLike[str], kind: FileKind, *, overwrite: bool = False) -> Path:
    """Find out whether a file of ``kind`` can be written to ``name``; its path.

    Args:
        overwrite: replace a file of another kind too.

    Raises:
        InputError (that of the kind): it cannot, and why.
    """
    path, error = path_of(name, kind.error), kind.error
    if not path.name or os.fsdecode(name).endswith(os.sep):
        raise error(f"{path}: is a folder; name a file in it, such as {path / kind.example}")
    if len(os.fsencode(path.name)) > _LONGEST_NAME:
        raise error(f"{path.name[:60]}...: file name too long; use a shorter one")
    try:
        about = path.lstat()
    except FileNotFoundError:
        about = None
    if about is not None:
        mode = about.st_mode
        if stat.S_ISLNK(mode):
            raise error(f"{path}: is a link to {os.readlink(path)}; give the name of the file itself")
        if stat.S_ISDIR(mode):
            raise error(f"{path}: is a folder; name a file in it, such as {path / kind.example}")
        if not mode & 0o222 or not os.access(path, os.W_OK):
            raise error(f"{path}: cannot be written: the file is read-only; use another name")
        if not overwrite and not _may_replace(path, kind):
            way = "use another name, or replace it with `--overwrite` (in Python `overwrite=True`)"
            raise error(f"{path}: already exists and is not {kind.name}; {way}")
    if not path.parent.is_dir():
        raise error(f"{path}: folder {path.parent} does not exist")
    if not os.access(path.parent, os.W_OK):
        raise error(f"{path}: cannot be written: its folder is read-only; use another name")
    return path


def _may_replace(path: Path, kind: FileKind) -> bool:
    """An empty file may be; one that cannot be read may not."""
    try:
        with path.open("rb") as file:
            start = file.read(_LOOKED_AT)
        if start[:2] == b"\x1f\x8b":
            with gzip.open(path) as packed:
                start = packed.read(_LOOKED_AT)
    except (OSError, EOFError, zlib.error):
        return False
    return not start or kind.is_one(start)


@contextmanager
def whole_file(name: str | os.PathLike[str], kind: FileKind, *, overwrite: bool = False) -> Iterator[Path]:
    """``with whole_file(name, PAGE) as part:`` write to ``part``; it stands under its name when the block has ended.

    Where the block fails, what was there before is there still, and ``part`` is gone.

    Raises:
        InputError (that of the kind): as `check_target`; the disk is full, or whatever else keeps it from being
            written.
    """
    target = check_target(name, kind, overwrite=overwrite)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        yield part
        with contextlib.suppress(OSError):
            part.chmod(stat.S_IMODE(target.stat().st_mode))
        os.replace(part, target)
    except OSError as problem:
        raise kind.error(f"{target}: {_reason(problem)}") from None
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def _reason(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full: free some space, or use another disk"
    if error.errno == errno.EFBIG:
        return "cannot be written: it is larger than this process may write (ulimit -f)"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "cannot be written: the file or its folder is read-only; use another name"
    return f"cannot be written ({error.strerror or error})"
