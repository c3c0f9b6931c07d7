"""What the events of torch before 2.13 do not say themselves, made of what they do say.

Read and tried on torch 2.8, 2.9 and 2.11. An event there has no ``activity_type`` (C++ has it, without a binding; the
kinds of events on a CUDA device are made of their names and were not tried on one), and no
``structured_input_shapes`` and ``structured_input_strides``; ``shapes()`` has nothing for a list of tensors
(``aten::cat``). The tree of the same run has both, an op with the number that its event calls correlation id.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

_RUNTIME = re.compile(r"(cuda|hip|cu)[A-Z]\w*$")
_TRACERS_OWN = re.compile(
    r"Activity Buffer|Buffer Flush|Lazy Function|Runtime Triggered|Instrumentation|Resource|Command Buffer"
)
_CPU = 0

Inputs = tuple[list[Any], list[Any]]
"""Shapes and strides of an op's inputs: a list of numbers for a tensor, a list of such lists for a list of tensors."""


def with_missing_getters(kineto: Any, results: Any, *, shapes: bool) -> Any:
    """The unbound getters of the class of events ``kineto``, and those that it lacks.

    Args:
        results: torch's kineto results, whose tree is read for the inputs of ops (about 30 us an op).
        shapes: whether inputs are asked for; without it they are empty.
    """
    inputs = dict(_inputs_of_ops(results)) if shapes and results is not None else {}
    nothing: Inputs = ([], [])
    own = {name: getattr(kineto, name) for name in dir(kineto) if not name.startswith("__")}
    missing: dict[str, Callable[[Any], Any]] = {
        "activity_type": _kind,
        "structured_input_shapes": lambda event: inputs.get(event.correlation_id(), nothing)[0],
        "structured_input_strides": lambda event: inputs.get(event.correlation_id(), nothing)[1],
    }
    return SimpleNamespace(**{**missing, **own})


def _kind(event: Any) -> str:
    """libkineto's word for the kind of an event (its `toString(ActivityType)`)."""
    name, is_annotation = event.name(), event.is_user_annotation()
    if int(event.device_type()) != _CPU:
        if is_annotation:
            return "gpu_user_annotation"
        copied = {"Memcpy": "gpu_memcpy", "Memset": "gpu_memset"}
        return next((kind for start, kind in copied.items() if name.startswith(start)), "kernel")
    if is_annotation:
        return "user_annotation"
    if _RUNTIME.match(name):
        return "cuda_driver" if name[2].isupper() else "cuda_runtime"
    return "overhead" if _TRACERS_OWN.match(name) else "cpu_op"


def _inputs_of_ops(results: Any) -> Iterator[tuple[int, Inputs]]:
    """(correlation id, inputs) of each op of the tree."""
    from torch._C import _profiler

    of_op, of_tensor = _profiler._ExtraFields_TorchOp, _profiler._TensorMetadata

    def parts(value: Any, part: str) -> list[Any]:
        if isinstance(value, of_tensor):
            return list(getattr(value, part))
        if isinstance(value, list) and value and isinstance(value[0], of_tensor):
            return [list(getattr(each, part)) for each in value]
        return []

    level = list(results.experimental_event_tree())
    while level:
        for node in level:
            fields = node.extra_fields
            if isinstance(fields, of_op):
                given = fields.inputs
                both = ([parts(each, part) for each in given] for part in ("sizes", "strides"))
                yield node.correlation_id, (next(both), next(both))
        level = [below for node in level for below in node.children]
