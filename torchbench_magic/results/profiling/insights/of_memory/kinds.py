"""The kinds of insights about memory, and what keeps them from speaking: doubts about bytes, never one about times."""

from __future__ import annotations

from collections.abc import Callable

from ....insights import Insight
from ...profile import Profile
from .leak import leak
from .peak import peak

__all__ = ["MEMORY_KINDS", "memory_silenced_by"]

MEMORY_KINDS: dict[str, Callable[[Profile], list[Insight]]] = {"leak": leak, "peak": peak}

_VOIDING = frozenset({"partial", "not-run", "no-steps", "events-lost", "events-dropped", "trace-mended"})


def memory_silenced_by(profile: Profile) -> str:
    """The kind of what keeps these kinds from speaking; empty where nothing does."""
    kinds = [doubt.kind for doubt in profile.warnings if doubt.kind in _VOIDING]
    if profile.partial:
        kinds.append("partial")
    return kinds[0] if kinds else ""
