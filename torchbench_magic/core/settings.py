"""What a run changes in the process, and puts back whatever happens."""

from __future__ import annotations

import contextlib
import gc
import io
import random
import sys
from collections.abc import Iterator
from typing import Any

__all__ = ["CountingSink", "Unclosable", "no_collector", "output_to", "preserved_state", "set_threads"]


@contextlib.contextmanager
def preserved_state() -> Iterator[None]:
    """Restore torch's threads, grad mode, default dtype and generators, numpy's and Python's generator.

    Accelerator generators are included where an accelerator was in use before.
    """
    import torch

    threads, grad, dtype = torch.get_num_threads(), torch.is_grad_enabled(), torch.get_default_dtype()
    inference = torch.is_inference_mode_enabled()
    generators = _generators(torch)
    collecting = gc.isenabled()
    try:
        yield
    finally:
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        if torch.is_grad_enabled() != grad and torch.is_inference_mode_enabled() == inference:
            torch.set_grad_enabled(grad)
        if torch.get_default_dtype() != dtype:
            torch.set_default_dtype(dtype)
        for restore, state in generators:
            restore(state)
        (gc.enable if collecting else gc.disable)()


def _generators(torch: Any) -> list[tuple[Any, Any]]:
    """Pairs (restore, state) of every random generator that user code may draw from."""
    pairs: list[tuple[Any, Any]] = [
        (torch.set_rng_state, torch.get_rng_state()),
        (random.setstate, random.getstate()),
    ]
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        pairs.append((numpy.random.set_state, numpy.random.get_state()))
    kind = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    backend = getattr(torch, kind.type, None) if kind is not None else None
    if backend is not None and hasattr(backend, "is_initialized") and backend.is_initialized():
        pairs.append((backend.set_rng_state, backend.get_rng_state()))
    return pairs


@contextlib.contextmanager
def no_collector() -> Iterator[None]:
    """Collect what is young, then keep the cyclic collector off.

    A full collection takes 65 to 120 ms with torch loaded, a large part of what a short cell may cost, and what is old
    does not run in the blocks either way.
    """
    was = gc.isenabled()
    gc.collect(1)
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def set_threads(threads: int) -> None:
    """Set torch's intra-op threads; nothing happens when that many are set already (a set rebuilds the team)."""
    import torch

    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)


class CountingSink(io.TextIOBase):
    """A text stream that keeps nothing but the number of characters it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.characters = 0

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.characters += len(text)
        return len(text)

    def close(self) -> None:
        """Do nothing: code that closes its output goes on writing to nowhere."""


class Unclosable(io.TextIOBase):
    """Another stream, which code may write to but not close."""

    def __init__(self, stream: Any) -> None:
        super().__init__()
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        written: int = self._stream.write(text)
        return written

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        """Do nothing: the stream is the kernel's."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def output_to(stdout: io.TextIOBase, stderr: io.TextIOBase) -> Iterator[None]:
    """Send Python's stdout and stderr elsewhere: a timed body that prints would flood the notebook."""
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        yield
