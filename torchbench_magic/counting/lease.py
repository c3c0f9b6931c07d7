"""A session's hold on a process that counts: how it is started, shared, recognised, and cleaned up after."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from torchbench_magic.errors import MissingTool

from .client_requests import why_unsupported
from .keeper import peer

# ---- start_digest ----------------------------------------------------------------------------------------------------
# Which kernels may share one process that counts: those in which it would start as the same process.

_PACKAGE = Path(__file__).parents[1]


def start_digest(command: Sequence[str], environment: Mapping[str, str], path: Sequence[str]) -> str:
    """A digest of what decides how a process that counts starts, and whom it can serve.

    Of what it reads while it starts the times of change stand for the contents: valgrind, Python, torch, this package.

    Args:
        command: what is started, without the names of folders that are made anew each time.
        environment: of it.
        path: folders of modules that it is told.
    """
    import torch

    files = [command[0], sys.executable, torch.__file__, *path, *sorted(map(str, _PACKAGE.rglob("*.py")))]
    spaces = [os.readlink(f"/proc/self/ns/{name}") for name in ("pid", "mnt")]  # numbers and folders mean the same
    whole = [list(command), dict(environment), list(path), sys.version, torch.__version__, spaces]
    return hashlib.sha256(json.dumps([*whole, *map(_stamp, files)]).encode()).hexdigest()[:32]


def _stamp(name: str) -> list[Any]:
    try:
        found = os.stat(name)
    except OSError:
        return [name]
    return [name, found.st_ino, found.st_mtime_ns]


# ---- lease -----------------------------------------------------------------------------------------------------------
# A kernel's hold on a process that counts: its own, or one that all its user's kernels of an environment share.
#
# Starting takes half a minute, so a shared one stays for a while after its last kernel
# (``TORCHBENCH_MAGIC_COUNT_IDLE``). Kernels find it by a socket of Linux's abstract names, which ends with the process
# that holds it and needs no file; both sides ask the system who is at the other end. Its name is a digest of what was
# started (`start_digest`): kernels that would start another process, after ``pip install`` for instance, do not meet
# it.

_IDLE_VARIABLE = "TORCHBENCH_MAGIC_COUNT_IDLE"
_IDLE_SECONDS = 7200.0
"""For lunch and a meeting; it holds about 300 MB."""
_HELLO_SECONDS = 10.0
_AGAIN = 0.02
_END_SECONDS = 5.0
_KEEPER = str(Path(__file__).with_name("keeper.py"))


def idle_seconds() -> float:
    """For how long a process that counts waits for the next kernel; 0: none is shared.

    Raises:
        ValueError: the variable is no such number.
    """
    text = os.environ.get(_IDLE_VARIABLE, "")
    try:
        seconds = float(text) if text else _IDLE_SECONDS
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise ValueError(f"{_IDLE_VARIABLE}={ascii(text)[:40]}: give seconds, or 0 if sessions are not to share")
    return seconds


class Lease:
    """A process that counts, as long as this kernel wants it.

    Attributes:
        pid: of the counting process, which leads a group.
        directory: what it writes; private.
        began: when it was started (`time.monotonic`).
        is_shared: it may serve other kernels too.
        control, jobs: where it is told of a job, and takes its connection; None until it takes jobs.
    """

    def __init__(self, connection: socket.socket, keeper: subprocess.Popen[bytes] | None, idle: float) -> None:
        self._connection, self._keeper = connection, keeper
        self.is_shared = idle > 0
        self.control: socket.socket | None = None
        self.jobs: socket.socket | None = None
        try:
            self._greet(idle)
        except BaseException:
            connection.close()
            raise

    def _greet(self, idle: float) -> None:
        connection = self._connection
        if peer(connection)[1] != os.geteuid():
            raise PermissionError("it belongs to another user")
        if not select.select([connection], [], [], _HELLO_SECONDS)[0]:
            raise ConnectionError("its owner does not answer")
        hello = connection.recv(4096)
        if not hello:
            raise ConnectionError("its owner has just ended")
        known = json.loads(hello)
        self.pid: int = known["pid"]
        self.directory: str = known["directory"]
        self.began: float = known["began"]
        self._tell(f"idle {idle}")

    @classmethod
    def take(cls, preloaded: Sequence[str], idle: float) -> Self:
        """Start one, or find the one that is there.

        Args:
            preloaded: modules that it imports besides torch.
            idle: seconds for which it waits for the next kernel; 0: it serves this one only.

        Raises:
            MissingTool: no valgrind.
            OSError: it cannot be started.
        """
        program, environment, path = path_of_valgrind(), counting_environment(), start_path()
        plan = {"path": path, "idle": idle, "listener": None, "kernel": None}
        if idle:
            folders = tempfile.gettempdir(), os.environ.get("XDG_RUNTIME_DIR", "")
            words = [program, *folders, *valgrind_command(program, "", preloaded)]
            with contextlib.suppress(PermissionError):  # another user has taken the name
                return cls._shared(start_digest(words, environment, path), plan, program, preloaded)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            return cls._of_new(ours, plan | {"idle": 0, "kernel": theirs.fileno()}, program, preloaded)

    @classmethod
    def _shared(cls, digest: str, plan: dict[str, Any], program: str, preloaded: Sequence[str]) -> Self:
        name = f"\0torchbench_magic-{os.geteuid()}-{digest}"
        until = time.monotonic() + _HELLO_SECONDS
        while True:
            with contextlib.suppress(ConnectionError, TimeoutError):
                lease = cls(_connected(name), None, plan["idle"])
                if os.path.isdir(lease.directory):
                    return lease
                lease.end(for_all=True)  # it cannot write its counts: let it end, for the next that asks
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
                try:
                    listener.bind(name)
                except OSError:  # another kernel is just starting it, or it is just ending
                    if time.monotonic() > until:
                        raise PermissionError("that of another session does not answer") from None
                    time.sleep(_AGAIN)
                    continue
                listener.listen(64)
                shared = plan | {"listener": listener.fileno()}
                return cls._of_new(_connected(name), shared, program, preloaded, listener)

    @classmethod
    def _of_new(
        cls,
        connection: socket.socket,
        plan: dict[str, Any],
        program: str,
        preloaded: Sequence[str],
        listener: socket.socket | None = None,
    ) -> Self:
        """Start the keeper of a new one; ``connection`` leads to it, by its ``listener`` where it has one."""
        directory = tempfile.mkdtemp(prefix="torchbench-count-")  # 0700
        whole = plan | {"directory": directory, "command": valgrind_command(program, directory, preloaded)}
        try:
            with open(os.path.join(directory, "output"), "wb") as output:
                keeper = subprocess.Popen(
                    [sys.executable, "-I", "-S", _KEEPER, json.dumps(whole)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=output,
                    env=counting_environment(),
                    cwd="/",
                    pass_fds=[end for end in (plan["listener"], plan["kernel"]) if end is not None],
                    start_new_session=True,  # Ctrl-C is the notebook's
                )
            if listener is not None:
                listener.close()  # where the keeper ends, the connection is to end too
            return cls(connection, keeper, plan["idle"])
        except BaseException:
            connection.close()
            shutil.rmtree(directory, ignore_errors=True)
            raise

    @property
    def is_alive(self) -> bool:
        """Whether the counting process runs, as its keeper says."""
        try:
            return self._connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def has_ended(self, within: float) -> bool:
        """Whether the counting process ends in so many seconds."""
        select.select([self._connection], [], [], within)
        return not self.is_alive

    def look(self, seconds: float) -> bool:
        """Whether it takes jobs; waits so long for that."""
        if self.control is None and select.select([self._connection], [], [], seconds)[0]:
            with contextlib.suppress(OSError):
                message, descriptors, _, _ = socket.recv_fds(self._connection, 8, 2)
                if message == b"R":
                    self.control, self.jobs = (socket.socket(fileno=descriptor) for descriptor in descriptors)
        return self.control is not None

    @contextlib.contextmanager
    def counted_by(self, child: int) -> Iterator[None]:
        """If this kernel is killed within, the keeper ends that process."""
        self._tell(f"+{child}")
        try:
            yield
        finally:
            self._tell(f"-{child}")

    def end(self, *, for_all: bool = False) -> None:
        """Give it up.

        Args:
            for_all: it is of no use to other kernels either.
        """
        if for_all:
            self._tell("end")
        for end in (self._connection, self.control, self.jobs):
            if end is not None:
                end.close()
        if self._keeper is None or self._keeper.poll() is not None:
            return
        if for_all or not self.is_shared:
            try:
                self._keeper.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._keeper.kill()
                self._keeper.wait()
            shutil.rmtree(self.directory, ignore_errors=True)  # as a rule it is gone

    def _tell(self, text: str) -> None:
        with contextlib.suppress(OSError):  # it has ended: `is_alive` tells
            self._connection.send(text.encode())


def _connected(name: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.settimeout(_HELLO_SECONDS)
        connection.connect(name)
        connection.settimeout(None)
    except BaseException:
        connection.close()
        raise
    return connection


# ---- the start -------------------------------------------------------------------------------------------------------

_BOOT = """\
import sys
sys.prefix = sys.exec_prefix = sys.argv[2]
import ctypes, json, mmap, pickle, platform, shutil, socket, struct, typing
from importlib import util
sys.pycache_prefix = "/dev/null"
spec = util.spec_from_file_location("torchbench_magic", sys.argv[1] + "/__init__.py")
sys.modules[spec.name] = package = util.module_from_spec(spec)
spec.loader.exec_module(package)
from torchbench_magic.counting.server import main
main()
"""
_NEEDED = ("torch", "numpy", "cloudpickle", "typing_extensions.py", "sympy", "mpmath", "networkx", "jinja2", "fsspec")
"""What torch, and what unpickles a job, import: the directory that brings one of them is on the server's path. Python's
own directories are there already: it is the same Python."""


def valgrind_command(program: str, directory: str, preloaded: Sequence[str] = ()) -> list[str]:
    """What is started; after valgrind's own options the same words in every notebook of one environment.

    Args:
        preloaded: modules that it imports besides torch.
    """
    return [
        program,
        "--tool=callgrind",
        "--instr-atstart=no",
        "--collect-atstart=yes",  # of threads that start; the server's own is switched by hand
        "--num-transtab-sectors=2",  # of 32: most of what starting translates is never run again, and is 75 MiB
        "--vex-iropt-level=1",  # of 2: what is translated is run once, as a rule
        "--vgdb=no",  # not seen by callgrind_control, which torch's own collector uses
        f"--callgrind-out-file={directory}/cost.%p",
        f"--log-file={directory}/log.%p",
        *(sys.executable, "-P", "-S", "-c", _BOOT, str(Path(__file__).parents[1]), sys.prefix, *preloaded),
    ]


def counting_environment() -> dict[str, str]:
    """Small, and the same in every kernel: its size alone moves counts by up to 1.6 %."""
    fixed = {"LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
    quiet = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    taken = {name: os.environ[name] for name in ("HOME", "LD_LIBRARY_PATH") if name in os.environ}
    return taken | fixed | quiet | {"PATH": "/usr/local/bin:/usr/bin:/bin"}  # a job brings the notebook's own


def start_path() -> list[str]:
    """What the server needs of the module path to import torch.

    Directories of the notebook are not among it, nor what a package adds as it is imported: each entry more moves the
    server's heap, and with it counts. A job brings the rest.
    """
    import torch

    kept, found = [], set[str]()
    for entry in sys.path:
        brought = {name for name in _NEEDED if entry and os.path.exists(os.path.join(entry, name))} - found
        if brought:  # not so a copy that comes later: setuptools, once imported, adds a folder that has some of them
            kept.append(entry)
            found |= brought
    return list(dict.fromkeys([*kept, str(Path(torch.__file__).parents[1])]))


def path_of_valgrind() -> str:
    """The path of valgrind.

    Raises:
        MissingTool: with the command that installs it, or what else stands in the way.
    """
    if why := why_unsupported():
        raise MissingTool(why)
    found = shutil.which("valgrind")
    if found is None:
        raise MissingTool(
            "instructions are counted by valgrind, which is not installed: `sudo apt-get install valgrind`, or"
            " `conda install -c conda-forge valgrind`"
        )
    return found
