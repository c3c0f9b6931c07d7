"""The columns of a profile's tables, and how a table with exactly these columns is built.

A column that does not apply to a run (bytes without ``--memory``, device time without an accelerator) is there
all the same, holding NA: code that reads a result need not know how the result was asked for.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Self

import pandas as pd


class ColumnType(str):
    """The dtype of a column, and what rows that become one make of it: of several cycles, or of several calls.

    Attributes:
        combined: ``key``: rows become one where they are alike in all of these. ``sum``, ``max``, ``first``: of the
            values that are known. Empty in tables whose rows all stay.
    """

    combined: str

    def __new__(cls, dtype: str, combined: str = "") -> Self:
        made = super().__new__(cls, dtype)
        made.combined = combined
        return made


_TEXT, _COUNT, _MAYBE, _SECONDS, _FLAG = map(ColumnType, ("object", "int64", "Int64", "float64", "bool"))
_key, _sum, _max, _first = (functools.partial(ColumnType, combined=how) for how in ("key", "sum", "max", "first"))

LINE_COLUMNS: dict[str, ColumnType] = {
    "cell": _first(_MAYBE),  # n of In[n]; NA for a file
    "line": _key(_MAYBE),  # 1-based, as shown; NA in the row "not attributed"
    "source": _first(_TEXT),  # text of the line
    "file": _first(_TEXT),  # file name of the code
    "source_id": _key(_TEXT),  # hash of the source text
    "thread": _key(_COUNT),  # 0 is the cell's own thread
    "calls": _sum(_COUNT),  # how often the line ran
    "wall_time": _sum(_SECONDS),  # inclusive: with the lines it calls
    "self_cpu_time": _sum(_SECONDS),  # in torch ops, on the line itself
    "cpu_time": _sum(_SECONDS),  # in torch ops, with the lines it calls
    "python_time": _sum(_SECONDS),  # outside torch ops, on the line itself
    "backward_cpu_time": _sum(_SECONDS),  # backward op time that this line caused, without what has lines itself
    "recording_time": _sum(_SECONDS),  # of the two own times, what recording may have added; NaN: not known
    "self_device_time": _sum(_SECONDS),
    "device_time": _sum(_SECONDS),
    "allocated": _sum(_MAYBE),  # bytes
    "freed": _sum(_MAYBE),
    "net": _sum(_MAYBE),
    "peak": _max(_MAYBE),  # highest total while the line was active, above the total at the start
    "host_net": _sum(_MAYBE),
    "host_peak": _max(_MAYBE),
    "efficiency_class": _first(_TEXT),  # with --efficiency, one of its CLASSES; told of the sum of cycles
    "fraction_of_peak": _first(_SECONDS),  # of the roof that its ops reached, weighted by their time
}

OP_COLUMNS: dict[str, ColumnType] = {
    "op": _key(_TEXT),
    "input_shapes": _key(_TEXT),  # text as torch prints it, "[[3, 4], []]"
    "input_dtypes": _key(_TEXT),
    "input_strides": _key(_TEXT),
    "calls": _sum(_COUNT),
    "self_cpu_time": _sum(_SECONDS),
    "cpu_time": _sum(_SECONDS),
    "self_device_time": _sum(_SECONDS),
    "device_time": _sum(_SECONDS),
    "allocated": _sum(_MAYBE),
    "freed": _sum(_MAYBE),
    "peak": _max(_MAYBE),
    "flops": _sum(_MAYBE),
    "bytes": _sum(_MAYBE),  # with --efficiency, that all calls read and write at least
    "module": _key(_TEXT),
    "cell": _key(_MAYBE),
    "line": _key(_MAYBE),
    "source_id": _key(_TEXT),
    "file": _key(_TEXT),
    "thread": _key(_COUNT),
    "efficiency_class": _first(_TEXT),  # as in LINE_COLUMNS
    "fraction_of_peak": _first(_SECONDS),
}

MEMORY_COLUMNS: dict[str, ColumnType] = {
    "time": _SECONDS,  # since the body was entered
    "bytes": _COUNT,  # held by torch on the device after this change, above the total at the start
    "device": _TEXT,
    "change": _MAYBE,  # bytes, negative where a block was freed
    "block": _MAYBE,  # number of the block; the row that freed it has the same. NA: it was there before
    "op": _TEXT,  # the op that did it; None outside of ops
    "cell": _MAYBE,
    "line": _MAYBE,  # the line that allocated, or freed, it
    "source_id": _TEXT,
    "file": _TEXT,
    "thread": _COUNT,
}

ARGUMENT_COLUMNS: dict[str, ColumnType] = {
    "op": _TEXT,
    "overload": _TEXT,  # "dim_IntList" of aten::sum.dim_IntList; empty for the default one
    "input_shapes": _TEXT,
    "input_dtypes": _TEXT,
    "input_strides": _TEXT,
    "scalars": _TEXT,  # text of a list by position; None for tensors
    "seen": _COUNT,
}

HOLDER_COLUMNS: dict[str, ColumnType] = {
    "block": _MAYBE,  # number of the block, as in MEMORY_COLUMNS; NA: it was there before the body
    "device": _TEXT,
    "bytes": _COUNT,  # of the storage
    "holder": _TEXT,  # in words, code in backticks: "the list `history`"
    "kind": _TEXT,  # variable, attribute, list, dict, graph, closure, default, cache, hook, output, history, traceback
    "name": _TEXT,  # the variable that leads there
    "role": _TEXT,  # parameter, buffer, gradient or optimizer state; None for others
    "through_graph": _FLAG,  # kept by the autograd graph of what the holder holds
    "limit": _MAYBE,  # how many things a container on the way may hold; NA: no limit
}

ALIVE_COLUMNS: dict[str, ColumnType] = {
    "device": _TEXT,
    "cell": _MAYBE,
    "line": _MAYBE,  # the line that allocated the blocks
    "source": _TEXT,
    "file": _TEXT,
    "source_id": _TEXT,
    "thread": _COUNT,
    "bytes": _COUNT,
    "blocks": _COUNT,
    "largest": _COUNT,  # bytes of the largest of them
    "since": _SECONDS,  # when the first of them was allocated
}

PEAK_COLUMNS: dict[str, ColumnType] = {
    "device": _TEXT,
    "part": _TEXT,  # parameters, buffers, gradients, optimizer state, activations, results, temporaries, from before
    "bytes": _COUNT,
    "blocks": _COUNT,
    "before": _FLAG,  # it was there before the body
    "source_id": _TEXT,
    "line": _MAYBE,  # that allocated most of it
}

FRAME_COLUMNS: dict[str, ColumnType] = {
    "parent": _COUNT,  # row of the caller, which comes before; -1 for the root of a thread
    "kind": _key(_TEXT),  # thread, function, line, module, op, or python (a record_function range)
    "name": _key(_TEXT),  # In[3]:4, the name of the function, module, op or range
    "source": _first(_TEXT),  # text of a line
    "cell": _first(_MAYBE),  # the line that the frame stands on
    "line": _key(_MAYBE),
    "file": _first(_TEXT),
    "source_id": _key(_TEXT),
    "thread": _key(_COUNT),
    "calls": _sum(_COUNT),
    "wall_time": _sum(_SECONDS),  # with what it calls
    "self_time": _sum(_SECONDS),  # without; adds up to the wall time of the thread
    "self_cpu_time": _sum(_SECONDS),  # the part of self_time in torch ops
    "backward_cpu_time": _sum(_SECONDS),  # of the backward ops that this op caused, without what has lines itself
    "module_backward_time": _sum(_SECONDS),  # of all they run but calls of modules: a checkpoint calls some again
    "self_device_time": _sum(_SECONDS),
    "device_time": _sum(_SECONDS),
    "allocated": _sum(_MAYBE),  # bytes, in the frame itself
    "freed": _sum(_MAYBE),
    "input_shapes": _key(_TEXT),  # of an op
}

MODULE_COLUMNS: dict[str, ColumnType] = {
    "name": _TEXT,  # as the user would write it, model.layer1.0; its class where no variable leads to it
    "parent": _COUNT,  # row of the module that called it; -1 for none
    "calls": _COUNT,  # also by a backward pass: a checkpoint calls its module again
    "forward_time": _SECONDS,  # wall time in its calls but those of a backward pass, with the modules it calls
    "self_time": _SECONDS,  # without
    "backward_cpu_time": _SECONDS,  # of the backward nodes that its ops caused, and in its calls by a backward pass
    "device_time": _SECONDS,
    "allocated": _MAYBE,  # bytes, in all its calls
    "freed": _MAYBE,
}

WORKER_COLUMNS: dict[str, ColumnType] = {
    "worker": _COUNT,  # 0, 1, ... in the order of their process ids
    "loader": _MAYBE,  # number of its loader; NA: another thread's
    "start": _MAYBE,  # 0, 1, ...: the loader starts its workers for the first time in this run, the second, ...
    "cell": _MAYBE,
    "line": _MAYBE,  # NA while the worker waits for the loop
    "file": _TEXT,
    "function": _TEXT,
    "seconds": _SECONDS,  # of the worker's time on that line, sampled
    "share": _SECONDS,  # of what was sampled of this worker
}

PYTHON_COLUMNS: dict[str, ColumnType] = {
    "parent": _COUNT,  # row of the caller, which comes before; -1 for the root, the profiled code itself
    "function": _key(_TEXT),  # qualified; a method has the class that defines it
    "cell": _key(_MAYBE),  # n of In[n]; NA for a file
    "line": _key(_MAYBE),  # where the function begins, as shown; NA for a C function
    "file": _key(_TEXT),  # file name of the code; None for a C function
    "module": _key(_TEXT),  # Python module; empty for the root
    "library": _first(_TEXT),  # top-level name of the module; "python": standard library; empty: cells, scripts
    "calls": _sum(_MAYBE),  # exact, from line events; NA where the lines of the function were not recorded
    "samples": _sum(_COUNT),  # in the function and what it calls
    "total_time": _sum(_SECONDS),  # with what it calls
    "self_time": _sum(_SECONDS),  # without; adds up to the wall time
    "torch_time": _sum(_SECONDS),  # the part of total_time in torch ops of the thread
    "python_time": _sum(_SECONDS),  # the rest: Python and C code outside of torch's ops; waiting where it is not known
    "waiting_time": _sum(_SECONDS),  # the part of it outside of torch's ops that wants no processor; NaN: not known
    "self_torch_time": _sum(_SECONDS),  # the part of self_time in torch ops
    "self_waiting_time": _sum(_SECONDS),  # the part of self_time that is waiting
}

COMPILATION_COLUMNS: dict[str, ColumnType] = {
    "compile_id": _TEXT,  # the compiler's own number, 3/2: frame 3, third compilation
    "function": _TEXT,
    "cell": _MAYBE,
    "line": _MAYBE,  # where it begins; of the rest of a function, the line that broke the graph
    "file": _TEXT,
    "source_id": _TEXT,  # None where its text is no cell and no recorded file
    "seconds": _SECONDS,  # that compiling took by the compiler's own account, the backward pass included
    "calls": _MAYBE,  # how often what was compiled ran in this run; NA where a reset gave its number to another one too
    "kind": _TEXT,  # first, recompile, resume (the rest of a function after a graph break), or earlier: before the run
    "reason": _TEXT,  # of a recompile, in words; None for the others
    "argument": _TEXT,  # that changed, as the user writes it; None where it is no variable
    "before": _TEXT,  # its value, dtype, rank ...; None where it is not known
    "after": _TEXT,
    "guard": _TEXT,  # that failed, in torch's words
    "fell_back": _TEXT,  # why the function runs as it is, not compiled; None where it does not
}

GRAPH_BREAK_COLUMNS: dict[str, ColumnType] = {
    "cell": _first(_MAYBE),
    "line": _key(_MAYBE),
    "file": _key(_TEXT),
    "source_id": _key(_TEXT),
    "reason": _key(_TEXT),
    "hint": _key(_TEXT),  # None where torch has none
    "count": _sum(_COUNT),  # how often something was compiled that breaks there
}

LOOP_COLUMNS: dict[str, ColumnType] = {
    "step": _MAYBE,  # of the loop, from 0; NA for what ran outside of its steps
    "phase": _TEXT,  # one of loops.phases.PHASES
    "seconds": _SECONDS,  # of the thread that runs the loop; those of a step add up to it
    "recording_seconds": _SECONDS,  # of these, what recording may have added; NaN: not known
    "calls": _COUNT,  # how often the phase was entered there; 0 for `loss` and `other`, which are what is left
    "cell": _MAYBE,
    "line": _MAYBE,  # of the user's code, as shown; NA where it is not known
    "file": _TEXT,
    "source_id": _TEXT,
    "inner_source_id": _TEXT,  # of `input`: where the line runs code of the user's, such as `__getitem__`,
    "inner_line": _MAYBE,  # the line of that with the most time in it
    "inner_seconds": _SECONDS,
    "loader_seconds": _SECONDS,  # of `input`: within a DataLoader; the rest is code around it, such as a generator's
    "looks": _MAYBE,  # of `loss`, `other`, `input`: looks at the stack, where lines are known from these alone
    "inner_looks": _MAYBE,  # of `input`: those at the inner line
    "mode": _TEXT,  # of `forward` and `optimizer`: words of loops.modes; else None
}

PROFILE_TABLES: dict[str, dict[str, ColumnType]] = {
    "lines": LINE_COLUMNS,
    "ops": OP_COLUMNS,
    "memory": MEMORY_COLUMNS,
    "frames": FRAME_COLUMNS,
    "workers": WORKER_COLUMNS,
    "python": PYTHON_COLUMNS,
    "holders": HOLDER_COLUMNS,
    "compilations": COMPILATION_COLUMNS,
    "graph_breaks": GRAPH_BREAK_COLUMNS,
    "phases_by_line": LOOP_COLUMNS,
}
"""Field of a `Profile` -> the columns of its table."""


def combined_by(columns: Mapping[str, ColumnType], how: str) -> list[str]:
    """The columns of which rows that become one make this, see `ColumnType`."""
    return [name for name, kind in columns.items() if kind.combined == how]


_EMPTY: dict[str, Any] = {_TEXT: None, _FLAG: False, _COUNT: 0, _MAYBE: pd.NA, _SECONDS: float("nan")}


def frame_of(columns: Mapping[str, str], values: Mapping[str, Sequence[Any] | Any]) -> pd.DataFrame:
    """Build a table with exactly ``columns`` (name -> dtype) from equally long ``values``.

    A column that ``values`` lacks holds NA (0 for a count). Raises ValueError for a name that is no column.
    """
    unknown = sorted(set(values) - set(columns))
    if unknown:
        raise ValueError(f"no such column: {', '.join(unknown)}")
    rows = max((len(v) for v in values.values()), default=0)
    if not rows:  # as most tables of a run without memory, workers or a compiler
        return _without_rows(tuple(columns.items())).copy()
    return _filled(columns, values, rows)


@functools.cache
def _without_rows(columns: tuple[tuple[str, str], ...]) -> pd.DataFrame:
    return _filled(dict(columns), {}, 0)


def _filled(columns: Mapping[str, str], values: Mapping[str, Sequence[Any] | Any], rows: int) -> pd.DataFrame:
    made = {}
    for name, dtype in columns.items():
        given = values.get(name, [_EMPTY[dtype]] * rows)
        made[name] = pd.Series(getattr(given, "array", given), pd.RangeIndex(rows), dtype)  # whatever index it had
    return pd.DataFrame(made, columns=list(columns))
