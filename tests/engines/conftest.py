"""A real cluster of ipyparallel with two engines, started by the tests and ended surely.

Nothing of it is waited for by the clock, however busy the machine is: `PATIENT` in a kernel, `patience` here.
"""

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

from tests.kernel.conftest import Kernel, by_files  # noqa: E402
from torchbench_magic.cluster import engines  # noqa: E402
from torchbench_magic.cluster.engines import Cluster, connected  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
PROFILE = "engines"
LONG = 1e6
PATIENT = f"""\
from torchbench_magic.cluster import engines
engines._CONTROLLER_ANSWERS_WITHIN = engines._OUTPUT_WITHIN = engines.BUSY_AFTER = {LONG}
engines.Asking.interrupt.__defaults__ = ({LONG},)
engines.probe.__kwdefaults__["deadline"] = {LONG}
del engines
"""
"""An engine that does not answer yet is neither busy nor silent nor lost."""


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

    def still_runs(self) -> None:
        assert self.process.poll() is None, (self.ipython_dir / "log").read_text()


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
        with patience():
            _wait_for(made, engines)
        yield made
    finally:
        _end(process)


def _wait_for(cluster: RunningCluster, engines: int) -> None:
    file = cluster.ipython_dir / f"profile_{PROFILE}" / "security" / "ipcontroller-client.json"
    while not (file.exists() and file.stat().st_size):
        cluster.still_runs()
        time.sleep(0.02)
    with cluster.connected() as found:
        while len(found.ids) < engines:
            cluster.still_runs()
            time.sleep(0.02)


@contextlib.contextmanager
def one_more_engine(cluster: RunningCluster, folder: Path, customize: str = "") -> Iterator[int]:
    """An engine of the cluster whose Python begins with this text; its process id."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(customize)
    command = [sys.executable, "-m", "ipyparallel.engine", f"--ipython-dir={cluster.ipython_dir}"]
    command += [f"--profile={cluster.profile}"]
    paths = os.pathsep.join([str(folder), str(ROOT)])
    with cluster.connected() as found:
        before = len(found.ids)
        process = subprocess.Popen(
            command, env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            while len(found.ids) == before:
                assert process.poll() is None
                time.sleep(0.02)
            yield process.pid
        finally:
            process.kill()
            process.wait()
            while len(found.ids) > before:  # the controller misses its heart
                time.sleep(0.02)


def until_exists(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


@contextlib.contextmanager
def patience() -> Iterator[pytest.MonkeyPatch]:
    """In this process, as `PATIENT` in a kernel."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(engines, "_CONTROLLER_ANSWERS_WITHIN", LONG)
        patched.setattr(engines, "_OUTPUT_WITHIN", LONG)
        patched.setattr(engines, "BUSY_AFTER", LONG)
        patched.setattr(engines.Asking.interrupt, "__defaults__", (LONG,))
        patched.setitem(engines.probe.__kwdefaults__, "deadline", LONG)
        yield patched


@pytest.fixture(autouse=True)
def patient() -> Iterator[None]:
    with patience():
        yield


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
    psutil.wait_procs(left)
    process.wait()


@contextlib.contextmanager
def kernel_of(cluster: RunningCluster, folder: Path) -> Iterator[Kernel]:
    """A kernel with the extension loaded that finds the cluster by its profile."""
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    client = NotebookClient(
        nbformat.v4.new_notebook(), timeout=None, startup_timeout=10**6, iopub_timeout=10**6,
        resources={"metadata": {"path": str(folder)}}, config=by_files(),
    )  # fmt: skip
    with client.setup_kernel(env=os.environ | {"PYTHONPATH": paths, "IPYTHONDIR": str(cluster.ipython_dir)}):
        kernel = Kernel(client)
        assert not kernel.run(f"%load_ext torchbench_magic\n{PATIENT}").error
        yield kernel


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Two engines for all tests; one that kills engines has more (`one_more_engine`) or a cluster of its own."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running
