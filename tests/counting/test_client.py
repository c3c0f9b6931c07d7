"""What cannot be counted, and what goes wrong while counting: each is told in one line, and the server lives."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from torchbench_magic.cell_body import Body
from torchbench_magic.counting import callgrind_file, client
from torchbench_magic.counting import lease as leases
from torchbench_magic.counting.client import CodeFailed, NotStarted, Server
from torchbench_magic.counting.count import Job, count_instructions
from torchbench_magic.errors import CountError, MissingTool
from torchbench_magic.process import send
from torchbench_magic.process.send import pack_variables, unpack_variables
from torchbench_magic.timing.plan import Counting, Plan
from torchbench_magic.timing.run import compare_bodies
from torchbench_magic.timing.task import Task

NAMES: dict[str, Any] = {"__name__": "__main__", "torch": torch, "x": torch.ones(4, 8)}


def total(server: Server, text: str, names: dict[str, Any] = NAMES, number: int = 1, **more: Any) -> int:
    return count_instructions(Job(Body(text, "<cell>"), names, number), server, **more)[0][0].total


# ---- variables ------------------------------------------------------------------------------------------------


def refused(value: Any, **more: Any) -> str:
    """What is said of a variable ``v`` that cannot travel: one line."""
    with pytest.raises(CountError) as caught:
        pack_variables(["v"], {"v": value}, **more)
    said = str(caught.value)
    assert "\n" not in said
    assert said.startswith("`v` (")
    return said


def test_a_generator_and_a_file_are_named_with_the_way_out(tmp_path: Path) -> None:
    assert "make `v` inside the statement" in refused(i for i in range(3))
    with open(tmp_path / "open.txt", "w") as file:
        assert "make `v` inside the statement" in refused(file)


def test_a_tensor_inside_an_object_is_told_with_the_name_of_the_variable() -> None:
    weight = torch.ones(3, requires_grad=True)
    assert "use .detach()" in refused({"inner": [weight * 2]})


def test_a_tensor_on_another_device_is_told_to_come_to_the_cpu() -> None:
    said = refused(torch.empty(3, device="meta"))
    assert "it is on meta, and only code on the CPU can be counted: use .cpu()" in said


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_tensor_on_the_gpu_is_told_to_come_to_the_cpu() -> None:
    assert "it is on cuda:0" in refused(torch.ones(3, device="cuda"))


def test_a_tensor_of_3_gib_is_refused_before_a_byte_of_it_is_read() -> None:
    big = torch.empty(3 << 30, dtype=torch.uint8)  # never written to: the system gives no memory for it
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "the tensors take more than 1024 MiB: count on smaller ones" in refused(big)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10  # KiB


def test_more_than_the_memory_that_is_free_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send, "memory_facts", lambda: {"MemAvailable": 1 << 20})
    with pytest.raises(CountError, match=r"takes 2 MiB, and 1 MiB of memory are free: count on smaller ones"):
        pack_variables(["v"], {"v": torch.ones(1 << 18)})


def test_a_small_tensor_travels_without_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: Any) -> int:
        raise OSError(38, "Function not implemented")

    for make in (os.memfd_create, none):
        monkeypatch.setattr(os, "memfd_create", make)
        before = set(os.listdir("/proc/self/fd"))
        with pack_variables(["v"], {"v": torch.arange(5)}) as parcel:
            there = unpack_variables(parcel.data, parcel.storages, {})
            assert there["v"].tolist() == [0, 1, 2, 3, 4]
        assert set(os.listdir("/proc/self/fd")) == before


def test_a_full_disk_is_told_when_tensors_cannot_be_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(send.os, "posix_fallocate", full)
    with pytest.raises(CountError, match=r"cannot be sent: No space left on device; free memory"):
        pack_variables(["v"], {"v": torch.ones(1 << 18)})


# ---- statements -----------------------------------------------------------------------------------------------


@pytest.mark.valgrind
@pytest.mark.slow
def test_code_that_sleeps_for_ever_is_stopped(server: Server) -> None:
    with pytest.raises(CountError, match="no count after 3 s"):
        total(server, "import time; time.sleep(1e9)", timeout=3)
    assert total(server, "x + 1") > 0


@pytest.mark.valgrind
@pytest.mark.slow
def test_code_that_starts_threads_is_counted_with_them(server: Server) -> None:
    work = "for i in range(20_000): i + i"
    alone = total(server, work)
    threaded = "import threading\ndef work():\n    for i in range(20_000): i + i\n"
    threaded += "t = threading.Thread(target=work)\nt.start()\nt.join()"
    # nearly all of it is the thread's; where in the heap the numbers lie moves the two by some per cent
    assert total(server, threaded) > 0.9 * alone
    sleeping = "import threading, time\nthreading.Thread(target=time.sleep, args=(1e9,), daemon=True).start()"
    assert total(server, sleeping) > 0  # the thread ends with its process


@pytest.mark.valgrind
@pytest.mark.slow
def test_100_mb_of_prints_go_nowhere(server: Server) -> None:
    directory = Path(server._lease.directory)
    before = sum(path.stat().st_size for path in directory.iterdir())
    assert total(server, "print('x' * 100_000_000)") > 0
    grown = sum(path.stat().st_size for path in directory.iterdir()) - before
    assert grown < 100_000  # valgrind's own logs grow when a process ends, which may be after its answer


@pytest.mark.valgrind
def test_code_that_ends_its_process_is_told(server: Server) -> None:
    for text in ("import os; os._exit(0)", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"):
        with pytest.raises(CountError, match="ended the counting process"):
            total(server, text)
    with pytest.raises(CodeFailed, match="SystemExit"):
        total(server, "import sys; sys.exit(1)")
    assert total(server, "x + 1") > 0


@pytest.mark.valgrind
@pytest.mark.slow
def test_code_that_forks_at_the_level_of_c_answers_once(server: Server) -> None:
    alone = total(server, "x + 1")
    assert total(server, "import ctypes; ctypes.CDLL(None).fork()") > 0
    assert total(server, "x + 1") == alone


# ---- the ground -----------------------------------------------------------------------------------------------


@contextmanager
def files_of_at_most(size: int, server: Server) -> Iterator[None]:
    """What the server's children write ends after so many bytes, as on a full disk."""
    assert server.pid is not None
    old = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (size, old[1]))
    try:
        yield
    finally:
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, old)


