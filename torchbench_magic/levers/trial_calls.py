"""The calls of a trial: a cell run with and without a lever, and whether the results are the same."""

from __future__ import annotations

import ast
import hashlib
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from torchbench_magic.cell_body import Body
from torchbench_magic.errors import BodyError
from torchbench_magic.process.code import (
    CompiledBody,
    compile_body,
    copied_tree,
    globals_assigned,
    notebook_functions,
    variables_read,
    with_value_taken,
)
from torchbench_magic.process.device import DeviceWait
from torchbench_magic.process.dynamo import leave_alone
from torchbench_magic.process.interrupts import deadline, interrupts_let_through
from torchbench_magic.process.output import SINK_CODES, CountingSink, dropped_output
from torchbench_magic.process.reach import Found
from torchbench_magic.process.settings import ProcessState, inside_modes, set_threads
from torchbench_magic.process.static_introspection import ABSENT, TOO_MANY, is_a
from torchbench_magic.timing.blocks import Block, compile_block
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
from torchbench_magic.timing.iterators import check_iterators
from torchbench_magic.timing.plan import Plan
from torchbench_magic.timing.samples import Outcome
from torchbench_magic.timing.task import Task, Variant
from torchbench_magic.timing.watched_objects import WatchedObjects, reached_by
from torchbench_magic.timing.written_objects import WrittenObjects

from .kinds import Site

# ---- outcomes --------------------------------------------------------------------------------------------------------
# What a call of a cell comes to, and whether two of them are the same.

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
    import numpy as np
    import torch

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
    import torch

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
    import torch

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
    import torch

    if is_a(value, torch.nn.Module):
        named = (*value.named_parameters(), *value.named_buffers())
        return {_plain(f".{name}"): tensor for name, tensor in named}
    return value.state_dict()["state"]


# ---- cell_calls ------------------------------------------------------------------------------------------------------
# Single calls of a cell, each from the same state: what they come to is compared before anything is timed.

NO_AWAIT = "--try calls the body by itself and cannot await: time it without --try"

_SEEN = "__tb_seen"
_NO_WORK = (ast.Constant, ast.Name, ast.Yield, ast.YieldFrom)
_GIVING = frozenset({"enumerate", "iter", "len", "next", "range", "reversed", "zip"})
"""Functions that hand out what they are given."""
_GRADIENTS = frozenset({"backward", "autograd"})


