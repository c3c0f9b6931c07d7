"""A real kernel that signals are sent to from outside, at moments counted from the beginning of a magic."""

from __future__ import annotations

import json
import mmap
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any, Self

from jupyter_client.manager import KernelManager

from tests.kernel.conftest import environment_of

__all__ = ["FaultKernel", "Ran"]

_IDLE, _RUNS, _ENDED = b"\0", b"\1", b"\2"
_SET_UP = """
%load_ext torchbench_magic
import mmap as _mmap, os as _os
_flag = _mmap.mmap(_os.open({flag!r}, _os.O_RDWR), 1)
def _flagged(run):
    def flagged(*args, **more):
        _flag[0:1] = b"\\1"
        try:
            return run(*args, **more)
        finally:
            _flag[0:1] = b"\\2"
    return flagged
get_ipython().run_cell_magic = _flagged(get_ipython().run_cell_magic)
"""


@dataclass
class Ran:
    """What came out of one cell.

    Attributes:
        outputs: messages of display, streams and errors, as (type, content).
        seconds: that the magic ran, as far as this process saw it.
        sent: signals that were sent before it ended.
        is_lost: no reply came.
    """

    outputs: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    seconds: float = 0.0
    sent: int = 0
    is_lost: bool = False

    @property
    def stdout(self) -> str:
        return self._stream("stdout")

    @property
    def stderr(self) -> str:
        return self._stream("stderr")

    def _stream(self, name: str) -> str:
        return "".join(c["text"] for kind, c in self.outputs if kind == "stream" and c["name"] == name)

    @property
    def error(self) -> str:
        """The traceback, without colours."""
        found = ["\n".join(c["traceback"]) for kind, c in self.outputs if kind == "error"]
        return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(found))

    @property
    def displayed(self) -> list[dict[str, Any]]:
        """The mime bundles that stand there in the end: an update takes the place of what it updates."""
        shown: dict[object, dict[str, Any]] = {}
        for nth, (kind, content) in enumerate(self.outputs):
            if kind in ("display_data", "update_display_data", "execute_result"):
                shown[content.get("transient", {}).get("display_id", nth)] = content["data"]
        return list(shown.values())


class FaultKernel:
    """``with FaultKernel(folder) as kernel:``; its temporary files go to a folder of their own in ``folder``.

    Args:
        folder: an empty one.
        variables: of its environment, besides.
        has_reader: somebody sits before it, so that live views are shown.
    """

    def __init__(self, folder: Path, variables: dict[str, str] | None = None, *, has_reader: bool = False) -> None:
        self.folder, self.temporary, self._has_reader = folder, folder / "tmp", has_reader
        self.temporary.mkdir(exist_ok=True)
        environment = environment_of(folder / "ipython") | {"TMPDIR": str(self.temporary)} | (variables or {})
        descriptor, flag = tempfile.mkstemp(dir=folder)
        os.write(descriptor, _IDLE)
        self._flag = mmap.mmap(descriptor, 1)
        os.close(descriptor)
        self._manager = KernelManager(kernel_name="python3")
        self._manager.start_kernel(
            env=environment, cwd=str(folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._client = self._manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=120)
        assert not self.run(_SET_UP.format(flag=flag)).error

    @property
    def pid(self) -> int:
        provisioner: Any = self._manager.provisioner
        return int(provisioner.pid)

    @property
    def is_running(self) -> bool:
        """The magic has begun and not ended."""
        return bool(self._flag[0:1] == _RUNS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)
        self._flag.close()

    def kill(self) -> None:
        """SIGKILL to the kernel, and to nothing else."""
        os.kill(self.pid, signal.SIGKILL)
        self._client.stop_channels()
        while self._manager.provisioner is not None and self._manager.is_alive():  # reaped by this
            time.sleep(0.02)
        self._manager.cleanup_resources()
        self._flag.close()

    def begin(self, source: str) -> str:
        """Send a cell; the id of its message."""
        self._flag[0:1] = _IDLE
        return str(self._client.execute(source, allow_stdin=self._has_reader, store_history=True))

    def waits_for_magic(self, seconds: float = 60.0) -> float | None:
        """The moment at which the cell's magic began; None where it did not."""
        until = time.monotonic() + seconds
        while self._flag[0:1] == _IDLE and time.monotonic() < until:
            time.sleep(0.0002)
        return time.monotonic() if self._flag[0:1] != _IDLE else None

    def run(self, source: str, moments: Sequence[float] = (), *, is_magic: bool = False, timeout: float = 90.0) -> Ran:
        """Run a cell; SIGINT so many seconds after its magic has begun, each as long as it runs."""
        ran, message = Ran(), self.begin(source)
        if moments or is_magic:
            began = self.waits_for_magic()
            for moment in sorted(moments):
                time.sleep(max(0.0, (began or 0.0) + moment - time.monotonic()))
                if self._flag[0:1] == _RUNS:
                    os.kill(self.pid, signal.SIGINT)
                    ran.sent += 1
            while began is not None and self._flag[0:1] == _RUNS and time.monotonic() < began + timeout:
                time.sleep(0.001)
            ran.seconds = time.monotonic() - (began or time.monotonic())
        self._listen(message, ran, time.monotonic() + timeout)
        return ran

    def _listen(self, message: str, ran: Ran, until: float) -> None:
        while True:
            try:
                heard = self._client.get_iopub_msg(timeout=max(0.1, until - time.monotonic()))
            except Empty:
                ran.is_lost = True
                return
            if heard["parent_header"].get("msg_id") != message:
                continue
            kind, content = heard["msg_type"], heard["content"]
            if kind == "status" and content["execution_state"] == "idle":
                break
            if kind == "clear_output":
                ran.outputs.clear()
            elif kind not in ("status", "execute_input"):
                ran.outputs.append((kind, content))
        try:
            while self._client.get_shell_msg(timeout=20)["parent_header"].get("msg_id") != message:
                pass
        except Empty:
            ran.is_lost = True

    def value(self, source: str) -> Any:
        """What a cell prints as JSON."""
        ran = self.run(source)
        try:
            return json.loads(ran.stdout.strip().splitlines()[-1])
        except (ValueError, IndexError):
            raise RuntimeError(f"{source}\n{ran.error}\n{ran.outputs}") from None
