"""Single calls of a cell, each from the same state: what they come to is compared before anything is timed."""

from __future__ import annotations

import ast
import copy
import hashlib
from collections.abc import Iterable
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from torchbench_magic.core.code.body import CompiledBody, compile_body, with_value_taken
from torchbench_magic.core.code.code_reads import globals_assigned, notebook_functions, variables_read
from torchbench_magic.core.code.reached_objects import Found, search, texts_used
from torchbench_magic.core.code.timed_loop import Block, compile_block
from torchbench_magic.core.process.deadline import deadline
from torchbench_magic.core.process.held_interrupts import interrupts_let_through
from torchbench_magic.core.process.process_state import ProcessState
from torchbench_magic.core.process.run_settings import CountingSink, output_to, set_threads
from torchbench_magic.core.timing.device import DeviceWait
from torchbench_magic.core.timing.effects.only_first_call import watched
from torchbench_magic.core.timing.effects.restoring.written_objects import WrittenObjects
from torchbench_magic.core.timing.effects.watched_objects import WatchedObjects
from torchbench_magic.core.timing.plan import Plan
from torchbench_magic.core.timing.timing_task import Task, Variant
from torchbench_magic.errors import BodyError
from torchbench_magic.results.cell_text import Body

from .lever import Site
from .dropped_values import DroppedValues, with_dropped_values
from .outcomes import VALUE, CallOutcome, bound_label, detached
from .used_up import check_iterators

__all__ = ["NO_AWAIT", "CellCalls", "first_state"]

NO_AWAIT = "--try calls the body by itself and cannot await: time it without --try"

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
            transform_ast=lambda tree: with_dropped_values(with_value_taken(transform(tree))),
        )
        if self._compiled.is_coroutine:
            raise BodyError(NO_AWAIT)
        self._functions = notebook_functions(self._block.names, self.names, self._home)
        plan = Plan(restore=True)
        self._objects = WatchedObjects(plan, self._block.names, self.names, self._functions)
        assert self._objects.inputs is not None
        self._inputs = self._objects.inputs
        watched((next(iter(task.bodies)),), [self._block], self.names, plan, self._inputs)  # iterators join the inputs
        devices = self._objects.versions.devices
        found = self.found
        check_iterators(found, self._inputs.streams)
        self.written = WrittenObjects(found, self._inputs.state.held.holders.keys())
        self._wait = DeviceWait(task.plan.device, devices, task.clocks.wall)
        self.draws = False

    def _transformed(self, tree: ast.Module) -> ast.Module:
        for each in (self._task.transform_ast, self._variant.transform):
            tree = each(tree) if each is not None else tree
        self.tree = copy.deepcopy(tree)  # compiling takes it apart
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
            after_first = WrittenObjects(self.found, self._inputs.state.held.holders.keys())
            self._called()
            return after_first.parts_changed() & self.written.parts_changed()
        finally:
            self._put_back()
            self.written.put_back()

    def _put_back(self) -> None:
        self.draws = self._drew()
        self._state.put_back()
        self._inputs.restore_all()

    def _called(self, limit_s: float | None = None) -> CallOutcome:
        self._state.put_back()
        if self._variant.before is not None:
            self._variant.before()
        dropped, printed, clock = DroppedValues(), _Printed(), self._task.clocks.wall
        names = {**self.names, **dropped.names}
        with output_to(printed, CountingSink()), interrupts_let_through():
            began = clock()
            value = self._run(names, limit_s)
            self._wait.synchronize()
            seconds = (clock() - began) / 1e9
        written = {label: (detached(before), detached(now)) for label, (before, now) in self.written.changed().items()}
        made, state = self._made(value, names), self._changed()
        return CallOutcome(made, state, seconds, written, dropped.detached(), printed.digest)

    def _run(self, names: dict[str, Any], limit_s: float | None) -> Any:
        if limit_s is None:
            return self._compiled.run(names)
        with deadline(limit_s):
            return self._compiled.run(names)

    def _made(self, value: Any, names: dict[str, Any]) -> dict[str, Any]:
        assigned = globals_assigned(self._compiled.code)
        absent = object()
        made = {bound_label(name): detached(names[name]) for name in sorted(assigned & names.keys())
                if not name.startswith("__") and names[name] is not self.names.get(name, absent)}  # fmt: skip
        return made if value is None else {VALUE: detached(value), **made}

    def _changed(self) -> dict[str, tuple[Any, Any]]:
        changed = self._inputs.state.changed()
        return {label: (before, detached(now)) for label, (before, now) in changed.items()}

    def _drew(self) -> bool:
        pairs = zip(self._state.kinds, self._state.values, strict=True)
        return any(not kind.same(kind.read(), value) for kind, value in pairs if kind.role == "generator")

    @property
    def reads_streams(self) -> bool:
        """Whether it reads iterators or files, which a call would use up."""
        return bool(self._inputs.streams)

    @property
    def found(self) -> Found:
        """What it reaches, through the hooks of modules and optimizers too."""
        code = self._block.replicas[0].__code__
        holders = self._inputs.state.held.holders.values()
        called = [hook for _, held in holders for hook in _hooks_in(held)]
        hooks = {f"hook {nth + 1}": hook for nth, hook in enumerate(called)}
        texts = {*self._block.names, *texts_used(code)}
        return search({*self._block.inputs, *hooks}, texts, {**self.names, **hooks})

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


def _hooks_in(held: Any) -> list[Any]:
    """The functions among the values of a dict in which a module or an optimizer keeps its hooks."""
    kinds = (FunctionType, MethodType, partial)
    return [value for value in held.values() if isinstance(value, kinds)] if isinstance(held, dict) else []


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
