"""What the code is given, in words: shapes, dtypes and devices of what it reads, never the data.

``x.sum()`` of 4 x 8 and of 4000 x 8 have one source and are two measurements. The words are those that a reader is
shown where two runs differ ("x was 4 × 8 float32, is 4000 × 8 float32"), and the same words mean the same input.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from .code import globals_assigned, variables_read
from .reach import dict_of
from .static_introspection import ARRAYS, digest, elements

_LONGEST = 100
_MOST_ITEMS = 1000  # of a container that are looked at
_DEEPEST = 2
_FORMS = ("fused", "foreach", "capturable", "differentiable", "amsgrad", "nesterov", "maximize")  # of an optimizer
_Code = (FunctionType, BuiltinFunctionType, ModuleType, type, type(os.environ))
"""Identified otherwise: by their source, their version, or one by one (`process.input_values`)."""


def inputs_of(
    names: Iterable[str], namespace: Mapping[str, Any], functions: Iterable[FunctionType] = ()
) -> tuple[tuple[str, str], ...]:
    """(name, what it holds) of each variable that some code reads, by name.

    Args:
        names: globals that the code reads.
        namespace: where it finds them.
        functions: the notebook's functions that it may call; the globals that these read count too, but for numbers
            that they assign themselves: a counter is no input.
    """
    functions = list(functions)
    read = variables_read(names, namespace, functions)
    assigned = {name for function in functions for name in globals_assigned(function.__code__)}
    told = ((name, described(value)) for name, value in sorted(read.items()) if not name.startswith("__"))
    counters = {name for name in assigned & read.keys() if issubclass(type(read[name]), int | float)}
    return tuple((name, text) for name, text in told if text and name not in counters)


def described(value: object) -> str:
    """An input in a few words; empty for code, which is known by its source. Never raises."""
    try:
        text = _described(value, 0)
    except Exception:  # noqa: BLE001  (objects of the user's may refuse anything, parameters may have no shape yet)
        return type(value).__name__
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 9]}… {digest(text)[:6]}"


def _described(value: Any, depth: int) -> str:
    import torch

    kind = type(value)  # `isinstance` asks an object for its class, and a proxy may make what it stands for
    if issubclass(kind, _Code):
        return ""
    if issubclass(kind, torch.Tensor):
        return _tensor(value)
    if issubclass(kind, torch.nn.Module):
        return _module(value)
    if issubclass(kind, torch.optim.Optimizer):
        return _optimizer(value)
    if value is None or issubclass(kind, bool | int | float | complex):
        return repr(value)
    if issubclass(kind, str | bytes | bytearray):
        return f"{kind.__name__} of {_counted(len(value), 'character' if issubclass(kind, str) else 'byte')}"
    if kind.__module__.partition(".")[0] in ARRAYS and hasattr(value, "shape"):
        return f"{kind.__name__} {_shape(value.shape)} {getattr(value, 'dtype', '')}".rstrip()
    if issubclass(kind, list | tuple | dict | set | frozenset):
        items = value.values() if issubclass(kind, dict) else value
        return _container(f"{kind.__name__} of {len(value)}", items, depth)
    return _container(kind.__name__, (dict_of(value) or {}).values(), depth)


def _tensor(value: Any) -> str:
    shape = "no shape yet," if elements(value) is None else _shape(value.shape)
    words = [f"{shape} {_short(value.dtype)}"]
    if value.device.type != "cpu":
        words.append(str(value.device))
    layout = _short(value.layout)
    if layout != "strided":
        words.append(layout)
    elif elements(value) is not None and not value.is_contiguous():
        words.append(f"strides {_shape(value.stride())}")
    if value.requires_grad:
        words.append("requires grad")
    return ", ".join(words)


def _module(value: Any) -> str:
    held = [(name, _tensor(t)) for name, t in (*value.named_parameters(), *value.named_buffers())]
    size = sum(elements(t) or 0 for t in (*value.parameters(), *value.buffers()))
    layers = [(name, type(part).__qualname__, part.training, *_hooks(part)) for name, part in value.named_modules()]
    mode = "training" if value.training else "eval"
    what = f"{type(value).__name__} with {_counted(size, 'value')} in {_counted(len(held), 'tensor')}"
    hooks = sum(len(layer) - 3 for layer in layers)
    with_hooks = f", {_counted(hooks, 'hook')}" if hooks else ""
    return f"{what}, {mode} mode{with_hooks} ({digest(repr((held, layers)))[:6]})"


def _optimizer(value: Any) -> str:
    """Without its state and its rates: steps and schedulers change these, and it is the same optimizer."""
    tensors = [tensor for group in value.param_groups for tensor in group["params"]]
    size = sum(elements(tensor) or 0 for tensor in tensors)
    forms = [name for name in _FORMS if any(group.get(name) for group in value.param_groups)]
    what = f"{type(value).__name__} of {_counted(size, 'value')} in {_counted(len(tensors), 'tensor')}"
    return ", ".join([what, *forms])


def _hooks(part: Any) -> tuple[str, ...]:
    """What runs before and after a module besides its own code."""
    registered = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
    hooks = [hook for name in registered for hook in vars(part).get(name, {}).values()]
    return tuple(f"{getattr(hook, '__module__', '')}.{getattr(hook, '__qualname__', type(hook))}" for hook in hooks)


def _container(what: str, items: Iterable[Any], depth: int) -> str:
    """Its name and, where it holds tensors or arrays, what these are."""
    if depth >= _DEEPEST:
        return what
    items = [*islice(items, _MOST_ITEMS)]
    if not (shaped := {kind for kind in {*map(type, items)} if _has_shape(kind)}):
        return what
    texts = [text for item in items if type(item) in shaped and (text := _described(item, depth + 1))]
    if not texts:
        return what
    distinct = list(dict.fromkeys(texts))
    more = f" and {len(distinct) - 2} more ({digest(repr(texts))[:6]})" if len(distinct) > 2 else ""
    order = f" ({digest(repr(texts))[:6]})" if len(distinct) == 2 else ""
    return f"{what}: {'; '.join(distinct[:2])}{more or order}"


def _has_shape(kind: type) -> bool:
    import torch

    if issubclass(kind, torch.Tensor | torch.nn.Module | list | tuple | dict):
        return True
    return kind.__module__.partition(".")[0] in ARRAYS


def _shape(sizes: Sequence[int]) -> str:
    return " × ".join(map(str, sizes)) or "0-d"


def _short(name: object) -> str:
    return str(name).removeprefix("torch.")


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
