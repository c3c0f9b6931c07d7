"""Traces of ranks: read as a stream or live, loaded as one `RankProfile`, merged into one trace."""

from __future__ import annotations

import glob
import json
import os
import re
import tempfile
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from torchbench_magic.array_types import Ints
from torchbench_magic.errors import TraceError
from torchbench_magic.files import TRACE, path_of, whole_file
from torchbench_magic.printable import printable
from torchbench_magic.profiling.chrome_trace import CATEGORIES
from torchbench_magic.profiling.kineto import collector_paused
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.segments import ancestors, nest
from torchbench_magic.profiling.trace import KINDS, Trace, line_ranges, node_sources
from torchbench_magic.profiling.trace_reader import TraceFile, is_own_frame, opened_trace
from torchbench_magic.result_base import Doubt

from .job_profile import RankProfile, joined_stretches
from .rank_analysis import CodePlace, RankFacts, RankRun, profile_of_ranks
from .rank_blame import CollectiveCalls, kind_of_collective
from .rank_clocks import RankClock
from .rank_recording import MERGED_KEY, RANK_KEY

# ---- rank_events -----------------------------------------------------------------------------------------------------
# The trace of one rank as a `RankRun`: read once, as a stream, into columns.
#
# Collectives have other names on each backend. gloo (torch 2.13) records the call, ``c10d::allreduce_`` (short: it only
# enqueues), and on a thread of its own the work with all waiting in it, ``gloo:all_reduce``. NCCL is seen on the
# device: ``ncclKernel_AllReduce_...`` before NCCL 2.18, ``ncclDevKernel_AllReduce_...`` since,
# ``ncclSymkDevKernel_...`` for symmetric memory; the kernel begins when its rank's stream has come and ends when all
# have. The annotations ``nccl:...`` are the enqueueing and tell nothing of that.

_CALL = ("c10d::", "_c10d_functional::", "c10d_functional::", "record_param_comms")
_WRAPPERS = (*_CALL, "autograd::engine", "torch::autograd", "DistributedDataParallel", "Optimizer", "FSDP", "CompiledF")
"""What ranges over the waiting of others: none of these is computing."""
_HOST_WORK = re.compile(r"(gloo|mpi|ucc|xccl|hccl):")
_DEVICE_WORK = re.compile(r"(nccl|rccl|oneccl|hccl)\w*", re.IGNORECASE)
_ON_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_ALONE = (", 1)", ", '1')")
"""End of the key of a collective in a group of one rank."""
_CELL = re.compile(r"In\[(\d+)\]:(\d+)")
_LINE = re.compile(r"(.+?\.py):(\d+)\b")


@dataclass
class RankColumns:
    """Events as they come.

    Attributes:
        names, keys: each with its number.
        numbers: ``ops``, ``frames``, ``lines`` and ``device`` (name, thread, start, end); ``calls``, ``host_work`` and
            ``device_work`` (key, start, end); ``steps`` and ``spans`` (start, end).
    """

    names: dict[str, int] = field(default_factory=dict)
    keys: dict[str, int] = field(default_factory=dict)
    numbers: dict[str, array[int]] = field(default_factory=lambda: defaultdict(lambda: array("q")))

    def table(self, name: str, width: int) -> Ints:
        return np.array(self.numbers[name], dtype=np.int64).reshape(-1, width)

    def take(self, events: Iterable[Mapping[str, Any]]) -> None:
        names, numbers = self.names, self.numbers
        for event in events:
            if event.get("ph") != "X":
                continue
            category, name = event.get("cat"), str(event.get("name", ""))
            try:
                start = round(float(event["ts"]) * 1000)
                end = start + max(round(float(event.get("dur") or 0) * 1000), 0)
            except (KeyError, TypeError, ValueError, OverflowError):
                continue
            if category == "cpu_op":
                numbers["ops"].extend((names.setdefault(name, len(names)), _thread(event), start, end))
                if name.startswith("c10d::") and (kind := kind_of_collective(name)):
                    numbers["calls"].extend((self._key(kind, event), start, end))
            elif category == "python_function":
                if is_own_frame(name):
                    numbers["frames"].extend((names.setdefault(name, len(names)), _thread(event), start, end))
            elif category == "cell_line":
                numbers["lines"].extend((names.setdefault(name, len(names)), _thread(event), start, end))
            elif category in _ON_DEVICE:
                if category == "kernel" and _DEVICE_WORK.match(name):
                    numbers["device_work"].extend((self._key(kind_of_collective(name), event), start, end))
                else:
                    numbers["device"].extend((names.setdefault(name, len(names)), _thread(event), start, end))
            elif category == "user_annotation":
                if _HOST_WORK.match(name):
                    numbers["host_work"].extend((self._key(kind_of_collective(name), event), start, end))
                else:
                    numbers["steps" if name.startswith("ProfilerStep") else "spans"].extend((start, end))

    def _key(self, kind: str, event: Mapping[str, Any]) -> int:
        """``kind shapes group``, the group's size last; empty for what is no collective."""
        args = _mapping(event.get("args"))
        dims: list[Any] = next((each for each in args.get("Input Dims") or () if each), [])
        if dims and not isinstance(dims[0], list):
            dims = [dims]
        group = (args.get("Process Group Name"), args.get("Process Group Ranks"), args.get("Group size"))
        told = (args.get("In msg nelems"), *group)
        text = f"{kind} {dims!r} {told!r}" if kind else ""
        return self.keys.setdefault(text, len(self.keys))


