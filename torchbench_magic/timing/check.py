"""``--check``: do the alternatives return the same?"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, is_dataclass
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MemberDescriptorType, ModuleType
from typing import Any

import numpy as np

from torchbench_magic.cell_text import Body
from torchbench_magic.errors import BodyError, CheckFailed, OptionError
from torchbench_magic.process.code import CompiledBody, compile_body, ending_block, parse_body, with_value_taken
from torchbench_magic.process.interrupts import interrupts_let_through
from torchbench_magic.process.reach import slot_values, slots_among
from torchbench_magic.results import Doubt

from .changes import InputCopies, TensorVersions
from .task import Task
from .used_up import what_happened

__all__ = ["agree", "check_equal_results", "first_difference", "gap_text", "only_absolutely_close"]

_MOST, _DEEPEST = 10_000, 100  # objects of a value, and one within the other
_FAR = 0.1
"""Of the largest value: numbers that differ by more agree by `assert_close`'s absolute tolerance only."""
_LONGEST = 60  # characters of a value that is said
_NUMBERS = (bool, int, float, complex)
_ITSELF = (*_NUMBERS, str, bytes, range, Enum, type, ModuleType, FunctionType, BuiltinFunctionType)
"""What nothing changes, or whose identity is what it is."""


def check_equal_results(
    task: Task,
    names: Mapping[str, Any],
    versions: TensorVersions,
    put_back: Callable[[], object] = lambda: None,
    rebound: Mapping[str, Sequence[tuple[str, str]]] = MappingProxyType({}),
) -> list[Doubt]:
    """Run each alternative once, on the same inputs and with the same random numbers, and compare what they return.

    Where they differ the baseline runs once more: one that differs from itself tells nothing of the others. NaN at the
    same places is equal, and told in a doubt.

    Args:
        put_back: has the settings of the process as they were, random generators included; called before each.
        rebound: alternative -> names that it binds and functions that read others of it, as `rebound_names`.

    Raises:
        OptionError: there is one alternative only.
        BodyError: an alternative has no value to compare, or one that cannot be.
        CheckFailed: one returns something else than the baseline does.
    """
    if len(task.bodies) == 1:
        raise OptionError("--check compares alternatives, but there is only one: add a section or leave it out")
    inputs = InputCopies(versions.held)

    def value_of(name: str) -> Any:
        put_back()
        try:
            with interrupts_let_through():
                value = codes[name].run(dict(names))
            return _Snapshot(name).of(value)
        finally:
            inputs.restore_all()

    codes = {name: _with_value(task, name, body) for name, body in task.bodies.items()}
    values = {name: value_of(name) for name in codes}
    baseline = task.plan.baseline or next(iter(values))
    try:
        if all(value is None for value in values.values()):
            names_said = " and ".join(f"`{name}`" for name in values)
            raise BodyError(f"--check: {names_said} return None, so nothing is compared: end each with what to compare")
        try:
            agree(values, baseline)
        except CheckFailed as failed:
            said = [what_happened(how, label) for name in values for how, label in rebound.get(name, ())]
            if said:
                raise CheckFailed(f"{str(failed).rstrip('.')}. {said[0]}") from None
            if first_difference(value_of(baseline), values[baseline]) is not None:
                raise CheckFailed(
                    f"--check: `{baseline}` returned different values in two calls, so the alternatives cannot be"
                    " compared: a call changes what a later one reads, or the code uses times or random numbers of its"
                    " own. Create in each alternative what it changes"
                ) from None
            raise
    finally:
        put_back()
    found = []
    for name, value in values.items():
        gap = None if name == baseline else only_absolutely_close(_numbers(value, values[baseline], set()))
        if gap is not None:
            text = f"`{name}` and `{baseline}` agree only by the absolute tolerance of `--check`: {gap_text(gap)}."
            way = "Compare them at a larger scale, for example as `result * 1e6`."
            found.append(Doubt("tiny-results", text, way, {"name": name, "difference": gap[0], "largest": gap[1]}))
    if _has_nan(values[baseline], set()):
        text = "The results that `--check` compared hold NaN, at the same places in all: that counts as equal."
        found.append(Doubt("nan-results", text, ""))
    return found


def only_absolutely_close(pairs: Iterable[tuple[Any, Any]]) -> tuple[float, float] | None:
    """(largest difference, largest value) of tensors that `assert_close` finds alike, where the one is more than `_FAR`
    of the other: its absolute tolerance (1e-5 in float32) passes whatever is that small. None: they are near."""
    import torch

    apart = largest = 0.0
    for one, other in pairs:
        wide = torch.complex128 if one.is_complex() or other.is_complex() else torch.float64
        here, there = one.detach().to("cpu", wide), other.detach().to("cpu", wide)
        is_known = here.isfinite() & there.isfinite()
        if bool(is_known.any()):
            apart = max(apart, float((here - there)[is_known].abs().max()))
            largest = max(largest, float(here[is_known].abs().max()), float(there[is_known].abs().max()))
    return (apart, largest) if apart > _FAR * largest else None


