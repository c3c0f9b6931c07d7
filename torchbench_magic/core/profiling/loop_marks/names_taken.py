"""Names that code took of torch's functions while others stood in their place: ``from torch.autograd import grad`` in a
profiled cell, or in a module that it imports."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from torchbench_magic.core.code.reached_objects import is_users_module

__all__ = ["return_names"]


def return_names(replaced: Mapping[int, tuple[Any, Any]]) -> None:
    """Let names of the notebook and of users' modules mean what they would without us.

    Args:
        replaced: by id of what stood in a place: itself, and what was there before.
    """
    for namespace in _namespaces():
        for name, value in list(namespace.items()):
            found = replaced.get(id(value))
            if found is not None and found[0] is value:
                namespace[name] = found[1]


def _namespaces() -> Iterator[dict[str, Any]]:
    for name, module in list(sys.modules.items()):
        if name == "__main__" or is_users_module(module):
            yield vars(module)
