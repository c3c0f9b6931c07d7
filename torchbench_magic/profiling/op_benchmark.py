"""From a row of a profile to a micro-benchmark: the same op on fresh inputs of the same sizes, strides and dtypes."""

from __future__ import annotations

import ast
import keyword
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torchbench_magic.cell_body import Body
from torchbench_magic.errors import InputError
from torchbench_magic.process.interrupts import NO_PROGRESS, Progress
from torchbench_magic.process.require_torch import import_torch
from torchbench_magic.result_base import Doubt
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.plan import Plan, thread_counts
from torchbench_magic.timing.run import compare_bodies
from torchbench_magic.timing.task import Task

from .call_tree_tables import full_name
from .op_arguments import ArgumentError, RecordedCall, Tensor, arguments_of, given_arguments, operator_of, parsed_call
from .profile import Profile

_MOST_NAMED = 5


def benchmark_op(
    profile: Profile,
    op: str,
    input_shapes: str | Sequence[Any] | None = None,
    *,
    threads: int | Sequence[int] | None = None,
    min_run_time: float = 0.2,
    max_run_time: float | None = None,
    progress: Progress = NO_PROGRESS,
) -> Comparison:
    """Time one op of a profile by itself: ``benchmark_op(_tprofile, "bmm", [[10, 3, 4], [10, 4, 5]])``.

    The op runs on fresh random inputs, which do not require a gradient, with the scalars that were recorded. The
    code that ran is ``.code`` of the result, and is shown: it can be pasted into a ``%%timer`` cell.

    Args:
        profile: of a run with ``--shapes``.
        op: its name, ``aten::`` may be left out.
        input_shapes: as in ``.ops``, text or lists, where ``[]`` at the end may be left out. Not needed where the op
            ran with one kind of inputs only.
        threads: torch thread counts; None: those of the profile, or the current one where a trace does not say.
        min_run_time, max_run_time: seconds, as of `compare`.

    Raises:
        InputError: the profile has no shapes, no such op, not these shapes.
        ArgumentError: an argument cannot be rebuilt; the message names it.
    """
    import_torch()
    row, others = _chosen(profile, op, input_shapes)
    recorded = parsed_call(*(str(row[name]) for name in _RECORDED))
    setup, stmt = code_of(recorded, _device(profile, recorded.op))
    _try(recorded.op, setup, stmt)
    import torch

    own = profile.num_threads or torch.get_num_threads()  # a trace that was read does not say its threads
    counts = thread_counts(threads) or (own,)
    task = Task(
        {recorded.op: Body(stmt, "<op>")},
        setup=[Body(setup, "<setup>")],
        implied={"torch": torch},
        plan=Plan(
            threads=counts,
            min_run_time=min_run_time,
            max_run_time=max_run_time,
            label=recorded.op,
            sub_label=str(row["input_shapes"]),
        ),
        progress=progress,
    )
    made = compare_bodies(task)
    header = f"%%timer -t {','.join(map(str, counts))}"
    text = f"{header}\n# --- setup\n{setup}\n# --- {recorded.op}\n{stmt}"
    return replace(made, code=text, warnings=[*_doubts(row, others), *made.warnings])


_RECORDED = ("op", "overload", "input_shapes", "input_dtypes", "input_strides", "scalars")


def _chosen(profile: Profile, op: str, input_shapes: str | Sequence[Any] | None) -> tuple[dict[str, Any], int]:
    """The recorded call that is meant, the most frequent of several, and how many others there are."""
    every = profile.arguments
    if every.empty:
        raise InputError("this profile has no input shapes: use --shapes (`shapes=True`)")
    if op in profile.ranges:
        raise ArgumentError(f"{op} is a record_function range, not an operator")
    name = full_name(every["op"], op)
    shown = profile.ops.loc[profile.ops["op"] == name, "input_shapes"]
    calls = every[(every["op"] == name) & every["input_shapes"].isin(shown)]
    there = list(dict.fromkeys(calls["input_shapes"]))
    if input_shapes is None:
        if len(there) > 1:
            raise InputError(f"{name} ran with {len(there)} kinds of input shapes; give one of them: {_some(there)}")
        wanted = there
    else:
        given = _as_lists(input_shapes)
        wanted = [shapes for shapes in there if _as_lists(shapes) == given]
        wanted = wanted or [shapes for shapes in there if _tensors(_as_lists(shapes)) == given]
        if not wanted:
            raise InputError(f"{name} did not run with input shapes {input_shapes}; it ran with: {_some(there)}")
    same = calls[calls["input_shapes"] == wanted[0]].sort_values("seen", ascending=False, kind="stable")
    return dict(same.iloc[0]), len(same) - 1


