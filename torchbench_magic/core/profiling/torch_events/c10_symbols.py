"""Names of torch's C++ library libc10 that no Python API gives, found by their symbols.

Two: the reporter that tells a profiler of memory (`memory_reporter`, for `older_blocks`), and the level of C++'s log
(`log_level`, for `muted_stderr`). libc10 is loaded with torch; asking for it again gives the same library.

What is assumed, how it is checked, and what happens where it does not hold:

**A file ``torch/lib/libc10.*``** (Linux, macOS). Checked by looking for it and loading it. Otherwise both are None, as
on Windows, whose library has other names.

**The reporter's symbols**, as g++ and clang write them (the Itanium C++ ABI, any processor):

- ``c10::ProfiledCPUMemoryReporter& c10::profiledCPUMemoryReporter()``: the one reporter of the process, its address;
- ``void c10::ProfiledCPUMemoryReporter::New(void*, size_t)``: enters a block, not virtual;
- ``void c10::ProfiledCPUMemoryReporter::Delete(void*)``: takes it out again.

A symbol spells its parameters: a function that takes others has another name and is not found. It does not spell what
is returned: that the first still returns an address is read in the sources of torch 2.13 (c10/core/CPUAllocator.h), and
checked by the tests on each torch that they run with: bytes of older blocks that are freed must be right, and torch's
own profile after ours must begin at zero. Checked at run time by looking the three names up, all or none.
Otherwise: a profile of memory says "Blocks from before the cell are in no table when they are freed, or with a wrong
size: this torch does not tell" (the doubt "older-unseen"). What the cell itself allocates and frees is right.

**``FLAGS_caffe2_log_level``**, an int. Checked by looking it up. Otherwise: c10's line "Memory block of unknown size
was allocated before the profiling started" shows on stderr, nothing more.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["Reporter", "log_level", "memory_reporter"]

_REPORTER = "_ZN3c1025profiledCPUMemoryReporterEv"
_NEW = "_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm"
_DELETE = "_ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv"
_LOG_LEVEL = "FLAGS_caffe2_log_level"

Reporter = tuple[Callable[[int, int], None], Callable[[int], None]]
"""Enter a block (address, bytes); take one out (address)."""


def memory_reporter() -> Reporter | None:
    """What tells a profiler of the CPU's blocks; None where libc10 does not show it."""
    library = _libc10()
    try:
        reporter_of, new, delete = (getattr(library, name) for name in (_REPORTER, _NEW, _DELETE))
    except AttributeError:
        return None
    reporter_of.restype, reporter_of.argtypes = ctypes.c_void_p, []
    new.restype, new.argtypes = None, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    delete.restype, delete.argtypes = None, [ctypes.c_void_p, ctypes.c_void_p]
    reporter = reporter_of()

    def enter(address: int, nbytes: int) -> None:
        new(reporter, address, nbytes)

    def take_out(address: int) -> None:
        delete(reporter, address)

    return enter, take_out


def log_level() -> ctypes.c_int | None:
    """The variable that says from which level on c10 logs (2: errors); None where libc10 does not show it."""
    library = _libc10()
    if library is None:
        return None
    try:
        return ctypes.c_int.in_dll(library, _LOG_LEVEL)
    except ValueError:
        return None


def _libc10() -> Any:
    """torch's library; None where there is none of that name."""
    import torch

    try:
        return ctypes.CDLL(str(next((Path(torch.__file__).parent / "lib").glob("libc10.*"))))
    except (OSError, StopIteration):
        return None
