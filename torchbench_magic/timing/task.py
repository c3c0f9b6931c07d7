"""Everything that stays the same at every point of a run, and which inputs the code reads or does not."""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, field
from functools import cache, cached_property
from itertools import chain
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from torchbench_magic.cell_body import Body, source_id_of
from torchbench_magic.process.code import (
    BY_TEXT,
    BoundNames,
    CompiledBody,
    compile_body,
    globals_assigned,
    globals_read,
    names_used,
    notebook_functions,
)
from torchbench_magic.process.contention import Clocks
from torchbench_magic.process.frame_owner import often_replaced, replaced_functions
from torchbench_magic.process.input_shapes import inputs_of
from torchbench_magic.process.input_values import Values, values_of, without_changed
from torchbench_magic.process.interrupts import NO_PROGRESS, Progress
from torchbench_magic.process.settings import outside_modes, settings_in_words
from torchbench_magic.process.static_introspection import code_digest
from torchbench_magic.process.values_between_runs import SETTING, variable_of
from torchbench_magic.result_base import Doubt

from .blocks import Block
from .plan import Counting, Plan
from .samples import Subject
from .sweep import Point

if TYPE_CHECKING:
    from .comparison import Comparison

# ---- timing_task -----------------------------------------------------------------------------------------------------
# Everything that stays the same at every point of a sweep: plan, setup, names, clocks.

_LONGEST_SOURCE = 20_000  # characters


@dataclass(frozen=True)
class Read:
    """What one alternative reads.

    Attributes:
        inputs: (name, what it held) of variables; see `process.input_shapes.inputs_of`.
        values: what else there is in them; see `process.input_values.values_of`.
    """

    inputs: tuple[tuple[str, str], ...]
    values: Values


