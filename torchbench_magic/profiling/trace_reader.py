"""A Chrome trace read event by event, and what of it is torch's profiler's."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import sys
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from torchbench_magic.errors import TraceError
from torchbench_magic.printable import printable
from torchbench_magic.process.frame_owner import is_library_path

from .events import ON_DEVICE, Events, OpInputs

# ---- file ------------------------------------------------------------------------------------------------------------
# A Chrome trace read event by event, so that a file takes the memory of its text and its columns, not of its objects.

_BEST_RATIO, _ALWAYS = 50, 1 << 25
"""What a file may take unpacked: so many times its size, and so many bytes besides. One op, 20,000 times: 29."""
_SPACE = re.compile(r"[\s,]*")


class TraceFile:
    """``for event in TraceFile(path).events(): ...``

    Args:
        path: JSON, or gzip of it, whatever its name ends in.

    Attributes:
        head: keys of the file besides ``traceEvents`` that stand before it.
        size: of the file, bytes.

    Raises:
        TraceError: in one line, what is wrong with the file: missing, empty, cut off, no trace.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.head: dict[str, Any] = {}
        self.size = 0
        self._decode = json.JSONDecoder(strict=False).raw_decode

    def events(self, stop: Callable[[dict[str, Any]], bool] = lambda head: False) -> Iterator[dict[str, Any]]:
        """The events in the order of the file; none where ``stop`` says of the head read so far that it is enough."""
        text = self._text()
        at = _next(text, 0)
        if text[at : at + 1] == "{":
            found = self._read_head(text, at + 1, stop)
            if found is None:
                return
            at = found
        elif text[at : at + 1] != "[":  # the format has this form too: a bare list
            raise self._wrong("is not a Chrome trace: it is not JSON")
        at = _next(text, at + 1)
        while text[at : at + 1] != "]":
            event, at = self._value(text, at)
            if isinstance(event, dict):
                yield event

    def _text(self) -> str:
        if self.path.is_dir():
            raise self._wrong("is a folder; name a file in it")
        try:
            with self.path.open("rb") as raw:
                packed = raw.peek(2)[:2] == b"\x1f\x8b"
                self.size = os.fstat(raw.fileno()).st_size
                most = _BEST_RATIO * self.size + _ALWAYS
                with gzip.GzipFile(fileobj=raw) if packed else raw as file:
                    content = file.read(most + 1)
        except FileNotFoundError:
            raise self._wrong("no such file") from None
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise self._wrong(f"its gzip data is broken ({error}): copy it again") from None
        except OSError as error:
            raise self._wrong(f"cannot be read ({error.strerror or error})") from None
        if not content:
            raise self._wrong("is empty")
        if len(content) > most:
            raise self._wrong(
                f"unpacks to more than {_BEST_RATIO} times its size, which no trace does; it was not read"
            )
        return content.decode("utf-8", "replace")

    def _read_head(self, text: str, at: int, stop: Callable[[dict[str, Any]], bool]) -> int | None:
        """Where the list of events begins; None where ``stop`` says so."""
        at = _next(text, at)
        while text[at : at + 1] != "}":
            key, at = self._value(text, at)
            if not isinstance(key, str) or text[at : at + 1] != ":":
                raise self._wrong("is not a Chrome trace: its JSON is not valid")
            at = _next(text, at + 1)
            if key == "traceEvents" and text[at : at + 1] == "[":
                return at
            self.head[key], at = self._value(text, at)
            if stop(self.head):
                return None
        raise self._wrong("is JSON but not a Chrome trace: it has no traceEvents")

    def _value(self, text: str, at: int) -> tuple[Any, int]:
        """The JSON value at a place, and where the next one begins."""
        try:
            value, end = self._decode(text, at)
        except RecursionError:
            raise self._wrong("is not a Chrome trace: its JSON is nested too deeply to be read") from None
        except json.JSONDecodeError as error:
            if len(text) - error.pos < len("false") or error.msg.startswith("Unterminated string"):
                raise self._wrong("is cut off: export or copy it again") from None
            near = printable(text[max(error.pos - 20, 0) : error.pos + 20])
            raise self._wrong(f"is not a Chrome trace, or is damaged: its JSON is not valid near {near}") from None
        return value, _next(text, end)

    def _wrong(self, what: str) -> TraceError:
        return TraceError(f"{self.path}: {what}")


