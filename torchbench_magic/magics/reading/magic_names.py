"""Whose a magic's name is. Nothing but the standard library is imported here: the startup file asks."""

from __future__ import annotations

from typing import Any

__all__ = ["is_ours"]


def is_ours(shell: Any, kind: str, magic: str) -> bool:
    """Whether the name is this package's, loaded or still to be loaded, and not a magic of the user's.

    Args:
        kind: ``line`` or ``cell``.
    """
    table = shell.magics_manager
    found = table.magics[kind].get(magic)
    if found is None:
        home = table.lazy_magics.get(magic, "")
    else:
        home = getattr(found, "spec", None) or getattr(found, "__module__", None) or ""
    return str(home).startswith("torchbench_magic")