class CellCalls:
    """Calls of the one body of a task, in one variant of it.

    Args:
        names: what the body finds, as the setup left it.
        state: of the process, that every call starts from.
        variant: how it differs from the body as it is.

    Raises:
        BodyError: the body awaits.
    """

    def __init__(self, task: Task, names: dict[str, Any], state: ProcessState, variant: Variant | None = None) -> None:
        self._task, self._state, self._variant = task, state, variant if variant is not None else Variant()
        self._body: Body = next(iter(task.bodies.values()))
        self.names = names if self._variant.names is None else self._variant.names
        self._home = task.namespace if self._variant.names is None else self.names
        self.tree: ast.Module | None = None
        transform = self._transformed
        self._block: Block = compile_block(self._body, self.names, flags=task.flags, transform_ast=transform)
        self._compiled: CompiledBody = compile_body(
            self._body,
            flags=task.flags,
            transform_ast=lambda tree: _with_dropped_values(with_value_taken(transform(tree))),
        )
        if self._compiled.is_coroutine:
            raise BodyError(NO_AWAIT)
        self._functions = notebook_functions(self._block.names, self.names, self._home)
        plan = Plan(restore=True)
        self._objects = WatchedObjects(plan, self._block.names, self.names, self._functions)
        assert self._objects.inputs is not None
        self._inputs = self._objects.inputs
        found = self.found
        self._objects.watch({next(iter(task.bodies)): found}, [self._block], self.names)
        devices = self._objects.versions.devices
        check_iterators(found, self._inputs.copied)
        self.written = WrittenObjects(found, self._inputs.held.holders.keys())
        self._wait = DeviceWait(task.plan.device, devices, task.clocks.wall)
        self.draws = False

    def _transformed(self, tree: ast.Module) -> ast.Module:
        for each in (self._task.transform_ast, self._variant.transform):
            tree = each(tree) if each is not None else tree
        self.tree = copied_tree(tree)  # compiling takes it apart
        return tree

    def call(self, limit_s: float | None = None) -> CallOutcome:
        """Call the body once, without its output, from the state of the first call.

        Raises:
            TooLong: it has run for ``limit_s`` seconds.
            Exception: whatever it raises.
        """
        try:
            return self._called(limit_s)
        finally:
            self._put_back()
            self.written.put_back()

    def parts_rewritten(self) -> set[str]:
        """Labels of what every call writes anew: of two calls in a row, the second wrote it too. What the first alone
        writes is a memo, which timed calls are to find."""
        try:
            self._called()
            self._put_back()
            if not self.written.parts_changed():
                return set()
            after_first = WrittenObjects(self.found, self._inputs.held.holders.keys())
            self._called()
            return after_first.parts_changed() & self.written.parts_changed()
        finally:
            self._put_back()
            self.written.put_back()

    def put_back(self) -> None:
        """Have the process, and what the cell reaches, as the first call found them."""
        self._state.put_back()
        self._inputs.restore_all()
        self.written.put_back()

    def _put_back(self) -> None:
        self.draws = self._drew()
        self._state.put_back()
        self._inputs.restore_all()

    def _called(self, limit_s: float | None = None) -> CallOutcome:
        self._state.put_back()
        if self._variant.before is not None:
            self._variant.before()
        dropped, printed, clock = _DroppedValues(), _Printed(), self._task.clocks.wall
        names = {**self.names, **dropped.names}
        leave_alone(_OURS)
        with dropped_output(printed, CountingSink()), inside_modes(), interrupts_let_through():
            began = clock()
            value = self._run(names, limit_s)
            self._wait.synchronize()
            seconds = (clock() - began) / 1e9
        written = {label: (detached(before), detached(now)) for label, (before, now) in self.written.changed().items()}
        made, state = self._made(value, names), self._changed()
        return CallOutcome(made, state, seconds, written, dropped.detached(), printed.digest)

    def _run(self, names: dict[str, Any], limit_s: float | None) -> Any:
        within = self._variant.within
        with nullcontext() if within is None else within(), nullcontext() if limit_s is None else deadline(limit_s):
            return self._compiled.run(names)

    def _made(self, value: Any, names: dict[str, Any]) -> dict[str, Any]:
        assigned = globals_assigned(self._compiled.code)
        absent = object()
        made = {bound_label(name): detached(names[name]) for name in sorted(assigned & names.keys())
                if not name.startswith("__") and names[name] is not self.names.get(name, absent)}  # fmt: skip
        return made if value is None else {VALUE: detached(value), **made}

    def _changed(self) -> dict[str, tuple[Any, Any]]:
        changed = self._inputs.changed()
        return {label: (before, detached(now)) for label, (before, now) in changed.items()}

    def _drew(self) -> bool:
        pairs = zip(self._state.kinds, self._state.values, strict=True)
        return any(not kind.same(kind.read(), value) for kind, value in pairs if kind.role == "generator")

    @property
    def reads_streams(self) -> bool:
        """Whether it reads iterators or files, which a call would use up."""
        return self._inputs.takes_items

    @property
    def draws_of_its_own(self) -> bool:
        """Whether its calls drew from random generators in its own variables."""
        return self._inputs.have_drawn

    @property
    def found(self) -> Found:
        """What it reaches."""
        return reached_by(self._block, self.names)

    def site(self, call: CallOutcome) -> Site:
        """The cell as levers find it, after a warm ``call`` of it as it is."""
        import torch

        assert self.tree is not None
        mentioned = frozenset({*self.found.mentioned, *self._block.names})
        has_gradients = any(label.endswith(".grad") for label in call.state)
        return Site(
            names=self.names,
            home=self._task.namespace,
            used=self._block.names,
            reads=variables_read(self._block.names, self.names, self._functions),
            functions=tuple(self._functions),
            tree=self.tree,
            mentioned=mentioned,
            tensors=dict(self._objects.versions.held.tensors.values()),
            trains=has_gradients or bool(_GRADIENTS & mentioned),
            draws=self.draws,
            threads=torch.get_num_threads(),
            call_seconds=call.seconds,
        )


