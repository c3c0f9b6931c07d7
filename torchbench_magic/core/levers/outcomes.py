"""What a call of a cell comes to, and whether two of them are the same."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from torchbench_magic.core.timing.effects.equal_results import gap_text, only_absolutely_close
from torchbench_magic.core.timing.effects.held_contents import ABSENT
from torchbench_magic.core.timing.effects.restoring.written_objects import TOO_MANY
from torchbench_magic.results.timing.proof.trial import Outcome

__all__ = [
    "VALUE",
    "CallOutcome",
    "bound_label",
    "compared",
    "detached",
    "differing",
    "differs_in",
    "holds_numbers",
    "is_evident",
    "not_comparable",
    "only_tiny",
]

VALUE = "the value"
"""The label of what the last line gives."""
_TOLERANCES = {
    "torch.bfloat16": (1.6e-2, 1e-5), "torch.float16": (1e-3, 1e-5), "torch.float32": (1.3e-6, 1e-5),
}  # fmt: skip
"""Dtype -> (rtol, atol), as the documentation of ``torch.testing.assert_close`` has them. A number of Python is most
often one that a tensor of the default dtype held, and has its tolerance."""
_DEEPEST = 6
_MOST_LEAVES = 10_000
_NAMED = (ModuleType, type, FunctionType, BuiltinFunctionType, Enum)
"""What is one object wherever it is bound, as an import is. Another object may have changed."""
_OF_COMPILED = "._orig_mod"
"""What a compiled module has in the names of its parameters besides."""


@dataclass(frozen=True)
class CallOutcome:
    """What one call left.

    Attributes:
        made: label -> value: of the last line, and of the variables that the body bound.
        state: label -> (before, after) of each tensor, gradient and array that it changed.
        seconds: of the call.
        written: label -> (before, after) of each entry of the objects it reaches that it wrote: items of lists and
            dicts, attributes, globals of functions.
        dropped: label -> value of a line within the body that nothing takes, where there are numbers in it.
        printed: a digest of what it printed.
    """

    made: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    seconds: float = 0.0
    written: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    dropped: Mapping[str, Any] = field(default_factory=dict)
    printed: str = ""

    def beside(self, other: CallOutcome) -> dict[str, Any]:
        """Label -> value, with what either of the two changed or wrote."""
        own = {_plain(label): pair for label, pair in {**self.written, **self.state}.items()}
        theirs = {_plain(label): pair for label, pair in {**other.written, **other.state}.items()}
        both = {label: own[label][1] if label in own else theirs[label][0] for label in sorted({*own, *theirs})}
        return {**self.made, **self.dropped, **both}

    def without(self, variables: Collection[str]) -> CallOutcome:
        """The same but for variables that the body bound."""
        gone = {bound_label(name) for name in variables}
        return replace(self, made={label: value for label, value in self.made.items() if label not in gone})


def bound_label(name: str) -> str:
    """The label of a variable that the body bound."""
    return f"`{name}`"


def _plain(label: str) -> str:
    return label.replace(_OF_COMPILED, "")


def compared(ours: CallOutcome, baseline: CallOutcome, precision: Any = None) -> tuple[Outcome, float]:
    """Whether two calls came to the same, and the largest absolute difference; ("", NaN) where a part of it, or all,
    is nothing that can be compared, and the rest does not differ.

    Args:
        precision: a dtype at whose tolerance they are compared; None is that of the values, of two the coarser one.
    """
    here, there = ours.beside(baseline), baseline.beside(ours)
    if here.keys() != there.keys():
        return "differs", math.nan
    words: set[Outcome] = set()
    largest = math.nan
    for label, value in here.items():
        for one, other in _leaves(value, there[label], 0):
            word, difference = _of_leaf(one, other, precision)
            words.add(word)
            largest = max(largest, difference) if not math.isnan(largest) else difference
    if "differs" in words:
        return "differs", largest
    if not words or "" in words:
        return "", math.nan
    return ("close" if "close" in words else "equal"), largest


def is_evident(outcome: CallOutcome, given: Collection[str] = ()) -> bool:
    """Whether what is compared of a call tells of its numbers: its value does, a tensor, an array or a float does, and
    state that changed; a counter does not.

    Args:
        given: names of variables that the body binds to what it was given: they tell nothing of what it computed.
    """
    if VALUE in outcome.made or outcome.state or outcome.dropped:
        return True
    bare = {*map(bound_label, given)}
    made = [value for label, value in outcome.made.items() if label not in bare]
    return any(map(holds_numbers, [*made, *(after for _, after in outcome.written.values())]))


def holds_numbers(value: Any, depth: int = 0) -> bool:
    """Whether there is a tensor, an array or a float in it."""
    import numpy as np
    import torch

    if isinstance(value, (torch.Tensor, np.ndarray, np.inexact, float, complex)):
        return True
    if depth >= _DEEPEST or not isinstance(value, (Mapping, list, tuple)):
        return False
    items = value.values() if isinstance(value, Mapping) else value
    return any(holds_numbers(item, depth + 1) for item in items)


def differing(ours: CallOutcome, baseline: CallOutcome) -> list[str]:
    """Labels of what is not the same in two calls."""
    here, there = ours.beside(baseline), baseline.beside(ours)
    return [
        label
        for label in sorted(here.keys() | there.keys())
        if compared(CallOutcome({label: here.get(label, ABSENT)}), CallOutcome({label: there.get(label, ABSENT)}))[0]
        == "differs"
    ]


def differs_in(ours: CallOutcome, baseline: CallOutcome, precision: Any = None) -> str:
    """Of the first value that is of another kind, what kind it is: "dtype float64, not float32", "tuple, not list".

    Args:
        precision: a dtype that is no other kind.
    """
    here, there = ours.beside(baseline), baseline.beside(ours)
    for label in sorted(here.keys() & there.keys()):
        for one, other in _leaves(here[label], there[label], 0):
            if any(value is mark for value in (one, other) for mark in (ABSENT, TOO_MANY)):
                continue
            if _kind(one) != _kind(other):
                return f"{_kind(one)}, not {_kind(other)}"
            dtypes = [str(getattr(value, "dtype", "")).removeprefix("torch.") for value in (one, other)]
            if dtypes[0] != dtypes[1] and str(precision).removeprefix("torch.") not in dtypes:
                return f"dtype {dtypes[0]}, not {dtypes[1]}"
    return ""


def only_tiny(ours: CallOutcome, baseline: CallOutcome) -> str:
    """Of results that are close: where they are that only by the absolute tolerance, as a clause; gradients are judged
    together, since that of a bias before a softmax is nothing but rounding."""
    here, there = ours.beside(baseline), baseline.beside(ours)
    groups: dict[str, list[tuple[Any, Any]]] = {}
    for label in sorted(here.keys() & there.keys()):
        pairs = [pair for pair in _leaves(here[label], there[label], 0) if all(map(_is_floating, pair))]
        groups.setdefault("the gradients" if label.endswith(".grad") else label, []).extend(pairs)
    for label, pairs in groups.items():
        if (gap := only_absolutely_close((_floats(one), _floats(other)) for one, other in pairs)) is not None:
            return f"by the absolute tolerance only: in {label} {gap_text(gap)}"
    return ""


def _is_floating(value: Any) -> bool:
    import numpy as np
    import torch

    if isinstance(value, torch.Tensor):
        return value.is_floating_point() or value.is_complex()
    return isinstance(value, (float, complex)) or (isinstance(value, np.ndarray) and value.dtype.kind in "fc")


def _floats(value: Any) -> Any:
    import torch

    tensor = value if isinstance(value, torch.Tensor) else torch.as_tensor(value)
    tensor = tensor.dequantize() if tensor.is_quantized else tensor
    return tensor if tensor.layout is torch.strided else tensor.to_dense()


def _kind(value: Any) -> str:
    """The name of its class, one for all tensors and one for the numbers of NumPy, which tell theirs by the dtype."""
    import numpy as np
    import torch

    if isinstance(value, torch.Tensor):
        return "Tensor"
    return "NumPy number" if isinstance(value, np.generic) else type(value).__qualname__


def not_comparable(ours: CallOutcome, baseline: CallOutcome) -> dict[str, str]:
    """Label -> name of the class of what nobody can compare in it, of two calls of the same."""
    here, there = ours.beside(baseline), baseline.beside(ours)
    found: dict[str, str] = {}
    for label in here.keys() & there.keys():
        for one, other in _leaves(here[label], there[label], 0):
            if not _of_leaf(one, other, None)[0]:
                found.setdefault(label, "" if TOO_MANY in (one, other) else type(one).__qualname__)
    return dict(sorted(found.items()))


def _leaves(one: Any, other: Any, depth: int) -> Iterator[tuple[Any, Any]]:
    if depth < _DEEPEST and isinstance(one, Mapping) and isinstance(other, Mapping):
        if max(len(one), len(other)) > _MOST_LEAVES:
            yield TOO_MANY, TOO_MANY
            return
        for key in [*one, *(key for key in other if key not in one)]:
            yield from _leaves(one.get(key, ABSENT), other.get(key, ABSENT), depth + 1)
    elif depth < _DEEPEST and any(isinstance(one, kind) and isinstance(other, kind) for kind in (list, tuple)):
        if max(len(one), len(other)) > _MOST_LEAVES:
            yield TOO_MANY, TOO_MANY
            return
        for at in range(max(len(one), len(other))):
            pair = [items[at] if at < len(items) else ABSENT for items in (one, other)]
            yield from _leaves(pair[0], pair[1], depth + 1)
    else:
        yield one, other


def _of_leaf(one: Any, other: Any, precision: Any) -> tuple[Outcome, float]:
    import numpy as np
    import torch

    if one is TOO_MANY or other is TOO_MANY:
        return "", math.nan
    if one is ABSENT or other is ABSENT:
        return ("equal" if one is other else "differs"), math.nan
    if _kind(one) != _kind(other) and any(isinstance(v, (torch.Tensor, np.ndarray, list, tuple)) for v in (one, other)):
        return "differs", math.nan
    pair = [torch.from_numpy(v) if isinstance(v, np.ndarray) and v.dtype.kind in "biufc" else v for v in (one, other)]
    if all(isinstance(value, torch.Tensor) for value in pair):
        return _of_tensors(pair[0], pair[1], precision)
    if all(_is_number(value) for value in pair):
        is_plain = all(isinstance(value, (float, complex)) and not isinstance(value, np.generic) for value in pair)
        tolerance = precision or (torch.get_default_dtype() if is_plain else None)
        word, difference = _of_tensors(_as_tensor(one), _as_tensor(other), tolerance)
        return ("differs" if _kind(one) != _kind(other) else word), difference
    if one is other and isinstance(one, _NAMED):
        return "equal", math.nan
    if type(one) is not type(other):
        is_anew = _name_of_class(one) == _name_of_class(other)  # a class that the cell itself makes in each call
        return ("" if is_anew else "differs"), math.nan
    if isinstance(one, (str, bytes, int, range, slice, torch.dtype, torch.device)) or one is None:
        return ("equal" if one == other else "differs"), math.nan
    if isinstance(one, FunctionType) and one.__code__ == other.__code__ and not (one.__closure__ or one.__defaults__):
        return "equal", math.nan
    return "", math.nan  # nobody knows what makes two of them the same


def _as_tensor(value: Any) -> Any:
    """A number as a tensor: Python's own at full length, where torch would round it to its default dtype."""
    import torch

    wide = {float: torch.float64, complex: torch.complex128}.get(type(value))
    return torch.as_tensor(value, dtype=wide)