@dataclass(frozen=True)
class Variant:
    """How an alternative runs whose text is another one's too.

    Attributes:
        names: what it finds in place of the run's names, all of them; None: the run's names.
        transform: applied to its tree, after that of the shell; None leaves it as it is.
        before: called before its first call to have its settings, which it keeps as it keeps those that its code sets;
            None sets nothing.
        within: makes the context that the calls of a block run in, entered outside of the clocks; None for none.
        copies: label -> object that it reads in place of one of the run's: put back before each block as those are.
    """

    names: dict[str, Any] | None = None
    transform: Callable[[Any], Any] | None = None
    before: Callable[[], object] | None = None
    within: Callable[[], AbstractContextManager[object]] | None = None
    copies: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """What is asked, the same at every point; the one list of it, handed on whole.

    Attributes:
        bodies: name -> code of the alternatives. A lone statement is one entry, whatever its name; the name becomes
            ``description`` only where there are two or more.
        setup: code that runs once a point before, in order, not timed.
        namespace: the caller's names, of which its functions are known. They are copied; nothing is written there.
        local: names of the function that calls, which stand before those; never written to.
        implied: names that are there besides, where the caller has none of that name.
        plan: thread counts, run times, labels.
        variants: name -> how that alternative differs where its text does not.
        points: of a sweep or a fuzzer; none is a single run without axes.
        counting: count instructions too, after each point's timings; what cannot be counted is a warning.
        flags, transform_ast: how the caller's shell compiles its cells.
        keep: given the comparison of each point as soon as it is finished.
        skip: given (task, point), the stored comparison of a point that need not be run again, or None; where engines
            measure, given their environments besides.
        failed: given what was measured until then, marked partial, before an exception of the code propagates.
        progress: told between rounds what is under way.
        clocks: wall and CPU clock in integer nanoseconds.
    """

    bodies: Mapping[str, Body]
    _: KW_ONLY
    setup: Sequence[Body] = ()
    namespace: Mapping[str, Any] = field(default_factory=dict)
    local: Mapping[str, Any] = field(default_factory=dict)
    implied: Mapping[str, Any] = field(default_factory=dict)
    plan: Plan = Plan()  # noqa: RUF009  (frozen)
    variants: Mapping[str, Variant] = field(default_factory=dict)
    points: Sequence[Point] = ()
    counting: Counting | None = None
    flags: int = 0
    transform_ast: Callable[[Any], Any] | None = None
    keep: Callable[[Comparison], None] | None = None
    skip: Callable[..., Comparison | None] | None = None
    failed: Callable[[Comparison], None] | None = None
    progress: Progress = NO_PROGRESS
    clocks: Clocks = Clocks()  # noqa: RUF009  (frozen)

    @property
    def python(self) -> list[Body]:
        """What of it is Python: the setup and the alternatives."""
        return [*self.setup, *self.bodies.values()]

    @property
    def of_its_kind(self) -> dict[str, Any]:
        """What is asked besides, of tasks of this class alone."""
        return {}

    def measured(self) -> Comparison:
        """Measure it in this process; see `timing.run.compare_bodies`."""
        from .run import compare_bodies

        return compare_bodies(self)

    def compiled(self, parts: Sequence[Body]) -> list[CompiledBody]:
        return [compile_body(part, flags=self.flags, transform_ast=self.transform_ast) for part in parts]

    @property
    def setup_text(self) -> str:
        """The setup in one piece, as torch's ``TaskSpec`` has it."""
        return "\n".join(part.source.strip("\n") for part in self.setup) or "pass"

    @cached_property
    def _called(self) -> Mapping[str, Sequence[FunctionType]]:
        before, there = self._names(self.setup), {**self.implied, **self.namespace, **self.local}
        return {
            name: notebook_functions(before | self._names([body]), there, self.namespace)
            for name, body in self.bodies.items()
        }

    @cached_property
    def functions(self) -> Mapping[str, tuple[tuple[str, str], ...]]:
        """Alternative -> (name, source_id) of each function of the notebook that it, or the setup, may call.

        A cell that is measured again after a function it calls was edited is another run, whatever its own text.
        """
        return {
            name: tuple(sorted((function.__qualname__, _source_id(function)) for function in called))
            for name, called in self._called.items()
        }

    @cached_property
    def sources(self) -> Mapping[str, str]:
        """source_id -> text of each of `functions`, where there is one that is not too long."""
        called = {id(function): function for of_one in self._called.values() for function in of_one}
        texts = ((_source_id(function), _text(function)) for function in called.values())
        return {key: text for key, text in texts if text is not None and len(text) <= _LONGEST_SOURCE}

    def read(self, names: Mapping[str, Any]) -> Mapping[str, Read]:
        """Alternative -> what it, the setup and the functions read, as ``names`` have it."""
        before = self._names(self.setup)
        return self._read({name: before | self._names([body]) for name, body in self.bodies.items()}, names)

    @cached_property
    def given(self) -> Mapping[str, Read]:
        """The same of the caller's names, before any setup; without those that the setup binds and does not read."""
        return self.given_now()

    def given_now(self) -> Mapping[str, Read]:
        """The same of the caller's names as they are now."""
        made = {name for code in self._codes(self.setup) for name in globals_assigned(code)}
        there = {**self.implied, **self.namespace, **self.local}
        used = {name: self._names(self.setup) | (self._names([body]) - made) for name, body in self.bodies.items()}
        return self._read(used, there)

    def subject(self, point: Point | None, name: str, known: Mapping[str, Any]) -> Subject:
        """What the measurement of an alternative is of, as its run begins; named as the plan and the point have it.

        Args:
            name: of the alternative; a description only where there are two or more.
            known: fields that the code's language gives, and what the run found out until now.
        """
        plan = self.plan
        return Subject(
            label=plan.label,
            sub_label=point.sub_label if point is not None and point.sub_label is not None else plan.sub_label,
            description=name if len(self.bodies) > 1 else plan.description,
            env=plan.env,
            axes=point.axes if point is not None else (),
            drawn=point is not None and point.drawn,
            **known,
        )

    @outside_modes()
    def _read(self, used_by: Mapping[str, set[str]], names: Mapping[str, Any]) -> Mapping[str, Read]:
        of_process = [(SETTING + name, text, "") for name, text in settings_in_words().items()]
        reads, replaced = {}, cache(replaced_functions)
        for alternative, used in used_by.items():
            functions = notebook_functions(used, names, self.namespace)
            inputs = inputs_of(used, names, functions)
            codes = self._codes([*self.setup, self.bodies[alternative]])
            found = values_of(used, codes, names, self.namespace, functions)
            settings = [*of_process]
            modules = [value for each in used if type(value := names.get(each)) is ModuleType]
            for name, function in chain(*map(replaced, dict.fromkeys([*often_replaced(), *modules]))):
                settings.append((SETTING + name, f"`{function.__qualname__}` ({code_digest(function.__code__)})", ""))
            reads[alternative] = Read(inputs, (*(value for value in found if value[:2] not in inputs), *settings))
        return reads

    def _names(self, parts: Sequence[Body]) -> set[str]:
        return {name for code in self._codes(parts) for name in globals_read(code)}

    def _codes(self, parts: Sequence[Body]) -> list[CodeType]:
        return [code for part in self.compiled(parts) for code in (part.code, part.last) if code is not None]


def _source_id(function: FunctionType) -> str:
    """Of the function's text; of its byte code where no text is to be had (``exec``)."""
    text = _text(function)
    if text is not None:
        return source_id_of(text)
    code = function.__code__
    constants = [repr(value) for value in code.co_consts if isinstance(value, int | float | complex | str | bytes)]
    compiled = code.co_code + repr((code.co_names, constants)).encode("utf-8", "surrogatepass")
    return hashlib.sha1(compiled, usedforsecurity=False).hexdigest()[:12]


