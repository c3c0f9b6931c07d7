"""Counting in the process under valgrind, for real."""

from __future__ import annotations

import ast
import json
import os
import signal
import stat
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from torchbench_magic.cell_body import Body
from torchbench_magic.counting import lease as leases
from torchbench_magic.counting.client import CodeFailed, Server
from torchbench_magic.counting.count import Job, count_instructions
from torchbench_magic.errors import BodyError, CountError

from .test_lease import wait_until

pytestmark = pytest.mark.valgrind

NOTEBOOK = """
import torch
SCALE = 2.0
def scaled(x):
    return x * SCALE
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(8, 8)
    def forward(self, x):
        return scaled(self.inner(x))
def counter():
    seen = 0
    def bump():
        nonlocal seen
        seen += 1
        return seen
    return bump
net, x, bump = Net(), torch.randn(4, 8), counter()
part = x[1:3]
base = torch.randn(64, 64)
"""


@pytest.fixture
def names() -> dict[str, Any]:
    """A notebook's names: its functions and classes belong to ``__main__``."""
    made: dict[str, Any] = {"__name__": "__main__"}
    exec(NOTEBOOK, made)
    return made


def total(server: Server, text: str, names: dict[str, Any], number: int = 20, **more: Any) -> int:
    return count_instructions(Job(Body(text, "<cell>"), names, number, **more), server)[0][0].total


@pytest.mark.one_of_each
def test_a_second_count_is_the_same_number(server: Server, names: dict[str, Any]) -> None:
    assert total(server, "base * base", names) == total(server, "base * base", names) > 1000


def test_many_counts_of_one_code_are_the_same_number(server: Server, names: dict[str, Any]) -> None:
    for text in ("base * base", "net(x)", "bump()"):
        assert len({total(server, text, names) for _ in range(4)}) == 1, text


def test_another_stride_and_another_helper_are_another_count(server: Server, names: dict[str, Any]) -> None:
    straight = total(server, "base * base", names)
    names["base"] = names["base"].t()[::2].t()
    assert total(server, "base * base", names) != straight
    before = total(server, "scaled(x)", names)
    exec("def scaled(x):\n    return x * SCALE + 1", names)
    assert total(server, "scaled(x)", names) > before


def test_the_empty_loop_is_counted_apart(server: Server, names: dict[str, Any]) -> None:
    statement, empty = count_instructions(Job(Body("pass"), names, 50), server)[0]
    assert statement.exclusive == empty.exclusive
    statement, empty = count_instructions(Job(Body("x + 1"), names, 50), server)[0]
    assert statement.total > 10 * empty.total
    assert any("at::native" in name or "TensorIterator" in name for name in statement.exclusive)


def test_views_share_their_storage_and_parameters_are_parameters(server: Server, names: dict[str, Any]) -> None:
    total(server, "part.add_(1); assert x[1, 0] == part[0, 0]", names, 3)
    total(server, "w = net.inner.weight\nassert w.requires_grad and isinstance(w, torch.nn.Parameter)", names, 3)
    total(server, "assert part.stride() == (8, 1) and part.storage_offset() == 8", names, 3)


def test_cell_and_functions_share_their_globals(server: Server, names: dict[str, Any]) -> None:
    exec("total = 0\ndef grow():\n    global total\n    total += 1", names)
    total(server, "before = total\ngrow()\nassert total == before + 1", names, 3)
    assert names["total"] == 0


