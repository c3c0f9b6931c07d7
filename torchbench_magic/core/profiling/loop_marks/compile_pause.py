"""Tells when ``torch.compile`` is at work, so that nothing of ours stands in what it traces.

Assumed of torch 2.13 and newer: ``torch._dynamo.callback.callback_handler`` calls what is registered as a compilation
starts and ends. Where it is missing, compiled code that is traced in a profiled loop may have our wrappers in it.
The compiler is not imported for this: until the code's own ``torch.compile`` does, that function is watched.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["CompilePause"]


class CompilePause:
    """Calls ``pause`` as a compilation starts and ``go_on`` as it has ended, between `start` and `stop`."""

    def __init__(self, pause: Callable[[], None], go_on: Callable[[], None]) -> None:
        self._pause, self._go_on = pause, go_on
        self._handler: Any = None
        self._compile: Any = None
        self._watched: Any = None

    def start(self) -> None:
        if "torch._dynamo" in sys.modules:
            self._register()
            return
        import torch

        original = self._compile = torch.compile

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            self._leave_compile()

            self._register()
            return original(*args, **kwargs)

        self._watched = torch.compile = watched

    def stop(self) -> None:
        """Put everything back. Safe to call twice."""
        self._leave_compile()
        handler, self._handler = self._handler, None
        if handler is not None:
            for remove, callback in (
                (handler.remove_start_callback, self._on_start),
                (handler.remove_end_callback, self._on_end),
            ):
                with contextlib.suppress(ValueError):  # `torch._dynamo.reset` or the user's code took it away
                    remove(callback)

    def _leave_compile(self) -> None:
        if self._watched is not None:
            import torch

            if torch.compile is self._watched:
                torch.compile = self._compile
            self._watched = None

    def _register(self) -> None:
        if self._handler is not None:
            return
        try:
            from torch._dynamo.callback import callback_handler
        except ImportError:
            return
        callback_handler.register_start_callback(self._on_start)
        callback_handler.register_end_callback(self._on_end)
        self._handler = callback_handler

    def _on_start(self, _: Any) -> None:
        self._pause()

    def _on_end(self, _: Any) -> None:
        self._go_on()
