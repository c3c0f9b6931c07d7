"""Chrome traces of a job whose arrivals are known, as torch writes them over gloo and over NCCL."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

BASE = 1_790_000_000_000_000_000
MS = 1000.0  # us
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def event(category: str, name: str, begin: float, end: float, thread: int = 1, **args: Any) -> dict[str, Any]:
    return {
        "ph": "X", "cat": category, "name": name, "pid": 7, "tid": thread, "ts": begin, "dur": end - begin, "args": args
    }  # fmt: skip


def of_rank(
    rank: int, arrival: np.ndarray, *, backend: str = "gloo", skew: float = 0.0, step: float = 20 * MS
) -> list[dict[str, Any]]:
    """Events of a rank that computes 10 ms before each all-reduce; ``arrival`` [ranks, n] and ``skew`` are us."""
    made = []
    for each in arrival.T:
        mine, last = float(each[rank]), float(each.max())
        made.append(event("cpu_op", "aten::mm", mine - 10 * MS, mine - 0.1 * MS))
        if backend == "gloo":
            made.append(event("cpu_op", "c10d::allreduce_", mine, mine + 50, **{"Input Dims": [[[10]], []]}))
            made.append(event("user_annotation", "gloo:all_reduce", mine + 60, last + 300, 2, **{"Input Dims": [[10]]}))
        else:
            made.append(event("cpu_op", "c10d::allreduce_", mine - 9 * MS, mine - 8.9 * MS))
            made.append(event("user_annotation", "nccl:all_reduce", mine - 9 * MS, mine - 8.9 * MS))
            made.append(event("kernel", "ampere_sgemm", mine - 8 * MS, mine - 0.1 * MS, 7, device=0, stream=7))
            made.append(event("kernel", ALL_REDUCE, mine, last + 300, 20, device=0, stream=20))
    for each in made:
        each["ts"] += skew
    return made


def document(rank: int | None, events: list[dict[str, Any]], world: int = 2, **head: Any) -> dict[str, Any]:
    info = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": world, "backend": "gloo"}}
    return {"schemaVersion": 1, **info, "baseTimeNanoseconds": BASE, "host_name": "h", **head, "traceEvents": events}


def write(path: Path, made: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(made)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def arrivals(late: float, ranks: int = 2, count: int = 10, who: int = 1) -> np.ndarray:
    """us; each 50 ms, ``who`` comes ``late`` us after the others."""
    made = np.tile(np.arange(1, count + 1) * 50 * MS, (ranks, 1))
    made[who] += late
    return made
