"""A profile as a Chrome trace: JSON for Perfetto, and for torch's own readers of such files.

Categories and arguments are those that torch's profiler (kineto) writes, so that what reads its files reads these:
``cpu_op``, ``user_annotation``, ``cuda_runtime``, ``kernel``, ``gpu_memcpy``, ``gpu_memset``, launches as flow events
``ac2g``. Besides, each thread with lines gets a track of them (category ``cell_line``), and torch's bytes are counters.
Names go through a JSON encoder: a file is valid whatever they hold. The profile itself is in the file too (key
``torchbench_magic``: the record that a store would hold, its columns in base64), so that nothing of it is lost on the
way back.
"""

from __future__ import annotations

import ast
import base64
import gzip
import io
import json
import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO

from torchbench_magic.errors import TraceError

from ..profiling.profile import Profile
from ..profiling.source_texts import node_sources
from ..profiling.trace import KINDS, Trace, Track, line_ranges
from ..written_files import TRACE, whole_file
from .packed_columns import PackedColumn, check_packed_size, pack_columns, unpack_columns
from .profile_record import profile_of, profile_record
from .records import VERSIONS, Record

__all__ = ["LAYOUT", "OWN_KEY", "embedded_profile", "write_chrome_trace"]

OWN_KEY = "torchbench_magic"
LAYOUT = 1
"""Version of what stands under `OWN_KEY`."""