class _Printed(CountingSink):
    """Keeps a digest of what is printed."""

    def __init__(self) -> None:
        super().__init__()
        self._hash = hashlib.blake2b(digest_size=16)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest() if self.characters else ""

    def write(self, text: str) -> int:
        self._hash.update(text.encode("utf-8", "surrogatepass"))
        return super().write(text)


def first_state(threads: Iterable[int] | None) -> ProcessState:
    """The process as the setup left it, with the first thread count that is asked for."""
    for count in threads or ():
        set_threads(count)
        break
    return ProcessState()


# ---- values of lines that nothing takes, such as `model(x)` in a loop: of a trial they are results as others are ----


class _DroppedValues:
    """Collects them during one call, of each line the last.

    Attributes:
        names: to be among those that the body finds, which `_with_dropped_values` has changed.
    """

    def __init__(self) -> None:
        self._last: dict[int, Any] = {}
        self.names = {_SEEN: self.see}

    def see(self, nth: int, value: Any) -> None:
        """Note what one of the lines comes to."""
        if value is not None:
            self._last[nth] = value

    def detached(self) -> dict[str, Any]:
        """Label -> value, of those that have numbers in them."""
        values = sorted(self._last.items())
        return {f"the value of unused expression {nth + 1}": detached(v) for nth, v in values if holds_numbers(v)}


def _with_dropped_values(tree: ast.Module) -> ast.Module:
    """The module with each value that is dropped handed over first; the last one is taken already."""
    last = tree.body[-1] if tree.body else None
    made: ast.Module = _Handing(last).visit(tree)
    return ast.fix_missing_locations(made)


class _Handing(ast.NodeTransformer):
    def __init__(self, last: ast.stmt | None) -> None:
        self._last, self._count = last, 0

    def visit_Expr(self, node: ast.Expr) -> ast.Expr:  # the name that `ast` calls
        if node is self._last or isinstance(node.value, _NO_WORK):
            return node
        arguments = [ast.Constant(self._count), node.value]
        self._count += 1
        call = ast.copy_location(ast.Call(ast.Name(_SEEN, ast.Load()), arguments, []), node.value)
        return ast.copy_location(ast.Expr(call), node)

    def _left_alone(self, node: Any) -> Any:
        """Code that runs when it is called, from wherever: it finds other names."""
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = _left_alone  # noqa: N815


def bound_to_what_is_given(tree: ast.Module) -> frozenset[str]:
    """Names that the body binds to nothing but constants, to what a loop hands out, and to other names or parts of
    them: they are the same whatever it computes."""
    given: set[str] = set()
    computed: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.For, ast.AsyncFor)):
            given |= _names_in(node.target)
        elif isinstance(node, ast.Assign):
            (given if _is_given(node.value) else computed).update(*map(_names_in, node.targets))
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)):
            computed |= _names_in(node.target)
    return frozenset(given - computed)


def _names_in(target: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _is_given(value: ast.expr) -> bool:
    """Whether it is a constant, a name, or a part of one: nothing is computed but places."""
    if isinstance(value, (ast.Constant, ast.Name)):
        return True
    if isinstance(value, ast.UnaryOp):
        return isinstance(value.operand, ast.Constant)
    if isinstance(value, (ast.Attribute, ast.Subscript, ast.Starred)):
        return _is_given(value.value)
    if isinstance(value, (ast.Tuple, ast.List)):
        return all(map(_is_given, value.elts))
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        return value.func.id in _GIVING and all(map(_is_given, value.args))
    return False


_OURS = (*SINK_CODES, _Printed.write.__code__, _DroppedValues.see.__code__)
"""Code of ours that runs within the user's calls, and is not to be compiled with them."""
