"""Processes that the recorded code forks are not recorded: what records is switched off in them.

A fork copies the trace function, and the child would run up to eight times slower for lines that nobody ever reads.
(DataLoader workers are looked into, in a way of their own: see `workers`.)
"""

from __future__ import annotations

import os
from collections.abc import Callable

__all__ = ["off_in_children", "on_in_children"]

_switches: list[Callable[[], object]] = []
_is_registered = False


def off_in_children(switch: Callable[[], object]) -> None:
    """Call ``switch`` in every child that is forked from now on, as soon as it runs, until `on_in_children`."""
    global _is_registered
    _switches.append(switch)
    if not _is_registered and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_in_child)  # cannot be taken back: there is one for all runs
        _is_registered = True


def on_in_children(switch: Callable[[], object]) -> None:
    """The recording has ended. Safe to call twice."""
    if switch in _switches:
        _switches.remove(switch)


def _in_child() -> None:
    for switch in _switches:
        switch()
    _switches.clear()
