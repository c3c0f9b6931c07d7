"""What is asked of a timing, the same at every point of a sweep."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import FunctionType
from typing import Any

from torchbench_magic.core.body import CompiledBody, compile_body
from torchbench_magic.core.progress import NO_PROGRESS, Progress
from torchbench_magic.results.cell import Body, source_id_of

from .clocks import Clocks
from .plan import Plan
from .watch import globals_read, notebook_functions

__all__ = ["Task"]


@dataclass(frozen=True)
class Task:
    """What is asked, the same at every point.

    Attributes:
        bodies: name -> code of the alternatives.
        setup: code that runs once a point, before.
        namespace: the caller's names, of which its functions are known; never written to.
        local: names of the function that calls, which stand before those; never written to.
        implied: names that are there besides.
        plan: thread counts, run times, labels.
        flags, transform_ast: how the caller's shell compiles its cells.
        progress, clocks: injected.
    """

    bodies: Mapping[str, Body]
    setup: Sequence[Body]
    namespace: Mapping[str, Any]
    implied: Mapping[str, Any]
    plan: Plan
    flags: int = 0
    transform_ast: Callable[[Any], Any] | None = None
    progress: Progress = NO_PROGRESS
    clocks: Clocks = Clocks()  # noqa: RUF009  (frozen)
    local: Mapping[str, Any] = field(default_factory=dict)

    def compiled(self, parts: Sequence[Body]) -> list[CompiledBody]:
        return [compile_body(part, flags=self.flags, transform_ast=self.transform_ast) for part in parts]

    @property
    def setup_text(self) -> str:
        """The setup in one piece, as torch's ``TaskSpec`` has it."""
        return "\n".join(part.source.strip("\n") for part in self.setup) or "pass"

    @cached_property
    def functions(self) -> Mapping[str, tuple[tuple[str, str], ...]]:
        """Alternative -> (name, source_id) of each function of the notebook that it, or the setup, may call.

        A cell that is measured again after a function it calls was edited is another run, whatever its own text.
        """
        before = self._names(self.setup)
        found = {}
        for name, body in self.bodies.items():
            called = notebook_functions(before | self._names([body]), {**self.namespace, **self.local}, self.namespace)
            found[name] = tuple(sorted((function.__qualname__, _source_id(function)) for function in called))
        return found

    def _names(self, parts: Sequence[Body]) -> set[str]:
        codes = [code for part in self.compiled(parts) for code in (part.code, part.last) if code is not None]
        return {name for code in codes for name in globals_read(code)}


def _source_id(function: FunctionType) -> str:
    """Of the function's text; of its byte code where no text is to be had (``exec``)."""
    try:
        return source_id_of(inspect.getsource(function))
    except (OSError, TypeError):
        code = function.__code__
        constants = [repr(value) for value in code.co_consts if isinstance(value, int | float | complex | str | bytes)]
        text = code.co_code + repr((code.co_names, constants)).encode("utf-8", "surrogatepass")
        return hashlib.sha1(text, usedforsecurity=False).hexdigest()[:12]