_CATEGORIES = {
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
        raise TraceError("this profile holds no events over time, so there is no trace to export")
    is_packed = os.fspath(path).endswith(".gz")
    with whole_file(path, TRACE, overwrite=overwrite) as part, _opened(part, gzipped=is_packed) as file:
        _write(file, profile, profile.trace)
        file.flush()  # what the disk has no room for is told here


def _opened(path: Path, *, gzipped: bool) -> IO[str]:
    if gzipped:
        return io.TextIOWrapper(gzip.GzipFile(path, "wb", _LEVEL, mtime=0), encoding="ascii", newline="\n")
    return path.open("w", encoding="ascii", newline="\n")


def _write(file: IO[str], profile: Profile, trace: Trace) -> None:
    properties = [{"id": number, "name": name} for number, name in enumerate(trace.devices)]
    head = {
        "schemaVersion": 1,
        "deviceProperties": properties,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": trace.begin,
        OWN_KEY: _embedded(profile),
    }
    lines = ",\n".join(f"{_json(name)}: {_json(value)}" for name, value in head.items())
    file.write(f'{{\n{lines},\n"traceEvents": [\n')
    events, first = _events(profile, trace), True
    while some := list(islice(events, _BATCH)):
        file.write(("" if first else ",\n") + ",\n".join(some))
        first = False
    file.write("\n]\n}\n")


def _json(value: object) -> str:
    """ASCII; without ``<``, so that it may stand in a page too."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def _text(text: str) -> str:
    """A name in JSON. Half of a surrogate pair is no character for a strict reader: it is written as its escape."""
    return _json(text.encode("utf-8", "backslashreplace").decode("utf-8"))


def _us(ns: int) -> str:
    """Microseconds with all three decimals."""
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{ns // 1000}.{ns % 1000:03d}"


# ---- events -------------------------------------------------------------------------------------------------------


def _events(profile: Profile, trace: Trace) -> Iterator[str]:
    yield from _track_names(trace)
    yield from _lines(profile, trace)
    yield from _ran(profile, trace)
    yield from _launches(trace)
    yield from _memory(profile, trace)


def _place(trace: Trace, track: Track) -> tuple[int, int]:
    """Process and thread number under which a track stands: a device is a process of its own, as kineto has it."""
    return (trace.devices.index(track.device) if track.device else trace.process or 1), track.ident


def _track_names(trace: Trace) -> Iterator[str]:
    process = trace.process or 1
    yield _meta("process_name", process, 0, '"name":"Python"')
    yield _meta("process_sort_index", process, 0, '"sort_index":0')
    for number, device in enumerate(trace.devices):
        yield _meta("process_name", number, 0, f'"name":{_text(device)}')
        yield _meta("process_sort_index", number, 0, f'"sort_index":{1000 + number}')
    with_lines = set(trace.segments["thread"].unique().tolist())
    for order, track in enumerate(trace.tracks):
        pid, tid = _place(trace, track)
        if track.thread in with_lines:
            name = "cell lines" if track.thread == 0 else f"cell lines of {track.name}"
            yield _meta("thread_name", pid, _LINE_TRACKS + track.thread, f'"name":{_text(name)}')
            yield _meta("thread_sort_index", pid, _LINE_TRACKS + track.thread, f'"sort_index":{2 * order}')
        yield _meta("thread_name", pid, tid, f'"name":{_text(track.name)}')
        yield _meta("thread_sort_index", pid, tid, f'"sort_index":{2 * order + 1}')


def _meta(name: str, pid: int, tid: int, args: str) -> str:
    return f'{{"ph":"M","name":"{name}","pid":{pid},"tid":{tid},"ts":0,"args":{{{args}}}}}'


def _labels(profile: Profile, trace: Trace) -> tuple[list[str], list[str]]:
    """Of each node, ``In[3]:4`` and its text, as JSON; those of a root are empty."""
    places, texts = [], []
    for source, line in zip(node_sources(trace, profile.sources), trace.nodes["line"].tolist(), strict=True):
        label = f"{source.label}:{line}" if source is not None else ""
        places.append(_text(label) if label else "")
        texts.append(_text(f"{label}  {source.line(line).strip()}") if source is not None else "")
    return places, texts


def _lines(profile: Profile, trace: Trace) -> Iterator[str]:
    process = trace.process or 1
    _, texts = _labels(profile, trace)
    for stay in line_ranges(trace):
        if texts[stay.node]:
            yield (
                f'{{"ph":"X","cat":"cell_line","name":{texts[stay.node]},"pid":{process},'
                f'"tid":{_LINE_TRACKS + stay.thread},"ts":{_us(stay.start)},"dur":{_us(stay.end - stay.start)}}}'
            )


def _ran(profile: Profile, trace: Trace) -> Iterator[str]:
    places, _ = _labels(profile, trace)
    names = [_text(name) for name in trace.names]
    where = [_place(trace, track) for track in trace.tracks]
    inputs = [_inputs(texts) for texts in trace.inputs]
    heads = [f'{{"ph":"X","cat":"{_CATEGORIES[kind]}","name":' for kind in KINDS]
    runtime = KINDS.index("runtime")
    for row, (name, kind, start, duration, track, parent, by, node, caused, given) in enumerate(_rows(trace), 1):
        pid, tid = where[track]
        if kind < runtime:
            args = f'"External id":{row}'
        elif kind == runtime:
            args = f'"correlation":{row}' + (f',"External id":{parent + 1}' if parent >= 0 else "")
        else:
            args = f'"device":{pid},"stream":{tid},"correlation":{by + 1 if by >= 0 else 0}'
        if given >= 0 and inputs[given]:
            args += f",{inputs[given]}"
        if node >= 0 and places[node]:
            args += f',"line":{places[node]}'
        if caused >= 0 and places[caused]:
            args += f',"caused by":{places[caused]}'
        yield (
            f'{heads[kind]}{names[name]},"pid":{pid},"tid":{tid},"ts":{_us(start)},"dur":{_us(duration)},'
            f'"args":{{{args}}}}}'
        )


def _rows(trace: Trace) -> Iterable[tuple[int, ...]]:
    return zip(*(trace.events[name].tolist() for name in trace.events.columns), strict=True)


def _inputs(texts: tuple[str, str, str]) -> str:
    """Shapes, dtypes and strides under kineto's names."""
    keys = ("Input Dims", "Input type", "Input Strides")
    found = []
    for key, text in zip(keys, texts, strict=True):
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            value = text
        if value:
            found.append(f'"{key}":{_json(value)}')
    return ",".join(found)


def _launches(trace: Trace) -> Iterator[str]:
    """An arrow from each launch to what it launched."""
    events = trace.events
    where = [_place(trace, track) for track in trace.tracks]
    launched = events[trace.is_on_device & (events["launched_by"].to_numpy() >= 0)]
    start, track = events["start"].tolist(), events["track"].tolist()
    for row, by in zip(launched.index.tolist(), launched["launched_by"].tolist(), strict=True):
        (pid, tid), (there_pid, there_tid) = where[track[by]], where[track[row]]
        ends = f'"cat":"ac2g","name":"ac2g","id":{row + 1}'
        yield f'{{"ph":"s",{ends},"pid":{pid},"tid":{tid},"ts":{_us(start[by])}}}'
        yield f'{{"ph":"f","bp":"e",{ends},"pid":{there_pid},"tid":{there_tid},"ts":{_us(start[row])}}}'


def _memory(profile: Profile, trace: Trace) -> Iterator[str]:
    if profile.memory is None:
        return
    process = trace.process or 1
    for seconds, held, device in profile.memory[["time", "bytes", "device"]].itertuples(index=False):
        ts = _us(round(seconds * 1e9))
        yield f'{{"ph":"C","name":{_text(f"bytes on {device}")},"pid":{process},"ts":{ts},"args":{{"bytes":{held}}}}}'


# ---- the profile in the file ------------------------------------------------------------------------------------


def _embedded(profile: Profile) -> dict[str, object]:
    record = profile_record(profile)
    tables = {name: [_as_text(column) for column in pack_columns(table)] for name, table in record.tables.items()}
    return {"layout": LAYOUT, "version": record.version, "header": record.header, "tables": tables}


def _as_text(column: PackedColumn) -> list[object]:
    data = base64.b64encode(column.data).decode("ascii")
    return [column.name, column.dtype, column.rows, column.codec, data]


def _of_text(name: str, dtype: str, rows: int, codec: str, data: str) -> PackedColumn:
    return PackedColumn(name, dtype, rows, codec, base64.b64decode(data, validate=True))


def embedded_profile(content: object, size: int) -> Profile:
    """The profile that stands under `OWN_KEY`.

    Args:
        size: bytes of the file.

    Raises:
        TraceError: a newer version wrote it.
        StoreError, ValueError, TypeError, KeyError: it is damaged.
    """
    if not isinstance(content, dict):
        raise TypeError("no JSON object")
    if content["layout"] > LAYOUT or content["version"] > VERSIONS["Profile"]:
        raise TraceError("a newer torchbench_magic wrote this trace; upgrade this one")
    packed = {name: [_of_text(*column) for column in columns] for name, columns in content["tables"].items()}
    check_packed_size((column for columns in packed.values() for column in columns), size)
    tables = {name: unpack_columns(columns) for name, columns in packed.items()}
    return profile_of(Record("Profile", content["version"], content["header"], tables))
