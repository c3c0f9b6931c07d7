"""Bring both heaps of this process to a canonical state, so that counts do not depend on its history.

An allocator takes more instructions where it has to search. After this, whatever is allocated next comes from fresh
memory, however the process got here: of glibc's malloc every free chunk and the rest of the top chunk are taken, of
Python's allocator every free pool and, in every size class, every free block.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from typing import Any

__all__ = ["level", "settle", "shift"]

_MOST = 400_000
_POOL, _ARENA_BITS = 16384, 20  # of CPython from 3.10 on
_kept: list[object] = []
_arenas: set[int] = set()  # that were in use when the heap was settled


class _MallInfo(ctypes.Structure):
    """``struct mallinfo2``; ``keepcost`` is the size of the top chunk."""

    _names = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    _fields_ = tuple((name, ctypes.c_size_t) for name in _names)


def settle() -> None:
    """Take what is free. The memory is never given back: this is for a process that only forks from here on."""
    _settle_malloc()
    gc.collect()
    _settle_malloc()
    _settle_python()
    _settle_malloc()


def level() -> None:
    """Take what became free since `settle`, so that nothing depends on the sizes of what was allocated meanwhile."""
    _settle_python()
    _settle_malloc()


def shift(layout: int) -> None:
    """Leave holes in both heaps, others for each ``layout``, as another history would; 0 changes nothing."""
    if not layout:
        return
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    chunks = [libc.malloc(24 + (i * 104 * layout) % 2000) for i in range(500)]
    for chunk in chunks[layout :: 2 + layout]:
        libc.free(chunk)
    blocks: list[object] = [bytes(1 + (i * 48 * layout) % 470) for i in range(2000)]
    del blocks[layout :: 2 + layout]
    _kept.append(blocks)


def _settle_malloc() -> None:
    libc = ctypes.CDLL(None)
    try:
        info: Any = libc.mallinfo2
    except AttributeError:  # glibc before 2.33, or another C library
        return
    info.restype = _MallInfo
    malloc = libc.malloc
    malloc.restype, malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    taken, top = 0, info().keepcost
    # A chunk came from the top if the top's size changed; addresses do not tell, since valgrind limits brk to 8 MiB.
    for size in [1 << k for k in range(16, 10, -1)] + list(range(1024 + 8, 8, -16)):
        while taken < _MOST:
            malloc(size)
            taken += 1
            now = info().keepcost
            if now != top:
                top = now
                break
    if top > 4096:
        malloc(top - 112)


def _settle_python() -> None:
    _arenas.update(id(o) >> _ARENA_BITS for o in gc.get_objects())  # without those that are frozen
    kept: list[object] = []
    _kept.append(kept)
    for _ in range(_MOST):
        o: object = bytes(512 - 33 - 16)
        kept.append(o)
        if (id(o) >> _ARENA_BITS) not in _arenas and (id(o) & (_POOL - 1)) < 512:
            break
    for size in range(512, 15, -16):
        make = _of_size(size)
        for _ in range(_MOST):
            o = make()
            kept.append(o)
            if (id(o) >> _ARENA_BITS) not in _arenas and (id(o) & (_POOL - 1)) < 48 + size:
                break
    _arenas.update({id(o) >> _ARENA_BITS for o in kept})


def _of_size(size: int) -> Callable[[], object]:
    """Makes objects that take ``size`` bytes each."""
    if size >= 48:
        return lambda: bytes(size - 33)
    if size == 32:
        return lambda: int("1234567")
    return object
