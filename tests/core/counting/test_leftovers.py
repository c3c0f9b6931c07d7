"""A process that counts which hangs, or whose notebook is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest

from torchbench_magic.counting import client, lease
from torchbench_magic.counting.client import NotStarted, Server

pytestmark = [
    pytest.mark.valgrind,
    pytest.mark.skipif(sys.platform != "linux", reason="valgrind's process is watched by /proc"),
]


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


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_until(holds: object) -> None:
    while not holds():  # type: ignore[operator]
        time.sleep(0.02)


def folders(where: Path) -> list[Path]:
    return list(where.glob("torchbench-count-*"))


def test_a_valgrind_that_hangs_is_ended_with_a_word(hanging: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_NO_PROGRESS_SECONDS", 0.5)
    server = Server(idle=0)
    with pytest.raises(NotStarted, match=r"does nothing for 0 s|does nothing for 1 s.*was ended: try `valgrind"):
        server.start()
    assert gone(int((hanging / "pid").read_text()))
    assert folders(hanging) == []
    assert not server.is_alive


def test_one_that_works_for_ever_is_ended_too(hanging: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (hanging / "bin" / "valgrind").write_text("#!/bin/sh\nwhile :; do :; done\n")
    monkeypatch.setattr(client, "_MOST_START_SECONDS", 1.0)
    server = Server(idle=0)
    with pytest.raises(NotStarted, match=r"takes 0 min at its start"):
        server.start()
    assert folders(hanging) == []


def test_it_is_held_while_something_else_is_measured_and_goes_on(hanging: Path) -> None:
    server = Server(idle=0)
    server.begin()
    pid = server.pid
    assert pid is not None

    def state() -> str:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

    try:
        assert server.hold()
        wait_until(lambda: state() == "T")
        server.go_on()
        wait_until(lambda: state() != "T")
        assert server.hold()
        server.begin()  # asked for, as by --callgrind in the next cell
        wait_until(lambda: state() != "T")
        assert server.hold()
    finally:
        server.close()  # also of one that is held
    assert gone(pid)
    assert not server.hold()


def test_nothing_that_starts_or_hangs_is_waited_for_by_a_cell_that_counts_nothing(
    hanging: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for patience in ("_NO_PROGRESS_SECONDS", "_MOST_START_SECONDS"):
        monkeypatch.setattr(client, patience, 1e6)  # who waited would do so for days
    server = Server(idle=0)
    monkeypatch.setattr(client, "_server", server)
    server.begin()
    try:
        with client.starting_held():
            assert server.is_alive
    finally:
        server.close()


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
    assert len(folders(hanging)) == 1
    notebook.kill()
    notebook.wait()
    notebook.stdout.close()
    wait_until(lambda: not folders(hanging) and all(map(gone, pids)))


def test_the_next_start_sweeps_folders_that_nobody_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    held, left, just_made, old = (lease.new_directory() for _ in range(4))
    lock = lease.locked_output(held)
    lease.locked_output(left).close()
    os.utime(old, (1, 1))
    (tmp_path / "torchbench-count-link").symlink_to(tmp_path)
    try:
        assert sorted(lease.remove_leftovers()) == sorted([left, old])
        assert Path(held).is_dir()
        assert Path(just_made).is_dir()
        assert tmp_path.is_dir()
    finally:
        lock.close()
    assert lease.remove_leftovers() == [held]