def _thread(event: Mapping[str, Any]) -> int:
    try:
        return hash(event.get("tid"))
    except TypeError:
        return 0


def read_rank(path: Path) -> RankRun:
    """The rank in a trace; its number is -1 where the trace does not say it.

    Raises:
        TraceError: the file is missing, empty, cut off, or holds no events of torch's profiler; in one line.
    """
    file, columns = TraceFile(path), RankColumns()
    columns.take(file.events())
    if MERGED_KEY in file.head:
        raise TraceError(f"{path}: is a merged trace of several ranks; give the original ones")
    run = run_of_columns(columns, _facts(file.head, str(path)))
    if run is None:
        raise TraceError(f"{path}: is a Chrome trace without ops of torch")
    return run


def run_of_columns(columns: RankColumns, facts: RankFacts) -> RankRun | None:
    """The rank of which these are the events; None where no operation of torch is among them."""
    ops, device = columns.table("ops", 4), columns.table("device", 4)
    host_work, device_work = columns.table("host_work", 3), columns.table("device_work", 3)
    steps = columns.table("steps", 2)
    every = [each[:, -2:] for each in (ops, device, host_work, device_work, steps, columns.table("spans", 2))]
    moments = np.concatenate([*every, columns.table("frames", 4)[:, -2:], columns.table("lines", 4)[:, -2:]])
    if not len(ops) and not len(device):
        return None
    names, keys = list(columns.names), list(columns.keys)
    rows, compute = _ops(ops, names)
    if len(device):
        compute = joined_stretches(device[:, 2], device[:, 3])
        for at in np.unique(device[:, 0]):
            mine = device[device[:, 0] == at]
            rows[names[at], "device"] = (len(mine), int((mine[:, 3] - mine[:, 2]).sum()))
    wanted = np.array([bool(key) and not key.endswith(_ALONE) for key in keys] + [False])
    calls, others = _calls(columns.table("calls", 3), host_work, device_work, keys, wanted)
    ended = None if facts.ended is None else (facts.ended[0], facts.ended[1] - facts.base)
    before = np.searchsorted(np.sort(ops[:, 2]), steps)  # the profiler opens one more step after the last
    run = RankRun(
        **{**vars(facts), "base": 0, "ended": ended},
        begin=int(moments[:, 0].min()),
        end=int(moments[:, 1].max()),
        steps=int((before[:, 1] > before[:, 0]).sum()),
        calls=calls,
        others=others,
        compute=compute,
        ops=rows,
        places=_places(columns, names, int(calls.end[0]) if len(calls) else 0),
    )
    return run.moved(facts.base)


def _facts(head: Mapping[str, Any], file: str) -> RankFacts:
    """What the head of a trace says of the job: ours first, since torch's is gone with the process group."""
    own, info = (_mapping(head.get(name)) for name in (RANK_KEY, "distributedInfo"))

    def number(name: str) -> int | None:
        return next((v for v in (own.get(name), info.get(name)) if isinstance(v, int) and 0 <= v < 2**31), None)

    clock, rank = _mapping(own.get("clock")), number("rank")
    offset, error = clock.get("offset_ns"), clock.get("error_ns")
    known = isinstance(offset, int) and isinstance(error, int) and abs(offset) < 2**60 and 0 <= error < 2**60
    return RankFacts(
        rank=rank if rank is not None else -1,
        clock=RankClock(str(head.get("host_name") or ""), *((offset, error) if known else ())),
        world_size=number("world_size"),
        backend=str(own.get("backend") or info.get("backend") or ""),
        grouped=_has_groups(info),
        base=_base(head),
        file=file,
        ended=_ended(own.get("ended"), own.get("ended_ns")),
        gave_way=own.get("gave_way") is True,
    )


