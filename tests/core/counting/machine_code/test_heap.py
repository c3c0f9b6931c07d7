"""The canonical state of Python's heap, in a process of its own: what is taken is never given back."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from torchbench_magic.counting import client_requests

pytestmark = pytest.mark.skipif(not client_requests.is_supported(), reason="counts are for x86_64 Linux")

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


def test_whatever_came_before_the_next_memory_is_there_and_the_system_is_not_asked() -> None:
    ran = subprocess.run([sys.executable, "-c", TOPS], capture_output=True, text=True, check=True)
    (found,) = {tuple(each) for each in json.loads(ran.stdout)}
    assert found[0] > 1 << 16
    assert found[1:3] == (0, 0)
