"""Keeps what torch's profiler writes to file descriptor 2 out of the cell's output.

Each start and stop prints ``USDT: ... profiler_start`` from C++, past ``sys.stderr``. Descriptor 2 is pointed at
a temporary file for those few milliseconds; what is not the profiler's is written to the real one afterwards.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator

from .c10_symbols import log_level

__all__ = ["allocator_silenced", "profiler_silenced"]

_STDERR = 2
_PROFILER_LINE = re.compile(
    rb"[A-Z]+(\(\d+\))?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \d+:\d+ \w+\.\w+:\d+\]"  # libkineto's log
    rb"|\[[IWE]\d+ [\d:.]+ *\d* *\w*(profiler|kineto)\w*\.cpp:\d+\]"  # c10's, from torch's side of the profiler
)


@contextlib.contextmanager
def profiler_silenced() -> Iterator[None]:
    """Hold back the profiler's lines on descriptor 2; everything is put back whatever happens."""
    try:
        real = os.dup(_STDERR)
    except OSError:  # closed: there is nothing to keep clean
        yield
        return
    with tempfile.TemporaryFile(buffering=0) as held:
        os.dup2(held.fileno(), _STDERR)
        try:
            yield
        finally:
            os.dup2(real, _STDERR)
            os.close(real)
            held.seek(0)
            others = [line for line in held.read().splitlines(True) if not _PROFILER_LINE.match(line)]
            if others:
                os.write(_STDERR, b"".join(others))


_ERROR = 2  # c10's log level above WARNING


@contextlib.contextmanager
def allocator_silenced() -> Iterator[None]:
    """Keep c10 from logging each second of a run with ``profile_memory`` that it meets older blocks.

    "Memory block of unknown size was allocated before the profiling started" comes from the C++ log, which has no
    Python switch; the level is a variable of libc10. Where that cannot be found the line appears, nothing more.
    """
    level = log_level()
    if level is None:
        yield
        return
    before = level.value
    level.value = max(before, _ERROR)
    try:
        yield
    finally:
        level.value = before
