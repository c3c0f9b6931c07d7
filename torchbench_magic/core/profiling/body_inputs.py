"""What a profiled body reads: the inputs and values that tell its run from a run on others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import CodeType
from typing import Any

from torchbench_magic.core.code.body import parse_body
from torchbench_magic.core.code.bound_names import bound_names
from torchbench_magic.core.code.code_reads import globals_read, notebook_functions
from torchbench_magic.core.code.input_shapes import inputs_of
from torchbench_magic.core.code.values_read import Values, values_of, without_changed
from torchbench_magic.results.cell_text import Body
from torchbench_magic.results.profiling.profile import Profile
from torchbench_magic.results.timing.values_read import variable_of

__all__ = ["InputsOfBody"]


class InputsOfBody:
    """The variables that a body finds, as they are before it runs; see `input_shapes` and `values_read`.

    Args:
        own: code objects of the body.
        names: where it finds its names.
        text: the body's; names that it binds before it reads them are its own. None: of a callable.
    """

    def __init__(self, own: Sequence[CodeType], names: Mapping[str, Any], text: Body | None) -> None:
        self._own, self._names = own, names
        self._read = {name for code in own for name in (*globals_read(code), *code.co_freevars)}
        if text is not None:
            bound = bound_names(parse_body(text))
            self._read -= bound.bound - bound.reset
        self._inputs, self._values = self._now()

    def _now(self) -> tuple[tuple[tuple[str, str], ...], Values]:
        functions = notebook_functions(self._read, self._names, self._names)
        inputs = inputs_of(self._read, self._names, functions)
        values = values_of(self._read, self._own, self._names, self._names)
        return inputs, tuple(value for value in values if value[:2] not in inputs)

    def noted(self, profile: Profile) -> Profile:
        """The profile with what the body read; what the run changed is no input of it."""
        inputs, values = self._now()
        changed = {variable_of(value[0]) for value in set(self._values) ^ set(values)}
        kept = tuple(one for one in self._inputs if one in inputs)
        return replace(profile, inputs=kept, values=without_changed(self._values, changed))
