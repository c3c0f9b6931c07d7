"""Starts the process that looks at this one's threads, and hears what it says. See `side_process`.

It is started before the code begins and ended after it, outside of its time; within it nothing of this runs but a
thread that waits for a line and says that a worker hangs.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

__all__ = ["PERIOD", "SideWatch"]

PERIOD = 0.005
"""Seconds between two looks at the least, see `side_process.MOST_SHARE`: 1 ms took 5.6 % of the throughput of a cell
that uses all cores."""
_PATIENCE = 10.0
"""Seconds for an answer: on a machine with many threads more than cores the process waits for its turn too."""
_SCRIPT = Path(__file__).with_name("side_process.py")


class SideWatch:
    """Looks from `start` to `end`; `report` is what was seen.

    Args:
        ignored: native ids of this process's threads that are nobody's, such as those that carry a kernel's messages.
        tell: called, by a thread of its own, with each process that hangs.

    Attributes:
        problem: why nothing is seen; empty where it works.
    """

    problem = ""

    def __init__(self, ignored: Collection[int] = (), tell: Callable[[dict[str, Any]], None] | None = None) -> None:
        self._ignored, self._tell = ignored, tell
        self._process: subprocess.Popen[bytes] | None = None
        self._listener: threading.Thread | None = None
        self._answer: dict[str, Any] | None = None

    def start(self) -> None:
        """Start it and wait until it looks. Where that fails, `problem` says why."""
        if not os.path.isdir("/proc/self/task"):
            self.problem = "this system has no /proc/PID/task, where Linux counts how long threads wait for a core"
            return
        if not os.access("/proc/self/schedstat", os.R_OK):
            self.problem = "the kernel does not count how long threads wait for a core (no /proc/PID/schedstat)"
            return
        ignored = ",".join(map(str, sorted(self._ignored)))
        command = [sys.executable, "-I", "-S", str(_SCRIPT), str(os.getpid()), str(PERIOD * 1e3), ignored]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, process_group=0
            )
            if not json.loads(self._line() or "{}").get("ready"):
                raise OSError("it sees no threads")
        except (OSError, ValueError) as error:
            self.problem = f"the process that watches the threads did not start ({error})"
            self.close()
            return
        self._listener = threading.Thread(target=self._listen, name="torchbench_magic threads", daemon=True)
        self._listener.start()

    def begin(self) -> None:
        """What was seen before is forgotten. Takes some microseconds."""
        self._say(b"begin\n")

    def end(self) -> None:
        """No more is seen. Takes some microseconds; `report` waits for the answer."""
        self._say(b"end\n")

    def report(self) -> dict[str, Any] | None:
        """What was seen between `begin` and `end`; None where nothing was. The process is gone then."""
        if self._listener is not None:
            self._listener.join(_PATIENCE)
        self.close()
        if self._answer is None and not self.problem:
            self.problem = "the process that watches the threads did not answer"
        return self._answer

    def close(self) -> None:
        """End the process, whatever it does, and close its files. Safe to call twice."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        if self._answer is None:
            process.kill()
        process.wait()
        if self._listener is not None:
            self._listener.join(_PATIENCE)  # it reads to the end of what the process said
            self._listener = None
        process.stdout.close()

    def _say(self, what: bytes) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                os.write(self._process.stdin.fileno(), what)

    def _line(self) -> bytes:
        """Its first line; empty where none comes in time."""
        assert self._process is not None
        assert self._process.stdout is not None
        file, text, until = self._process.stdout.fileno(), b"", time.monotonic() + _PATIENCE
        while not text.endswith(b"\n"):
            ready, _, _ = select.select([file], [], [], max(0.0, until - time.monotonic()))
            more = os.read(file, 65536) if ready else b""
            if not more:
                return b""
            text += more
        return text

    def _listen(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError, ValueError):
            for line in self._process.stdout:
                said = json.loads(line)
                if "hangs" not in said:
                    self._answer = said
                    return
                if self._tell is not None:
                    self._tell(said)
