"""The trace of one rank as a `RankRun`: read once, as a stream, into columns.

Collectives have other names on each backend. gloo (torch 2.13) records the call, ``c10d::allreduce_`` (short: it only
enqueues), and on a thread of its own the work with all waiting in it, ``gloo:all_reduce``. NCCL is seen on the device:
``ncclKernel_AllReduce_...`` before NCCL 2.18, ``ncclDevKernel_AllReduce_...`` since, ``ncclSymkDevKernel_...`` for
symmetric memory; the kernel begins when its rank's stream has come and ends when all have. The annotations ``nccl:...``
are the enqueueing and tell nothing of that.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchbench_magic.core.profiling.joining.nesting import ancestors, nest
from torchbench_magic.core.profiling.torch_events.events import Ints
from torchbench_magic.core.profiling.traces.chrome_events import is_own_frame
from torchbench_magic.core.profiling.traces.trace_file import TraceFile
from torchbench_magic.errors import TraceError
from torchbench_magic.results.ranks.analysis import CodePlace, RankRun
from torchbench_magic.results.ranks.clock_bounds import RankClock
from torchbench_magic.results.ranks.collectives import CollectiveCalls, kind_of_collective
from torchbench_magic.results.ranks.stretches import joined_stretches

from .rank_recording import MERGED_KEY, RANK_KEY

__all__ = ["RankColumns", "RankFacts", "read_rank", "run_of_columns"]

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
    """Events as they come: ``ops`` (name, thread, start, end), ``frames`` the same; ``work`` (key, start, end)."""

    names: dict[str, int] = field(default_factory=dict)
    keys: dict[str, int] = field(default_factory=dict)
    ops: array[int] = field(default_factory=lambda: array("q"))
    frames: array[int] = field(default_factory=lambda: array("q"))
    lines: array[int] = field(default_factory=lambda: array("q"))
    calls: array[int] = field(default_factory=lambda: array("q"))
    host_work: array[int] = field(default_factory=lambda: array("q"))
    device_work: array[int] = field(default_factory=lambda: array("q"))
    device: array[int] = field(default_factory=lambda: array("q"))
    spans: array[int] = field(default_factory=lambda: array("q"))
    steps: array[int] = field(default_factory=lambda: array("q"))

    def take(self, events: Iterable[Mapping[str, Any]]) -> None:
        names = self.names
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
                self.ops.extend((names.setdefault(name, len(names)), _thread(event), start, end))
                if name.startswith("c10d::") and (kind := kind_of_collective(name)):
                    self.calls.extend((self._key(kind, event), start, end))
            elif category == "python_function":
                if is_own_frame(name):
                    self.frames.extend((names.setdefault(name, len(names)), _thread(event), start, end))
            elif category == "cell_line":
                self.lines.extend((names.setdefault(name, len(names)), _thread(event), start, end))
            elif category in _ON_DEVICE:
                if category == "kernel" and _DEVICE_WORK.match(name):
                    self.device_work.extend((self._key(kind_of_collective(name), event), start, end))
                else:
                    self.device.extend((names.setdefault(name, len(names)), _thread(event), start, end))
            elif category == "user_annotation":
                if _HOST_WORK.match(name):
                    self.host_work.extend((self._key(kind_of_collective(name), event), start, end))
                else:
                    (self.steps if name.startswith("ProfilerStep") else self.spans).extend((start, end))

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
    told, base = _told(file.head), file.head.get("baseTimeNanoseconds", 0)
    facts = RankFacts(
        rank=told["rank"] if told["rank"] is not None else -1,
        clock=RankClock(str(file.head.get("host_name") or ""), told["offset"], told["error"]),
        world_size=told["world_size"],
        backend=told["backend"],
        grouped=told["grouped"],
        ended=told["ended"],
        gave_way=told["gave_way"],
        base=base if isinstance(base, int) and 0 <= base < 2**62 else 0,
        file=str(path),
    )
    run = run_of_columns(columns, facts)
    if run is None:
        raise TraceError(f"{path}: is a Chrome trace without ops of torch")
    return run


@dataclass(frozen=True, kw_only=True)
class RankFacts:
    """What is known of a rank besides its events.

    Attributes:
        rank, clock, world_size, backend, grouped, file, ended, gave_way: as in `RankRun`.
        base: ns since 1970 that the times of its events count from.
    """

    rank: int
    clock: RankClock
    world_size: int | None
    backend: str
    grouped: bool = False
    base: int = 0
    file: str = ""
    ended: tuple[str, int] | None = None
    gave_way: bool = False


def run_of_columns(columns: RankColumns, facts: RankFacts) -> RankRun | None:
    """The rank of which these are the events; None where no operation of torch is among them."""
    ops, device = _table(columns.ops, 4), _table(columns.device, 4)
    host_work, device_work = _table(columns.host_work, 3), _table(columns.device_work, 3)
    steps = _table(columns.steps, 2)
    every = [each[:, -2:] for each in (ops, device, host_work, device_work, steps, _table(columns.spans, 2))]
    moments = np.concatenate([*every, _table(columns.frames, 4)[:, -2:], _table(columns.lines, 4)[:, -2:]])
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
    calls, others = _calls(_table(columns.calls, 3), host_work, device_work, keys, wanted)
    run = RankRun(
        rank=facts.rank,
        file=facts.file,
        clock=facts.clock,
        world_size=facts.world_size,
        backend=facts.backend,
        grouped=facts.grouped,
        begin=int(moments[:, 0].min()),
        end=int(moments[:, 1].max()),
        steps=_with_any(steps, ops[:, 2]),
        calls=calls,
        others=others,
        compute=compute,
        ops=rows,
        places=_places(columns, names, int(calls.end[0]) if len(calls) else 0),
        ended=None if facts.ended is None else (facts.ended[0], facts.ended[1] - facts.base),
        gave_way=facts.gave_way,
    )
    return run.moved(facts.base)


def _told(head: Mapping[str, Any]) -> dict[str, Any]:
    """What the head of a trace says of the job: ours first, since torch's is gone with the process group."""
    own, info = (_mapping(head.get(name)) for name in (RANK_KEY, "distributedInfo"))

    def number(name: str) -> int | None:
        return next((v for v in (own.get(name), info.get(name)) if isinstance(v, int) and 0 <= v < 2**31), None)

    clock = _mapping(own.get("clock"))
    offset, error = clock.get("offset_ns"), clock.get("error_ns")
    known = isinstance(offset, int) and isinstance(error, int) and abs(offset) < 2**60 and 0 <= error < 2**60
    return {
        "rank": number("rank"),
        "world_size": number("world_size"),
        "backend": str(own.get("backend") or info.get("backend") or ""),
        "offset": offset if known else None,
        "error": error if known else 0,
        "grouped": _has_groups(info),
        "ended": _ended(own.get("ended"), own.get("ended_ns")),
        "gave_way": own.get("gave_way") is True,
    }


def _ended(name: object, ns: object) -> tuple[str, int] | None:
    known = isinstance(name, str) and name.isidentifier() and isinstance(ns, int) and 0 < ns < 2**62
    return (str(name), int(str(ns))) if known else None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _table(flat: array[int], width: int) -> Ints:
    return np.array(flat, dtype=np.int64).reshape(-1, width)


def _with_any(steps: Ints, start: Ints) -> int:
    """The steps in which an op began: the profiler opens one more after the last."""
    before = np.searchsorted(np.sort(start), steps)
    return int((before[:, 1] > before[:, 0]).sum())


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
    table = _table(columns.lines if len(columns.lines) else columns.frames, 4)
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