def _next(text: str, at: int) -> int:
    """The place of the next character that is neither a space nor a comma."""
    space = _SPACE.match(text, at)
    return space.end() if space is not None else at


@contextmanager
def opened_trace(path: Path, level: int) -> Iterator[IO[str]]:
    """To be written, as gzip of that level; plain where it is 0."""
    if not level:
        with path.open("w", encoding="ascii", newline="\n") as file:
            yield file
        return
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", level, raw, mtime=0) as packed,  # its header would hold the name of a passing file
        io.TextIOWrapper(packed, encoding="ascii", newline="\n") as file,
    ):
        yield file


# ---- chrome_events ---------------------------------------------------------------------------------------------------

_OPS = frozenset({"cpu_op", "user_annotation"})
_RUNTIMES = frozenset(
    {"cuda_runtime", "cuda_driver", "xpu_runtime", "xpu_driver", "privateuse1_runtime", "privateuse1_driver"}
)
_HOST = _OPS | _RUNTIMES
_NUMBERS = (
    *("name", "kind", "device", "start", "end", "native", "fwd", "seq", "corr", "link", "nbytes"),
    *("address", "inputs"),
)
_NO_INPUTS = ("[]", "[]", "[]")
_LIBRARIES = frozenset({"torch", "IPython", "ipykernel", "torchbench_magic"})
_NONE, _UNKNOWN = -1, -2  # no address, since no memory event; one that the file does not tell
_CPU = 0  # torch's DeviceType


@dataclass(frozen=True)
class StoredTrace:
    """What a trace file holds of torch's profiler.

    Attributes:
        events: ops, runtime calls, what ran on devices, memory; sorted by (start, -end).
        thread_names: by thread id.
        process: the process that most host events are of.
        other: categories of events that are none of torch's, with their number.
    """

    events: Events
    thread_names: Mapping[int, str]
    process: int
    other: Mapping[str, int]


def read_chrome_events(events: Iterable[Mapping[str, Any]], base: int) -> StoredTrace:
    """Read ``events`` once; times are microseconds after ``base`` (Unix ns)."""
    flat = array("q")  # the numbers of `_NUMBERS`, event after event
    names: dict[str, int] = {}
    kinds: dict[str, int] = {}
    devices: dict[str, int] = {"cpu": 0}
    texts: dict[tuple[str, str, str], int] = {_NO_INPUTS: 0}
    thread_names: dict[int, str] = {}
    processes: dict[int, int] = {}
    other: dict[str, int] = {}
    for event in events:
        phase, category = event.get("ph"), str(event.get("cat", ""))
        given = event.get("args")
        args: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
        if phase == "M":
            if event.get("name") == "thread_name" and "name" in args:
                thread_names[_int(event.get("tid"))] = str(args["name"])
            continue
        is_memory = event.get("name") == "[memory]" and phase == "i"
        if not (is_memory or (phase == "X" and (category in _HOST or category in ON_DEVICE))):
            if phase == "X" and category != "python_function":
                other[category] = other.get(category, 0) + 1
            continue
        start = base + _ns(event.get("ts"))
        on_device = category in ON_DEVICE
        if not on_device:
            process = _int(event.get("pid"))
            processes[process] = processes.get(process, 0) + 1
        external = _int(args.get("External id"))
        forward = _int(args.get("Fwd thread id"))
        is_op = category in _OPS
        flat.extend(
            (
                names.setdefault(str(event.get("name", "")), len(names)),
                kinds.setdefault("cpu_instant_event" if is_memory else category, len(kinds)),
                devices.setdefault(_device(args, is_memory), len(devices)) if is_memory or on_device else 0,
                start,
                start if is_memory else start + max(_ns(event.get("dur")), 0),
                _int(args.get("stream", event.get("tid"))) if on_device else _int(event.get("tid")),
                forward,
                _int(args.get("Sequence number"), -1) if is_op else -1,
                external if is_op else _int(args.get("correlation")),
                0 if is_op else external,
                _int(args.get("Bytes")) if is_memory else 0,
                _int(args.get("Addr"), _UNKNOWN) if is_memory else _NONE,
                texts.setdefault(_inputs_read(args), len(texts)) if "Input Dims" in args else 0,
            )
        )
    table = np.array(flat, dtype=np.int64).reshape(-1, len(_NUMBERS)).T
    del flat
    made = {name: np.ascontiguousarray(column) for name, column in zip(_NUMBERS, table, strict=True)}
    address, index = made.pop("address"), made.pop("inputs")
    made["tid"], made["scope"] = made["native"].copy(), (made["fwd"] > 0).astype(np.int64)
    _number_threads(made)
    made["block"] = _blocks(made["start"], made["nbytes"], address)
    with_inputs = OpInputs(tuple(texts), index) if len(texts) > 1 else None
    read = Events(tuple(names), tuple(kinds), tuple(devices), **made, inputs=with_inputs)
    read = read.where(np.lexsort((-read.end, read.start)))
    process = max(processes, key=lambda pid: processes[pid], default=0)
    return StoredTrace(read, thread_names, process, other)