def _text(function: FunctionType) -> str | None:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return None


# ---- inputs_read -----------------------------------------------------------------------------------------------------
# What the alternatives of a run read: the inputs that tell it from a run on others.


class InputsRead:
    """The inputs of each alternative, as setup left them and as the caller gave them.

    Args:
        made: names that the sweep's point makes, which are its axes and no inputs.
    """

    def __init__(self, task: Task, made: set[str]) -> None:
        self._task = task
        self._read: dict[str, Read] = {}
        self._given = {name: _without(made, read) for name, read in task.given.items()}

    def note(self, names: Mapping[str, Any]) -> None:
        """Note what the alternatives read in these names, after the setup."""
        self._read = dict(self._task.read(names))

    def drop_changed(self, names: Mapping[str, Any]) -> None:
        """A list that the code fills, or whatever else is not as it was, is no input of it."""
        if not self._read:
            return
        now, given_now = self._task.read(names), self._task.given_now()
        both = (self._read, now), (self._given, given_now)
        changed = {
            one[0]
            for then, after in both
            for name, read in then.items()
            for one in read.inputs
            if one not in after[name].inputs
        }
        for name, read in self._read.items():
            given, first = self._given[name], self._task.given[name]  # a setup changes some too
            pairs = (read.values, now[name].values), (first.values, given_now[name].values)
            roots = {variable_of(value[0]) for then, after in pairs for value in set(then) ^ set(after)}
            self._read[name] = _kept(read, changed, roots)
            self._given[name] = _kept(given, changed, roots)

    def of(self, name: str) -> dict[str, Any]:
        """The fields of an alternative's subject; empty where the names are not known, as in C++."""
        read, given = self._read.get(name, Read((), ())), self._given[name]
        return {"inputs": read.inputs, "values": read.values, "given": given.inputs, "given_values": given.values}


def _without(names: set[str], read: Read) -> Read:
    """What was read but for some names, whatever attribute or item of them."""
    values = (value for value in read.values if variable_of(value[0]).partition(".")[0] not in names)
    return Read(tuple(one for one in read.inputs if one[0] not in names), tuple(values))


def _kept(read: Read, changed: set[str], roots: set[str]) -> Read:
    return Read(tuple(one for one in read.inputs if one[0] not in changed), without_changed(read.values, roots))


# ---- unused_inputs ---------------------------------------------------------------------------------------------------
# Inputs of a point, a sweep's axis or a fuzzer's tensor, that no code reads: then all points time the same.


def given_names(point: Point | None, made: Mapping[str, Any]) -> dict[str, str]:
    """Name -> what it is, of each input that a point varies: a fuzzer's parameters only where it makes no tensors."""
    import torch

    if point is None:
        return {}
    axes = {name: f"The sweep's axis `{name}`" for name, _ in point.axes}
    drawn = {name: value for name, value in made.items() if name not in axes}
    tensors = [name for name, value in drawn.items() if isinstance(value, torch.Tensor)]
    return axes | {name: f"The fuzzer's `{name}`" for name in tensors or drawn}


def unused_inputs(
    given: Mapping[str, str], task: Task, blocks: Iterable[Block], functions: Iterable[FunctionType]
) -> Iterator[Doubt]:
    """Say which of the names ``given`` neither setup, nor a body, nor a notebook's function that it calls reads."""
    if not given:
        return
    codes: list[CodeType] = [function.__code__ for function in functions]
    read = {name for code in codes for name in globals_read(code)}
    texts = {name for block in blocks for name in block.names}
    overwritten: set[str] = set()
    for part in task.setup:
        of_part = [code for body in task.compiled([part]) for code in (body.code, body.last) if code is not None]
        overwritten |= _bound_first(part.source)
        read |= {name for code in of_part for name in globals_read(code)} - overwritten
        codes += of_part
    read |= {name for block in blocks for name in block.inputs} - overwritten
    texts |= {name for code in codes for name in names_used(code)}
    if texts & BY_TEXT:  # it may read one by a text, in which it is not looked for
        return
    for name, what in given.items():
        if name not in read:
            yield Doubt(
                "unused-input",
                f"{what} is not used by the setup or a statement, so all its values give the same time.",
                f"Use `{name}` in the setup or in a statement, or leave it out.",
                {"name": name},
            )


def _bound_first(text: str) -> set[str]:
    """Names that code binds before it reads them: it does not read what was given."""
    names = BoundNames(ast.parse(text))
    return names.bound - names.reset