def _ended(name: object, ns: object) -> tuple[str, int] | None:
    known = isinstance(name, str) and name.isidentifier() and isinstance(ns, int) and 0 < ns < 2**62
    return (str(name), int(str(ns))) if known else None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _ops(ops: Ints, names: list[str]) -> tuple[dict[tuple[str, str], tuple[int, int]], Ints]:
    """(op, device) -> (calls, self ns) on the host, and when ops computed: what neither wraps others nor communicates
    anywhere in it."""
    calls: Counter[int] = Counter()
    own: Counter[int] = Counter()
    is_wrapper = np.array([name.startswith(_WRAPPERS) for name in names] + [False])
    is_call = np.array([name.startswith(_CALL) for name in names] + [False])
    parts = [np.zeros((0, 2), dtype=np.int64)]
    for thread in np.unique(ops[:, 1]):
        mine = ops[ops[:, 1] == thread]
        mine = mine[np.lexsort((-mine[:, 3], mine[:, 2]))]
        nested = nest(mine[:, 2], mine[:, 3])
        lasts = np.diff(nested.time)
        inner = nested.top[:-1]
        self_ns = np.bincount(inner[inner >= 0], lasts[inner >= 0], minlength=len(mine)).astype(np.int64)
        name = mine[:, 0]
        for at, (count, ns) in enumerate(zip(np.bincount(name), np.bincount(name, self_ns), strict=True)):
            if count:
                calls[at] += int(count)
                own[at] += int(ns)
        waits = is_wrapper[name]
        inside = is_call[name]
        for each, above in ancestors(nested.parent):
            waits[above[inside[each]]] = True
        parts.append(mine[~waits][:, 2:])
    every = np.concatenate(parts)
    rows = {(names[at], "cpu"): (calls[at], own[at]) for at in calls}
    return rows, joined_stretches(every[:, 0], every[:, 1])


def _calls(
    calls: Ints, host: Ints, device: Ints, keys: list[str], wanted: NDArray[np.bool_]
) -> tuple[CollectiveCalls, Ints]:
    """Collectives with a ``wanted`` key; and the stretches of other communication."""
    work = device if len(device) else host
    work = work[np.argsort(work[:, 1], kind="stable")]
    mine = work[wanted[work[:, 0]]]
    rest = np.concatenate([work[~wanted[work[:, 0]]], host if len(device) else host[:0]])
    arrival = mine[:, 1].copy()
    if not len(device):
        calls = calls[np.argsort(calls[:, 1], kind="stable")]
        for key in np.unique(mine[:, 0]):
            at, called = np.flatnonzero(mine[:, 0] == key), calls[calls[:, 0] == key][:, 1]
            if len(called) == len(at):  # else the work itself says when it began
                arrival[at] = np.minimum(arrival[at], called)
    order = np.argsort(arrival, kind="stable")
    made = CollectiveCalls(tuple(keys[key] for key in mine[order, 0]), arrival[order], mine[order, 1], mine[order, 2])
    return made, joined_stretches(rest[:, 1], rest[:, 2])


def _has_groups(info: Mapping[str, Any]) -> bool:
    """Whether some of the ranks have a process group of their own."""
    world, groups = info.get("world_size"), info.get("pg_config")
    sizes = [_mapping(each).get("pg_size") for each in groups] if isinstance(groups, list) else []
    return isinstance(world, int) and any(isinstance(size, int) and 1 < size < world for size in sizes)


def _places(columns: RankColumns, names: list[str], since: int) -> dict[CodePlace, int]:
    """ns in each line, or else function, of the user's, without what it calls that is the user's too; ``since`` the
    first collective: what comes before it is the start of the job, which differs between ranks and is not blamed."""
    table = columns.table("lines" if columns.numbers["lines"] else "frames", 4)
    table = table[table[:, 3] > since]
    table[:, 2] = np.maximum(table[:, 2], since)
    found: Counter[CodePlace] = Counter()
    for thread in np.unique(table[:, 1]):
        mine = table[table[:, 1] == thread]
        mine = mine[np.lexsort((-mine[:, 3], mine[:, 2]))]
        nested = nest(mine[:, 2], mine[:, 3])
        inner, lasts = nested.top[:-1], np.diff(nested.time)
        own = np.bincount(mine[inner[inner >= 0], 0], lasts[inner >= 0], minlength=len(names))
        for at in np.flatnonzero(own):
            found[_place(names[at])] += int(own[at])
    return dict(found)


