"""Profiles of known runs, for the tests of what is done with profiles."""

from __future__ import annotations

import numpy as np

from tests.show.builders import rows_of
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.schema import LINE_COLUMNS, OP_COLUMNS
from torchbench_magic.profiling.trace import (
    EVENT_COLUMNS,
    KINDS,
    NODE_COLUMNS,
    SEGMENT_COLUMNS,
    Source,
    Trace,
    Track,
    compact,
)

MS = 1_000_000

TEXT = "%%tprofile\ny = x @ x\nz = y.relu()\ntorch.cuda.synchronize()"


def trace_of_two_kernels(name: str = "aten::mm") -> Trace:
    """10 ms: line 2 runs an op (1 to 3 ms) that launches a kernel (4 to 6 ms), line 3 one that launches another
    (9 to 9.5 ms); line 4 waits from 7 ms on, while nothing runs on the device from 6 to 9 ms."""
    rows = [  # name, kind, start, duration, track, parent, launched_by, node
        (0, "op", 1, 2, 0, -1, -1, 1),
        (1, "op", 5, 1, 0, -1, -1, 2),
        (2, "runtime", 2, 0.5, 0, 0, -1, 1),
        (2, "runtime", 5.5, 0.25, 0, 1, -1, 2),
        (3, "kernel", 4, 2, 1, -1, 2, 1),
        (4, "kernel", 9, 0.5, 1, -1, 3, 2),
    ]
    columns = list(zip(*rows, strict=True))
    ns = [(np.array(column) * MS).astype(np.int64) for column in columns[2:4]]
    none = np.full(len(rows), -1)
    events = {
        "name": np.array(columns[0]),
        "kind": np.array([KINDS.index(kind) for kind in columns[1]]),
        "start": ns[0],
        "duration": ns[1],
        "track": np.array(columns[4]),
        "parent": np.array(columns[5]),
        "launched_by": np.array(columns[6]),
        "node": np.array(columns[7]),
        "caused_by": none,
        "inputs": none,
    }
    nodes = {
        "parent": np.array([-1, 0, 0, 0]),
        "thread": np.zeros(4),
        "source": np.array([-1, 0, 0, 0]),
        "line": np.array([0, 2, 3, 4]),
        "function": np.array([-1, 0, 0, 0]),
        "calls": np.array([0, 1, 1, 1]),
    }
    segments = {"thread": np.zeros(3), "start": np.array([0, 5, 7]) * MS, "node": np.array([1, 2, 3])}
    return Trace(
        events=compact(EVENT_COLUMNS, events),
        nodes=compact(NODE_COLUMNS, nodes),
        segments=compact(SEGMENT_COLUMNS, segments),
        names=(name, "aten::relu", "cudaLaunchKernel", "gemm", "relu_kernel"),
        tracks=(Track("MainThread", 0, 4242), Track("stream 7", ident=7, device="cuda:0")),
        sources=("ab12",),
        functions=("<module>",),
        begin=1_790_000_000 * 10**9,
        duration=10 * MS,
        process=4000,
    )


def profile_of_two_kernels(name: str = "aten::mm", **changes: object) -> Profile:
    """The profile that `trace_of_two_kernels` belongs to."""
    lines = rows_of(
        LINE_COLUMNS,
        cell=3,
        line=[2, 3, 4],
        source=["y = x @ x", "z = y.relu()", "torch.cuda.synchronize()"],
        source_id="ab12",
        wall_time=[0.005, 0.002, 0.003],
        self_cpu_time=[0.002, 0.001, 0.0],
        cpu_time=[0.002, 0.001, 0.0],
        python_time=[0.003, 0.001, 0.003],
        self_device_time=[0.002, 0.0005, 0.0],
        device_time=[0.002, 0.0005, 0.0],
    )
    ops = rows_of(
        OP_COLUMNS,
        op=[name, "aten::relu"],
        cell=3,
        line=[2, 3],
        source_id="ab12",
        self_cpu_time=[0.002, 0.001],
        cpu_time=[0.002, 0.001],
        self_device_time=[0.002, 0.0005],
    )
    fields = {
        "lines": lines,
        "ops": ops,
        "wall_time": 0.01,
        "num_threads": 2,
        "sources": {"ab12": Source("ab12", "<cell>", TEXT, cell=3)},
        "source_id": "ab12",
        "trace": trace_of_two_kernels(name),
    }
    return Profile(**(fields | changes))  # type: ignore[arg-type]
