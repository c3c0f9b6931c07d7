"""Which OpenMP, BLAS and allocator libraries this process has loaded, from ``/proc/self/maps``.

What is linked into another library (MKL into torch's own) has no file of its own and is not seen here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .system_files import THIS_MACHINE, SystemFiles

__all__ = ["NativeLibrary", "native_libraries"]

_KINDS = {
    "OpenMP": re.compile(r"lib(gomp|iomp5|omp)(?=[-.\d])"),
    "BLAS": re.compile(r"lib(scipy_openblas|openblas|mkl_rt|mkl_core|blis|flexiblas|cblas|blas)(?=[-_.\d])"),
    "allocator": re.compile(r"lib(jemalloc|tcmalloc|mimalloc|tbbmalloc)(?=[-_.\d])"),
}
_PACKAGES = ("/site-packages/", "/dist-packages/")
_SHARED = ("/usr/", "/lib", "/opt/")
"""Folders that belong to nobody: they may be shown whole."""


@dataclass(frozen=True, order=True)
class NativeLibrary:
    """A library that is loaded.

    Attributes:
        kind: ``OpenMP``, ``BLAS`` or ``allocator``.
        name: its family, such as ``gomp``.
        file: name of the file.
        place: the Python package that brings it, else its folder; of a folder below a home its last name only.
        path: where the file is, whole; not shown.
    """

    kind: str
    name: str
    file: str
    place: str
    path: str

    def __str__(self) -> str:
        return f"{self.file} ({self.place})"


def native_libraries(files: SystemFiles = THIS_MACHINE) -> tuple[NativeLibrary, ...] | None:
    """The libraries of these kinds, each file once, in a fixed order; None where the system does not tell."""
    maps = files.text("/proc/self/maps")
    if maps is None:
        return None
    paths = {line.split(maxsplit=5)[5] for line in maps.splitlines() if ".so" in line and line.count(" ") >= 5}
    found = set()
    for path in paths:
        file = path.rpartition("/")[2].removesuffix(" (deleted)")
        for kind, pattern in _KINDS.items():
            if match := pattern.match(file):
                found.add(NativeLibrary(kind, match[1], file, _place(path), path))
    return tuple(sorted(found))


def _place(path: str) -> str:
    for marker in _PACKAGES:
        if marker in path:
            return path.rpartition(marker)[2].partition("/")[0].removesuffix(".libs")
    folder = path.rpartition("/")[0]
    return folder if folder.startswith(_SHARED) else f"…/{folder.rpartition('/')[2]}"
