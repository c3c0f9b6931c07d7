"""A real cluster of ipyparallel with two engines, started by the tests and ended surely."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

psutil = pytest.importorskip("psutil")
pytest.importorskip("ipyparallel")

from tests.kernel.conftest import Kernel  # noqa: E402
from torchbench_magic.core.engines.cluster import Cluster, connected  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
PROFILE = "engines"


@dataclass(frozen=True)
class RunningCluster:
    """What a test needs to use it.

    Attributes:
        profile: its name, for ``--engines``.
        ipython_dir: the folder of the profile; ``IPYTHONDIR`` of a kernel that is to find it.
        process: of ``ipcluster``.
    """

    profile: str
    ipython_dir: Path
    process: subprocess.Popen[bytes]

    def connected(self) -> contextlib.AbstractContextManager[Cluster]:
        return connected(self.profile, self.ipython_dir)


@contextlib.contextmanager
def running_cluster(folder: Path, engines: int = 2, **environment: str) -> Iterator[RunningCluster]:
    """Start a cluster whose engines import this tree, until the block ends; 3 s."""
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    command = [
        *(sys.executable, "-m", "ipyparallel.cluster", "start", "-n", str(engines), f"--profile={PROFILE}"),
        *(f"--ipython-dir={folder}", "--Cluster.controller_args=--HeartMonitor.period=250"),
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, stdout=log, stderr=log, start_new_session=True,
            env=os.environ | {"PYTHONPATH": paths, "IPYTHONDIR": str(folder), "OMP_NUM_THREADS": "1"} | environment,
        )  # fmt: skip
    made = RunningCluster(PROFILE, folder, process)
    try:
        _wait_for(made, engines)
        yield made
    finally:
        _end(process)


def _wait_for(cluster: RunningCluster, engines: int) -> None:
    until = time.monotonic() + 60
    file = cluster.ipython_dir / f"profile_{PROFILE}" / "security" / "ipcontroller-client.json"
    while time.monotonic() < until:
        assert cluster.process.poll() is None, (cluster.ipython_dir / "log").read_text()
        if file.exists():
            with cluster.connected() as found:
                while len(found.ids) < engines and time.monotonic() < until:
                    time.sleep(0.02)
                assert len(found.ids) >= engines
                return
        time.sleep(0.05)
    raise AssertionError((cluster.ipython_dir / "log").read_text())


def _end(process: subprocess.Popen[bytes]) -> None:
    """The command first, which ends its own; then whatever is left of them."""
    ours = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10)
    _, left = psutil.wait_procs(ours, timeout=3)
    for each in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    psutil.wait_procs(left, timeout=30)  # being killed takes a moment too, on a busy machine
    process.wait(10)


@contextlib.contextmanager
def kernel_of(cluster: RunningCluster, folder: Path) -> Iterator[Kernel]:
    """A kernel with the extension loaded that finds the cluster by its profile."""
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    client = NotebookClient(nbformat.v4.new_notebook(), timeout=120, resources={"metadata": {"path": str(folder)}})
    with client.setup_kernel(env=os.environ | {"PYTHONPATH": paths, "IPYTHONDIR": str(cluster.ipython_dir)}):
        kernel = Kernel(client)
        assert not kernel.run("%load_ext torchbench_magic").error
        yield kernel


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Two engines for all tests; a test that kills one starts a cluster of its own (`running_cluster`)."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running
