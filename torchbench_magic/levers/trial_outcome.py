"""What a call with a lever gave, compared with what one without it gave: same, close, different, or not to be told."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import numpy as np
import torch

from torchbench_magic.process.static_introspection import ABSENT, TOO_MANY, is_a
from torchbench_magic.timing.equality import (
    Gap,
    Numbers,
    Object,
    form,
    frame_parts,
    gap,
    gap_text,
    only_absolutely_close,
    tolerances_at,
    walk_both,
)
from torchbench_magic.timing.samples import Outcome

VALUE = "the value"
"""The label of what the last line gives."""
_DEEPEST = 6
_MOST_LEAVES = 10_000
_leaves = partial(walk_both, deepest=_DEEPEST, most=_MOST_LEAVES, by_kind=True)
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


def bound_label(name: str) -> str:
    """The label of a variable that the body bound."""
    return f"`{name}`"


def _plain(label: str) -> str:
    return label.replace(_OF_COMPILED, "")


def _pairs(ours: CallOutcome, baseline: CallOutcome) -> Iterator[tuple[str, Any, Any]]:
    """(label, leaf, that of the baseline) of all that both have, by label."""
    here, there = ours.beside(baseline), baseline.beside(ours)
    for label in sorted(here.keys() & there.keys()):
        yield from ((label, one, other) for _, one, other in _leaves(here[label], there[label]))


def compared(ours: CallOutcome, baseline: CallOutcome, precision: Any = None) -> tuple[Outcome, float]:
    """Whether two calls came to the same, and the largest absolute difference; ("", NaN) where a part of it, or all,
    is nothing that can be compared, and the rest does not differ.

    Args:
        precision: a dtype at whose tolerance they are compared; None is that of the values, of two the coarser one.
    """
    if ours.beside(baseline).keys() != baseline.beside(ours).keys():
        return "differs", math.nan
    words: set[Outcome] = set()
    largest = math.nan
    for _, one, other in _pairs(ours, baseline):
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
    if is_a(value, Numbers):
        return value.kind not in ("int", "bool", "NumPy number") or value.values.dtype.kind in "fc"
    if is_a(value, (torch.Tensor, np.ndarray, np.inexact, float, complex, Object)):
        return True
    if depth >= _DEEPEST or not is_a(value, (Mapping, list, tuple)):
        return False
    items = value.values() if is_a(value, Mapping) else value
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
    for _, one, other in _pairs(ours, baseline):
        if any(value is mark for value in (one, other) for mark in (ABSENT, TOO_MANY)):
            continue
        if _kind(one) != _kind(other):
            return f"{_kind(one)}, not {_kind(other)}"
        dtypes = [getattr(value, "dtype", "") for value in (one, other)]
        if dtypes[0] != dtypes[1] and str(precision).removeprefix("torch.") not in dtypes:
            return f"dtype {dtypes[0]}, not {dtypes[1]}"
    return ""


def only_tiny(ours: CallOutcome, baseline: CallOutcome) -> str:
    """Of results that are close: where they are that only by the absolute tolerance, as a clause; gradients are judged
    together, since that of a bias before a softmax is nothing but rounding."""
    groups: dict[str, list[Gap]] = {}
    for label, one, other in _pairs(ours, baseline):
        if is_a(one, Numbers) and is_a(other, Numbers):
            groups.setdefault("the gradients" if label.endswith(".grad") else label, []).append(gap(one, other))
    for label, gaps in groups.items():
        if (found := only_absolutely_close(gaps)) is not None:
            return f"by the absolute tolerance only: in {label} {gap_text(found)}"
    return ""


def _kind(value: Any) -> str:
    """The name of its class, one for all tensors and one for the numbers of NumPy, which tell theirs by the dtype."""
    return value.kind if is_a(value, Numbers) else type(value).__qualname__


def not_comparable(ours: CallOutcome, baseline: CallOutcome) -> dict[str, str]:
    """Label -> name of the class of what nobody can compare in it, of two calls of the same."""
    found: dict[str, str] = {}
    for label, one, other in _pairs(ours, baseline):
        if not _of_leaf(one, other, None)[0]:
            found.setdefault(label, "" if one is TOO_MANY or other is TOO_MANY else _kind(one))
    return found


def _of_leaf(one: Any, other: Any, precision: Any) -> tuple[Outcome, float]:
    if one is TOO_MANY or other is TOO_MANY:
        return "", math.nan
    if one is ABSENT or other is ABSENT:
        return ("equal" if one is other else "differs"), math.nan
    if is_a(one, Numbers) and is_a(other, Numbers):
        # a number of Python is most often one that a tensor of the default dtype held, and has its tolerance
        at = precision or (None if one.library or other.library else torch.get_default_dtype())
        found = gap(one, other, tolerances_at(at))
        unlike = one.dtype != other.dtype and str(precision).removeprefix("torch.") not in (one.dtype, other.dtype)
        return ("differs" if unlike or _kind(one) != _kind(other) else found.word), found.apart
    if one is other and is_a(one, _NAMED):
        return "equal", math.nan
    if type(one) is not type(other):
        is_anew = _name_of_class(one) == _name_of_class(other)  # a class that the cell itself makes in each call
        return ("" if is_anew else "differs"), math.nan
    if is_a(one, (str, bytes, int, range, slice, torch.dtype, torch.device)) or one is None:
        return ("equal" if one == other else "differs"), math.nan
    if is_a(one, FunctionType) and one.__code__ == other.__code__ and not (one.__closure__ or one.__defaults__):
        return "equal", math.nan
    return "", math.nan  # nobody knows what makes two of them the same


def _name_of_class(value: Any) -> tuple[str, str]:
    return type(value).__module__, type(value).__qualname__


def detached(value: Any, depth: int = 0) -> Any:
    """A value apart from what later calls change: its numbers copied, in lists, tuples and dicts too. Of a module and
    an optimizer it is their parameters, buffers and state."""
    value = frame_parts(value) or form(value)
    if is_a(value, Numbers):
        return value.copy()
    if is_a(value, (torch.nn.Module, torch.optim.Optimizer)):
        return detached(_state_of(value), depth + 1)
    if is_a(value, Object):
        return Object(value.kind, detached(value.attributes, depth))
    if depth < _DEEPEST and is_a(value, Mapping):
        return {key: detached(item, depth + 1) for key, item in [*value.items()][: _MOST_LEAVES + 1]}
    if depth < _DEEPEST and is_a(value, (list, tuple)):
        items = [detached(item, depth + 1) for item in [*value][: _MOST_LEAVES + 1]]
        return items if is_a(value, list) else tuple(items)
    return value


def _state_of(value: Any) -> Any:
    """Of a module or an optimizer that the cell made."""
    if is_a(value, torch.nn.Module):
        named = (*value.named_parameters(), *value.named_buffers())
        return {_plain(f".{name}"): tensor for name, tensor in named}
    return value.state_dict()["state"]
