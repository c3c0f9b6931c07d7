"""The arguments of a recorded op, rebuilt: tensors by shape, strides and dtype, scalars as they were recorded.

torch's profiler records, with shapes, the sizes, strides and dtypes of the tensors and the values of scalars. Lists of
tensors are recorded without what is needed to tell absent ones, and what stood in the tensors is not recorded at all:
an op whose work depends on it (index values, masks) cannot be rebuilt.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchbench_magic.errors import InputError

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


def on_sizes_alone(operator: Any, arguments: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """(by position, by name): what to call it with for its shapes, each tensor as one without values."""
    import torch

    def bare(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return torch.empty_strided(value.shape, value.strides, dtype=getattr(torch, value.dtype), device="meta")

    by_name = dict(given_arguments(operator, arguments))
    positional = [bare(arguments[name]) for name in by_name if not by_name[name]]
    return positional, {name: bare(arguments[name]) for name in by_name if by_name[name]}


def _refuse_values(op: str, tensor: Tensor, sized_by_values: bool) -> None:
    if sized_by_values:
        raise ArgumentError(f"{op}: how much it returns depends on the values in {tensor.name}, which are not recorded")
    if tensor.dtype in ("int64", "int32", "int16") and _VALUES_MATTER.match(tensor.name):
        raise ArgumentError(f"{op}: {tensor.name} holds indices, whose values are not recorded")
