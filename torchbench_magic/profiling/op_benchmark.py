"""From a row of a profile to a micro-benchmark: the same op on fresh inputs of the same kind."""

from __future__ import annotations

import ast
import keyword
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torchbench_magic.cell_text import Body
from torchbench_magic.errors import InputError
from torchbench_magic.process.interrupts import NO_PROGRESS, Progress
from torchbench_magic.process.torch_import import import_torch
from torchbench_magic.results import Doubt
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.plan import Plan, thread_counts
from torchbench_magic.timing.run import compare_bodies
from torchbench_magic.timing.task import Task

from .call_tree_tables import full_name
from .profile import Profile

# ---- call_arguments --------------------------------------------------------------------------------------------------
# The arguments of a recorded op, rebuilt: tensors by shape, strides and dtype, scalars as they were recorded.
#
# torch's profiler records, with shapes, the sizes, strides and dtypes of the tensors and the values of scalars. Lists
# of tensors are recorded without what is needed to tell absent ones, and what stood in the tensors is not recorded at
# all: an op whose work depends on it (index values, masks) cannot be rebuilt.

DTYPES = {
    "float": "float32",
    "double": "float64",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
    "long int": "int64",
    "long": "int64",
    "int": "int32",
    "short int": "int16",
    "short": "int16",
    "signed char": "int8",
    "unsigned char": "uint8",
    "bool": "bool",
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
}
_VALUES_MATTER = re.compile(r"^(ind|offsets|target|lengths|batch_sizes|boundaries|sorter|crow|ccol|row_|col_)")


class ArgumentError(InputError):
    """An argument of an op cannot be rebuilt; the message names it."""


@dataclass(frozen=True)
class Tensor:
    """A strided tensor to make anew.

    Attributes:
        name: of the argument.
        dtype: torch's name of it, "float32".
    """

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class RecordedCall:
    """What the profiler recorded of one call, by position in the schema.

    Attributes:
        op: "aten::addmm".
        overload: "out", or empty.
        shapes, strides: of tensors; empty lists for what is none.
        dtypes: torch's C++ names; "Scalar", "TensorList", "" for what is no tensor.
        scalars: values of what is no tensor; None for tensors.
    """

    op: str
    overload: str
    shapes: Sequence[Any]
    dtypes: Sequence[str]
    strides: Sequence[Any]
    scalars: Sequence[Any]


def parsed_call(op: str, overload: str, shapes: str, dtypes: str, strides: str, scalars: str) -> RecordedCall:
    """From the texts of the tables."""
    return RecordedCall(op, overload, *(_read(text) for text in (shapes, dtypes, strides, scalars)))


def _read(text: str) -> Any:
    """A literal, in which ``inf`` and ``nan`` are numbers: a mask is filled with the one, a norm taken by it."""
    return ast.literal_eval(_NotFinite().visit(ast.parse(text, mode="eval")))


