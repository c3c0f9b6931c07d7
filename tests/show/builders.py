"""Results as the cores make them, with known numbers: what the views are tested with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from torchbench_magic import units
from torchbench_magic.process.environment import Environment
from torchbench_magic.profiling.options import ProfileOptions
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.schema import LINE_COLUMNS, OP_COLUMNS, frame_of
from torchbench_magic.profiling.trace import Source
from torchbench_magic.result_base import Doubt
from torchbench_magic.show.flame import FlameGraph, Measure
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.samples import Subject

ENVIRONMENT = Environment(python="3.11.7", torch="2.13.0+cpu", usable_cores=2, num_threads=2)
MIB = 2**20

# What somebody may call a thing. None of it may ever become markup, move a cursor or turn a line round.
HOSTILE = (
    "<script>window.INJECTED = 1</script>",
    "</script><img src=x onerror='window.INJECTED = 2'>",
    "\"quoted\" 'twice' `ticked` <!-- -->",
    "🔥 mul | sum 🔥",
    "\u202eright to left\u2066",
    "\x1b[31mred\x07\u2028",
    "x" * 10_000,
)


def times_of(seconds: float, samples: int, spread: float, seed: int = 0) -> list[float]:
    """Times of one call round a median, right-skewed as real ones are."""
    rng = np.random.default_rng(seed)
    return [seconds * (1 + spread * (x - 0.6931)) for x in rng.exponential(size=samples)]


def comparison_of(
    points: Sequence[tuple[str | None, int, Sequence[float]]] = (
        ("64 × 64", 1, (4.6e-6, 2.8e-6)),
        ("64 × 64", 2, (4.6e-6, 2.8e-6)),
    ),
    names: Sequence[str | None] = ("bmm", "mul_sum"),
    *,
    samples: int = 40,
    spread: float = 0.02,
    warnings: Sequence[Doubt] = (),
    axes: Sequence[tuple[tuple[str, object], ...]] = (),
    stmt: str = "f(x)",
    span: float = 1.0,
    **fields: object,
) -> Comparison:
    """A comparison with one group per point: (sub_label, threads, seconds of each alternative)."""
    subjects, rows = [], []
    for group, (sub_label, threads, seconds) in enumerate(points):
        for place, (name, median) in enumerate(zip(names, seconds, strict=True)):
            subjects.append(
                Subject(
                    label="In[6]",
                    sub_label=sub_label,
                    description=name,
                    num_threads=threads,
                    axes=axes[group] if axes else (),
                    group=group,
                    look="once",
                    stmt=stmt,
                    first_call=42 * median,
                    warmup_calls=3,
                    loop_overhead=3.4e-9,
                    page_faults=0.0,
                    span=span,
                )
            )
            for turn, wall in enumerate(times_of(median, samples, spread, seed=len(subjects))):
                rows.append((turn, len(subjects) - 1, 100 * wall, 99 * wall, 100, place))
    frame = pd.DataFrame(rows, columns=["round", "measurement", "wall", "cpu", "number", "position"])
    known = {"environment": ENVIRONMENT, "warnings": list(warnings), "elapsed": 11.6, "seed": 0}
    return Comparison(tuple(subjects), frame, **(known | fields))  # type: ignore[arg-type]


def two_shapes(**fields: object) -> Comparison:
    """Two shapes at one thread: a comparison that is one table and no curve."""
    seconds = (4.6e-6, 2.8e-6)
    return comparison_of([("64 × 64", 1, seconds), ("64 × 65", 1, seconds)], **fields)  # type: ignore[arg-type]


def judged_as(made: Comparison, *rows: tuple[str, float, float, float]) -> Comparison:
    """The comparison with (verdict, ratio, low, high) per row, whatever the inference made of its samples."""
    frame = made.frame.copy()
    frame["verdict"] = pd.Series([row[0] for row in rows], dtype=object)
    for at, name in enumerate(("ratio", "ratio_low", "ratio_high"), start=1):
        frame[name] = [row[at] for row in rows]
    made.__dict__["frame"] = frame  # where the cached property keeps it
    return made


CELL = """%%tprofile --memory --shapes
model = MyModule(4096, 4096)
mask = torch.rand((500, 500, 500), dtype=torch.double)

