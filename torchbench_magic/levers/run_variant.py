"""Runs a cell once, with a lever or without, always from the same state: the calls whose results a trial compares."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable
from contextlib import nullcontext
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
from torchbench_magic.process.dynamo_internals import leave_alone
from torchbench_magic.process.interrupts import deadline, interrupts_let_through
from torchbench_magic.process.output import SINK_CODES, CountingSink, dropped_output
from torchbench_magic.process.reach import Found
from torchbench_magic.process.settings import ProcessState, inside_modes, set_threads
from torchbench_magic.timing.blocks import Block, compile_block
from torchbench_magic.timing.iterators import check_iterators
from torchbench_magic.timing.plan import Plan
from torchbench_magic.timing.task import Task, Variant
from torchbench_magic.timing.watched_objects import WatchedObjects, reached_by
from torchbench_magic.timing.written_objects import WrittenObjects

from .kinds import Site
from .trial_outcome import VALUE, CallOutcome, bound_label, detached, holds_numbers

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
