"""Client requests of valgrind, and C functions called by address, in the counting process. Nothing of it runs in a
notebook.

Why at all: callgrind is told by instructions what to count (a *client request*, valgrind.h), and a count is the same
twice only if both heaps are. Both are out of Python's reach without a compiler, so the bytes are written here:
`builtin` and `dump` (toggle the counting, dump the counts), `counting.level_heap` (bring malloc and Python's allocator
to one state), `CountedSnippet` (the function of a compiled snippet).

What is assumed, how it is checked, and what happens where it does not hold:

**Linux, an x86_64 processor, 64 bits, CPython with a GIL.** The bytes are amd64 instructions with the System V calling
convention (arguments in rdi and rsi, the answer in rax; rax, rcx and rdx may be changed); a free-threaded build has
another object header and another allocator. Checked by `why_unsupported` before anything is started.
Otherwise: ``%%timer --callgrind`` shows the times with the doubt "Instructions were not counted: instructions are
counted on ..."; the drop-in `Timer.collect_callgrind` warns and takes torch's own collector.

**Pages that are writable and executable**, for the bytes. Checked by asking for one (`executable`) as the
process starts; valgrind needs them too. Otherwise: the process ends, and the doubt says "the counting process did not
start: ... writable and executable ...". Times stay.

**Valgrind's request**: four rotations of rdi that add up to nothing and ``xchg rbx, rbx``, rax pointing to the code and
five arguments, the answer in rdx. The same since valgrind 3.0 (read in valgrind.h, tried with 3.19). Checked by
`under_valgrind` before the first job: only a valgrind that understands it answers. Otherwise: "the
process that counts did not start: not under valgrind".

**Callgrind's numbers** of its requests (``'C' << 24 | 'T' << 16`` and 2, 3, 4: callgrind.h). Checked at each job: three
files of counts must be there and add up. Otherwise: the alternative is not counted, "callgrind did not write its
counts"; a number is never shown in their place.

**CPython's C API and objects**: ``PyMethodDef``, ``METH_NOARGS``, ``PyCFunction_NewEx``,
``PyObject_Get/SetArenaAllocator`` (documented; the same in 3.11 to 3.14); ``id(x)`` is the address of x; up to 3.11 the
reference count is the first word of an object, from 3.12 on small numbers have none to change. Checked by the tests on
each Python. A wrong one would crash this process, not the notebook: "the counting process was killed".

**CPython's small objects** stand in pools of 16 KiB with a header of 48 bytes, in arenas of 1 MiB, up to 512 bytes each
(obmalloc.c from 3.10 on). Checked by a test that looks where objects come to stand. Every loop of `counting.level_heap`
is bounded, so that with other numbers it ends as well: counts are right, and those of two kernels may differ by a
little.

**glibc with mallinfo2** (2.33, of 2021). Checked by looking the name up; without it malloc's heap stays as it is, with
the same consequence. ``prctl`` and ``pthread_create`` of the C library are looked up by name too: a job ends with
"AttributeError", and is not counted, where they are missing.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import signal
import struct
import sys
from collections.abc import Callable

# Valgrind client requests from plain Python, without a compiler.
#
# A client request is a sequence of instructions without effect that valgrind recognises (valgrind.h). It is written
# into an executable page and called as a builtin function without arguments: through ctypes the call itself would cost
# 10,850 instructions a measurement, and noisy ones; this way it costs 7,741, the same each time.

Request = tuple[int, ...]

_CALLGRIND = (ord("C") << 24) | (ord("T") << 16)
TOGGLE = _CALLGRIND + 2
_DUMP = _CALLGRIND + 3
START = _CALLGRIND + 4
IS_RUNNING = 0x1001

_MOV_RAX = bytes.fromhex("48b8")
_REQUEST = bytes.fromhex("31d248c1c70348c1c70d48c1c73d48c1c7334887db")  # xor edx, edx; rol rdi, 3, 13, 61, 51; xchg
_INCREF_RAX = bytes.fromhex("48ff00")
_RET = b"\xc3"
_METH_NOARGS = 0x0004


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("meth", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_kept: list[object] = []  # pages, arguments and method definitions: they must outlive every call


def why_unsupported() -> str:
    """Why the machine code here is not for this system, processor or Python; empty where it is."""
    system, processor = platform.system(), platform.machine()
    if system != "Linux" or processor not in ("x86_64", "AMD64") or sys.maxsize <= 2**32:
        return f"instructions are counted on Linux with an x86_64 CPU; this is {system} on {processor}"
    if sys.implementation.name != "cpython" or "t" in sys.abiflags:
        kind = "free-threaded" if "t" in sys.abiflags else sys.implementation.name
        return f"instructions are counted in CPython with its global lock; this Python is {kind}"
    return ""


def executable(code: bytes) -> int:
    """Where the machine code stands from now on, to be called.

    Raises:
        OSError: the system forbids such pages.
    """
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError as error:
        raise OSError(error.errno, "this system gives no memory that is writable and executable") from error
    page.write(code)
    _kept.append(page)
    return ctypes.addressof(ctypes.c_char.from_buffer(page))


def builtin(*requests: Request) -> Callable[[], int]:
    """A function of no arguments that makes the requests, each ``(code, *arguments)``, in order, and returns 0.

    Outside valgrind it does nothing but return 0.
    """
    code = b""
    arguments = []
    for request in requests:
        array = (ctypes.c_ulong * 6)(*request, *[0] * (6 - len(request)))
        arguments.append(array)
        code += _MOV_RAX + struct.pack("<Q", ctypes.addressof(array)) + _REQUEST
    zero = 0
    code += _MOV_RAX + struct.pack("<Q", id(zero))
    if sys.version_info < (3, 12):  # small integers are immortal from there on
        code += _INCREF_RAX
    method = _MethodDef(b"request", executable(code + _RET), _METH_NOARGS, None)
    _kept.append((arguments, method))
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    made: Callable[[], int] = new(ctypes.addressof(method), None, None)
    return made


def dump(name: bytes) -> Callable[[], int]:
    """A function of no arguments that has callgrind write what it counted, as the part of that name."""
    label = ctypes.create_string_buffer(name)
    _kept.append(label)
    return builtin((_DUMP, ctypes.addressof(label)))


def under_valgrind() -> bool:
    answer = ctypes.c_ulong(0)
    array = (ctypes.c_ulong * 6)(IS_RUNNING, 0, 0, 0, 0, 0)
    code = _MOV_RAX + struct.pack("<Q", ctypes.addressof(array)) + _REQUEST
    code += bytes.fromhex("4889d0") + _RET  # mov rax, rdx
    answer.value = ctypes.CFUNCTYPE(ctypes.c_ulong)(executable(code))()
    _kept.append(array)
    return bool(answer.value)


# ---- c_calls ---------------------------------------------------------------------------------------------------------

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)  # opened before the fork: a child allocates as little as it can


def end_with_parent() -> None:
    """Let the system kill this process as soon as the one that forked it has ended."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def be_threaded() -> None:
    """Start and join a thread: a notebook has threads, and the C library locks differently from the first one on.

    The thread runs no Python, so that nothing depends on how the two are scheduled.
    """
    libc = ctypes.CDLL(None)
    thread = ctypes.c_ulong(0)
    if libc.pthread_create(ctypes.byref(thread), None, libc.getpid, None) == 0:
        libc.pthread_join(thread, None)


class CountedSnippet:
    """The function of a compiled C++ snippet that switches the collection itself (`cpp/runtime.h`).

    Args:
        library: the file.
        number: calls that are counted.
        warm: calls before.
    """

    def __init__(self, library: str, number: int, warm: int) -> None:
        self._run = ctypes.CDLL(library).torchbench_count
        self._text = ctypes.create_string_buffer(2000)
        self._given = tuple(ctypes.c_int64(n) for n in (number, warm, len(self._text)))

    def run(self) -> tuple[int, str]:
        """(status as runtime.h has it, what the code threw as "type: message")."""
        number, warm, size = self._given
        status: int = self._run(number, warm, self._text, size)
        return status, self._text.value.decode(errors="replace")
