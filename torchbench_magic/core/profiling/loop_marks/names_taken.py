"""Names that code took of torch's functions while others stood in their place: ``from torch.autograd import grad`` in a
profiled cell, or in a module that it imports."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from torchbench_magic.core.code.reached_objects import is_users_module

__all__ = ["return_names"]


def return_names(replaced: Mapping[int, tuple[Any, Any]], modules: int) -> None:
    """Let names of the notebook, and of users' modules that were imported since, mean what they would without us.

    Args:
        replaced: by id of what stood in a place: itself, and what was there before.
        modules: how many there were before.
    """
    for namespace in _namespaces(modules):
        for name, value in list(namespace.items()):
            found = replaced.get(id(value))
            if found is not None and found[0] is value:
                namespace[name] = found[1]


def _namespaces(modules: int) -> Iterator[dict[str, Any]]:
    """New modules stand at the end. All others are not asked whether they are users': that would be kept in memory."""
    yield vars(sys.modules["__main__"])
    for _, module in list(itertools.islice(sys.modules.items(), modules, None)):
        if is_users_module(module):
            yield vars(module)
