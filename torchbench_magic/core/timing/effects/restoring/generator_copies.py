"""Copies of the states of random generators that timed code reaches by its own variables, such as ``torch.Generator()``
and ``numpy.random.default_rng()``. Those that a whole process draws from are of its settings, and not looked at here.
"""

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

__all__ = ["GeneratorCopies"]


@dataclass
class _Kept:
    read: Callable[[], Any]
    put: Callable[[Any], object]
    state: Any
    has_drawn: bool = False

    @property
    def is_as_it_was(self) -> bool:
        return _bytes(self.read()) == _bytes(self.state)


class GeneratorCopies:
    """The states of generators as they are now.

    Args:
        roots: (label, object); those that are generators are kept, each once.
    """

    def __init__(self, roots: Iterable[tuple[str, Any]]) -> None:
        found = {id(value): value for _, value in roots}
        pairs = [pair for value in found.values() if (pair := _state_of(value)) is not None]
        self._kept = [_Kept(read, put, read()) for read, put in pairs]

    def restore_all(self) -> None:
        """Put back those that were drawn from. Not before each block: code whose time depends on the numbers would be
        timed on a single draw."""
        for kept in self._kept:
            if not kept.is_as_it_was:
                kept.has_drawn = True
                kept.put(kept.state)

    @property
    def have_drawn(self) -> bool:
        """Whether one of them was found drawn from."""
        return any(kept.has_drawn for kept in self._kept)


def _state_of(value: Any) -> tuple[Callable[[], Any], Callable[[Any], object]] | None:
    """(reads the state, puts it) of a generator that is no whole process's; None for whatever else."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy.random")
    if torch is not None and type(value) is torch.Generator and value is not torch.default_generator:
        return value.get_state, value.set_state
    if numpy is not None and type(value) is numpy.Generator:
        own = value.bit_generator
        return lambda: own.state, lambda state: setattr(own, "state", state)
    if numpy is not None and type(value) is numpy.RandomState and value is not numpy.mtrand._rand:
        return value.get_state, value.set_state
    if type(value) is random.Random and value is not random._inst:
        return value.getstate, value.setstate
    return None


def _bytes(state: Any) -> bytes:
    """A state so that two can be compared: some are dicts with arrays in them."""
    return bytes(state.numpy()) if hasattr(state, "numpy") else pickle.dumps(state)
