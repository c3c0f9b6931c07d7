"""What the machine code assumes, each assumption simulated not to hold: what is said, and what still works."""

from __future__ import annotations

import ctypes
import platform
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from torchbench_magic.cell_text import Body
from torchbench_magic.counting import client, client_requests, launch, level_heap
from torchbench_magic.counting.client import NotStarted, Server
from torchbench_magic.errors import MissingTool
from torchbench_magic.timing.plan import Counting, Plan
from torchbench_magic.timing.run import compare_bodies
from torchbench_magic.timing.task import Task

is_here = pytest.mark.skipif(not client_requests.is_supported(), reason="the machine code is for x86_64 Linux")


def is_arm(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    return r"x86_64 CPU; this is \w+ on aarch64"


def is_mac(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    return r"on Linux with an x86_64 CPU; this is Darwin"


def is_of_32_bits(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "maxsize", 2**31 - 1)
    return "x86_64 CPU"


def is_free_threaded(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "abiflags", "t")
    return "this Python is free-threaded"


def is_another_python(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "implementation", SimpleNamespace(name="pypy"))
    return "this Python is pypy"


@is_here
@pytest.mark.parametrize("other", [is_arm, is_mac, is_of_32_bits, is_free_threaded, is_another_python])
def test_on_another_machine_or_python_nothing_is_started_and_one_line_says_why(
    other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        said = other(patch)
        assert not client_requests.is_supported()
        with pytest.raises(MissingTool, match=said):
            launch.program()


def test_times_come_where_the_processor_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_server", Server())
    with pytest.MonkeyPatch.context() as patch:
        is_arm(patch)
        plan = Plan(threads=(1,), min_run_time=0.01, max_run_time=0.01)
        result = compare_bodies(Task({"": Body("sum(range(1000))")}, plan=plan, counting=Counting(10)))
    (told,) = (doubt.text for doubt in result.warnings if doubt.kind == "not-counted")
    assert told.startswith("Instructions were not counted: instructions are counted on Linux with an x86_64 CPU")
    assert (result.frame["median"] > 0).all()


def starting_without_valgrind(monkeypatch: pytest.MonkeyPatch, first: str = "") -> Server:
    """The process that counts, started as plain Python after ``first``."""
    command = launch.command

    def plain(*of: Any) -> list[str]:
        words = command(*of)
        words = words[words.index(sys.executable) :]
        return [first + word if word.startswith("import sys") else word for word in words]

    monkeypatch.setattr(launch, "command", plain)
    monkeypatch.setattr(launch, "program", lambda: "valgrind")
    monkeypatch.setattr(launch, "check_valgrind_runs", lambda: None)
    return Server()


@is_here
def test_a_valgrind_that_does_not_know_the_request_is_not_counted_with(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotStarted, match="did not start: not under valgrind"):
        starting_without_valgrind(monkeypatch).start()


REFUSED = """
import mmap
def refuse(*of, **given):
    raise PermissionError(13, "Permission denied")
mmap.mmap = refuse
"""


@is_here
def test_where_pages_cannot_be_executed_that_is_what_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotStarted, match=r"did not start: .*no memory that is writable and executable"):
        starting_without_valgrind(monkeypatch, REFUSED).start()


@is_here
def test_outside_valgrind_a_request_does_nothing() -> None:
    assert not client_requests.under_valgrind()
    assert client_requests.builtin((client_requests.TOGGLE,))() == 0
    assert client_requests.dump(b"name")() == 0


def test_a_c_library_without_mallinfo2_keeps_its_heap_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    library = SimpleNamespace(malloc=asked.append)  # looked up: mallinfo2, which is not there
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    level_heap._settle_malloc()
    assert not asked
