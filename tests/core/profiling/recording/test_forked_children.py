"""A process that the profiled code forks runs as it would without the profiler."""

from __future__ import annotations

import sys
import threading

import pytest

from ..profiling_text import profiled

pytest.importorskip("torch")
if sys.platform == "win32":
    pytest.skip("Windows has no fork", allow_module_level=True)

FORKS = """import os, sys, threading
read, write = os.pipe()
child = os.fork()
if not child:
    tool = getattr(sys, "monitoring", None)
    held = [name for name in map(tool.get_tool, range(6)) if name == "torchbench_magic"] if tool else []
    os.write(write, repr((sys.gettrace(), threading.gettrace(), held)).encode())
    os._exit(0)
os.waitpid(child, 0)
said = os.read(read, 1000).decode()
os.close(read); os.close(write)
here = 1
"""


@pytest.mark.parametrize("python", [False, True])
def test_nothing_of_the_recording_is_on_in_a_forked_process_and_all_of_it_in_this_one(python: bool) -> None:
    names: dict[str, object] = {}
    found = profiled(FORKS, names, python=python).profile
    assert names["said"] == "(None, None, [])"
    ran = found.lines.dropna(subset=["line"]).groupby("line")["calls"].sum()
    assert ran[12] == 1, "lines after the fork are recorded in the process that is profiled"
    assert sys.gettrace() is None
    assert threading.gettrace() is None


def test_the_users_own_trace_function_is_on_in_the_child_again() -> None:
    def mine(frame: object, event: str, arg: object) -> None:
        return None

    names: dict[str, object] = {}
    threading.settrace(mine)
    try:
        profiled(FORKS, names)
    finally:
        threading.settrace(None)  # type: ignore[arg-type]
    assert "mine" in str(names["said"])
