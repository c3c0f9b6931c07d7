"""What makes counts repeat: a canonical heap, the tables of types, and what the machine code assumes."""

from __future__ import annotations

import ctypes
import json
import platform
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from torchbench_magic.cell_body import Body
from torchbench_magic.counting import client, client_requests, level_heap
from torchbench_magic.counting import lease as leases
from torchbench_magic.counting.client import NotStarted, Server
from torchbench_magic.counting.level_heap import level_types
from torchbench_magic.errors import MissingTool
from torchbench_magic.timing.plan import Counting, Plan
from torchbench_magic.timing.run import compare_bodies
from torchbench_magic.timing.task import Task

# ==== heap ============================================================================================================
# The canonical state of Python's heap, in a process of its own: what is taken is never given back.


SUPPORTED = pytest.mark.skipif(bool(client_requests.why_unsupported()), reason="counts are for x86_64 Linux")
PROGRAM = """
import gc, json, random, sys
from torchbench_magic.counting import level_heap as heap
heap.place_arenas()
gc.disable()
heap.settle()
random.seed(int(sys.argv[1]))
history = [[bytes(random.randrange(500)) for _ in range(random.randrange(3000))] for _ in range(3)]
lists = [[] for _ in range(random.randrange(200))]  # Python keeps some of those that are freed for its next lists
del history[::2], lists
heap.level()
made = {size: [b"".ljust(size - 33) for _ in range(20)] for size in range(96, 512 + 1, 16)}
pools = {size: [id(block) % 16384 for block in blocks] for size, blocks in made.items()}
arenas = {id(block) // 2**20 for blocks in made.values() for block in blocks}  # one, at a multiple of its size
print(json.dumps([pools, len(arenas)]))
"""


def state(seed: int) -> tuple[dict[str, list[int]], int]:
    """Where in their pools the next blocks are, and in how many arenas, after a history of its own.

    Of the sizes that levelling itself does not make use of.
    """
    ran = subprocess.run([sys.executable, "-c", PROGRAM, str(seed)], capture_output=True, text=True, check=True)
    pools, arenas = json.loads(ran.stdout)
    return pools, arenas


@SUPPORTED
def test_whatever_came_before_the_next_blocks_are_at_the_same_places() -> None:
    pools, arenas = state(1)
    assert arenas == 1
    for seed in (2, 3, 4):
        assert state(seed) == (pools, 1)
    # well inside of a pool and one after the other: no block that was freed before is among them
    assert pools["256"] == list(range(pools["256"][0], pools["256"][0] + 20 * 256, 256))


TOPS = """
import ctypes, gc, json
from torchbench_magic.counting import level_heap as heap
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes, libc.mallinfo2.restype = [ctypes.c_void_p], heap._MallInfo
heap.place_arenas()
gc.disable()
heap.settle()
found = []
for i in range(40):
    libc.malloc(24 + 3779 * i)
    for size in (200, 7000 * i, 20_000 * i):  # the last ones move the sizes from which on memory goes to the system
        libc.free(libc.malloc(size))
    heap.level()
    before = libc.mallinfo2()
    places = [libc.malloc(size) % 4096 for size in (40, 200, 3000, 20_000)]
    after = libc.mallinfo2()
    found.append([before.keepcost, after.arena - before.arena, after.hblkhd - before.hblkhd, *places])
print(json.dumps(found))
"""


@pytest.mark.interpreter
@SUPPORTED
def test_whatever_came_before_the_next_memory_is_there_and_the_system_is_not_asked() -> None:
    ran = subprocess.run([sys.executable, "-c", TOPS], capture_output=True, text=True, check=True)
    (found,) = {tuple(each) for each in json.loads(ran.stdout)}
    assert found[0] > 1 << 16
    assert found[1:3] == (0, 0)


# ==== type cache ======================================================================================================
# The numbers that CPython gives types, and the table of what it found in them.


def next_tag() -> int:
    last = ctypes.pythonapi.PyType_ClearCache
    last.restype = ctypes.c_uint
    return int(last()) + 1


@pytest.mark.parametrize("classes", [0, 1, 499, 500, 501])
def test_whatever_classes_came_before_the_next_one_has_the_same_place(classes: int) -> None:
    for i in range(classes):
        getattr(type("Before", (), {"x": i}), "x")  # noqa: B009
    level_types()
    assert next_tag() % 4096 == 0
    before = next_tag()
    level_types()
    assert next_tag() == before  # nothing to do


def test_a_python_that_gives_no_numbers_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Pythonapi:
        class PyType_ClearCache:  # noqa: N801
            def __new__(cls) -> int:  # type: ignore[misc]
                asked.append(1)
                return 17

    monkeypatch.setattr(ctypes, "pythonapi", Pythonapi)
    level_types()
    assert len(asked) == 32


# ==== assumptions of the machine code =================================================================================
# What the machine code assumes, each assumption simulated not to hold: what is said, and what still works.


is_here = pytest.mark.skipif(bool(client_requests.why_unsupported()), reason="the machine code is for x86_64 Linux")


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
        with pytest.raises(MissingTool, match=said):
            leases.path_of_valgrind()


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
    command = leases.valgrind_command

    def plain(*of: Any) -> list[str]:
        words = command(*of)
        words = words[words.index(sys.executable) :]
        return [first + word if word.startswith("import sys") else word for word in words]

    monkeypatch.setattr(leases, "valgrind_command", plain)
    for home in (leases, client):
        monkeypatch.setattr(home, "path_of_valgrind", lambda: "valgrind")
    return Server()


REFUSED = """
import mmap
def refuse(*of, **given):
    raise PermissionError(13, "Permission denied")
mmap.mmap = refuse
"""


@is_here
@pytest.mark.parametrize(
    ("first", "said"), [("", "not under valgrind"), (REFUSED, ".*no memory that is writable and executable")]
)
def test_why_it_cannot_count_is_said(monkeypatch: pytest.MonkeyPatch, first: str, said: str) -> None:
    with pytest.raises(NotStarted, match=f"did not start: {said}"):
        starting_without_valgrind(monkeypatch, first).start()


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
