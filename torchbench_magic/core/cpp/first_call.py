"""The first call of a new snippet, in a process of its own.

C++ that crashes takes its process along, and one that never returns cannot be interrupted. So a snippet that was not
seen to return yet is called once where that does no harm. What it throws there is no matter: it may lack what the
notebook has loaded, and in the notebook an exception is caught.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from torchbench_magic.core.process.held_interrupts import hear_interrupt, interrupts_held
from torchbench_magic.core.progress import NO_PROGRESS, Progress
from torchbench_magic.errors import SnippetError

__all__ = ["try_out"]

_RETURNED = 123
_TICK = 0.05
_CALL = f"""\
import ctypes, os, resource, sys
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG, SIGKILL: it ends with the notebook, however that ends
if os.getppid() != int(sys.argv[3]):
    os._exit(1)
try:
    snippet = ctypes.CDLL(sys.argv[1])
except OSError:
    os._exit({_RETURNED})
snippet.torchbench_set_threads(int(sys.argv[2]))
out = (ctypes.c_int64 * 2)()
snippet.torchbench_time(ctypes.c_int64(1), ctypes.c_int64(0), -1, out, None, ctypes.c_int64(0))
os._exit({_RETURNED})
"""


def try_out(name: str, library: Path, threads: int, progress: Progress = NO_PROGRESS) -> None:
    """Call the snippet once, unless it was seen to return before; Ctrl-C ends the call.

    Raises:
        SnippetError: it crashed, or ended its process.
    """
    seen = library.with_name(f"{library.name}.returned")
    if seen.exists():
        return
    with interrupts_held():
        code = _status_of(name, library, threads, progress)
    if code < 0:
        raise SnippetError(
            f"{name} crashed in its first call ({signal.Signals(-code).name}): it was called in a separate process;"
            " the kernel is unaffected"
        )
    if code != _RETURNED:
        raise SnippetError(f"{name} ended its process (exit code {code}) in its first call; the kernel is unaffected")
    with contextlib.suppress(OSError):
        seen.touch(mode=0o600)


def _status_of(name: str, library: Path, threads: int, progress: Progress) -> int:
    """How the process ended that called it."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _CALL, str(library), str(threads), str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is the notebook's
    )
    began = time.monotonic()
    try:
        while (code := process.poll()) is None:
            time.sleep(_TICK)
            hear_interrupt()
            progress.update(time.monotonic() - began, None, f"calling {name} once, in a separate process")
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return code