def test_a_module_beside_the_notebook_is_found(
    server: Server, names: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beside_the_notebook.py").write_text("def f(x):\n    return x + 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    exec("import beside_the_notebook", names)
    assert total(server, "beside_the_notebook.f(x)", names) > 0


@pytest.mark.slow
def test_the_module_form_counts_what_torch_counts(server: Server, names: dict[str, Any]) -> None:
    code = "for i in range(200):\n    i + i"
    looked_up, local = total(server, code, names, form="module"), total(server, code, names)
    assert looked_up > 1.5 * local  # names at the level of a module are looked up by their text
    assert total(server, "x", names, 250, form="module") > total(server, "x", names, 150, form="module")


def test_grad_mode_and_threads_are_the_notebooks(server: Server, names: dict[str, Any]) -> None:
    with torch.no_grad():
        total(server, "assert not torch.is_grad_enabled()", names, 2)
    total(server, "assert torch.is_grad_enabled() and torch.get_num_threads() == 1", names, 2)


@pytest.mark.slow
def test_other_settings_of_torch_are_the_notebooks(server: Server, names: dict[str, Any]) -> None:
    with torch.autocast("cpu"), torch.inference_mode():
        total(server, "assert torch.is_autocast_enabled('cpu') and torch.is_inference_mode_enabled()", names, 2)
    torch.set_default_device("meta")
    try:
        total(server, "assert torch.empty(1).device.type == 'meta' and torch.is_grad_enabled()", names, 2)
    finally:
        torch.set_default_device(None)
    total(server, "assert torch.empty(1).device.type == 'cpu' and not torch.is_autocast_enabled('cpu')", names, 2)
    total(server, "assert torch.get_num_threads() == 2", names, 2, threads=2)


def test_counts_at_two_threads_are_the_sum_over_them(server: Server, names: dict[str, Any]) -> None:
    names["big"] = torch.ones(1 << 18)
    one, two = (total(server, "big + big", names, 5, threads=threads) for threads in (1, 2))
    assert one < two < 1.1 * one  # the work is the same and shared out; one thread's part would be half of it


@pytest.mark.slow
def test_names_file_and_directory_do_not_move_a_count(
    server: Server, names: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names["a_name_that_is_much_longer_than_base"] = names["base"]
    first = total(server, "base * base", names)
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.chdir(deep)
    longer = "a_name_that_is_much_longer_than_base * a_name_that_is_much_longer_than_base"
    for text in ("base * base", longer):
        for file in ("<timer-1>", "<timer-1234>", "/tmp/ipykernel_4194303/1234567890.py"):
            assert count_instructions(Job(Body(text, file), names, 20), server)[0][0].total == first, (text, file)


class Sending:
    """Sends some more objects with each job: reading them looks at their classes."""

    def __init__(self, server: Server, more: list[object]) -> None:
        self.server, self.more = server, more

    def count(self, job: dict[str, Any], **options: Any) -> Any:
        return self.server.count({**job, "more": self.more}, **options)


@pytest.mark.slow
def test_the_classes_that_were_looked_at_before_do_not_move_a_count(server: Server, names: dict[str, Any]) -> None:
    """CPython numbers types as they are first looked at; the numbers decide where it keeps what it found in them."""
    kinds = sorted((kind for kind in vars(ast).values() if isinstance(kind, type)), key=lambda kind: kind.__name__)
    nodes = [kind(lineno=1) for kind in kinds if issubclass(kind, ast.stmt)]
    found = {
        count: count_instructions(Job(Body("net(x)", "<cell>"), names, 100), Sending(server, nodes[:count]))[0][0].total  # type: ignore[arg-type]
        for count in (0, 1, 2, 3, 5, 8, 13, 21)
    }
    assert len(nodes) > 21
    assert len(set(found.values())) == 1, found


@pytest.mark.parametrize("text", ["net(x)", "sorted({str(i): [i] for i in range(20)})"])
@pytest.mark.slow
def test_what_a_notebook_sends_with_a_job_does_not_move_a_count(
    server: Server, names: dict[str, Any], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def by_function() -> dict[str, int]:
        return dict(count_instructions(Job(Body(text, "<cell>"), names, 100), server)[0][0].exclusive)

    first = by_function()
    path = os.environ["PATH"]
    for entries, length in ((1, 10), (3, 150), (20, 1000), (100, 5000), (1, 150_000)):
        monkeypatch.setattr(sys, "path", [*sys.path, *(f"/nowhere/{i}" + "x" * length for i in range(entries))])
        monkeypatch.setenv("PATH", f"{path}:/nowhere/" + "y" * length)
        again = by_function()
        moved = {name: (first.get(name, 0), again.get(name, 0)) for name in {*first, *again}}
        assert not {name: counts for name, counts in moved.items() if counts[0] != counts[1]}, (entries, length)


def test_a_statement_finds_all_of_torch_that_the_notebook_has(server: Server, names: dict[str, Any]) -> None:
    assert total(server, "assert torch._meta_registrations.__file__ and not hasattr(torch, 'no_such')", names, 1) > 0
    with pytest.raises(CodeFailed, match="has no attribute 'no_such_name'"):
        total(server, "torch.no_such_name", names, 1)


def test_an_exception_has_the_line_of_the_cell(server: Server, names: dict[str, Any]) -> None:
    with pytest.raises(CodeFailed, match="ZeroDivisionError") as caught:
        count_instructions(Job(Body("a = 1\nb = a / 0", "<cell>", first_line=5), names, 2), server)
    assert [line for file, line in caught.value.frames if file == "<cell>"] == [6]


def test_what_cannot_travel_is_named_before_valgrind_works(names: dict[str, Any]) -> None:
    idle = Server(idle=0)
    names |= {"gen": (i for i in range(3)), "lock": threading.Lock()}
    for text, told in (
        ("next(gen)", r"`gen` \(generator\) cannot be sent"),
        ("lock.locked()", r"`lock` \(_thread.lock\) cannot be sent"),
        ("y + 1", r"`y` \(torch.Tensor\).*use \.detach\(\)"),
    ):
        names["y"] = names["net"](names["x"])
        with pytest.raises(CountError, match=told):
            total(idle, text, names)
    assert idle.pid is None


def test_code_that_awaits_is_refused(names: dict[str, Any]) -> None:
    with pytest.raises(BodyError, match="await"):
        total(Server(), "await x", names)


def test_a_crash_is_told_with_its_reason_and_the_server_lives(server: Server, names: dict[str, Any]) -> None:
    before = server.pid
    with pytest.raises(CountError, match=r"crashed under valgrind.*SIGSEGV"):
        total(server, "import ctypes; ctypes.string_at(0)", names, 1)
    with pytest.raises(CountError, match=r"ended the counting process"):
        total(server, "import os; os._exit(3)", names, 1)
    assert total(server, "x + 1", names) > 0
    assert server.pid == before


@pytest.mark.slow
def test_code_that_takes_too_long_is_stopped(server: Server, names: dict[str, Any]) -> None:
    with pytest.raises(CountError, match=r"no count after 2 s: use fewer calls"):
        count_instructions(Job(Body("while True: pass"), names, 1), server, timeout=2)
    assert total(server, "x + 1", names) > 0


def test_an_interrupt_ends_the_job_and_leaves_no_process(
    server: Server, names: dict[str, Any], tmp_path: Path
) -> None:
    there = tmp_path / "there"

    def interrupt() -> None:
        wait_until(there.exists)
        os.kill(os.getpid(), signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)

    def stopped() -> None:
        interrupting.start()
        total(server, f"open({str(there)!r}, 'w').close()\nwhile True: pass", names, 1)

    with pytest.raises(KeyboardInterrupt):
        stopped()
    interrupting.join()
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children")
    wait_until(lambda: not children.read_text().split())


def test_prints_and_forks_do_no_harm(server: Server, names: dict[str, Any]) -> None:
    assert total(server, "print('x' * 100_000)", names, 10) > 0
    assert total(server, "import os\nos.waitpid(os.fork(), 0)", names, 2) > 0


def test_three_jobs_at_once_count_what_each_counts_alone(server: Server, names: dict[str, Any]) -> None:
    found: list[int] = []
    jobs = [threading.Thread(target=lambda: found.append(total(server, "base + base", names))) for _ in range(3)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert found == [total(server, "base + base", names)] * 3


def test_the_directory_is_private_and_nothing_stays_in_it(
    server: Server, names: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = Path(server._lease.directory)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    children, clean_up = [], Server._clean_up  # tests of another worker may count in the same directory
    monkeypatch.setattr(server, "_clean_up", lambda lease, child: (children.append(child), clean_up(lease, child)))
    total(server, "x + 1", names)
    with pytest.raises(CodeFailed):
        total(server, "1 / 0", names)
    assert len(set(children)) == 2
    there = {path.name.split(".")[1] for path in directory.glob("*.*")}
    assert there.isdisjoint(map(str, children))


def test_a_shifted_layout_is_the_same_code(server: Server, names: dict[str, Any]) -> None:
    plain, *shifted = count_instructions(Job(Body("base + base"), names, 50), server, layouts=3)
    assert len(shifted) == 2
    for statement, _ in shifted:
        assert statement.total == pytest.approx(plain[0].total, rel=0.03)


@pytest.mark.slow
def test_another_kernel_is_served_by_the_same_process_with_the_same_numbers(server: Server) -> None:
    code = (
        "import torch\n"
        "from torchbench_magic.counting.client import the_server\n"
        "from torchbench_magic.counting.count import Job, count_instructions\n"
        "from torchbench_magic.cell_body import Body\n"
        "names = {'__name__': '__main__', 'torch': torch, 'x': torch.ones(4, 8)}\n"
        "job = Job(Body('x @ x.t()', '<another>'), names, 20)\n"
        "print(count_instructions(job, the_server())[0][0].total, the_server().pid)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    theirs, pid = map(int, done.stdout.split())
    assert pid == server.pid
    assert theirs == total(server, "x @ x.t()", {"__name__": "__main__", "x": torch.ones(4, 8)}, 20)
    assert server.pid == pid  # and it goes on when that kernel has ended


@pytest.mark.slow
def test_a_killed_server_is_told_and_the_next_call_starts_another(
    server: Server, names: dict[str, Any], tmp_path: Path
) -> None:
    before, first, gone = total(server, "base * base", names), server.pid, Path(server._lease.directory)
    assert first is not None
    there = tmp_path / "there"

    def kill() -> None:
        wait_until(there.exists)
        os.kill(first, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(CountError, match="was killed; run the cell again"):
        total(server, f"open({str(there)!r}, 'w').close()\nwhile True: pass", names, 1)
    killer.join()
    assert total(server, "base * base", names) == before  # over restarts too
    assert server.pid != first
    wait_until(lambda: not gone.exists())


@pytest.mark.slow
def test_the_server_is_gone_with_the_notebook(tmp_path: Path) -> None:
    code = (
        "import os\nfrom torchbench_magic.counting.client import Server\ns = Server(idle=0)\n"
        "s.begin()\nprint(s.pid, s._lease.directory, flush=True)\nos._exit(0)\n"
    )
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": root}
    )
    process, directory = done.stdout.split()
    wait_until(lambda: not os.path.exists(f"/proc/{process}") and not os.path.exists(directory))


def test_what_a_package_adds_to_the_path_is_not_told_to_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """setuptools, once imported, adds a folder with copies: with it a server's counts were others."""
    before = leases.start_path()
    assert any((Path(entry) / "torch").is_dir() for entry in before)
    (tmp_path / "typing_extensions.py").touch()
    (tmp_path / "mine.py").touch()
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path), str(tmp_path / "not there")])
    assert leases.start_path() == before


def test_while_it_imports_the_server_looks_into_no_folder_of_a_project() -> None:
    """Python keeps the names of the files in a folder of its path: a file more or less in the folder of a project that
    is installed with ``pip install -e`` moved counts by 0.02 %."""
    words = leases.valgrind_command("valgrind", "/nowhere")
    python = words[words.index(sys.executable) :]
    boot = python.index("-c") + 1
    told = "print(json.dumps([sys.path, sys.prefix, 'site' in sys.modules]))\n"
    python[boot] = python[boot].replace("main()\n", told)
    environment = leases.counting_environment()
    ran = subprocess.run(python, env=environment, capture_output=True, text=True, check=True, cwd="/")
    path, prefix, has_read_pth_files = json.loads(ran.stdout)
    standard = os.path.dirname(os.__file__)
    assert all(entry.startswith(standard) or entry.endswith(".zip") for entry in path), path
    assert prefix == sys.prefix
    assert not has_read_pth_files


def test_in_the_end_the_server_has_what_pth_files_add(server: Server, names: dict[str, Any]) -> None:
    text = "import sys, sysconfig\nassert 'site' in sys.modules\nassert sysconfig.get_paths()['purelib'] == installed"
    assert total(server, text, names | {"installed": sysconfig.get_paths()["purelib"]}, 1) > 0
