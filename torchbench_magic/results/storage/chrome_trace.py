"""A profile as a Chrome trace: JSON for Perfetto, and for torch's own readers of such files.

Categories and arguments are those that torch's profiler (kineto) writes, so that what reads its files reads these:
``cpu_op``, ``user_annotation``, ``cuda_runtime``, ``kernel``, ``gpu_memcpy``, ``gpu_memset``, launches as flow events
``ac2g``. Besides, each thread with lines gets a track of them (category ``cell_line``); torch's bytes and, where
``--concurrency`` saw them, the threads that ran and waited are counters.
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from torchbench_magic.errors import TraceError
from torchbench_magic.printable import printable

from ..profiling.line_ranges import line_ranges
from ..profiling.profile import Profile
from ..profiling.source_texts import node_sources
from ..profiling.trace import KINDS, Ints, Trace, Track
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
_DECIMALS = [f".{number:03d}" for number in range(1000)]


def write_chrome_trace(profile: Profile, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """See `Profile.export_trace`. What is there is replaced, at the end, at once."""
    if profile.trace is None:
        raise TraceError("this profile has no events over time, so there is no trace to export")
    is_packed = os.fsdecode(path).endswith(".gz")
    with whole_file(path, TRACE, overwrite=overwrite) as part, _opened(part, gzipped=is_packed) as file:
        _write(file, profile, profile.trace)
        file.flush()  # what the disk has no room for is told here


@contextmanager
def _opened(path: Path, *, gzipped: bool) -> Iterator[IO[str]]:
    if not gzipped:
        with path.open("w", encoding="ascii", newline="\n") as file:
            yield file
        return
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", _LEVEL, raw, mtime=0) as packed,  # its header would hold the name of a passing file
        io.TextIOWrapper(packed, encoding="ascii", newline="\n") as file,
    ):
        yield file


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
    first = True
    for some in _events(profile, trace):
        if some:
            file.write(("" if first else ",\n") + ",\n".join(some))
            first = False
    file.write("\n]\n}\n")


def _json(value: object) -> str:
    """ASCII; without ``<``, so that it may stand in a page too."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def _text(text: str) -> str:
    """A name in JSON, as viewers show it: half of a surrogate pair, which is no character for a strict reader, and what
    would turn the order of a line are written as their escapes. The profile in the file has it as it is."""
    return _json(printable(text))


def _us(ns: Ints) -> list[str]:
    """Microseconds with all three decimals."""
    whole, part = np.divmod(np.abs(ns), 1000)
    found = [f"{us}{_DECIMALS[rest]}" for us, rest in zip(whole.tolist(), part.tolist(), strict=True)]
    for at in np.flatnonzero(ns < 0).tolist():
        found[at] = f"-{found[at]}"
    return found


# ---- events -------------------------------------------------------------------------------------------------------


def _events(profile: Profile, trace: Trace) -> Iterator[list[str]]:
    """Some at a time: there are as many texts as events, and each is needed once."""
    places, texts = _labels(profile, trace)
    yield list(_track_names(trace))
    yield from _lines(trace, texts)
    yield from _ran(trace, places)
    yield from _launches(trace)
    yield from _memory(profile, trace)
    yield list(_threads(profile, trace))


def _parts(count: int) -> Iterator[slice]:
    return (slice(at, at + _BATCH) for at in range(0, count, _BATCH))


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


def _lines(trace: Trace, texts: Sequence[str]) -> Iterator[list[str]]:
    stays = line_ranges(trace)
    known = np.array([bool(text) for text in texts], dtype=bool)[stays.node]
    key, node_of, thread_of = _different(stays.node[known], stays.thread[known])
    heads = [
        f'{{"ph":"X","cat":"cell_line","name":{texts[node]},"pid":{trace.process or 1},'
        f'"tid":{_LINE_TRACKS + thread},"ts":'
        for node, thread in zip(node_of, thread_of, strict=True)
    ]
    start, duration = stays.start[known], (stays.end - stays.start)[known]
    for part in _parts(len(key)):
        columns = key[part].tolist(), _us(start[part]), _us(duration[part])
        yield [f'{heads[at]}{ts},"dur":{dur}}}' for at, ts, dur in zip(*columns, strict=True)]


def _ran(trace: Trace, places: Sequence[str]) -> Iterator[list[str]]:
    """An event is a text that few others differ from, its times, its number and another such text."""
    events = {name: trace.events[name].to_numpy().astype(np.int64) for name in trace.events.columns}
    kind, runtime = events["kind"], KINDS.index("runtime")
    head, heads = _heads(trace, events)
    tail, tails = _tails(trace, events, places)
    number = np.where(kind <= runtime, np.arange(1, len(trace) + 1), events["launched_by"] + 1)
    calls = (kind == runtime) & (events["parent"] >= 0)
    for part in _parts(len(trace)):
        numbers: list[object] = number[part].tolist()
        for at in np.flatnonzero(calls[part]).tolist():
            numbers[at] = f'{numbers[at]},"External id":{events["parent"][part][at] + 1}'
        columns = head[part].tolist(), _us(events["start"][part]), _us(events["duration"][part]), tail[part].tolist()
        yield [
            f'{heads[first][0]}{ts},"dur":{dur},{heads[first][1]}{own}{tails[last]}'
            for first, ts, dur, last, own in zip(*columns, numbers, strict=True)
        ]


