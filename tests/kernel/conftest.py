"""Cells run in a real Jupyter kernel."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from traitlets.config import Config

ROOT = Path(__file__).resolve().parents[2]
QUIET = """\
from tests.quiet_machine import quiet
quiet(setattr)
del quiet
"""


@dataclass(frozen=True)
class Ran:
    """What came out of one cell."""

    outputs: list[Any]

    def text(self, kind: str = "text/plain") -> str:
        """Everything displayed, as ``kind``."""
        shown = [
            o["data"].get(kind, "") for o in self.outputs if o["output_type"] in ("display_data", "execute_result")
        ]
        return "\n".join(shown)

    @property
    def stdout(self) -> str:
        return "".join(o["text"] for o in self.outputs if o.get("name") == "stdout")

    @property
    def stderr(self) -> str:
        return "".join(o["text"] for o in self.outputs if o.get("name") == "stderr")

    @property
    def error(self) -> str:
        """The traceback, without colours."""
        found = ["\n".join(o["traceback"]) for o in self.outputs if o["output_type"] == "error"]
        return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(found))

    @property
    def kinds(self) -> list[str]:
        return [o["output_type"] for o in self.outputs]


def by_files() -> Config:
    """Settings of a client whose kernel is reached by files in JUPYTER_RUNTIME_DIR: a port may be taken by others."""
    sockets = os.path.join(tempfile.mkdtemp(dir=os.environ["JUPYTER_RUNTIME_DIR"]), "kernel")
    return Config({"ConnectionFileMixin": {"transport": "ipc", "ip": sockets}})


class Kernel:
    """One kernel; `run` gives it a cell."""

    def __init__(self, client: NotebookClient) -> None:
        self._client = client
        self.cells: list[Any] = client.nb.cells

    def run(self, source: str) -> Ran:
        """Run a cell, whatever comes of it."""
        cell = nbformat.v4.new_code_cell(source)
        self.cells.append(cell)
        with contextlib.suppress(CellExecutionError):
            self._client.execute_cell(cell, len(self.cells) - 1)
        return Ran(cell.outputs)

    @property
    def number(self) -> int:
        """n of In[n] of the cell that ran last."""
        return len(self.cells)

    @contextlib.contextmanager
    def interrupted_when(self, happened: Callable[[], bool]) -> Iterator[None]:
        """Send the kernel SIGINT, as the interrupt button does, when this has happened."""
        kernel, over = self._client.km.provisioner.pid, threading.Event()

        def send() -> None:
            while not over.wait(0.02):
                if happened():
                    os.kill(kernel, signal.SIGINT)
                    return

        sending = threading.Thread(target=send)
        sending.start()
        try:
            yield
        finally:
            over.set()
            sending.join()


def ipython_folder(folder: Path, *, startup: bool, quiet: bool = True) -> Path:
    """An IPYTHONDIR without the user's settings, with or without the startup file of the wheel. ``quiet``: profiles say
    nothing of a busy machine, as in `tests.conftest.the_machine_is_quiet`."""
    target = folder / "profile_default" / "startup"
    target.mkdir(parents=True)
    if quiet:
        (target / "00-quiet_machine.py").write_text(QUIET, encoding="utf-8")
    if startup:
        shutil.copy(ROOT / "jupyter-config" / "50-torchbench_magic.py", target)
    return folder


def environment_of(folder: Path, *, startup: bool = False, quiet: bool = True) -> dict[str, str]:
    """Of a kernel that imports this tree, with an IPYTHONDIR in ``folder``."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "IPYTHONDIR": str(ipython_folder(folder, startup=startup, quiet=quiet)),
    }


@pytest.fixture(scope="module")
def fresh_kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    """With the startup file alone: neither torch nor the extension is loaded."""
    return start_kernel(startup=True)


@pytest.fixture(scope="module")
def start_kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Kernel]]:
    """Starts kernels and runs cells in them; with ``startup`` they have the startup file, otherwise the extension is
    loaded."""
    with contextlib.ExitStack() as running:

        def start(*cells: str, startup: bool = False) -> Kernel:
            folder = tmp_path_factory.mktemp("kernel")
            environment = environment_of(folder / "ipython", startup=startup)
            at = {"metadata": {"path": str(folder)}}
            client = NotebookClient(nbformat.v4.new_notebook(), timeout=120, resources=at, config=by_files())
            running.enter_context(client.setup_kernel(env=environment))
            kernel = Kernel(client)
            for cell in (*["%load_ext torchbench_magic"] * (not startup), *cells):
                assert not (ran := kernel.run(cell)).error, ran.error
            return kernel

        yield start
