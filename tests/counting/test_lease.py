"""One process that counts for all kernels of a user: found, shared, left and ended; also one that hangs."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from torchbench_magic.counting import client, keeper
from torchbench_magic.counting import lease as leases
from torchbench_magic.counting.client import NotStarted, Server
from torchbench_magic.counting.lease import Lease

pytestmark = pytest.mark.valgrind

# ==== lease ===========================================================================================================
# One process that counts for all kernels of a user: found, shared, left and ended. Its program is a stand-in here.


ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="valgrind counts on Linux only")
STAND_IN = """\
#!{python}
# Reads what the counting process is told, says that it is ready, and forks for each byte, as that does.
import os, struct, sys, time
size, = struct.unpack("<Q", os.read(0, 8))
while size:
    size -= len(os.read(0, size))
open({starts!r}, "a").write(f"{{os.getpid()}}\\n")
os.write(0, b"R")
while os.read(0, 1):
    child = os.fork()
    if child == 0:
        time.sleep(1000)
    open({children!r}, "a").write(f"{{child}}\\n")
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Folders of their own, and a program in the place of valgrind; ``starts`` lists its processes."""
    program = tmp_path / "bin" / "valgrind"
    program.parent.mkdir()
    names = {"starts": str(tmp_path / "starts"), "children": str(tmp_path / "children")}
    program.write_text(STAND_IN.format(python=sys.executable, **names))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    yield tmp_path
    for pid in [*pids(tmp_path / "starts"), *pids(tmp_path / "children")]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def pids(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def folders(where: Path) -> list[Path]:
    return [*where.glob("torchbench-count-*")]


def wait_until(holds: Callable[[], Any]) -> None:
    while not holds():
        time.sleep(0.02)


def ready(idle: float = 0.2) -> Lease:
    taken = Lease.take((), idle)
    wait_until(lambda: taken.look(0.02))
    return taken


KERNEL = """
import os, sys, time, types
import tempfile
sys.modules["torch"] = types.SimpleNamespace(**{torch})  # all that is asked of it, without its import
from torchbench_magic.counting.lease import Lease
held = Lease.take((), {idle})
while not held.look(0.1):
    pass
{then}
print(held.pid, flush=True)
time.sleep(1000)
"""


def kernel(idle: float, then: str = "") -> subprocess.Popen[str]:
    asked = {"__file__": torch.__file__, "__version__": str(torch.__version__)}
    code = KERNEL.format(idle=idle, then=textwrap.dedent(then), torch=asked)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def heard(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


@ON_LINUX
@pytest.mark.slow
def test_two_kernels_share_one_and_it_ends_with_its_folders_when_both_were_gone_for_the_idle_time(place: Path) -> None:
    first = ready()
    other = kernel(idle=0.2)
    try:
        assert heard(other) == first.pid
        assert pids(place / "starts") == [first.pid]
        first.end()
        assert not gone(first.pid)  # the other still has it
    finally:
        other.kill()
        other.communicate()
    wait_until(lambda: gone(first.pid) and not folders(place))


@ON_LINUX
def test_the_kernel_that_started_it_may_end_and_the_next_finds_it_ready(place: Path) -> None:
    first = kernel(idle=60)
    pid = heard(first)
    first.kill()
    first.communicate()
    second = Lease.take((), 60)
    assert second.pid == pid
    wait_until(lambda: second.look(0.02))
    second.end(for_all=True)
    wait_until(lambda: gone(pid) and not folders(place))


@ON_LINUX
def test_without_an_idle_time_each_kernel_has_its_own_which_ends_with_it(place: Path) -> None:
    one, two = ready(idle=0), ready(idle=0)
    assert one.pid != two.pid
    assert not one.is_shared
    assert len(folders(place)) == 2  # none where kernels meet
    one.end()
    assert gone(one.pid)
    assert not gone(two.pid)
    two.end()
    assert gone(two.pid)
    wait_until(lambda: not folders(place))


@ON_LINUX
def test_what_counts_for_a_killed_kernel_is_ended_and_what_counts_for_others_is_not(place: Path) -> None:
    ours = ready(idle=60)
    count = """
        held.control.sendall(b"J")
        import pathlib
        children = pathlib.Path(os.environ["TMPDIR"], "children")
        while not children.exists():
            time.sleep(0.02)
        counting = held.counted_by(int(children.read_text()))
        counting.__enter__()
        pathlib.Path(held.directory, f"cost.{children.read_text().strip()}.1").touch()
    """
    other = kernel(60, count)
    try:
        assert heard(other) == ours.pid
        (theirs,) = pids(place / "children")
        assert ours.control is not None
        ours.control.sendall(b"J")
        wait_until(lambda: len(pids(place / "children")) == 2)
        mine = pids(place / "children")[1]
        with ours.counted_by(mine):
            other.kill()
            other.communicate()
            wait_until(lambda: gone(theirs))
            wait_until(lambda: not list(Path(ours.directory).glob("cost.*")))
            assert not gone(mine)
    finally:
        ours.end(for_all=True)
    wait_until(lambda: gone(mine))


@ON_LINUX
@pytest.mark.parametrize("difference", ["HOME", "program", "module"])
def test_kernels_that_would_start_another_process_do_not_share(
    place: Path, monkeypatch: pytest.MonkeyPatch, difference: str
) -> None:
    first = ready(idle=60)
    if difference == "HOME":
        monkeypatch.setenv("HOME", str(place))
    elif difference == "program":
        os.utime(place / "bin" / "valgrind", (1, 1))  # another version was installed
    second = Lease.take(("json",) if difference == "module" else (), 60)
    assert second.pid != first.pid
    for held in (first, second):
        held.end(for_all=True)
    wait_until(lambda: not folders(place))


@ON_LINUX
def test_where_another_user_answers_a_kernel_has_its_own_and_the_progress_says_so(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = ready(idle=60)
    told: list[str] = []
    asked: list[socket.socket] = []

    class Listening:
        def update(self, done: float, total: float | None, what: str) -> None:
            told.append(what)

    def peer(connection: socket.socket) -> tuple[int, int, int]:
        asked.append(connection)
        return 1, os.geteuid() + (len(asked) == 1), 0

    monkeypatch.setattr(leases, "peer", peer)
    server = Server(idle=60)
    server.start(Listening())
    pid = server.pid
    assert pid not in (None, others.pid)
    server.close()
    assert gone(pid)  # type: ignore[arg-type]
    assert all(what.endswith("once in a session") for what in told)
    others.end(for_all=True)


@ON_LINUX
@pytest.mark.parametrize("text", ["x", "-1", "nan", "inf", "1h", "\udc80"])
def test_an_idle_time_that_cannot_be_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("TORCHBENCH_MAGIC_COUNT_IDLE", text)
    with pytest.raises(NotStarted, match=r"^TORCHBENCH_MAGIC_COUNT_IDLE=.*: give seconds, or 0 if sessions are not"):
        Server().begin()


@ON_LINUX
def test_after_its_keeper_was_killed_the_next_job_starts_it_anew(place: Path) -> None:
    first = ready(idle=60)
    assert first._keeper is not None
    first._keeper.kill()
    wait_until(lambda: not first.is_alive)
    first.end()  # its ends of the sockets were the last
    wait_until(lambda: gone(first.pid))
    second = ready(idle=60)
    assert second.pid != first.pid
    second.end(for_all=True)


@ON_LINUX
def test_one_whose_folder_was_taken_away_is_replaced(place: Path) -> None:
    first = ready(idle=60)
    for file in Path(first.directory).iterdir():
        file.unlink()
    Path(first.directory).rmdir()
    second = ready(idle=60)
    assert second.pid != first.pid
    wait_until(lambda: gone(first.pid))
    assert ready(idle=60).pid == second.pid  # the one that ended has not taken the other's socket along
    second.end(for_all=True)


@ON_LINUX
def test_another_user_is_not_served_and_does_not_serve(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(leases, "peer", lambda connection: (1, os.geteuid() + 1, 0))
        with pytest.raises(PermissionError, match="another user"):
            Lease.take((), 60)
    monkeypatch.setattr(keeper, "peer", lambda connection: (os.getpid(), os.geteuid() + 1, 0))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    plan = {"command": [str(place / "bin" / "valgrind")], "directory": str(place), "path": [], "idle": 0}
    kept = keeper.Keeper(plan | {"listener": None, "kernel": theirs.detach()})
    assert ours.recv(100) == b""
    ours.close()
    kept._server.kill()
    kept._server.wait()
    kept._control.close()
    kept._jobs.close()
    kept._selector.close()


@ON_LINUX
def test_one_that_hangs_is_ended_for_all_kernels(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "bin" / "valgrind").write_text("#!/bin/sh\nsleep 1000\nexit 1\n")
    monkeypatch.setattr(client, "_MOST_START_SECONDS", 0.5)
    first, second = Server(idle=60), Server(idle=60)
    first.begin()
    with pytest.raises(NotStarted, match="was ended"):
        second.start()
    wait_until(lambda: not first.is_alive)
    first.close()
    wait_until(lambda: not folders(place))


# ==== leftovers =======================================================================================================
# A process that counts which hangs, or whose notebook is killed.


WATCHED_IN_PROC = pytest.mark.skipif(sys.platform != "linux", reason="valgrind's process is watched by /proc")


@pytest.fixture
def hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A valgrind that does nothing; all folders are made beside it."""
    program = tmp_path / "bin" / "valgrind"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho $$ > " + f"{tmp_path}/pid\nsleep 1000\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def counting_folders(where: Path) -> list[Path]:
    return list(where.glob("torchbench-count-*"))


@WATCHED_IN_PROC
def test_a_valgrind_that_hangs_is_ended_with_a_word(hanging: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_MOST_START_SECONDS", 0.5)
    server = Server(idle=0)
    with pytest.raises(NotStarted, match=r"takes 0 min at its start.*was ended: try `valgrind"):
        server.start()
    assert gone(int((hanging / "pid").read_text()))
    assert counting_folders(hanging) == []
    assert not server.is_alive


@WATCHED_IN_PROC
def test_a_killed_notebook_takes_a_hanging_valgrind_and_the_folder_along(hanging: Path) -> None:
    code = f"""
        import tempfile, time
        tempfile.tempdir = {str(hanging)!r}
        from torchbench_magic.counting.client import Server
        server = Server(idle=0)
        server.begin()
        print(server.pid, server._lease._keeper.pid, flush=True)
        time.sleep(1000)
    """
    notebook = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    assert notebook.stdout is not None
    pids = [int(word) for word in notebook.stdout.readline().split()]
    wait_until((hanging / "pid").exists)
    assert len(counting_folders(hanging)) == 1
    notebook.kill()
    notebook.wait()
    notebook.stdout.close()
    wait_until(lambda: not counting_folders(hanging) and all(map(gone, pids)))