class _NotFinite(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(float(node.id)) if node.id in ("inf", "nan") else node


def operator_of(op: str, overload: str) -> Any:
    """``torch.ops.aten.addmm.default``.

    Raises:
        ArgumentError: it is no operator with a schema (a range, autograd's own frame, one of a closed library).
    """
    import torch

    namespace, separator, name = op.partition("::")
    try:
        if not separator or " " in op:
            raise AttributeError(op)
        return getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")
    except (AttributeError, RuntimeError):
        raise ArgumentError(f"{op} cannot be called by its name, so it cannot be rebuilt") from None


def schema_arguments(operator: Any) -> Sequence[Any]:
    """What an operator takes, each with ``name``, ``type``, ``kwarg_only`` and so on.

    Raises:
        ArgumentError: this torch does not tell (``_schema``, a private name).
    """
    schema = getattr(operator, "_schema", None)
    if schema is None:
        raise ArgumentError(f"{operator} cannot be rebuilt: this torch does not say which arguments it takes")
    arguments: Sequence[Any] = schema.arguments
    return arguments


def returned(operator: Any) -> tuple[frozenset[str], tuple[bool, ...]]:
    """(names of the arguments that it writes into, for each value it returns whether that is memory of its own).

    A view, or an argument that is handed on, is not.

    Raises:
        ArgumentError: as of `schema_arguments`.
    """
    arguments = schema_arguments(operator)
    written = frozenset(a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write)
    return written, tuple(value.alias_info is None for value in operator._schema.returns)


def arguments_of(recorded: RecordedCall, operator: Any, *, values_matter: bool = True) -> dict[str, Any]:
    """Name -> `Tensor`, or the value of a scalar; in the order of the schema, defaults left out.

    Args:
        values_matter: refuse what depends on the values in a tensor; without, sizes alone are of interest.

    Raises:
        ArgumentError: naming the argument that cannot be rebuilt.
    """
    import torch

    op = recorded.op
    found: dict[str, Any] = {}
    tags = getattr(operator, "tags", ())
    sized_by_values = torch.Tag.dynamic_output_shape in tags or torch.Tag.data_dependent_output in tags
    for argument in schema_arguments(operator):
        if "List[Tensor]" in str(argument.type) or "List[Optional[Tensor]]" in str(argument.type):
            text = "is a list of tensors, of which too little is recorded to rebuild it"
            raise ArgumentError(f"{op}: {argument.name} {text}")
    for at, argument in enumerate(schema_arguments(operator)):
        kind, name = str(argument.type), argument.name
        dtype = recorded.dtypes[at] if at < len(recorded.dtypes) else ""
        value = recorded.scalars[at] if at < len(recorded.scalars) else None
        if kind in ("Tensor", "Optional[Tensor]"):
            if dtype in DTYPES:
                tensor = Tensor(name, tuple(recorded.shapes[at]), tuple(recorded.strides[at]), DTYPES[dtype])
                if values_matter:
                    _refuse_values(op, tensor, sized_by_values)
                found[name] = tensor
            elif kind == "Optional[Tensor]" and not dtype:
                found[name] = None
            elif dtype in ("Scalar", "") and value not in (None, ""):
                found[name] = value  # a Python number where a tensor may stand: x + 1
            else:
                raise ArgumentError(
                    f"{op}: what was given as {name} is not recorded" + (f" ({dtype})" if dtype else "")
                )
        elif value not in (None, "", "None"):
            found[name] = value
        elif argument.has_default_value() or kind.startswith("Optional["):
            continue
        else:
            raise ArgumentError(f"{op}: the value of {name} is not recorded")
    return found


def given_arguments(operator: Any, arguments: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Names of what is given, in the order of the schema; whether it goes by name, as all does after a default that was
    left out."""
    gap = False
    for argument in schema_arguments(operator):
        gap = gap or argument.name not in arguments
        if argument.name in arguments:
            yield argument.name, argument.kwarg_only or gap


def _refuse_values(op: str, tensor: Tensor, sized_by_values: bool) -> None:
    if sized_by_values:
        raise ArgumentError(f"{op}: how much it returns depends on the values in {tensor.name}, which are not recorded")
    if tensor.dtype in ("int64", "int32", "int16") and _VALUES_MATTER.match(tensor.name):
        raise ArgumentError(f"{op}: {tensor.name} holds indices, whose values are not recorded")


# ---- op_benchmark ----------------------------------------------------------------------------------------------------
# From a row of a profile to a micro-benchmark: the same op on fresh inputs of the same sizes, strides and dtypes.

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
    return "\n".join(setup), f"{_spelled(operator)}({', '.join([*positional, *named])})"


def _spelled(operator: Any) -> str:
    namespace, _, name = operator.overloadpacket._qualified_op_name.partition("::")
    return f"torch.ops.{namespace}.{name}.{operator._overloadname}"


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
