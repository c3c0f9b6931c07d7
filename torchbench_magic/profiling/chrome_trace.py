"""Chrome traces: a profile written for Perfetto, and a trace file as a `Profile` again."""

from __future__ import annotations

import ast
import base64
import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import IO, Any

import numpy as np

from torchbench_magic.errors import StoreError, TraceError
from torchbench_magic.files import TRACE, path_of, whole_file
from torchbench_magic.printable import printable
from torchbench_magic.result_base import Doubt
from torchbench_magic.storage.records import (
    VERSIONS,
    PackedColumn,
    Record,
    check_packed_size,
    pack_columns,
    profile_of,
    profile_record,
    unpack_columns,
)

from .attribution import LAUNCHES, RunThreads, join_ops_and_lines, without_repeats
from .join import join_the_rest
from .line_events import LineRecord
from .options import ProfileOptions
from .profile import Profile, settled
from .profile_tables import lay_out
from .schema import LINE_COLUMNS, frame_of
from .segments import Codes
from .trace import KINDS, ON_DEVICE, Trace, Track, line_ranges, node_sources
from .trace_reader import StoredTrace, TraceFile, opened_trace, read_chrome_events

# A profile as a Chrome trace: JSON for Perfetto, and for torch's own readers of such files.
#
# Categories and arguments are those that torch's profiler (kineto) writes, so that what reads its files reads these:
# ``cpu_op``, ``user_annotation``, ``cuda_runtime``, ``kernel``, ``gpu_memcpy``, ``gpu_memset``, launches as flow events
# ``ac2g``. Besides, each thread with lines gets a track of them (category ``cell_line``); torch's bytes and, where
# ``--concurrency`` saw them, the threads that ran and waited are counters.
# Names go through a JSON encoder: a file is valid whatever they hold. The profile itself is in the file too (key
# ``torchbench_magic``: the record that a store would hold, its columns in base64), so that nothing of it is lost on the
# way back.

OWN_KEY = "torchbench_magic"
LAYOUT = 1
"""Version of what stands under `OWN_KEY`."""

CATEGORIES = {
    "op": "cpu_op",
    "range": "user_annotation",
    "runtime": "cuda_runtime",
    "kernel": "kernel",
    "memcpy": "gpu_memcpy",
    "memset": "gpu_memset",
}
_LINE_TRACKS = 900_000_000  # + thread number: above any thread id that a system gives
_LEVEL = 5
_BATCH = 10_000


