"""Compile snippets: what is not in the cache, side by side, no more at once than there are cores.

Nearly all of the time goes to torch's headers. So only those are read that snippets use; one that has a name which
they do not declare is compiled anew with all that torch's templates include. And after a few snippets the headers are
precompiled (with GCC): that takes as long as two snippets and 460 MB, and a snippet a third of the time from then on.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from torchbench_magic.core.process.held_interrupts import hear_interrupt, interrupts_held
from torchbench_magic.core.progress import NO_PROGRESS, Progress
from torchbench_magic.errors import SnippetError

from .cache import Cache, private_cache, the_cache
from .compiler_watch import CompilerWatch
from .diagnostics import faults_of, told, unknown_names
from .source import Snip
from .toolchain import Headers, Toolchain, find_toolchain, knows_more

__all__ = ["Built", "Meanwhile", "build"]

Meanwhile = Callable[[], AbstractContextManager[object]]

_TICK = 0.05
_OFTEN = 4
"""Snippets in the cache from which on headers are precompiled."""
_NO_SPACE = ("No space left on device", "Disk quota exceeded")


@dataclass(frozen=True)
class Built:
    """A compiled snippet.

    Attributes:
        library: the file.
        why_private: why it is not kept for other kernels; empty where it is.
        why_anew: why a library that was there was not taken; empty where it was, or where there was none.
    """

    library: Path
    why_private: str = ""
    why_anew: str = ""


def build(
    snips: Mapping[str, Snip], *, progress: Progress = NO_PROGRESS, meanwhile: Meanwhile = contextlib.nullcontext
) -> dict[str, Built]:
    """Compile each snippet that is not compiled yet; Ctrl-C ends the compilers.

    It is heard while they run, not while they are started or what they made is put in place.

    Args:
        snips: name, for messages -> code.
        progress: told what is compiled.
        meanwhile: makes a context that is open while compilers run; not used where everything is in the cache.

    Raises:
        MissingTool: no compiler.
        SnippetError: what does not compile, with the lines of the cell.
    """
    with interrupts_held():
        return _built(snips, progress, meanwhile)


def _built(snips: Mapping[str, Snip], progress: Progress, meanwhile: Meanwhile) -> dict[str, Built]:
    toolchain, cache = find_toolchain(), the_cache()
    try:
        return _Builds(toolchain, cache, progress, meanwhile).build(snips)
    except _NoRoom as full:
        if cache.why_private:
            raise SnippetError(f"{full}: free space in {cache.folder}") from None
        cache = private_cache(f"{cache.folder} cannot be written ({full})")
    try:
        return _Builds(toolchain, cache, progress, meanwhile).build(snips)
    except _NoRoom as full:
        raise SnippetError(f"snippets cannot be compiled ({full}): free space in {cache.folder.parent}") from None


class _NoRoom(Exception):
    """Nothing can be written where the compiler writes."""


def _check_room(said: str) -> None:
    full = next((words for words in _NO_SPACE if words in said), None)
    if full is not None:
        raise _NoRoom(full)


@dataclass
class _Compile:
    """One run of the compiler."""

    number: int
    names: list[str]
    snip: Snip
    headers: Headers
    target: Path
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    process: subprocess.Popen[bytes] | None = None
    workshop: Path = Path()


class _Builds:
    def __init__(self, toolchain: Toolchain, cache: Cache, progress: Progress, meanwhile: Meanwhile) -> None:
        self._toolchain, self._cache, self._progress, self._meanwhile = toolchain, cache, progress, meanwhile
        self._began = time.monotonic()

    def build(self, snips: Mapping[str, Snip]) -> dict[str, Built]:
        found: dict[str, Path] = {}
        waiting: list[_Compile] = []
        for name, snip in snips.items():
            targets: dict[Headers, Path] = {h: self._target(snip, h) for h in ("lean", "full")}
            known = next((path for path in targets.values() if self._cache.used(path)), None)
            if known is not None:
                found[name] = known
                continue
            same = next((one for one in waiting if one.target == targets["lean"]), None)
            if same is not None:
                same.names.append(name)
            else:
                waiting.append(_Compile(len(waiting), [name], snip, "lean", targets["lean"]))
        if waiting:
            with self._meanwhile():
                self._prepare_headers()
                found |= self._compile(waiting)
            self._cache.prune()
        refused = self._cache.refused
        # in the order of the snippets, not in that of the compilers' ends
        return {name: Built(found[name], self._cache.why_private, refused.get(found[name], "")) for name in snips}

    def _target(self, snip: Snip, headers: Headers) -> Path:
        """One folder for all snippets of one compiler, its flags and this torch."""
        return self._cache.path(self._toolchain.key("lean")) / f"{self._toolchain.key(headers, snip.text)}.so"

    # ---- the headers --------------------------------------------------------------------------------------------

    def _prelude(self) -> Path:
        return self._cache.path(self._toolchain.key("lean")) / "prelude.h"

    def _prepare_headers(self) -> None:
        """Precompile the lean headers where snippets are compiled often."""
        prelude = self._prelude()
        precompiled = prelude.with_name("prelude.h.gch")
        if not self._toolchain.precompiles or self._cache.used(precompiled):
            return
        if self._cache.why_private or len(list(prelude.parent.glob("*.so"))) < _OFTEN:
            return
        with self._room(), self._cache.making(precompiled) as workshop:
            prelude.write_text(self._toolchain.prelude("lean"), encoding="utf-8")
            command = ["-x", "c++-header", str(prelude), "-o", str(workshop / precompiled.name)]
            with self._running(command, workshop) as process:
                while process.poll() is None:
                    self._tell("compiling torch's headers, once")
                    time.sleep(_TICK)
            _check_room((workshop / "said").read_text(errors="replace"))
            if process.returncode == 0:
                self._cache.keep(workshop, precompiled)

    @contextlib.contextmanager
    def _room(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise _NoRoom(error.strerror or str(error)) from error

    # ---- the snippets -------------------------------------------------------------------------------------------

    def _compile(self, waiting: list[_Compile]) -> dict[str, Path]:
        found: dict[str, Path] = {}
        failed: dict[int, str] = {}
        running: list[_Compile] = []
        count, cores = len(waiting), len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        try:
            while waiting or running:
                while waiting and len(running) < cores:
                    running.append(self._start(waiting.pop(0)))
                self._tell(f"compiling {count} snippet{'' if count == 1 else 's'}")
                time.sleep(_TICK)
                for one in [r for r in running if r.process is not None and r.process.poll() is not None]:
                    running.remove(one)
                    said = self._finish(one)
                    if one.process is not None and one.process.returncode == 0:
                        found |= dict.fromkeys(one.names, one.target)
                    elif one.headers == "lean" and knows_more(unknown_names(faults_of(said, one.snip))):
                        target = self._target(one.snip, "full")
                        waiting.append(_Compile(one.number, one.names, one.snip, "full", target))
                    else:
                        failed[one.number] = told(", ".join(one.names), one.snip, said)
        finally:
            for one in running:
                one.stack.close()
        if failed:
            raise SnippetError("\n".join(text for _, text in sorted(failed.items())))
        return found

    def _start(self, one: _Compile) -> _Compile:
        with self._room():
            workshop = one.workshop = one.stack.enter_context(self._cache.making(one.target))
            source = workshop / "snippet.cpp"
            precompiled = one.headers == "lean" and self._prelude().exists()
            head = f'#include "{self._prelude()}"' if precompiled else self._toolchain.prelude(one.headers)
            source.write_text(f"{head}\n{one.snip.text}", encoding="utf-8")
            command = [str(source), "-o", str(workshop / one.target.name), *self._toolchain.link_flags]
            command += self._toolchain.libraries(one.headers)
            one.process = one.stack.enter_context(self._running(command, workshop))
        return one

    def _finish(self, one: _Compile) -> str:
        """Put what was made in place; what the compiler said.

        Raises:
            _NoRoom: it had no space.
        """
        with one.stack, self._room():
            said = (one.workshop / "said").read_text(errors="replace")
            if one.process is not None and one.process.returncode == 0:
                self._cache.keep(one.workshop, one.target)
        _check_room(said)
        return said

    # ---- a compiler ---------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _running(self, arguments: Sequence[str], workshop: Path) -> Iterator[subprocess.Popen[bytes]]:
        """A compiler with torch's flags, its words in ``said``; killed, with what it started, if it still runs.

        Where this process is killed meanwhile, a shell ends the compiler and removes its folder.
        """
        words = {**os.environ, "LC_ALL": "C", "TMPDIR": str(workshop)}
        quiet = ["-fdiagnostics-color=never", "-fno-diagnostics-show-caret"]
        with open(workshop / "said", "wb") as said:
            process = subprocess.Popen(
                [*self._toolchain.command, *self._toolchain.flags, *quiet, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env=words,
                cwd=workshop,
                start_new_session=True,  # Ctrl-C is the notebook's
            )
        watch: CompilerWatch | None = None
        try:
            watch = CompilerWatch(process.pid, str(workshop))
            yield process
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            if watch is not None:
                watch.end()

    def _tell(self, what: str) -> None:
        hear_interrupt()
        self._progress.update(time.monotonic() - self._began, None, what)