for _ in range(3):
    out, hi_idx = model(input, mask)
    out.square().mean().backward()"""

MODULE = """class MyModule(torch.nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.linear = torch.nn.Linear(a, b)

    def forward(self, input, mask):
        with record_function("LINEAR PASS"):
            out = self.linear(input)
        hi_idx = np.argwhere(mask.numpy() > 0.9)  # outside torch
        return out, hi_idx"""

# source, line, calls, torch ms, Python ms, backward ms, wall ms, MiB allocated, MiB peak
LINES = (
    ("cell", 2, 1, 121.0, 0.9, 0.0, 122.0, 64.1, 64.1),
    ("cell", 3, 1, 905.0, 0.1, 0.0, 905.1, 954.0, 1026.0),
    ("cell", 5, 4, 0.0, 0.04, 0.0, 0.04, 0.0, 0.0),
    ("cell", 6, 3, 0.0, 0.4, 0.0, 1214.0, 0.0, 1062.0),
    ("cell", 7, 3, 975.0, 0.6, 0.0, 975.6, 216.0, 1170.0),
    ("module", 6, 3, 0.0, 0.1, 0.0, 0.1, 0.0, 0.0),
    ("module", 7, 3, 0.1, 0.1, 0.0, 486.5, 0.0, 0.0),
    ("module", 8, 3, 486.0, 0.3, 968.0, 486.3, 24.0, 1042.0),
    ("module", 9, 3, 0.04, 724.0, 0.0, 724.1, 0.0, 1042.0),
    ("module", 10, 3, 0.0, 0.03, 0.0, 0.03, 0.0, 0.0),
)
# op, source, line, calls, self ms, total ms, MiB, shapes
OPS = (
    ("aten::uniform_", "cell", 3, 3, 905.0, 905.0, 0.0, "[[500, 500, 500]]"),
    ("aten::mm", "cell", 7, 3, 906.0, 906.0, 192.0, "[[4096, 512], [512, 4096]]"),
    ("autograd::engine::evaluate_function: AddmmBackward0", "cell", 7, 3, 69.0, 975.0, 24.0, "[[512, 4096]]"),
    ("aten::addmm", "module", 8, 3, 484.0, 484.0, 24.0, "[[4096], [512, 4096], [4096, 4096]]"),
    ("aten::linear", "module", 8, 3, 2.0, 486.0, 0.0, "[[512, 4096], [4096, 4096], [4096]]"),
    ("aten::empty", "cell", 3, 1, 0.1, 0.1, 954.0, "[]"),
    ("aten::empty", "cell", 2, 10, 0.1, 0.1, 64.1, "[]"),
    ("LINEAR PASS", "module", 7, 3, 0.2, 487.0, 0.0, "[]"),
    ("aten::detach", "module", 9, 3, 0.0004, 0.0004, 0.0, "[[]]"),
)
NUMBERS = {"cell": 3, "module": 2}


def rows_of(columns: Mapping[str, str], **given: object) -> pd.DataFrame:
    """A table of what ran once in one cell, but for what is given: a list, or one value for all rows."""
    usual = {"cell": 2, "source": "x", "file": "<cell>", "source_id": "ab", "thread": 0, "calls": 1}
    values = {name: value for name, value in usual.items() if name in columns} | given
    count = max(len(value) for value in given.values() if isinstance(value, list))
    return frame_of(
        columns, {name: value if isinstance(value, list) else [value] * count for name, value in values.items()}
    )


def profile_of(
    *,
    memory: bool = True,
    shapes: bool = True,
    cell_text: str = CELL,
    module_text: str = MODULE,
    ops: Sequence[tuple[str, str, int, int, float, float, float, str]] = OPS,
    lines: Sequence[tuple[str, int, int, float, float, float, float, float, float]] = LINES,
    missing: float = 8.3,
    **fields: object,
) -> Profile:
    """A profile of `CELL`, which calls `MODULE` of an earlier cell."""
    texts = {"cell": cell_text.split("\n"), "module": module_text.split("\n")}
    empty = [pd.NA] * len(lines)
    line_frame = frame_of(
        LINE_COLUMNS,
        {
            "cell": [NUMBERS[row[0]] for row in lines] + [pd.NA],
            "line": [row[1] for row in lines] + [pd.NA],
            "source": [texts[row[0]][row[1] - 1] for row in lines] + ["not attributed"],
            "file": [f"<{row[0]}>" for row in lines] + [None],
            "source_id": [row[0] for row in lines] + [None],
            "thread": [0] * (len(lines) + 1),
            "calls": [row[2] for row in lines] + [0],
            "self_cpu_time": [row[3] / 1e3 for row in lines] + [0.0],
            "cpu_time": [row[3] / 1e3 for row in lines] + [0.0],
            "python_time": [row[4] / 1e3 for row in lines] + [missing / 1e3],
            "backward_cpu_time": [row[5] / 1e3 for row in lines] + [0.0],
            "wall_time": [row[6] / 1e3 for row in lines] + [missing / 1e3],
            "allocated": [*([round(row[7] * MIB) for row in lines] if memory else empty), 0 if memory else pd.NA],
            "net": [*([round(row[7] * MIB) for row in lines] if memory else empty), 0 if memory else pd.NA],
            "peak": [*([round(row[8] * MIB) for row in lines] if memory else empty), 0 if memory else pd.NA],
        },
    )
    op_frame = frame_of(
        OP_COLUMNS,
        {
            "op": [row[0] for row in ops],
            "source_id": [row[1] for row in ops],
            "file": [f"<{row[1]}>" for row in ops],
            "cell": [NUMBERS[row[1]] for row in ops],
            "line": [row[2] for row in ops],
            "thread": [0] * len(ops),
            "calls": [row[3] for row in ops],
            "self_cpu_time": [row[4] / 1e3 for row in ops],
            "cpu_time": [row[5] / 1e3 for row in ops],
            **({"allocated": [round(row[6] * MIB) for row in ops]} if memory else {}),
            **({"input_shapes": [row[7] for row in ops]} if shapes else {}),
        },
    )
    known = {
        "wall_time": (sum(row[3] + row[4] for row in lines) + missing) / 1e3,
        "num_threads": 2,
        "source_id": "cell",
        "sources": {
            "cell": Source("cell", "<cell>", cell_text, cell=3),
            "module": Source("module", "<module>", module_text, cell=2),
        },
        "ranges": ("LINEAR PASS",),
        "options": ProfileOptions(memory=memory, shapes=shapes),
        "environment": ENVIRONMENT,
        "n_events": 1204,
    }
    return Profile(lines=line_frame, ops=op_frame, **(known | fields))  # type: ignore[arg-type]


def ops_of(count: int, seed: int = 0) -> Profile:
    """A profile of so many operations by name, whose calls, times and bytes rank differently."""
    rng = np.random.default_rng(seed)
    own = rng.permutation(count) * 1e-6 + 1e-7
    made = {
        "op": [f"aten::op_{at}{'_conv' if at % 50 == 0 else ''}" for at in range(count)],
        "calls": rng.permutation(count) + 1,
        "self_cpu_time": own,
        "cpu_time": 2 * own,
        "allocated": rng.permutation(count) * 1024,
    }
    ops = frame_of(OP_COLUMNS, made)
    known = {"wall_time": float(own.sum()), "num_threads": 2, "options": ProfileOptions(memory=True)}
    return Profile(lines=frame_of(LINE_COLUMNS, {}), ops=ops, **known)  # type: ignore[arg-type]


def flame_graph(tree: pd.DataFrame, title: str) -> FlameGraph:
    """The flame graph of a table: one row per frame, a parent before its children, with ``parent`` (position of the
    row, -1 for a root), ``name``, ``kind``, and seconds ``self`` and ``total``."""
    total, own = (tree[name].to_numpy(dtype=np.float64) for name in ("total", "self"))
    measure = Measure("time", total, own, units.spread_scale(total.tolist()), axis=True)
    parent = tree["parent"].to_numpy(dtype=np.int64)
    return FlameGraph(title, parent, tree["name"].astype(str).tolist(), tree["kind"].astype(str).tolist(), (measure,))