def write_chrome_trace(profile: Profile, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """See `Profile.export_trace`. What is there is replaced, at the end, at once."""
    if profile.trace is None:
        raise TraceError("this profile has no events over time, so there is no trace to export")
    level = _LEVEL if os.fsdecode(path).endswith(".gz") else 0
    with whole_file(path, TRACE, overwrite=overwrite) as part, opened_trace(part, level) as file:
        _write(file, profile, profile.trace)
        file.flush()  # what the disk has no room for is told here


def _write(file: IO[str], profile: Profile, trace: Trace) -> None:
    properties = [{"id": number, "name": printable(name)} for number, name in enumerate(trace.devices)]
    head = {
        "schemaVersion": 1,
        "deviceProperties": properties,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": trace.begin,
        OWN_KEY: _embedded(profile),
    }
    lines = ",\n".join(f"{_json(name)}: {_json(value)}" for name, value in head.items())
    file.write(f'{{\n{lines},\n"traceEvents": [\n')
    events, before = _events(profile, trace), ""
    while some := list(islice(events, _BATCH)):
        file.write(f"{before}{_json(some)[1:-1]}")
        before = ","
    file.write("\n]\n}\n")


_encode = json.JSONEncoder(separators=(",", ":")).encode


def _json(value: object) -> str:
    """ASCII; without ``<``, so that it may stand in a page too."""
    return _encode(value).replace("<", "\\u003c")


# ---- events -------------------------------------------------------------------------------------------------------
# Names are as viewers show them (`printable`): half of a surrogate pair, which is no character for a strict reader, and
# what would turn the order of a line are written as their escapes. The profile in the file has them as they are.

_Event = dict[str, Any]


def _events(profile: Profile, trace: Trace) -> Iterator[_Event]:
    yield from _track_names(trace)
    yield from _lines(profile, trace)
    yield from _ran(profile, trace)
    yield from _memory(profile, trace)
    yield from _threads(profile, trace)


def _place(trace: Trace, track: Track) -> tuple[int, int]:
    """Process and thread number under which a track stands: a device is a process of its own, as kineto has it."""
    return (trace.devices.index(track.device) if track.device else trace.process or 1), track.ident


def _track_names(trace: Trace) -> Iterator[_Event]:
    yield from _named("process", trace.process or 1, 0, "Python", 0)
    for number, device in enumerate(trace.devices):
        yield from _named("process", number, 0, device, 1000 + number)
    with_lines = set(trace.segments["thread"].unique().tolist())
    for order, track in enumerate(trace.tracks):
        pid, tid = _place(trace, track)
        if track.thread in with_lines:
            name = "cell lines" if track.thread == 0 else f"cell lines of {track.name}"
            yield from _named("thread", pid, _LINE_TRACKS + track.thread, name, 2 * order)
        yield from _named("thread", pid, tid, track.name, 2 * order + 1)


def _named(what: str, pid: int, tid: int, name: str, order: int) -> Iterator[_Event]:
    for key, args in (("name", {"name": printable(name)}), ("sort_index", {"sort_index": order})):
        yield {"ph": "M", "name": f"{what}_{key}", "pid": pid, "tid": tid, "ts": 0, "args": args}


def _labels(profile: Profile, trace: Trace) -> list[tuple[str, str]]:
    """Of each node ``In[3]:4`` and its text; those of a root are empty."""
    stands = zip(node_sources(trace, profile.sources), trace.nodes["line"].tolist(), strict=True)
    return [
        ("", "") if source is None else (printable(f"{source.label}:{line}"), printable(source.line(line).strip()))
        for source, line in stands
    ]


def _lines(profile: Profile, trace: Trace) -> Iterator[_Event]:
    names = [f"{label}  {text}" * bool(label) for label, text in _labels(profile, trace)]
    stays, process = line_ranges(trace), trace.process or 1
    columns = (each.tolist() for each in (stays.node, stays.thread, stays.start, stays.end))
    for node, thread, start, end in zip(*columns, strict=True):
        if names[node]:
            yield {
                "ph": "X", "cat": "cell_line", "name": names[node], "pid": process, "tid": _LINE_TRACKS + thread,
                "ts": start / 1e3, "dur": (end - start) / 1e3,
            }  # fmt: skip


def _ran(profile: Profile, trace: Trace) -> Iterator[_Event]:
    """Ops, ranges, runtime calls, and what ran on devices, with an arrow from each launch to what it launched."""
    labels = [label for label, _ in _labels(profile, trace)]
    where = [_place(trace, track) for track in trace.tracks]
    names, given = [printable(name) for name in trace.names], [_inputs_written(texts) for texts in trace.inputs]
    starts, tracks = trace.events["start"].tolist(), trace.events["track"].tolist()
    columns = (trace.events[name].tolist() for name in trace.events.columns)
    for at, (name, kind, start, duration, track, parent, by, node, caused, inputs) in enumerate(
        zip(*columns, strict=True), 1
    ):
        args: dict[str, object]
        if KINDS[kind] in ON_DEVICE:
            args = {"device": where[track][0], "stream": where[track][1], "correlation": by + 1}
        elif KINDS[kind] == "runtime":
            args = {"correlation": at, **({"External id": parent + 1} if parent >= 0 else {})}
        else:
            args = {"External id": at, **(given[inputs] if inputs >= 0 else {})}
        for key, line in (("line", node), ("caused by", caused)):
            if line >= 0 and labels[line]:
                args[key] = labels[line]
        pid, tid = where[track]
        yield {
            "ph": "X", "cat": CATEGORIES[KINDS[kind]], "name": names[name], "pid": pid, "tid": tid,
            "ts": start / 1e3, "dur": duration / 1e3, "args": args,
        }  # fmt: skip
        if by >= 0 and KINDS[kind] in ON_DEVICE:
            for end, place, moment in (({"ph": "s"}, tracks[by], starts[by]), ({"ph": "f", "bp": "e"}, track, start)):
                arrow = {"cat": "ac2g", "name": "ac2g", "id": at, "pid": where[place][0], "tid": where[place][1]}
                yield end | arrow | {"ts": moment / 1e3}


def _inputs_written(texts: tuple[str, str, str]) -> dict[str, object]:
    """Shapes, dtypes and strides under kineto's names."""
    found: dict[str, object] = {}
    for key, text in zip(("Input Dims", "Input type", "Input Strides"), texts, strict=True):
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            value = printable(text)
        if value:
            found[key] = value
    return found


def _memory(profile: Profile, trace: Trace) -> Iterator[_Event]:
    if profile.memory is None:
        return
    columns = (profile.memory[name].tolist() for name in ("device", "time", "bytes"))
    for device, seconds, held in zip(*columns, strict=True):
        yield _counter(f"bytes on {printable(device)}", trace, seconds, {"bytes": held})


def _threads(profile: Profile, trace: Trace) -> Iterator[_Event]:
    """Mean numbers of threads with ``--concurrency``: a counter holds from its time on, a row of the timeline until."""
    if profile.concurrency is None or not len(profile.concurrency.timeline):
        return
    table = profile.concurrency.timeline
    running, waiting = ([*table[name].round(2).tolist(), 0] for name in ("running", "waiting"))
    for seconds, ran, waited in zip([0.0, *table["time"].tolist()], running, waiting, strict=True):
        yield _counter("threads", trace, seconds, {"running": ran, "waiting for a core": waited})


def _counter(name: str, trace: Trace, seconds: float, args: _Event) -> _Event:
    return {"ph": "C", "name": name, "pid": trace.process or 1, "ts": round(seconds * 1e6, 3), "args": args}


# ---- the profile in the file ------------------------------------------------------------------------------------


def _embedded(profile: Profile) -> dict[str, object]:
    record = profile_record(profile)
    tables = {name: [_as_text(column) for column in pack_columns(table)] for name, table in record.tables.items()}
    return {"layout": LAYOUT, "version": record.version, "header": record.header, "tables": tables}


def _as_text(column: PackedColumn) -> list[object]:
    *what, data = column
    return [*what, base64.b64encode(data).decode("ascii")]


def _of_text(name: str, dtype: str, rows: int, codec: str, data: str) -> PackedColumn:
    return PackedColumn(name, dtype, rows, codec, base64.b64decode(data, validate=True))


def embedded_profile(content: object, size: int) -> Profile:
    """The profile that stands under `OWN_KEY` in a file of ``size`` bytes.

    Raises:
        TraceError: a newer version wrote it.
        StoreError, ValueError, TypeError, KeyError: it is damaged.
    """
    if not isinstance(content, dict):
        raise TypeError("no JSON object")
    if content["layout"] > LAYOUT or content["version"] > VERSIONS["Profile"]:
        raise TraceError("this trace was written by a newer torchbench_magic; upgrade the one here")
    packed = {name: [_of_text(*column) for column in columns] for name, columns in content["tables"].items()}
    check_packed_size((column for columns in packed.values() for column in columns), size)
    tables = {name: unpack_columns(columns) for name, columns in packed.items()}
    return profile_of(Record("Profile", content["version"], content["header"], tables))


# ---- load_trace ------------------------------------------------------------------------------------------------------


_NO_LINES = "a trace of torch's profiler holds no lines of the code. Times per op are valid."
_OURS = "Profile the code with `%%tprofile`, or with `torchbench_magic.profile`, to see lines."


def load_trace(path: str | os.PathLike[str]) -> Profile:
    """Read a Chrome trace of torch's profiler (``prof.export_chrome_trace``, gzip or not) or of ours.

    Ours (``Profile.export_trace``) comes back as the profile it was. Of torch's there are ops, device time, bytes
    and the order in time, and no lines; ``wall_time`` is the span of the recorded host events.

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
    natives = _natives(stored, ops.native)
    threads = RunThreads(natives, with_python=frozenset(natives))
    joined = join_ops_and_lines(ops, LineRecord("none"), Codes((), {}), threads, (begin, end))
    names = [stored.thread_names.get(native, f"thread {native}") for native in natives]
    changes = events.where(events.is_memory)
    laid = lay_out(join_the_rest(joined, events, changes if len(changes) else None), {}, names)
    return replace(
        laid,
        lines=frame_of(LINE_COLUMNS, {}),
        options=ProfileOptions(memory=bool(len(changes)), shapes=ops.inputs is not None),
        warnings=[Doubt("no-lines", f"Read from {file.path.name}: {_NO_LINES}", _OURS)],
        n_events=len(events),
        line_source="none",
        profiler_time=time.perf_counter() - started,
    )


def _natives(stored: StoredTrace, natives: Any) -> tuple[int, ...]:
    """Thread ids, the main one first: that of the process's own number, else the one with the most ops."""
    found, counts = np.unique(natives, return_counts=True)
    order = [int(native) for native in found[np.argsort(-counts, kind="stable")]]
    order.sort(key=lambda native: native != stored.process)
    return tuple(order)
