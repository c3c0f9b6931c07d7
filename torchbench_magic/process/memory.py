"""Memory that was freed, given back to the system.

What a large profile is made of, half a million events as objects of C++ and of Python, is freed as soon as it was read.
glibc's ``free`` keeps such pages for later use, as all that lies below one block that is still in use; ``malloc_trim``
gives the whole pages among them back (glibc 2.8 and newer). Other C libraries have no such function, and nothing is
done there.
"""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Callable
from functools import cache

from .machine import proc_text

LARGE = 50_000
"""Events from which a profile is large: to give back the kilobyte of C++ that each took is a millisecond for 20 MB,
where a profile of so many takes a second."""
_MUCH = 100_000_000
"""Bytes that are looked for again while a large profile is held: its pictures take some, and are dropped."""

_held: set[weakref.ref[object]] = set()
_is_due = False
_resident = 0  # bytes, after memory was given back the last time


def give_back() -> None:
    """Give whole free pages of this process back to the system; does nothing where nobody can."""
    global _is_due, _resident
    _is_due = False
    if (trim := _trim()) is not None:
        trim(0)
        _resident = resident_now()


@cache
def _trim() -> Callable[[int], int] | None:
    """glibc's ``malloc_trim``; None where the C library has none."""
    try:
        import ctypes

        found = ctypes.CDLL(None).malloc_trim
        found.argtypes, found.restype = (ctypes.c_size_t,), ctypes.c_int
    except (ImportError, AttributeError, OSError, TypeError):  # no ctypes; no such function; no such library
        return None
    taken: Callable[[int], int] = found
    return taken


def resident_now() -> int:
    """Bytes of this process in memory, see proc(5); 0 where the system does not tell."""
    pages = proc_text("/proc/self/statm").split()
    return int(pages[1]) * mmap.PAGESIZE if len(pages) > 1 else 0


def give_back_with(owner: object) -> None:
    """Note that ``owner`` holds much: what is freed with it, and while it is there, is to be given back."""
    _held.add(weakref.ref(owner, _gone))


def _gone(reference: weakref.ref[object]) -> None:
    """Its memory is freed only after this returns."""
    global _is_due
    _held.discard(reference)
    _is_due = True


def give_back_if_due() -> None:
    """Give back what went since this was called last: an owner that was noted, or much beside one that is there.

    Where no owner was noted it costs nothing.
    """
    if _is_due or (_held and resident_now() > _resident + _MUCH):
        give_back()