def _place(name: str) -> CodePlace:
    """Of ``train.py(12): augment``, as torch names functions, or of a line as `Profile.export_trace` writes it."""
    if cell := _CELL.match(name):
        return CodePlace(name, int(cell[2]), "", int(cell[1]))
    if line := _LINE.match(name):
        return CodePlace(name, int(line[2]), line[1])
    file, _, rest = name.partition("(")
    number, _, function = rest.partition("): ")
    line_number = int(number) if number.isdigit() else 1
    short = file.replace("\\", "/").rpartition("/")[2]
    return CodePlace(f"{short}:{line_number} {function}" if function != "<module>" else short, line_number, file)


# ---- live_events -----------------------------------------------------------------------------------------------------
# A rank that was profiled on an engine as a `RankRun`: from the columns of its profile, without a file between.


def run_of_profile(profile: Profile, facts: RankFacts) -> RankRun | None:
    """The rank of ``profile``; None where it ran no operation of torch."""
    if profile.trace is None:
        return None
    facts = replace(facts, base=profile.trace.begin)  # each rank's times count from when it entered the cell itself
    columns = RankColumns()
    columns.take(_events(profile.trace))
    columns.take(_lines(profile, profile.trace))
    return run_of_columns(columns, facts)


def _events(trace: Trace) -> Iterator[dict[str, Any]]:
    """As in a Chrome trace of torch's, without shapes: the k-th collective of a kind is the k-th on all ranks."""
    columns = (trace.events[each].tolist() for each in ("name", "kind", "start", "duration", "track"))
    for name, kind, start, duration, track in zip(*columns, strict=True):
        yield _event(CATEGORIES[KINDS[kind]], trace.names[name], track, start, duration)


def _event(category: str, name: str, thread: int, start: int, duration: int) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "tid": thread, "ts": start / 1000, "dur": duration / 1000}


def _lines(profile: Profile, trace: Trace) -> Iterator[dict[str, Any]]:
    sources = node_sources(trace, profile.sources)
    labels = [
        f"{source.label}:{line}" if source is not None else ""
        for source, line in zip(sources, trace.nodes["line"].tolist(), strict=True)
    ]
    stays = line_ranges(trace)
    for thread, node, start, end in zip(
        stays.thread.tolist(), stays.node.tolist(), stays.start.tolist(), stays.end.tolist(), strict=True
    ):
        if labels[node]:
            yield _event("cell_line", labels[node], thread, start, end - start)


# ---- merging ---------------------------------------------------------------------------------------------------------
# The traces of all ranks as one: process = rank, times on the first rank's clock.

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
    level = _LEVEL if str(path).endswith(".gz") else 0
    with whole_file(path, TRACE, overwrite=overwrite) as part, opened_trace(part, level) as file:
        _write(file, profile)
        file.flush()


def _write(file: IO[str], profile: RankProfile) -> None:
    encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
    base: int | None = None
    for name, host, (rank, offset_ns) in zip(profile.files, profile.hosts, _clocks(profile), strict=True):
        with collector_paused():
            trace = TraceFile(Path(name))
            events, own = list(trace.events()), _base(trace.head)
            start = ",\n"
            if base is None:
                base = own
                ranks = [int(each) for each in profile.ranks["rank"]]
                head = {"schemaVersion": 1, "displayTimeUnit": "ms", "baseTimeNanoseconds": base, MERGED_KEY: ranks}
                start = encode(head)[:-1] + ',"traceEvents":[\n'
            shift = (own - base - offset_ns) / 1000
            moved = [each for event in events for each in _moved(event, rank, shift)]
            file.write(start + encode([*_process(rank, host), *moved])[1:-1])
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


# ---- load_ranks ------------------------------------------------------------------------------------------------------

_IN_NAME = re.compile(r"rank[-_.=]?(\d+)|^profile_(\d+)\.json", re.IGNORECASE)
"""``rank3``, ``rank-3``; ``profile_3.json`` is accelerate's."""
_MOST_APART = 60.0
"""Seconds between two ranks of one job, at most, where their recordings do not overlap: clocks of hosts are closer."""