def gap_text(gap: tuple[float, float]) -> str:
    """What `only_absolutely_close` found, as a clause."""
    return f"they differ by up to {gap[0]:.2g}, and the largest value is {gap[1]:.2g}"


def _numbers(value: Any, expected: Any, seen: set[tuple[int, int]]) -> Iterator[tuple[Any, Any]]:
    """Pairs of tensors of the floating point numbers in two values that are alike, those within objects too."""
    import torch

    if (id(value), id(expected)) in seen:
        return
    seen.add((id(value), id(expected)))
    if isinstance(value, _Object | Mapping):
        ours, theirs = (one.attributes if isinstance(one, _Object) else one for one in (value, expected))
        for key in ours:
            yield from _numbers(ours[key], theirs[key], seen)
    elif isinstance(value, list | tuple | deque):
        for one, other in zip(value, expected, strict=True):
            yield from _numbers(one, other, seen)
    elif isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex()):
        pair = [one if one.layout == torch.strided else one.to_dense() for one in (value, torch.as_tensor(expected))]
        yield pair[0], pair[1]
    elif isinstance(value, np.ndarray) and value.dtype.kind in "fc":
        yield torch.from_numpy(value), torch.as_tensor(expected)
    elif isinstance(value, float | complex):
        yield torch.as_tensor(value, dtype=torch.complex128), torch.as_tensor(expected)


def _with_value(task: Task, name: str, body: Body) -> CompiledBody:
    compiled = _compiled(task, body)
    if compiled.last is None:
        raise BodyError(f"--check: {_without_value(task, name, body)}: end it with the expression to compare")
    if compiled.is_coroutine:
        raise BodyError("--check cannot compare code that awaits")
    return compiled


def _compiled(task: Task, body: Body) -> CompiledBody:
    def transform(tree: ast.Module) -> ast.Module:
        return with_value_taken(tree if task.transform_ast is None else task.transform_ast(tree))

    return compile_body(body, flags=task.flags, transform_ast=transform)


def _without_value(task: Task, name: str, body: Body) -> str:
    """Why an alternative has no value, in words."""
    block = ending_block(parse_body(body, flags=task.flags, transform_ast=task.transform_ast))
    return f"`{name}` ends with a `{block}` block, which has no value" if block else f"`{name}` returns nothing"


@dataclass(frozen=True)
class _Object:
    """An object without an ``==`` of its own, as it was: its class and attributes."""

    kind: type
    attributes: dict[str, Any]


class _Again(int):
    """An object within itself, by how deep it is."""


class _Snapshot:
    """A value apart from what the alternatives after it change, so that a result that is filled anew is not compared
    with itself: tensors, arrays and containers copied, each within the other too; objects by their attributes."""

    def __init__(self, name: str) -> None:
        self._name = name  # of the alternative
        self._made: dict[int, tuple[Any, Any]] = {}  # id -> (the object, which keeps the id its own; its copy)
        self._depth = 0

    def of(self, value: Any) -> Any:
        import torch

        if isinstance(value, torch.Tensor):
            return self._of_tensor(value)
        if isinstance(value, np.ma.MaskedArray):  # what is masked counts for nothing
            return [np.ma.getmaskarray(value).copy(), value.filled(value.dtype.type())]
        if isinstance(value, np.ndarray) and value.dtype != object:
            return value.copy()
        if value is None or isinstance(value, _ITSELF):
            return value
        if id(value) in self._made:
            return self._made[id(value)][1]
        if len(self._made) >= _MOST or self._depth >= _DEEPEST:
            raise BodyError(
                f"--check: `{self._name}` returns more than {_MOST} objects, or deeper than {_DEEPEST}: end it with"
                " less to compare"
            )
        self._made[id(value)] = value, _Again(self._depth)
        self._depth += 1
        made = self._copied(value)
        self._depth -= 1
        self._made[id(value)] = value, made
        return made

    def _of_tensor(self, value: Any) -> Any:
        """In a layout that ``assert_close`` knows; of a nested tensor the list of its tensors."""
        if value.is_meta or type(value).__name__ == "FakeTensor":
            raise BodyError(
                f"--check: `{self._name}` returns a tensor without values ({'meta' if value.is_meta else 'fake'}),"
                " which cannot be compared: end it with tensors or numbers"
            )
        if value.is_nested:
            return [each.detach().clone() for each in value.unbind()]
        return value.to_dense() if value.is_mkldnn else value.detach().clone()

    def _copied(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: self.of(item) for key, item in value.items()}
        if isinstance(value, list | tuple | deque):
            items = [self.of(item) for item in value]
            return tuple(items) if isinstance(value, tuple) else items if isinstance(value, list) else deque(items)
        if isinstance(value, np.ndarray):  # of objects
            return [value.shape, [self.of(item) for item in value.ravel()]]
        if isinstance(value, set | frozenset | bytearray):
            return copy(value)
        return self._of_object(value)

    def _of_object(self, value: Any) -> Any:
        kind = type(value)
        attributes = {**dict(slot_values(value, _own_slots(kind))), **getattr(value, "__dict__", {})}
        if any("__eq__" in vars(base) for base in kind.__mro__[:-1]) and not is_dataclass(value):
            try:
                return deepcopy(value)
            except Exception:  # noqa: BLE001  # whatever the copying of a user's object raises
                pass
        elif attributes or hasattr(value, "__dict__"):
            return _Object(kind, {name: self.of(one) for name, one in attributes.items()})
        raise BodyError(
            f"--check: `{self._name}` returns {_kind(kind)}, which cannot be compared: end it with tensors or numbers"
        )


