"""Valgrind client requests from plain Python, without a compiler.

A client request is a sequence of instructions without effect that valgrind recognises (valgrind.h). It is written
into an executable page and called as a builtin function without arguments: through ctypes the call itself would cost
10,850 instructions a measurement, and noisy ones; this way it costs 7,741, the same each time.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import struct
import sys
from collections.abc import Callable

__all__ = [
    "IS_RUNNING",
    "START",
    "TOGGLE",
    "builtin",
    "dump",
    "executable",
    "under_valgrind",
    "is_supported",
    "why_unsupported",
]

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


def is_supported() -> bool:
    """The machine code here is for this system, processor and Python."""
    return not why_unsupported()


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
    """This process runs under valgrind."""
    answer = ctypes.c_ulong(0)
    array = (ctypes.c_ulong * 6)(IS_RUNNING, 0, 0, 0, 0, 0)
    code = _MOV_RAX + struct.pack("<Q", ctypes.addressof(array)) + _REQUEST
    code += bytes.fromhex("4889d0") + _RET  # mov rax, rdx
    answer.value = ctypes.CFUNCTYPE(ctypes.c_ulong)(executable(code))()
    _kept.append(array)
    return bool(answer.value)
