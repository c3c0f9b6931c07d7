"""Everything that stays the same at every point of a sweep: plan, setup, names, clocks."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from types import CodeType, FunctionType
from typing import Any

from torchbench_magic.core.code.body import CompiledBody, compile_body
from torchbench_magic.core.counting.count_options import Counting
from torchbench_magic.core.process.process_state import settings_in_words
from torchbench_magic.core.progress import NO_PROGRESS, Progress
from torchbench_magic.results.cell_text import Body, source_id_of
from torchbench_magic.results.timing.comparison import Comparison
from torchbench_magic.results.timing.subject import Subject
from torchbench_magic.results.timing.values_read import SETTING

from ..code.code_reads import globals_assigned, globals_read, notebook_functions
from ..code.held_values import code_digest
from ..code.input_shapes import inputs_of
from ..code.library_files import replaced_functions
from ..code.values_read import Values, values_of
from ..machine.clocks import Clocks
from .plan import Plan
from .points.sweep import Point

__all__ = ["Read", "Task", "Variant"]

_LONGEST_SOURCE = 20_000  # characters


@dataclass(frozen=True)
class Read:
    """What one alternative reads.

    Attributes:
        inputs: (name, what it held) of variables; see `input_shapes`.
        values: what else there is in them; see `values_read`.
    """

    inputs: tuple[tuple[str, str], ...]
    values: Values


@dataclass(frozen=True)
class Variant:
    """How an alternative runs whose text is another one's too.

    Attributes:
        names: what it finds in place of the run's names, all of them; None: the run's names.
        transform: applied to its tree, after that of the shell; None leaves it as it is.
        before: called before each of its blocks, outside of the clocks, to have its settings; None sets nothing.
        copies: label -> object that it reads in place of one of the run's: put back before each block as those are.
    """

    names: dict[str, Any] | None = None
    transform: Callable[[Any], Any] | None = None
    before: Callable[[], None] | None = None
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
        return {name: self._read(before | self._names([body]), body, names) for name, body in self.bodies.items()}

    @cached_property
    def given(self) -> Mapping[str, Read]:
        """The same of the caller's names, before any setup; without those that the setup binds and does not read."""
        return self.given_now()

    def given_now(self) -> Mapping[str, Read]:
        """The same of the caller's names as they are now."""
        made = {name for code in self._codes(self.setup) for name in globals_assigned(code)}
        there = {**self.implied, **self.namespace, **self.local}
        used = {name: self._names(self.setup) | (self._names([body]) - made) for name, body in self.bodies.items()}
        return {name: self._read(used[name], body, there) for name, body in self.bodies.items()}

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

    def _read(self, used: set[str], body: Body, names: Mapping[str, Any]) -> Read:
        functions = notebook_functions(used, names, self.namespace)
        inputs = inputs_of(used, names, functions)
        found = values_of(used, self._codes([*self.setup, body]), names, self.namespace, functions)
        settings = [(SETTING + name, text, "") for name, text in settings_in_words().items()]
        for name, function in replaced_functions(names[each] for each in used if each in names):
            settings.append((SETTING + name, f"`{function.__qualname__}` ({code_digest(function.__code__)})", ""))
        return Read(inputs, (*(value for value in found if value[:2] not in inputs), *settings))

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
