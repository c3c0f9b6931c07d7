"""A copy of the names of a cell in which some variables hold something else, for its functions too."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

from torchbench_magic.core.code.code_reads import globals_read
from torchbench_magic.core.timing.effects.restoring.held_state import is_training_state

from .lever import DoesNotApply, Site

__all__ = [
    "converted",
    "copied_training_state",
    "copied_with",
    "have_own_parts",
    "is_plain_container",
    "with_functions",
]

_DEEPEST = 3


def with_functions(site: Site, changed: Mapping[str, Any]) -> dict[str, Any]:
    """All names of the cell, with those that are ``changed``; functions of the notebook read them too.

    A function finds its globals in the dict that it was defined in: it is made anew over the copy. Its code is a copy
    too, so that what is compiled for it is not kept with the user's.

    Raises:
        DoesNotApply: a method reads one of the names as a global: it would go on reading the old one.
    """
    names = {**site.names, **changed}
    homes = (id(site.home), id(site.names))
    made = {}
    for name, value in names.items():
        if type(value) is FunctionType and id(value.__globals__) in homes:
            made[name] = _over(value, names)
    anew = {id(site.names[name]) for name in made if name in site.names}
    for function in site.functions:
        shared = sorted(globals_read(function.__code__) & changed.keys())
        if id(function) not in anew and shared:
            raise DoesNotApply(
                f"`{function.__qualname__}` reads `{shared[0]}` from the notebook and cannot be made to read a copy"
            )
    names.update((name, function) for name, function in made.items() if name not in changed)
    return names


def _over(function: FunctionType, names: dict[str, Any]) -> FunctionType:
    made = FunctionType(
        function.__code__.replace(), names, function.__name__, function.__defaults__, function.__closure__
    )
    made.__kwdefaults__ = function.__kwdefaults__
    made.__dict__.update(function.__dict__)
    made.__qualname__, made.__doc__, made.__module__ = function.__qualname__, function.__doc__, function.__module__
    return made


def copied_training_state(site: Site) -> dict[str, Any]:
    """Copies of the modules, optimizers and schedules that the cell reads, which belong together as the originals do.

    Raises:
        DoesNotApply: another object holds one of them, and would go on with the original.
    """
    from torch.nn import Module
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    kinds = (Module, Optimizer, LRScheduler)
    found = {name: value for name, value in site.reads.items() if isinstance(value, kinds)}
    for name, value in site.reads.items():
        if name not in found and is_training_state(value):
            raise DoesNotApply(
                f"`{name}` holds a model or an optimizer and would go on using the original, not the copy"
            )
    made: dict[str, Any] = copy.deepcopy(found)  # at once: an optimizer's parameters are those of the copied modules
    for name, value in found.items():
        if isinstance(value, Optimizer):
            have_own_parts(made[name], value)
    return made


def have_own_parts(made: Any, optimizer: Any) -> None:
    """Give a copy of an optimizer what copying leaves behind: its hooks, and the count of steps that a schedule looks
    at, without which it warns that ``step`` is another."""
    left = {key: value for key, value in vars(optimizer).items() if key not in vars(made) or "_hooks" in key}
    step = left.pop("step", None)
    made.__dict__.update((key, copy.copy(value) if "_hooks" in key else value) for key, value in left.items())
    if hasattr(step, "_wrapped_by_lr_sched"):
        function = type(made).step

        @functools.wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            made._opt_called = True
            return function(made, *args, **kwargs)

        counted._wrapped_by_lr_sched = True  # type: ignore[attr-defined]  # as torch's own schedules do
        made.step = counted


def is_plain_container(value: Any) -> bool:
    return type(value) in (list, tuple, dict)


def converted(value: Any, convert: Callable[[Any], Any], depth: int = 0) -> Any:
    """A tensor converted, or a list, tuple or dict with its tensors converted; the value itself where none was."""
    import torch

    if isinstance(value, torch.Tensor):
        return convert(value)
    if depth >= _DEEPEST or not is_plain_container(value) or len(value) > 1000:
        return value
    if isinstance(value, dict):
        items = {key: converted(item, convert, depth + 1) for key, item in value.items()}
        return items if any(items[key] is not item for key, item in value.items()) else value
    made = [converted(item, convert, depth + 1) for item in value]
    return type(value)(made) if any(a is not b for a, b in zip(made, value, strict=True)) else value


def copied_with(site: Site, convert: Callable[[Any], Any]) -> dict[str, Any]:
    """Variable -> its tensors converted, of those variables of the cell that have any such."""
    made = {name: converted(value, convert) for name, value in site.reads.items()}
    return {name: value for name, value in made.items() if value is not site.reads[name]}
