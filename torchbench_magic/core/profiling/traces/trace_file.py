"""A Chrome trace read as a stream: event by event, so that a file takes the memory of its columns, not of its objects.

Measured with `load_trace.load_trace` on a busy machine: 17 us of processor time and 750 bytes of memory an event at the
peak. A file of 500 MB, some 1.9 million events, is half a minute and 1.4 GB.

torch 2.13 writes names of ``record_function`` unescaped, and a quote in one makes the whole file invalid JSON: such an
event is mended by the layout that kineto gives every event, and counted.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from torchbench_magic.errors import TraceError

__all__ = ["TraceFile"]

_CHUNK = 1 << 20  # characters
_LONGEST_EVENT = 1 << 20  # what is not an event within this many characters is none
_LONGEST_VALUE = 1 << 29  # of the other keys of the file
_BEST_RATIO, _ALWAYS = 50, 1 << 25
"""What a file may take unpacked: so many times its size, and so many bytes besides. One op, 20,000 times: 29."""
_SPACE = re.compile(r"[\s,]*")
_EVENT_END = re.compile(r"\n  \}(?=,?\s*[{\]])")
_NAME = re.compile(r'"name":\s*"(.*?)"\s*,\s*"pid":', re.DOTALL)


class TraceFile:
    """``for event in TraceFile(path).events(): ...``

    Args:
        path: JSON, or gzip of it, whatever its name ends in.

    Attributes:
        head: keys of the file besides ``traceEvents`` that stand before it.
        size: of the file, bytes.
        mended: events that were no valid JSON and were read all the same.

    Raises:
        TraceError: in one line, what is wrong with the file: missing, empty, cut off, no trace.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.head: dict[str, Any] = {}
        self.size = self.mended = 0
        self._text, self._at, self._ended, self._left = "", 0, False, 0
        self._decode = json.JSONDecoder(strict=False).raw_decode

    def events(self, stop: Callable[[dict[str, Any]], bool] = lambda head: False) -> Iterator[dict[str, Any]]:
        """The events in the order of the file; none where ``stop`` says of the head read so far that it is enough."""
        if self.path.is_dir():
            raise self._wrong("is a folder; name a file in it")
        try:
            with self.path.open("rb") as raw:
                start = raw.peek(4)[:4]
                if not start:
                    raise self._wrong("is empty")
                packed = start[:2] == b"\x1f\x8b"
                self.size = os.fstat(raw.fileno()).st_size
                self._left = _BEST_RATIO * self.size + _ALWAYS
                with io.TextIOWrapper(gzip.GzipFile(fileobj=raw) if packed else raw, "utf-8", "replace") as file:
                    yield from self._events(file, stop)
        except FileNotFoundError:
            raise self._wrong("no such file") from None
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise self._wrong(f"its gzip data is broken ({error}): copy it again") from None
        except OSError as error:
            raise self._wrong(f"cannot be read ({error.strerror or error})") from None

    def _wrong(self, what: str) -> TraceError:
        return TraceError(f"{self.path}: {what}")

    def _events(self, file: IO[str], stop: Callable[[dict[str, Any]], bool]) -> Iterator[dict[str, Any]]:
        first = self._next_character(file)
        if first == "[":  # the format has this form too: a bare list
            self._at += 1
            yield from self._list(file)
            return
        if first != "{":
            raise self._wrong("is not a Chrome trace: it is not JSON")
        self._at += 1
        while (character := self._next_character(file)) != "}":
            if not character:
                raise self._cut_off()
            key = self._value(file, _LONGEST_EVENT)
            if not isinstance(key, str) or self._next_character(file) != ":":
                raise self._wrong("is not a Chrome trace: its JSON is not valid")
            self._at += 1
            if key == "traceEvents" and self._next_character(file) == "[":
                self._at += 1
                yield from self._list(file)
                return
            self.head[key] = self._value(file, _LONGEST_VALUE)
            if stop(self.head):
                return
        raise self._wrong("is JSON but not a Chrome trace: it has no traceEvents")

    def _list(self, file: IO[str]) -> Iterator[dict[str, Any]]:
        while (character := self._next_character(file)) != "]":
            if not character:
                raise self._cut_off()
            event = self._value(file, _LONGEST_EVENT, mend=True)
            if isinstance(event, dict):
                yield event

    def _cut_off(self) -> TraceError:
        return self._wrong("is cut off: export or copy it again")

    def _more(self, file: IO[str], wanted: int) -> bool:
        """Read on; False at the end of the file."""
        found = file.read(wanted)
        self._left -= len(found)
        if self._left < 0:
            raise self._wrong(f"unpacks to more than {_BEST_RATIO} times its size, which no trace does; it was not"
                f" read")
        self._ended = self._ended or not found
        self._text, self._at = self._text[self._at :] + found, 0
        return bool(found)

    def _next_character(self, file: IO[str]) -> str:
        while True:
            space = _SPACE.match(self._text, self._at)
            self._at = space.end() if space is not None else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more(file, _CHUNK):
                return ""

    def _value(self, file: IO[str], longest: int, *, mend: bool = False) -> Any:
        """The JSON value at the place reached."""
        self._next_character(file)
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except RecursionError:
                raise self._wrong("is not a Chrome trace: its JSON is nested too deeply to be read") from None
            except ValueError:
                value, end = None, -1
            if end >= 0 and (end < len(self._text) or self._ended):  # a number at the end may go on
                self._at = end
                return value
            ahead = len(self._text) - self._at
            if ahead < longest and self._more(file, max(_CHUNK, ahead)):
                continue
            if mend and (value := self._mended()) is not None:
                return value
            if self._ended and end < 0:
                raise self._cut_off()
            raise self._wrong("is not a Chrome trace, or is damaged: its JSON is not valid")

    def _mended(self) -> Any:
        """The event at the place reached, where nothing but its name is not valid JSON; else None."""
        end = _EVENT_END.search(self._text, self._at)
        if end is None:
            return None
        text = self._text[self._at : end.end()]
        name = _NAME.search(text)
        if name is None:
            return None
        text = f'{text[: name.start()]}"name": {json.dumps(name[1])}, "pid": {text[name.end() :]}'
        try:
            value = json.loads(text, strict=False)
        except ValueError:
            return None
        self.mended += 1
        self._at = end.end()
        return value
