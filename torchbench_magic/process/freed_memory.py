"""Memory that was freed, given back to the system.

What a large profile is made of, half a million events as objects of C++ and of Python, is freed as soon as it was read.
glibc's ``free`` keeps such pages for later use, as all that lies below one block that is still in use; ``malloc_trim``
gives the whole pages among them back (glibc 2.8 and newer). Other C libraries have no such function, and nothing is
done there.
"""

from __future__ import annotations

import mmap

from .machine import proc_text

LARGE = 50_000
"""Events from which a profile is large: to give back the kilobyte of C++ that each took is a millisecond for 20 MB,
where a profile of so many takes a second."""


def give_back() -> None:
    """Give whole free pages of this process back to the system; does nothing where nobody can."""
    try:
        import ctypes

        trim = ctypes.CDLL(None).malloc_trim
        trim.argtypes, trim.restype = (ctypes.c_size_t,), ctypes.c_int
    except (ImportError, AttributeError, OSError, TypeError):  # no ctypes; no such function; no such library
        return
    trim(0)


def resident_now() -> int:
    """Bytes of this process in memory, see proc(5); 0 where the system does not tell."""
    pages = proc_text("/proc/self/statm").split()
    return int(pages[1]) * mmap.PAGESIZE if len(pages) > 1 else 0