@pytest.mark.valgrind
@pytest.mark.parametrize("size", [0, 5000])
def test_a_full_disk_gives_an_error_and_no_number(server: Server, size: int) -> None:
    with files_of_at_most(size, server), pytest.raises(CountError, match="is the disk full"):
        total(server, "x + 1")
    assert total(server, "x + 1") > 0


@pytest.mark.valgrind
def test_a_count_that_was_cut_short_on_its_way_is_told(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    parse = callgrind_file.parse
    monkeypatch.setattr(client.callgrind_file, "parse", lambda text: parse(text[: len(text) // 2]))
    with pytest.raises(CountError, match=r"callgrind did not write its counts.*run the cell again"):
        total(server, "x + 1")


def test_a_directory_that_cannot_be_made_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: Any) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(leases.tempfile, "mkdtemp", full)
    monkeypatch.setattr(leases, "path_of_valgrind", lambda: "valgrind")
    with pytest.raises(NotStarted, match="cannot be started: No space left on device"):
        Server().start()


def test_without_valgrind_the_command_that_installs_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(MissingTool, match=r"not installed: `sudo apt-get install valgrind`"):
        Server().start()


def test_a_valgrind_that_cannot_run_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = tmp_path / "valgrind"
    stopped.write_text("#!/bin/sh\necho 'mmap: Operation not permitted' >&2\nexit 1\n")
    stopped.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    server = Server()
    with pytest.raises(NotStarted, match=r"did not start: mmap: Operation not permitted"):
        server.start()
    assert not server.is_alive


def test_another_processor_or_system_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    with pytest.raises(MissingTool, match=r"Linux with an x86_64 CPU; this is Darwin on arm64"):
        Server().start()


def test_the_times_of_a_cell_come_without_valgrind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(client, "_server", Server())
    bodies = {"add": Body("x + 1"), "mul": Body("x * 2")}
    plan = Plan(threads=(1,), min_run_time=0.01, max_run_time=0.01)
    result = compare_bodies(Task(bodies, namespace=NAMES, plan=plan, counting=Counting(10)))
    told = [doubt.text for doubt in result.warnings if doubt.kind == "not-counted"]
    assert len(told) == 1
    assert "apt-get install valgrind" in told[0]
    assert (result.frame["median"] > 0).all()
    assert not result.counts


# ---- with others ----------------------------------------------------------------------------------------------


@pytest.mark.valgrind
def test_the_server_is_not_seen_by_callgrind_control(server: Server) -> None:
    if shutil.which("callgrind_control") is None:
        pytest.skip("callgrind_control is not installed")
    seen = subprocess.run(["callgrind_control", "--stat"], capture_output=True, text=True).stdout
    assert f"PID {server.pid}:" not in seen
    assert str(server.pid) not in subprocess.run(["vgdb", "-l"], capture_output=True, text=True).stdout


@pytest.mark.valgrind
@pytest.mark.slow
def test_two_kernels_at_once_count_the_same_and_python_need_not_be_on_the_path(server: Server, tmp_path: Path) -> None:
    elsewhere = tmp_path / ("a directory of another length " + "x" * 60)
    elsewhere.mkdir()
    code = (
        "import torch\n"
        "from torchbench_magic.counting.client import the_server\n"
        "from torchbench_magic.counting.count import Job, count_instructions\n"
        "from torchbench_magic.cell_body import Body\n"
        "names = {'__name__': '__main__', 'torch': torch, 'x': torch.ones(4, 8)}\n"
        "the_server().start()\n"
        "print('started', flush=True)\n"
        "for text in ('x + 1', 'torch.relu(x @ x.t())', 'for i in range(50): i + i'):\n"
        "    print(count_instructions(Job(Body(text, '<another>'), names, 20), the_server())[0][0].total)\n"
    )
    root = str(Path(__file__).parents[2])
    path = os.path.dirname(str(shutil.which("valgrind")))
    if os.path.dirname(sys.executable) == path:
        pytest.skip("this Python is beside valgrind")
    environment = {**os.environ, "PYTHONPATH": root, "PATH": path, "TMPDIR": str(elsewhere)}
    environment["TORCHBENCH_MAGIC_COUNT_IDLE"] = "0"  # one of its own
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(50)]
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=environment, cwd=elsewhere, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    ours: list[int] = []
    texts = ("x + 1", "torch.relu(x @ x.t())", "for i in range(50): i + i")
    while process.poll() is None:  # both servers are busy at once
        ours = [total(server, text, number=20) for text in texts]
    for descriptor in held:
        os.close(descriptor)
    assert [int(line) for line in process.stdout.read().split()] == ours
