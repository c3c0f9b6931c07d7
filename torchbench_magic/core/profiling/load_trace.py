"""A stored Chrome trace as a `Profile`, so that a run of a script can be looked at in a notebook."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any

import numpy as np

from torchbench_magic.errors import StoreError, TraceError
from torchbench_magic.results.doubts import Doubt
from torchbench_magic.results.profiling.columns import LINE_COLUMNS, frame_of
from torchbench_magic.results.profiling.profile import Profile, ProfileOptions, Source
from torchbench_magic.results.storage.chrome_trace import OWN_KEY, embedded_profile
from torchbench_magic.results.written_files import path_of

from .joining.attribution import Joined, RunThreads, join_ops_and_lines, without_repeats
from .joining.device_time import LAUNCHES
from .joining.joined_run import join_the_rest
from .joining.segments import Codes
from .large_profiles import settled
from .profile_tables import lay_out
from .recording.streams import LineRecord
from .traces.chrome_events import StoredTrace, is_own_frame, read_chrome_events, record_of_frames
from .traces.trace_file import TraceFile

__all__ = ["load_trace"]


def load_trace(path: str | os.PathLike[str]) -> Profile:
    """Read a Chrome trace of torch's profiler (``prof.export_chrome_trace``, gzip or not) or of ours.

    Ours (``Profile.export_trace``) comes back as the profile it was. Of torch's there are ops, device time, bytes
    and the order in time; ``wall_time`` is the span of the recorded host events. Lines are in such a file only as
    functions, of a run ``with_stack=True``: then each op stands on the ``def`` line of the function of yours that it
    ran in, and ``.warnings`` says so. The file is read as a stream: see the figures in
    `trace_file`.

    Raises:
        TraceError: the file is missing, empty, cut off, or no trace of torch's profiler; in one line.
    """
    __tracebackhide__ = True
    try:
        return settled(_read(TraceFile(path_of(path, TraceError)), time.perf_counter()))
    except TraceError as error:  # says it in one line: where its reader was says nothing of the file
        raise error.with_traceback(None) from None


def _read(file: TraceFile, started: float) -> Profile:
    stored = read_chrome_events(file.events(stop=lambda head: OWN_KEY in head), 0)
    if OWN_KEY in file.head:
        return _own(file)
    base = file.head.get("baseTimeNanoseconds", 0)
    return _profile(file, stored, base if isinstance(base, int) and 0 <= base < 2**62 else 0, started)


def _own(file: TraceFile) -> Profile:
    try:
        return embedded_profile(file.head[OWN_KEY], file.size)
    except (StoreError, ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError) as error:
        if isinstance(error, TraceError):
            raise TraceError(f"{file.path}: {error}") from None
        raise TraceError(f"{file.path}: is damaged: the profile in it cannot be read ({error})") from None


def _profile(file: TraceFile, stored: StoredTrace, base: int, started: float) -> Profile:
    events = stored.events.shifted(base)
    ops = without_repeats(events.where(events.is_op))
    if not len(ops):
        whose = f"events of {', '.join(sorted(stored.other)[:3])}" if stored.other else "no events"
        raise TraceError(f"{file.path}: is a Chrome trace without ops of torch: it holds {whose}")
    on_host = events.is_op | events.is_memory | events.is_kind(*LAUNCHES)
    begin, end = int(events.start[on_host].min()), int(events.end[on_host].max()) + 1
    frames = [(thread, s + base, e + base, name) for thread, s, e, name in stored.frames]
    record = record_of_frames(frames, is_own_frame) if frames else LineRecord("none")
    natives = _natives(stored, ops.native)
    threads = RunThreads(natives, with_python=frozenset(natives))
    joined = join_ops_and_lines(ops, record, Codes(record.codes, {}), threads, (begin, end))
    sources = {code.co_filename: Source(f"{code.co_filename}", code.co_filename, "") for code in record.codes}
    names = [stored.thread_names.get(native, f"thread {native}") for native in natives]
    changes = events.where(events.is_memory)
    laid = lay_out(join_the_rest(joined, events, changes if len(changes) else None), sources, names)
    lines = frame_of(LINE_COLUMNS, {})
    if record.streams:
        lines = laid.lines
        lines["source"] = _functions(joined, lines)
    return replace(
        laid,
        lines=lines,
        options=ProfileOptions(memory=bool(len(changes)), shapes=ops.inputs is not None),
        warnings=_doubts(file, record),
        n_events=len(events),
        n_line_events=record.n_events,
        line_source=record.source,
        profiler_time=time.perf_counter() - started,
    )


def _natives(stored: StoredTrace, natives: Any) -> tuple[int, ...]:
    """Thread ids, the main one first: that of the process's own number, else the one with the most ops."""
    found, counts = np.unique(natives, return_counts=True)
    order = [int(native) for native in found[np.argsort(-counts, kind="stable")]]
    order.sort(key=lambda native: native != stored.process)
    return tuple(order)


def _functions(joined: Joined, lines: Any) -> list[str]:
    """What stands for the text of a line: the function that begins there."""
    tree = joined.tree
    names = {
        (joined.codes[code].co_filename, line): joined.codes[code].co_name
        for code, line in zip(tree.code, tree.line, strict=True)
        if code >= 0
    }
    return [
        f"def {names[file, int(line)]}" if (file, line) in names else text
        for file, line, text in zip(lines["file"], lines["line"].fillna(-1), lines["source"], strict=True)
    ]


def _doubts(file: TraceFile, record: LineRecord) -> list[Doubt]:
    name = file.path.name
    if record.streams:
        found = [
            Doubt(
                "lines-of-functions",
                f"Read from {name}: its stacks name functions, not lines. A row is a function of yours, on its `def` "
                "line. Times per function and per op are valid.",
            )
        ]
    else:
        found = [
            Doubt(
                "no-lines",
                f"Read from {name}: a trace of torch's profiler holds no lines of the code. Times per op are valid.",
                "Profile the code with `%%tprofile`, or with `torchbench_magic.profile`, to see lines.",
            )
        ]
    if file.mended:
        count = f"{file.mended} event{'s' if file.mended > 1 else ''}"
        text = f"{count} in {name} had a quote in the name, unescaped by torch"
        found.append(Doubt("trace-mended", f"{text}; they were read all the same.", facts={"events": file.mended}))
    return found
