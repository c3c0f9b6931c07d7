"""A compiled snippet as Python calls it: `compile_snippet` makes one, `Snippet.timeit` times it as torch's timer does.

``compile_snippet("x * y;", "auto x = torch::ones({128}); auto y = torch::ones({128, 1});")``

A snippet without an effect that the compiler can see may be compiled to nothing, as with torch's own C++ timer: nothing
here keeps it. A call of a function in another library, as every op of torch is, stays.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from torchbench_magic.core.progress import NO_PROGRESS, Progress
from torchbench_magic.errors import SnippetError

from .build import Meanwhile, build
from .first_call import try_out
from .source import Snip

__all__ = ["OpenLoop", "Snippet", "compile_snippet", "compile_snippets"]

T = TypeVar("T")

_OK, _RAISED, _LEFT_LOOP = 1, 2, 3  # Status of runtime.h
_TEXT = 4000
_HEARD_NS = 250_000_000  # a block of `timeit`; Python hears Ctrl-C between two of them
_SERVE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


@dataclass(frozen=True)
class Snippet:
    """A compiled snippet. Its methods raise `SnippetError` where the code throws, or leaves the loop by ``break``.

    Attributes:
        name: for messages.
        stmt, setup, global_setup: the code.
        library: the compiled file; the counting process loads it too.
        why_private: why it could not be kept for other kernels; empty where it was.
        why_anew: why one that was kept was compiled anew; empty where it was not.
    """

    name: str
    stmt: str
    setup: str
    global_setup: str
    library: Path
    why_private: str = field(default="", compare=False)
    why_anew: str = field(default="", compare=False)

    def timeit(self, number: int) -> tuple[int, int]:
        """Setup, one untimed call, then ``number`` timed ones at torch's current thread count.

        Ctrl-C is heard after at most about a quarter of a second, or one call where that takes longer.

        Returns:
            (wall, cpu) nanoseconds of all timed calls; nothing is subtracted.
        """

        def timed(loop: OpenLoop) -> tuple[int, int]:
            wall, cpu, left = 0, 0, number
            passed, made = loop.block(1)[0], 1
            while left:
                made = min(left, max(1, _HEARD_NS * made // max(passed, 1)))
                left -= made
                passed, used = loop.block(made)
                wall, cpu = wall + passed, cpu + used
            return wall, cpu

        return self.opened(timed)

    def opened(self, then: Callable[[OpenLoop], T]) -> T:
        """Run the setup, call ``then`` with the loop, leave the setup's scope and return what ``then`` returned.

        The loop can be run any number of times within ``then``, on one setup. Several snippets are opened one in
        another. What ``then`` raises comes out of here.
        """
        ended: list[T] = []
        raised: list[BaseException] = []

        def serve(loop: int, closure: int | None, _context: int | None) -> None:
            try:
                ended.append(then(OpenLoop(self, loop, closure)))
            except BaseException as error:  # noqa: BLE001  (it goes on below the C++ frames)
                raised.append(error)

        text = ctypes.create_string_buffer(_TEXT)
        status = self._functions.torchbench_open(_SERVE(serve), None, text, _TEXT)
        if raised:
            raise raised[0]
        if not ended and status == _OK:  # ctypes swallowed it on the way in or out: only Ctrl-C comes there
            raise KeyboardInterrupt
        self._check(status, text)
        return ended[0]

    def _check(self, status: int, text: Any) -> None:
        if status == _OK:
            return
        if status == _RAISED:
            said = text.value.decode(errors="replace").strip().splitlines()
            raise SnippetError(f"{self.name} throws {said[0] if said else 'an exception'}")
        if status == _LEFT_LOOP:
            raise SnippetError(
                f"{self.name} leaves the timed loop: this `break` is not inside its own loop or switch"
            )
        raise SnippetError(f"{self.name} was not run (status {status})")

    @cached_property
    def _functions(self) -> Any:
        try:
            library = ctypes.CDLL(str(self.library))  # lets go of the GIL during calls, as torch's template does
        except OSError as error:
            raise SnippetError(f"{self.name} cannot be loaded: {error}") from None
        out, size, text = ctypes.POINTER(ctypes.c_int64), ctypes.c_int64, ctypes.c_char_p
        library.torchbench_open.argtypes = [_SERVE, ctypes.c_void_p, text, size]
        library.torchbench_block.argtypes = [ctypes.c_void_p, ctypes.c_void_p, size, ctypes.c_int, out, text, size]
        return library


class OpenLoop:
    """The loop of a snippet whose setup has run; it ends with `Snippet.opened`."""

    def __init__(self, snippet: Snippet, loop: int, closure: int | None) -> None:
        self.snippet, self._loop, self._closure = snippet, loop, closure
        self._run = snippet._functions.torchbench_block
        self._out, self._text = (ctypes.c_int64 * 2)(), ctypes.create_string_buffer(_TEXT)

    def block(self, calls: int, device: int = -1) -> tuple[int, int]:
        """(wall, cpu) nanoseconds of so many calls of the statement."""
        status = self._run(self._loop, self._closure, calls, device, self._out, self._text, _TEXT)
        if status != _OK:
            self.snippet._check(status, self._text)
        return self._out[0], self._out[1]

    def empty(self, calls: int, device: int = -1) -> tuple[int, int]:
        """The same of a loop around nothing, which the compiler was kept from removing."""
        self._run(None, None, calls, device, self._out, self._text, _TEXT)
        return self._out[0], self._out[1]


def compile_snippets(
    snips: Mapping[str, Snip],
    *,
    threads: int = 1,
    progress: Progress = NO_PROGRESS,
    meanwhile: Meanwhile = contextlib.nullcontext,
) -> dict[str, Snippet]:
    """Compile what the cache does not hold, side by side, and call what is new once in a process of its own.

    Args:
        snips: name, for messages -> code.
        threads: of torch, for that first call.
        progress: told what is under way.
        meanwhile: makes a context that is open while compilers run.

    Raises:
        MissingTool: no compiler; before anything else is done.
        SnippetError: code that does not compile (with the lines of the cell), or crashes.
    """
    made = {}
    for name, built in build(snips, progress=progress, meanwhile=meanwhile).items():
        try_out(name, built.library, threads, progress)
        snip = snips[name]
        code = (snip.stmt.source, snip.setup_text, snip.global_setup_text)
        made[name] = Snippet(name, *code, built.library, built.why_private, built.why_anew)
    return made


def compile_snippet(
    stmt: str,
    setup: str = "",
    global_setup: str = "",
    *,
    threads: int = 1,
    meanwhile: Meanwhile = contextlib.nullcontext,
) -> Snippet:
    """One snippet, from three texts with the meaning they have in torch's ``Timer(language="c++")``.

    Raises:
        MissingTool, SnippetError: as `compile_snippets`.
    """
    name = "the statement"
    return compile_snippets({name: Snip.of(stmt, setup, global_setup)}, threads=threads, meanwhile=meanwhile)[name]
