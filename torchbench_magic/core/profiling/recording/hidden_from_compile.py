"""Hides the hooks that record a run from ``torch.compile``.

Between the frames that it compiles, dynamo looks at every Python frame that begins, those of our trace functions and
callbacks too: it would compile them beside the user's, and under ``set_stance("fail_on_recompile")`` raise. Each code
object that may run during a run is therefore marked as one to leave alone, with all that it calls.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import cache
from types import CodeType, FunctionType, ModuleType

from torchbench_magic.core.code.code_reads import codes_within
from torchbench_magic.core.compiler import dynamo

from ..torch_events import torch_profiler

__all__ = ["hide_from_compiler"]

_OBSERVERS = (
    "torchbench_magic.core.compiler.after_import",
    "torchbench_magic.core.compiler.dynamo",
    "torchbench_magic.core.profiling.loop_marks.line_samples",
    "torchbench_magic.core.profiling.loop_marks.marks",
    "torchbench_magic.core.profiling.loop_marks.uncleared_gradients",
    "torchbench_magic.core.profiling.python_tree.sampler",
    "torchbench_magic.core.profiling.recording.host_memory",
    "torchbench_magic.core.profiling.recording.module_calls",
    "torchbench_magic.core.profiling.recording.monitoring",
    "torchbench_magic.core.profiling.recording.streams",
    "torchbench_magic.core.profiling.recording.tracing",
)

_WRAPPERS = (
    "torchbench_magic.core.profiling.loop_marks.compiled_calls",
    "torchbench_magic.core.profiling.loop_marks.outer_modules",
    "torchbench_magic.core.profiling.loop_marks.step_ranges",
    "torchbench_magic.core.profiling.loop_marks.training_hooks",
)
"""What calls the user's code: itself left alone, and what it calls compiled as ever."""


def hide_from_compiler() -> None:
    """Mark the code of what observes. Anew for every run: ``torch._dynamo.reset`` may forget it."""
    dynamo.leave_alone(_codes(_OBSERVERS))
    dynamo.leave_alone(_codes(_WRAPPERS), with_called=False)
    # Under a profiler the compiler itself opens ranges, and torch's constructor of them calls code of `typing`.
    made = getattr(torch_profiler.range_type(), "__init__", None)
    dynamo.leave_alone([made.__code__] if isinstance(made, FunctionType) else [])


@cache
def _codes(names: tuple[str, ...]) -> tuple[CodeType, ...]:
    modules = [importlib.import_module(name) for name in names]
    return tuple(inner for module in modules for code in _defined_in(module) for inner in codes_within(code))


def _defined_in(module: ModuleType) -> Iterator[CodeType]:
    """The functions, methods and properties that a module defines, those that dataclasses write included."""
    for value in vars(module).values():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        members = vars(value).values() if isinstance(value, type) else (value,)
        for member in members:
            function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if isinstance(function, FunctionType):
                yield function.__code__