def _heads(trace: Trace, events: Mapping[str, Ints]) -> tuple[Ints, list[tuple[str, str]]]:
    """Of each event the number of its texts: up to its time, and between its duration and its number."""
    where = [_place(trace, track) for track in trace.tracks]
    names = [_text(name) for name in trace.names]
    runtime = KINDS.index("runtime")
    key, *columns = _different(events["kind"], events["name"], events["track"])
    found = []
    for kind, name, track in zip(*columns, strict=True):
        pid, tid = where[track]
        on_device = f'"device":{pid},"stream":{tid},"correlation":'
        own = '"External id":' if kind < runtime else '"correlation":' if kind == runtime else on_device
        head = f'{{"ph":"X","cat":"{_CATEGORIES[KINDS[kind]]}","name":{names[name]},"pid":{pid},"tid":{tid},"ts":'
        found.append((head, f'"args":{{{own}'))
    return key, found


def _tails(trace: Trace, events: Mapping[str, Ints], places: Sequence[str]) -> tuple[Ints, list[str]]:
    """Of each event the number of its text behind its number: its inputs, its line, and what line caused it."""
    inputs = [_inputs(texts) for texts in trace.inputs]
    key, *columns = _different(events["inputs"], events["node"], events["caused_by"])
    found = []
    for given, node, caused in zip(*columns, strict=True):
        tail = f",{inputs[given]}" if given >= 0 and inputs[given] else ""
        tail += f',"line":{places[node]}' if node >= 0 and places[node] else ""
        tail += f',"caused by":{places[caused]}' if caused >= 0 and places[caused] else ""
        found.append(f"{tail}}}}}")
    return key, found


def _different(*columns: Ints) -> tuple[Any, ...]:
    """Of each row the number of its values, then those of each number, a list per column."""
    key = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:  # each time fewer numbers than rows: no product outgrows 64 bits
        values, numbers = np.unique(column, return_inverse=True)
        _, first, key = np.unique(key * max(len(values), 1) + numbers, return_index=True, return_inverse=True)
    return key, *(column[first].tolist() for column in columns)


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
            found.append(f'"{key}":{_text(value) if isinstance(value, str) else _json(value)}')
    return ",".join(found)


def _launches(trace: Trace) -> Iterator[list[str]]:
    """An arrow from each launch to what it launched."""
    events = trace.events
    where = ['"pid":{},"tid":{}'.format(*_place(trace, track)) for track in trace.tracks]
    start, track, by = (events[name].to_numpy() for name in ("start", "track", "launched_by"))
    launched = np.flatnonzero(trace.is_on_device & (by >= 0))
    for part in _parts(len(launched)):
        rows = launched[part]
        froms, tos = ((track[at].tolist(), _us(start[at])) for at in (by[rows], rows))
        yield [
            f'{{"ph":"s","cat":"ac2g","name":"ac2g","id":{row + 1},{where[a]},"ts":{begin}}},\n'
            f'{{"ph":"f","bp":"e","cat":"ac2g","name":"ac2g","id":{row + 1},{where[b]},"ts":{end}}}'
            for row, a, begin, b, end in zip(rows.tolist(), *froms, *tos, strict=True)
        ]


def _memory(profile: Profile, trace: Trace) -> Iterator[list[str]]:
    if profile.memory is None:
        return
    ns = np.round(profile.memory["time"].to_numpy(np.float64) * 1e9).astype(np.int64)
    held, device = profile.memory["bytes"].to_numpy(), profile.memory["device"].tolist()
    heads = {
        name: f'{{"ph":"C","name":{_text(f"bytes on {name}")},"pid":{trace.process or 1},"ts":' for name in set(device)
    }
    for part in _parts(len(ns)):
        columns = device[part], _us(ns[part]), held[part].tolist()
        yield [f'{heads[name]}{ts},"args":{{"bytes":{of}}}}}' for name, ts, of in zip(*columns, strict=True)]


def _threads(profile: Profile, trace: Trace) -> Iterator[str]:
    """Mean numbers of threads with ``--concurrency``: a counter holds from its time on, a row of the timeline until."""
    if profile.concurrency is None or not len(profile.concurrency.timeline):
        return
    table = profile.concurrency.timeline
    ends = np.round(table["time"].to_numpy(np.float64) * 1e9).astype(np.int64)
    running, waiting = ([*table[name].round(2).tolist(), 0] for name in ("running", "waiting"))
    head = f'{{"ph":"C","name":"threads","pid":{trace.process or 1},"ts":'
    for ts, ran, waited in zip(_us(np.append(0, ends)), running, waiting, strict=True):
        yield f'{head}{ts},"args":{{"running":{ran},"waiting for a core":{waited}}}}}'


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
        raise TraceError("this trace was written by a newer torchbench_magic; upgrade the one here")
    packed = {name: [_of_text(*column) for column in columns] for name, columns in content["tables"].items()}
    check_packed_size((column for columns in packed.values() for column in columns), size)
    tables = {name: unpack_columns(columns) for name, columns in packed.items()}
    return profile_of(Record("Profile", content["version"], content["header"], tables))
