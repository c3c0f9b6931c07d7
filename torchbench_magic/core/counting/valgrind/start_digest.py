"""Which kernels may share one process that counts: those in which it would start as the same process."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["start_digest"]

_NAMESPACES = ("ipc", "mnt", "net", "pid", "user")
_PACKAGE = Path(__file__).parents[3]


def start_digest(command: Sequence[str], environment: Mapping[str, str], path: Sequence[str]) -> str:
    """A digest of all that decides how a process that counts starts, and what it may do.

    Of what it reads while it starts the times of change stand for the contents: valgrind, Python, the folders of the
    module path with each package that is imported from there, and this package.

    Args:
        command: what is started, without the names of folders that are made anew each time.
        environment: of it.
        path: folders of modules that it is told.
    """
    import torch

    user = {"uid": os.geteuid(), "gid": os.getegid(), "groups": sorted(os.getgroups())}
    process = {
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "cores": sorted(os.sched_getaffinity(0)),
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if "RLIMIT" in name},
        "umask": _line("/proc/self/status", "Umask"),
        "personality": _line("/proc/self/personality"),  # addresses that are not drawn, as under gdb
        "namespaces": {name: _namespace(name) for name in _NAMESPACES},
    }
    files = [command[0], sys.executable, torch.__file__, *path, *_inside(path), *_sources(_PACKAGE)]
    words = {"python": sys.version, "torch": torch.__version__, "process": process, "user": user}
    whole = [list(command), dict(environment), list(path), words, {name: _stamp(name) for name in files}]
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:32]


def _inside(path: Sequence[str]) -> Iterator[str]:
    for name in ("torch", "torch/lib", "torch/_C", "numpy", "cloudpickle"):
        yield from (found for folder in path if os.path.exists(found := os.path.join(folder, name)))


def _sources(package: Path) -> Iterator[str]:
    for folder, _, names in os.walk(package):
        yield from (os.path.join(folder, name) for name in names if name.endswith(".py"))


def _stamp(name: str) -> list[Any]:
    try:
        found = os.stat(name)
    except OSError:
        return []
    return [found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size]


def _namespace(name: str) -> int:
    try:
        return os.stat(f"/proc/self/ns/{name}").st_ino
    except OSError:
        return 0


def _line(name: str, word: str = "") -> str:
    try:
        with open(name) as file:
            return next((line for line in file if line.startswith(word)), "")
    except OSError:
        return ""
