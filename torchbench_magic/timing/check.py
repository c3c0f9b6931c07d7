"""``--check``: do the alternatives return the same?"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, is_dataclass, replace
from enum import Enum
from itertools import chain
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MemberDescriptorType, ModuleType
from typing import Any

from torchbench_magic.cell_body import Body
from torchbench_magic.errors import BodyError, CheckFailed, InputError, OptionError
from torchbench_magic.process.code import CompiledBody, compile_body, ending_block, parse_body, with_value_taken
from torchbench_magic.process.interrupts import interrupts_let_through
from torchbench_magic.process.reach import dict_of, slot_values, slots_among
from torchbench_magic.process.settings import inside_modes, outside_modes
from torchbench_magic.process.static_introspection import is_a, is_tensor
from torchbench_magic.result_base import Doubt

from .changes import TensorVersions
from .equality import Gap, Numbers, Object, form, frame_parts, gap, gap_text, only_absolutely_close, walk_both
from .plan import tolerances_asked
from .repeat_warnings import what_happened
from .restore import StateCopies
from .task import Task

_MOST, _DEEPEST = 10_000, 100  # objects of a value, and one within the other
_LONGEST = 60  # characters of a value that is said
_ITSELF = (int, str, bytes, range, Enum, type, ModuleType, FunctionType, BuiltinFunctionType)
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
    try:
        with outside_modes():  # no decorator: its frame would stand in the user's traceback
            return _doubts_of_results(task, names, StateCopies(versions.held), put_back, rebound)
    except InputError as error:
        failed = error.with_traceback(None)  # the frames of which hold what the alternatives returned
        failed.__context__ = None
    raise failed


def _doubts_of_results(
    task: Task,
    names: Mapping[str, Any],
    inputs: StateCopies,
    put_back: Callable[[], object],
    rebound: Mapping[str, Sequence[tuple[str, str]]],
) -> list[Doubt]:
    values: dict[str, Any] = {}

    def value_of(name: str) -> Any:
        put_back()
        try:
            with inside_modes(), interrupts_let_through():
                value = codes[name].run(dict(names))
            return _Snapshot(name).of(value)
        finally:
            inputs.restore_all()

    codes = {name: _with_value(task, name, body) for name, body in task.bodies.items()}
    baseline = task.plan.baseline or next(iter(codes))
    asked = tolerances_asked(task.plan.check)
    try:
        for name in codes:
            values[name] = value_of(name)
        if all(value is None for value in values.values()):
            names_said = " and ".join(f"`{name}`" for name in values)
            raise BodyError(f"--check: {names_said} return None, so nothing is compared: end each with what to compare")
        found = {name: compared(values[name], values[baseline], asked) for name in values if name != baseline}
        off = next((f"`{name}` and `{baseline}` return {each.off}" for name, each in found.items() if each.off), "")
        if off:
            said = [what_happened(how, label) for name in values for how, label in rebound.get(name, ())]
            if said:
                raise CheckFailed(f"--check: {off}. {said[0]}")
            if compared(value_of(baseline), values[baseline], asked).off:
                raise CheckFailed(
                    f"--check: `{baseline}` returned different values in two calls, so the alternatives cannot be"
                    " compared: a call changes what a later one reads, or the code uses times or random numbers of its"
                    " own. Create in each alternative what it changes"
                )
            raise CheckFailed(f"--check: {off}")
    finally:
        values.clear()  # an exception of the user's has this frame in its traceback
        put_back()
    return [*chain.from_iterable(each.doubts(name, baseline) for name, each in found.items()), *_nan_doubts(found)]


@dataclass(frozen=True)
class Agreement:
    """What comparing two values came to.

    Attributes:
        off: what differs, as the end of "return ..."; empty where nothing does.
        gaps: of the numbers in them.
        unlike: how values that agree are unlike otherwise, such as "as float32 and float64".
    """

    off: str
    gaps: Sequence[Gap] = ()
    unlike: Sequence[str] = ()

    def doubts(self, name: str, baseline: str) -> Iterator[Doubt]:
        """What is to be said of an alternative that agrees with the baseline."""
        both = f"`{name}` and `{baseline}`"
        if self.unlike:
            rtol, atol = max((each.tolerances for each in self.gaps), default=(0.0, 0.0))
            within = f" (within rtol={rtol:g}, atol={atol:g})" if rtol or atol else ""
            text = f"{both} return the same {'numbers' if self.gaps else 'values'}{within}, {', '.join(self.unlike)}."
            yield Doubt("unlike-results", text, "", {"name": name, "unlike": list(self.unlike)})
        if (gap := only_absolutely_close(self.gaps)) is not None:
            text = f"{both} agree only by the absolute tolerance of `--check`: {gap_text(gap)}."
            way = "Compare them at a larger scale, for example as `result * 1e6`."
            yield Doubt("tiny-results", text, way, {"name": name, "difference": gap[0], "largest": gap[1]})


def _nan_doubts(found: Mapping[str, Agreement]) -> Iterator[Doubt]:
    if any(gap.has_nan for each in found.values() for gap in each.gaps):
        text = "The results that `--check` compared hold NaN, at the same places in all: that counts as equal."
        yield Doubt("nan-results", text, "")


def compared(value: Any, expected: Any, tolerances: tuple[float | None, float | None] | None = None) -> Agreement:
    """Compare two values by their numbers, those of different libraries too. Within one library another dtype is a
    difference, unless tolerances are given.

    Raises:
        BodyError: they hold what cannot be compared.
    """
    gaps: list[Gap] = []
    unlike: dict[str, None] = {}
    refused = ""
    for place, one, other in walk_both(value, expected, unlike=unlike):
        at = f" (at {place})" if place else ""
        if not (is_a(one, Numbers) and is_a(other, Numbers)):
            if text := _difference(one, other, place):
                return Agreement(f"different values: {text}{at}")
            continue
        found = gap(one, other, tolerances)
        if found.word == "differs":
            return Agreement(f"different values: {found.text}{at}")
        gaps.append(found)
        is_python = not (one.library and other.library)  # whose numbers have no dtype
        if one.dtype != other.dtype and not (is_python and one.values.dtype.kind == other.values.dtype.kind):
            unlike[f"as {one.dtype} and {other.dtype}"] = None
            if one.library == other.library and tolerances is None:
                way = f"`--check rtol={found.tolerances[0]:g},atol={found.tolerances[1]:g}` compares only the numbers"
                refused = refused or f"the same numbers as {one.dtype} and {other.dtype}{at}; {way}"
    return Agreement(refused, gaps, list(unlike))


def _difference(one: Any, other: Any, place: str) -> str:
    """What differs in two values that are not both numbers; empty where nothing does."""
    if one is other:
        return ""
    lists, numbers = (list, tuple, deque), (Numbers, Object)
    if is_a(one, Mapping) and is_a(other, Mapping):
        lacking = next(iter(one.keys() ^ other.keys()))
        return f"only one of them has {place}[{lacking!r}]"
    if is_a(one, lists) and is_a(other, lists):
        return f"{len(one)} and {len(other)} items"
    if is_a(one, numbers) or is_a(other, numbers):
        return f"{_shown(one)} and {_shown(other)}"
    try:
        return "" if bool(one == other) else f"{_shown(one)} and {_shown(other)}"
    except (TypeError, ValueError, RuntimeError) as error:
        raise BodyError(f"--check: values of {type(one).__name__} cannot be compared: {error}") from None


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
        if frame_parts(value) is not None:
            return deepcopy(value)
        made = form(value)
        if is_a(made, Numbers):
            return made.copy()
        if value is None or is_a(value, _ITSELF):
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
        made = self._copied(made)
        self._depth -= 1
        self._made[id(value)] = value, made
        return made

    def _copied(self, value: Any) -> Any:
        if is_a(value, Object):
            return replace(value, attributes=self._copied(value.attributes))
        if is_a(value, Mapping):
            return {key: self.of(item) for key, item in value.items()}
        if (base := next((base for base in (list, tuple, deque) if is_a(value, base)), None)) is not None:
            return base(map(self.of, value))
        if is_a(value, set | frozenset | bytearray):
            return copy(value)
        return self._of_object(value)

    def _of_object(self, value: Any) -> Any:
        kind = type(value)
        if is_tensor(value):
            raise BodyError(
                f"--check: `{self._name}` returns a tensor without values, which cannot be compared: end it with"
                " tensors or numbers"
            )
        held = dict_of(value)
        attributes = {**dict(slot_values(value, _own_slots(kind))), **(held or {})}
        if any("__eq__" in vars(base) for base in kind.__mro__[:-1]) and not is_dataclass(value):
            try:
                return deepcopy(value)
            except Exception:  # noqa: BLE001  # whatever the copying of a user's object raises
                pass
        elif attributes or held is not None:
            return Object(kind, {name: self.of(one) for name, one in attributes.items()})
        raise BodyError(
            f"--check: `{self._name}` returns {_kind(kind)}, which cannot be compared: end it with tensors or numbers"
        )


def _own_slots(kind: type) -> dict[str, MemberDescriptorType]:
    """Of classes written in Python: what others store in this way is theirs."""
    own = [vars(base) for base in reversed(kind.__mro__) if "__slots__" in vars(base)]
    return {name: slot for attributes in own for name, slot in slots_among(attributes).items()}


def _kind(kind: type) -> str:
    return f"an object of class `{kind.__name__}`"


def _shown(value: Any) -> str:
    if is_a(value, Numbers):
        shape = value.values.shape
        return f"{value.dtype} numbers of shape {shape}" if shape else str(value.values)
    text = "" if is_a(value, Object) else repr(value)
    return text if 0 < len(text) <= _LONGEST and "\n" not in text else _kind(getattr(value, "kind", type(value)))
