"""The traces of all ranks as one: process = rank, times on the first rank's clock."""

from __future__ import annotations

import gzip
import io
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from torchbench_magic.core.profiling.torch_events.paused_collector import collector_paused
from torchbench_magic.core.profiling.traces.trace_file import TraceFile
from torchbench_magic.errors import TraceError
from torchbench_magic.printable import printable
from torchbench_magic.results.ranks.rank_profiles import RankProfile
from torchbench_magic.results.written_files import TRACE, path_of, whole_file

from .rank_recording import MERGED_KEY

__all__ = ["write_merged_trace"]

_BATCH = 2000
_LEVEL = 1  # of gzip: the trace is large and read once
_OF_PROCESSES = frozenset({"process_name", "process_labels", "process_sort_index"})


def write_merged_trace(profile: RankProfile, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """See `RankProfile.merged_trace`."""
    if profile.profiles:
        with tempfile.TemporaryDirectory(prefix="torchbench-merged-") as folder:
            files = tuple(os.path.join(folder, f"rank{rank}.json") for rank in profile.ranks["rank"])
            for each, name in zip(profile.profiles, files, strict=True):
                each.export_trace(name)
            write_merged_trace(replace(profile, profiles=(), files=files), path, overwrite=overwrite)
        return
    target = path_of(path, TraceError)
    if target.exists() and any(Path(file).exists() and target.samefile(file) for file in profile.files):
        raise TraceError(f"{target}: is the trace of one of the ranks; use another name")
    with whole_file(path, TRACE, overwrite=overwrite) as part, _opened(part, packed=str(path).endswith(".gz")) as file:
        _write(file, profile)
        file.flush()


@contextmanager
def _opened(path: Path, *, packed: bool) -> Iterator[IO[str]]:
    if not packed:
        with path.open("w", encoding="ascii", newline="\n") as file:
            yield file
        return
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", _LEVEL, raw, mtime=0) as inner,
        io.TextIOWrapper(inner, encoding="ascii", newline="\n", write_through=False) as file,
    ):
        yield file


def _write(file: IO[str], profile: RankProfile) -> None:
    encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
    base: int | None = None
    for number, (name, row) in enumerate(zip(profile.files, _clocks(profile), strict=True)):
        rank, offset_ns = row
        trace = TraceFile(Path(name))
        with collector_paused():
            events = trace.events()
            first = next(events, None)
            own = _base(trace.head)
            if base is None:
                base = own
                ranks = [int(each) for each in profile.ranks["rank"]]
                head = {"schemaVersion": 1, "displayTimeUnit": "ms", "baseTimeNanoseconds": base, MERGED_KEY: ranks}
                file.write(encode(head)[:-1] + ',"traceEvents":[\n')
            shift = (own - base - offset_ns) / 1000
            batch: list[Mapping[str, Any]] = list(_process(rank, profile.hosts[number]))
            if first is not None:
                batch += _moved(first, rank, shift)
            written = number > 0
            for event in events:
                batch += _moved(event, rank, shift)
                if len(batch) >= _BATCH:
                    file.write((",\n" if written else "") + encode(batch)[1:-1])
                    written = True
                    batch = []
            if batch:
                file.write((",\n" if written else "") + encode(batch)[1:-1])
    file.write("\n]}\n")


def _clocks(profile: RankProfile) -> Iterator[tuple[int, int]]:
    """(rank, ns its clock is ahead): the middle of the bounds, as in the profile."""
    for rank, low, high in profile.clock_error.itertuples(index=False):
        known = abs(low) != float("inf") and abs(high) != float("inf")
        yield int(rank), round((low + high) / 2 * 1e9) if known else 0


def _base(head: Mapping[str, Any]) -> int:
    base = head.get("baseTimeNanoseconds", 0)
    return base if isinstance(base, int) and 0 <= base < 2**62 else 0


def _process(rank: int, host: str) -> Iterator[Mapping[str, Any]]:
    name = printable(f"rank {rank} ({host})" if host else f"rank {rank}")
    yield {"ph": "M", "name": "process_name", "pid": rank, "tid": 0, "args": {"name": name}}
    yield {"ph": "M", "name": "process_sort_index", "pid": rank, "tid": 0, "args": {"sort_index": rank}}


def _moved(event: dict[str, Any], rank: int, shift: float) -> tuple[dict[str, Any], ...]:
    """The event on the common clock, in the process of its rank; flows keep to their rank."""
    if event.get("ph") == "M":
        if event.get("name") in _OF_PROCESSES:
            return ()
    elif isinstance(at := event.get("ts"), int | float):
        event["ts"] = round(at + shift, 3)
    if "id" in event:
        event["id"] = f"{rank}:{event['id']}"
    pid = event.get("pid")
    event["pid"] = rank if isinstance(pid, int) or not pid or str(pid).isdigit() else f"{rank} {pid}"
    return (event,)