def load_ranks(traces: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> RankProfile:
    """Read one Chrome trace for each rank (``prof.export_chrome_trace``, gzip or not) and put them on one clock.

    Which rank a file is of is read from the file (``distributedInfo``, or what `rank_profile` wrote), else from its
    name (``rank3``, ``rank-3``, ``rank_3``), else taken from the order of the names, with a warning. A file that cannot
    be read is left out with a warning, as long as another one can be. Clocks: see docs/ranks.md.

    Args:
        traces: a pattern (``"traces/*.json*"``), a folder, or the files.

    Raises:
        TraceError: nothing matches, no file can be read, two are of the same rank, or they are of different jobs.
    """
    paths = _paths(traces)
    runs, doubts = [], []
    for path in paths:
        try:
            with collector_paused():
                runs.append(read_rank(path))
        except TraceError as error:
            if len(paths) == 1:
                raise
            said = f"{error}".removeprefix(f"{path}: ")
            doubts.append(Doubt("file-left-out", f"{path.name} is left out: {said}.", facts={"file": path.name}))
    if not runs:
        raise TraceError(f"none of {len(paths)} files can be read; {paths[0].name}: {doubts[0].text}")
    runs = list(_numbered(runs, doubts))
    runs.sort(key=lambda run: run.rank)
    _check_one_each(runs)
    _check_one_job(runs)
    return profile_of_ranks(runs, doubts)


def _paths(traces: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[Path]:
    if not isinstance(traces, str | os.PathLike):
        if not isinstance(traces, Iterable):
            raise TraceError(f"traces must be a pattern, a folder or a list of files, not {type(traces).__name__}")
        found = [path_of(each, TraceError) for each in traces]
        if not found:
            raise TraceError("no files were given; give a pattern such as 'traces/*.json*'")
        return list(dict.fromkeys(found))
    pattern = os.path.expanduser(os.fspath(traces))
    if os.path.isdir(pattern):
        found = [*Path(pattern).glob("*.json"), *Path(pattern).glob("*.json.gz")]
        what = f"{pattern}: no file in this folder ends in .json or .json.gz"
    else:
        there = os.path.exists(pattern)  # a name may hold brackets
        found = [Path(pattern)] if there else [Path(each) for each in glob.glob(pattern, recursive=True)]
        what = f"{pattern}: no file matches; a pattern looks like 'traces/*.json*'"
    if not found:
        raise TraceError(what)
    return sorted(found, key=lambda path: [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", str(path))])


def _numbered(runs: Sequence[RankRun], doubts: list[Doubt]) -> Iterator[RankRun]:
    """The runs, each with a rank: those that tell none by their name, else by their order among the numbers left."""
    named = [run.rank if run.rank >= 0 else _in_name(run.file) for run in runs]
    taken = {rank for rank in named if rank is not None}
    free = iter(rank for rank in range(len(runs) + len(taken)) if rank not in taken)
    by_order = [Path(run.file).name for run, rank in zip(runs, named, strict=True) if rank is None]
    if by_order:
        many = f"{len(by_order)} files do not say which rank they are" if len(by_order) > 1 else ""
        doubts.append(
            Doubt(
                "ranks-by-order",
                f"{many or f'{by_order[0]} does not say which rank it'} {'are' if many else 'is'} of: ranks are"
                " numbered in the order of the names.",
                "Name the files `rank0.json`, `rank1.json`, ...",
                facts={"files": tuple(by_order)},
            )
        )
    for run, rank in zip(runs, named, strict=True):
        yield replace(run, rank=next(free) if rank is None else rank)


def _in_name(file: str) -> int | None:
    found = ["".join(each) for each in _IN_NAME.findall(Path(file).name)]
    return int(found[-1]) if found and len(found[-1]) < 7 else None


def _check_one_each(runs: Sequence[RankRun]) -> None:
    twice = [rank for rank, count in Counter(run.rank for run in runs).items() if count > 1]
    if twice:
        files = [Path(run.file).name for run in runs if run.rank == twice[0]]
        raise TraceError(f"{files[0]} and {files[1]} are both of rank {twice[0]}; give one file for each rank")


def _check_one_job(runs: Sequence[RankRun]) -> None:
    first = runs[0]
    for run in runs[1:]:
        names = f"{Path(first.file).name} and {Path(run.file).name} are of different jobs"
        for what in ("world_size", "backend"):
            one, other = getattr(first, what), getattr(run, what)
            if one and other and one != other:
                shown = "ranks" if what == "world_size" else "as backend"
                raise TraceError(f"{names}: {one} and {other} {shown}; give the traces of one job")
        apart = (max(first.begin, run.begin) - min(first.end, run.end)) / 1e9
        if apart > (0 if run.clock.host and run.clock.host == first.clock.host else _MOST_APART):
            raise TraceError(f"{names}: one ends {apart:.3g} s before the other begins; give the traces of one job")
    too_many = [run for run in runs if run.world_size and run.rank >= run.world_size]
    if too_many:
        one = too_many[0]
        said = f"rank {one.rank} of a job of {one.world_size}"
        raise TraceError(f"{Path(one.file).name}: is named {said}; give the traces of one job")
