"""The heap and the type cache made the same before each count, in the counting process."""

from __future__ import annotations

import ctypes
import gc
import itertools
import mmap
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .client_requests import executable

# ---- type_cache ------------------------------------------------------------------------------------------------------
# Bring CPython's cache of attribute look-ups to a canonical state, so that counts do not depend on its history.
#
# The attributes of all types are found in one table of 4,096 entries. Where an entry stands is decided by the version
# tag of its type, and tags are given in the order in which types are first looked at (``MCACHE_HASH`` and
# ``assign_version_tag`` in CPython's Objects/typeobject.c). One class more, earlier in the process, moved a count by
# 300 to 500 instructions where an entry that the code uses was taken meanwhile, and by 370 a call, 1.5 % of a small
# module's, where two entries of the code itself came to stand at one place.

_ENTRIES = 1 << 12
_PER_TYPE = 500
"""Tags that one type is given; CPython from 3.12 on gives each a thousand at most."""


def level_types() -> None:
    """Forget all entries, and let the next type have a tag that is a multiple of the size of the table.

    A Python that numbers types in another way is left as it is: its counts may differ between notebooks.
    """
    last_tag = ctypes.pythonapi.PyType_ClearCache
    last_tag.restype = ctypes.c_uint
    for _ in range(4 * _ENTRIES // _PER_TYPE):
        missing = -(last_tag() + 1) % _ENTRIES
        if not missing:  # what else was looked at for the first time may have taken a tag as well
            break
        kind: Any = type("Numbered", (), {})
        for _ in range(min(missing, _PER_TYPE)):
            kind.number = 0  # its tag is no longer valid
            getattr(kind, "number")  # noqa: B009  (Python's specialised instructions might skip the look-up)


# ---- heap ------------------------------------------------------------------------------------------------------------
# Bring both heaps of this process to a canonical state, so that counts do not depend on its history.
#
# An allocator takes more instructions where it has to search. After this, whatever is allocated next comes from fresh
# memory, however the process got here: of glibc's malloc every free chunk and the rest of the top chunk are taken, and
# it has grown; of Python's allocator every free pool and, in every size class, every free block, up to the same block
# of a new pool in a new arena.

_MOST = 400_000
_POOL, _POOL_HEADER, _ARENA, _LARGEST = 16384, 48, 1 << 20, 512  # of CPython from 3.10 on
_WELL_INSIDE = 8
"""The block of its pool that a size class has come to after `level`; what was freed before is taken by then."""
_OF_THE_LOOP = (32, -(-sys.getsizeof(itertools.islice((), 0)) // 16) * 16)
"""Sizes of what `_settle_python` makes and frees itself: these blocks are taken one by one."""
_REST = 96
"""Bytes that are left of the top chunk, whose end is that of a page, before it grows."""
_GROWN_BY = 2000
"""Bytes that make the top chunk grow before anything is counted; not of a size that malloc keeps for itself when freed.

Asking the system for more takes malloc's `sysmalloc` more or fewer instructions with what it got and gave back before
(2 with its highest total), so that it had better not run while one counts.
"""
_kept: list[object] = []
_next_arena = ctypes.c_ulong(0)  # where it is to be; 0: wherever the system puts it


class _MallInfo(ctypes.Structure):
    """``struct mallinfo2``; ``keepcost`` is the size of the top chunk."""

    _names = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    _fields_ = tuple((name, ctypes.c_size_t) for name in _names)


class _ArenaAllocator(ctypes.Structure):
    _fields_ = (("ctx", ctypes.c_void_p), ("alloc", ctypes.c_void_p), ("free", ctypes.c_void_p))


def place_arenas() -> None:
    """Choose from here on where Python's allocator has its next arena; `settle` and `level` need it."""
    python = ctypes.pythonapi
    allocator = _ArenaAllocator()
    python.PyObject_GetArenaAllocator(ctypes.byref(allocator))
    # mov rcx, Q; xor eax, eax; xchg rax, [rcx]; test rax, rax; jnz to ret; mov rax, Q; jmp rax; ret
    code = struct.pack("<2sQ", b"\x48\xb9", ctypes.addressof(_next_arena)) + bytes.fromhex("31c0 488701 4885c0 750c")
    code += struct.pack("<2sQ3s", b"\x48\xb8", allocator.alloc, b"\xff\xe0\xc3")
    allocator.alloc = executable(code)
    python.PyObject_SetArenaAllocator(ctypes.byref(allocator))


def settle() -> None:
    """Take what is free. The memory is never given back: this is for a process that only forks from here on."""
    _settle_malloc()
    gc.collect()
    _settle_malloc()
    _settle_python()
    _settle_malloc()


def level() -> None:
    """Take what became free since `settle`, so that nothing depends on the sizes of what was allocated meanwhile.

    What the look-ups of attributes found is forgotten too (`level_types`).
    """
    level_types()
    gc.collect()  # gives back what Python keeps for its next lists, tuples and the like
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
    libc.free.argtypes = [ctypes.c_void_p]
    for _ in range(4):
        _take_free(malloc, info, [*(1 << k for k in range(16, 10, -1)), *range(1024 + 8, 8, -16)])
        for _ in range(4):
            if (top := info().keepcost) == _REST:
                break
            malloc(top - _REST - 16 if top >= _REST + 48 else 1 << 13)
        libc.free(malloc(_GROWN_BY))
        now = info()
        if now.fordblks == now.keepcost:  # it grew where it was: else the end of the old one is free
            break


def _take_free(malloc: Callable[[int], object], info: Callable[[], Any], sizes: Iterable[int]) -> None:
    """Chunks of each size, until one of them comes from the top."""
    taken, top = 0, info().keepcost
    # A chunk came from the top if the top's size changed; addresses do not tell, since valgrind limits brk to 8 MiB.
    for size in sizes:
        while taken < _MOST:
            malloc(size)
            taken += 1
            now = info().keepcost
            if now != top:
                top = now
                break


def _settle_python() -> None:
    """Go on to an arena that was never used, and in it, in every size class, to the same block of a new pool."""
    kept: list[object] = []
    _kept.append(kept)
    _next_arena.value = start = _new_arena()
    make = _of_size(_LARGEST)
    for _ in itertools.repeat(None, _MOST):
        kept.append(next(make))
        if not _next_arena.value:  # it is in use
            break
    for size in range(_LARGEST, 15, -16):
        make = _of_size(size)
        last = (_POOL - _POOL_HEADER) // size - 1
        for _ in itertools.repeat(None, _MOST):  # without numbers of its own
            o = next(make)
            kept.append(o)
            is_new = start <= id(o) < start + _ARENA
            if is_new and id(o) % _POOL == _POOL_HEADER + _WELL_INSIDE * size:
                break
            if not is_new and size not in _OF_THE_LOOP:
                # What is left of this pool at once, as far as one can know: Python's loop takes ten times as long.
                rest = last - (id(o) % _POOL - _POOL_HEADER) // size
                kept.extend(itertools.islice(make, max(rest, 0)))


def _new_arena() -> int:
    """The address of memory for an arena, at a multiple of its size.

    Elsewhere what frees a block takes longer in one part of the arena than in the other (`address_in_range` in
    CPython's obmalloc.c), and where the parts meet depends on everything that was mapped before.

    Raises:
        MemoryError: the system gives none.
    """
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    access, kind = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    start: int = libc.mmap(None, 2 * _ARENA, access, kind, -1, 0)
    if start == ctypes.c_void_p(-1).value:  # MAP_FAILED
        raise MemoryError("no memory for an arena of Python's allocator")
    before = -start % _ARENA
    if before:
        libc.munmap(start, before)
    libc.munmap(start + before + _ARENA, _ARENA - before)
    return start + before


def _of_size(size: int) -> Iterator[object]:
    if size >= 48:
        return map(b"".ljust, itertools.repeat(size - 33))
    if size == 32:
        return map(int, itertools.repeat("1234567"))
    return iter(object, None)