def _own_slots(kind: type) -> dict[str, MemberDescriptorType]:
    """Of classes written in Python: what others store in this way is theirs."""
    own = [vars(base) for base in reversed(kind.__mro__) if "__slots__" in vars(base)]
    return {name: slot for attributes in own for name, slot in slots_among(attributes).items()}


def _kind(kind: type) -> str:
    return f"an object of class `{kind.__name__}`"


def agree(values: Mapping[str, Any], baseline: str) -> None:
    """Raise unless every value is close to the baseline's, by ``torch.testing.assert_close``; NaN is equal to NaN.

    Raises:
        CheckFailed: one line that names the alternative and how far it is off.
    """
    for name, value in values.items():
        if name == baseline or (off := first_difference(value, values[baseline])) is None:
            continue
        raise CheckFailed(f"--check: `{name}` and `{baseline}` return different values: {off}")


def first_difference(
    value: Any, expected: Any, place: str = "", same: set[tuple[int, int]] | None = None
) -> str | None:
    """What is different in two values, and ``place``, where in them; None: nothing.

    Args:
        same: ids of pairs that are known to be equal.
    """
    import torch

    same = set() if same is None else same
    at = f" (at {place})" if place else ""
    if (id(value), id(expected)) in same:
        return None
    compared = partial(_difference_of_items, place=place, same=same)
    if isinstance(value, _Object) or isinstance(expected, _Object):
        kinds = [each.kind if isinstance(each, _Object) else type(each) for each in (value, expected)]
        if kinds[0] is not kinds[1]:
            return f"{_kind(kinds[0])} and {_kind(kinds[1])}{at}"
        return compared(value.attributes, expected.attributes, form="{}.{}")
    if isinstance(value, Mapping) and isinstance(expected, Mapping):
        return compared(value, expected, form="{}[{!r}]")
    if isinstance(value, list | tuple | deque) and isinstance(expected, list | tuple | deque):
        if len(value) != len(expected):
            return f"{len(value)} and {len(expected)} items{at}"
        return compared(dict(enumerate(value)), dict(enumerate(expected)), form="{}[{}]")
    if isinstance(value, bool) is not isinstance(expected, bool) and isinstance(value, _NUMBERS):
        return f"{value!r} and {expected!r}{at}"  # True and 1 are not the same
    try:
        torch.testing.assert_close(value, expected, check_stride=False, equal_nan=True)
    except AssertionError as error:
        return " ".join(line.strip() for line in str(error).splitlines() if line.strip()) + at
    except (TypeError, ValueError, RuntimeError):  # not a kind of value that assert_close knows
        try:
            is_equal = bool(value == expected)
        except (TypeError, ValueError, RuntimeError) as error:
            raise BodyError(f"--check: values of {type(value).__name__} cannot be compared: {error}") from None
        return None if is_equal else f"{_shown(value)} and {_shown(expected)}{at}"
    return None


def _difference_of_items(
    value: Mapping[Any, Any], expected: Mapping[Any, Any], *, place: str, same: set[tuple[int, int]], form: str
) -> str | None:
    if value.keys() != expected.keys():
        missing = next(iter(value.keys() ^ expected.keys()))
        return f"only one of them has {form.format(place, missing)}"
    found = (_noted(value[key], expected[key], form.format(place, key), same) for key in expected)
    return next((each for each in found if each is not None), None)


def _noted(value: Any, expected: Any, place: str, same: set[tuple[int, int]]) -> str | None:
    found = first_difference(value, expected, place, same)
    if found is None:
        same.add((id(value), id(expected)))
    return found


def _has_nan(value: Any, seen: set[int]) -> bool:
    import torch

    if id(value) in seen:
        return False
    seen.add(id(value))
    if isinstance(value, _Object | Mapping):
        items = (value.attributes if isinstance(value, _Object) else value).values()
        return any(_has_nan(item, seen) for item in items)
    if isinstance(value, list | tuple | deque):
        return any(_has_nan(item, seen) for item in value)
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided:  # `any` is not there for all layouts
            value = value.coalesce().values() if value.layout == torch.sparse_coo else value.values()
        return (value.is_floating_point() or value.is_complex()) and bool(value.isnan().any())
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "fc" and bool(np.isnan(value).any())
    return isinstance(value, float | complex) and value != value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST and "\n" not in text else _kind(type(value))