def _some(shapes: Sequence[str]) -> str:
    more = f" and {len(shapes) - _MOST_NAMED} more" if len(shapes) > _MOST_NAMED else ""
    return ", ".join(shapes[:_MOST_NAMED]) + more


def _as_lists(shapes: Any) -> Any:
    """Lists all the way down, of what may be text, tuples or ``torch.Size``."""
    if isinstance(shapes, str):
        try:
            shapes = ast.literal_eval(shapes)
        except (ValueError, SyntaxError):
            raise InputError(f"input_shapes {shapes!r}: give them as .ops has them, such as [[3, 4], [4, 5]]") from None
    if isinstance(shapes, list | tuple):
        return [_as_lists(part) for part in shapes]
    return shapes


def _tensors(shapes: list[Any]) -> list[Any]:
    """Without the empty ends: the places of scalars."""
    while shapes and shapes[-1] == []:
        shapes = shapes[:-1]
    return shapes


def _device(profile: Profile, op: str) -> str:
    """The accelerator, where the op ran there; else the CPU."""
    import torch

    rows = profile.ops[profile.ops["op"] == op]
    if not (rows["device_time"] > 0).any():
        return "cpu"
    found = torch.accelerator.current_accelerator()
    if found is None:
        raise InputError(f"{op} ran on an accelerator, and this process has none")
    return str(found)


def code_of(recorded: RecordedCall, device: str = "cpu") -> tuple[str, str]:
    """Setup and statement that call the op again.

    Raises:
        ArgumentError: an argument cannot be rebuilt.
    """
    operator = operator_of(recorded.op, recorded.overload)
    arguments = arguments_of(recorded, operator)
    setup, positional, named = ["import torch"], [], []
    for name, by_name in given_arguments(operator, arguments):
        value = arguments[name]
        text = _scalar(value)
        if isinstance(value, Tensor):
            text = "input" if name == "self" else f"{name}_" if keyword.iskeyword(name) else name
            setup.append(f"{text} = {_made(value, device)}")
        if by_name:
            named.append(f"{name}={text}" if not keyword.iskeyword(name) else f"**{{{name!r}: {text}}}")
        else:
            positional.append(text)
    namespace, _, packet = operator.overloadpacket._qualified_op_name.partition("::")
    called = f"torch.ops.{namespace}.{packet}.{operator._overloadname}"
    return "\n".join(setup), f"{called}({', '.join([*positional, *named])})"


def _scalar(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, list):
        return f"[{', '.join(map(_scalar, value))}]"
    return repr(value)


def _made(tensor: Tensor, device: str) -> str:
    """Code that makes the tensor: random values, laid out in memory as it was."""
    place = "" if device == "cpu" else f', device="{device}"'
    if tensor.strides == _contiguous(tensor.shape):
        return _random(", ".join(map(str, tensor.shape)), tensor, place)
    length = (
        1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.strides, strict=True)) if 0 not in tensor.shape else 0
    )
    return f"torch.as_strided({_random(str(length), tensor, place)}, {tensor.shape}, {tensor.strides})"


def _random(size: str, tensor: Tensor, place: str) -> str:
    dtype = "" if tensor.dtype == "float32" else f", dtype=torch.{tensor.dtype}"
    if tensor.dtype == "bool":
        return f"torch.rand(({size}{',' if size else ''}){place}) < 0.5"
    if tensor.dtype.startswith(("int", "uint")):
        return f"torch.randint(0, 100, ({size}{',' if size else ''}){dtype}{place})"
    return f"torch.randn(({size}{',' if size else ''}){dtype}{place})"


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _try(op: str, setup: str, stmt: str) -> None:
    """Run it once: what fails on fresh inputs is said in one line, before anything is timed."""
    names: dict[str, Any] = {}
    try:
        exec(f"{setup}\n{stmt}", names)
    except Exception as error:  # noqa: BLE001  # whatever the op raises
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ArgumentError(f"{op} does not run on fresh inputs: {reason}") from None


def _doubts(row: dict[str, Any], others: int) -> list[Doubt]:
    if not others:
        return []
    text = (
        f"{others + 1} kinds of calls had these shapes; this is the most frequent: dtypes {row['input_dtypes']},"
        f" strides {row['input_strides']}, scalars {row['scalars']}."
    )
    return [Doubt("one-of-several", text, "All: `.arguments` of the profile.", {"kinds": others + 1})]