def _blocks(start: NDArray[np.int64], nbytes: NDArray[np.int64], address: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number of the block of each memory event: that of the last allocation at its address; -1 where not known."""
    blocks = np.full(len(start), -1, dtype=np.int64)
    changes = np.flatnonzero(address != _NONE)
    alive: dict[int, int] = {}
    for event in changes[np.lexsort((nbytes[changes], start[changes]))].tolist():  # at one moment frees come first
        at = int(address[event])
        if nbytes[event] > 0:
            alive[at] = blocks[event] = event
        elif at != _UNKNOWN:
            blocks[event] = alive.pop(at, -1)
    return blocks


def _number_threads(columns: Mapping[str, NDArray[np.int64]]) -> None:
    """Give the forward thread the number that backward nodes name it by: torch's own, which is not in the file.

    That is known only where they all name one; then it is the thread with the most ops of the autograd graph.
    """
    named = np.unique(columns["fwd"][columns["fwd"] > 0])
    forward = columns["native"][(columns["seq"] >= 0) & (columns["fwd"] == 0)]
    if len(named) == 1 and len(forward):
        threads, counts = np.unique(forward, return_counts=True)
        columns["tid"][columns["native"] == threads[counts.argmax()]] = named[0]


def _int(value: object, otherwise: int = 0) -> int:
    """A number of the file; ``otherwise`` for what is none (a thread may be called ``"python"``)."""
    if value.__class__ is int and -(2**62) < value < 2**62:  # the usual one
        return value
    try:
        number = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return otherwise
    return number if -(2**62) < number < 2**62 else otherwise


def _ns(us: object) -> int:
    try:
        return _int(round(float(us) * 1000))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return 0


def _device(args: Mapping[str, Any], is_memory: bool) -> str:
    if is_memory:
        return "cpu" if _int(args.get("Device Type")) == _CPU else f"cuda:{_int(args.get('Device Id'))}"
    return f"cuda:{_int(args.get('device'))}"


def _inputs_read(args: Mapping[str, Any]) -> tuple[str, str, str]:
    return (
        repr(args.get("Input Dims", [])),
        repr(args.get("Input type", [])),
        repr(args.get("Input Strides", [])),
    )


def is_own_frame(name: str) -> bool:
    """Whether a frame is of the user's code: not of torch, the standard library, or a function without a file.

    torch cuts the folders of ``sys.path`` off, so that a library's file begins with the library's name.
    """
    file, found, _ = name.partition("(")
    if not found or not file.endswith(".py"):
        return False
    first = file.replace("\\", "/").partition("/")[0].removesuffix(".py")
    return not is_library_path(file) and first not in _LIBRARIES and first not in sys.stdlib_module_names