def _is_number(value: Any) -> bool:
    import numpy as np

    if isinstance(value, np.generic):
        return value.dtype.kind in "biufc"
    return isinstance(value, (bool, float, complex)) or (isinstance(value, int) and -(2**63) <= value < 2**63)


def _name_of_class(value: Any) -> tuple[str, str]:
    return type(value).__module__, type(value).__qualname__


def _of_tensors(one: Any, other: Any, precision: Any) -> tuple[Outcome, float]:
    import torch

    one, other = one.detach(), other.detach()
    if one.shape != other.shape or one.is_meta or other.is_meta:
        return ("" if one.is_meta and other.is_meta else "differs"), math.nan
    if one.layout is not torch.strided or other.layout is not torch.strided:
        one, other = (tensor.to_dense() if tensor.layout is not torch.strided else tensor for tensor in (one, other))
    if one.is_quantized or other.is_quantized:
        one, other = (tensor.dequantize() if tensor.is_quantized else tensor for tensor in (one, other))
    if not one.numel():
        is_close = precision in (one.dtype, other.dtype)
        return ("equal" if one.dtype == other.dtype else "close" if is_close else "differs"), 0.0
    wide = torch.complex128 if one.is_complex() or other.is_complex() else torch.float64
    here, there = one.to("cpu").to(wide), other.to("cpu").to(wide)
    apart = torch.where(here == there, torch.zeros((), dtype=torch.float64), (here - there).abs())  # of infinities too
    apart = apart[~apart.isnan()]
    difference = float(apart.max()) if apart.numel() else 0.0
    if difference == 0 and one.dtype == other.dtype and bool((here.isnan() == there.isnan()).all()):
        return "equal", 0.0
    if one.dtype != other.dtype and precision not in (one.dtype, other.dtype):
        return "differs", difference
    tolerances = _TOLERANCES.get(str(precision))
    is_exact = not (one.is_floating_point() or one.is_complex())
    rtol, atol = (None, None) if tolerances is None or is_exact else tolerances
    try:
        torch.testing.assert_close(
            one.to("cpu"), other.to("cpu"), rtol=rtol, atol=atol, check_dtype=False, check_stride=False, equal_nan=True
        )
    except AssertionError:
        return "differs", difference
    return "close", difference


def detached(value: Any, depth: int = 0) -> Any:
    """A value apart from what later calls change: its tensors and arrays copied, in lists, tuples and dicts too. Of a
    module and an optimizer it is their parameters, buffers and state."""
    import numpy as np
    import torch

    if isinstance(value, torch.Tensor):
        with torch.inference_mode(False):
            return value.detach().clone()
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, (torch.nn.Module, torch.optim.Optimizer)):
        return detached(_state_of(value), depth + 1)
    if depth < _DEEPEST and isinstance(value, Mapping):
        return {key: detached(item, depth + 1) for key, item in [*value.items()][: _MOST_LEAVES + 1]}
    if depth < _DEEPEST and isinstance(value, (list, tuple)):
        items = [detached(item, depth + 1) for item in [*value][: _MOST_LEAVES + 1]]
        return items if isinstance(value, list) else tuple(items)
    return value


def _state_of(value: Any) -> Any:
    """Of a module or an optimizer that the cell made."""
    import torch

    if isinstance(value, torch.nn.Module):
        named = (*value.named_parameters(), *value.named_buffers())
        return {_plain(f".{name}"): tensor for name, tensor in named}
    return value.state_dict()["state"]
