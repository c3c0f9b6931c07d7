"""Ctrl-C, and the end of the notebook's process, while C++ is compiled, tried and timed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.interrupting import lines_run, with_interrupt_at
from torchbench_magic.cpp import run
from torchbench_magic.process.contention import Clocks
from torchbench_magic.process.interrupts import interrupts_held, interrupts_let_through

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="descriptors and processes are read in /proc")


def test_an_interrupt_at_any_line_of_a_block_leaves_the_descriptors_as_they_were() -> None:
    def leads_to() -> list[str]:
        return [os.readlink(f"/proc/self/fd/{n}") for n in (0, 1, 2)]

    loop: Any = SimpleNamespace(block=lambda calls, device: (1, 1), snippet=SimpleNamespace(stmt=""))
    silence = run.Silence()
    block = run.SnippetBlock(loop, -1, silence)

    def one_block() -> None:
        with interrupts_held(), interrupts_let_through():
            block.start(0, 1, Clocks(), lambda: None)

    try:
        one_block()
        before = leads_to()
        places = lines_run(one_block, [run])
        assert len(places) > 5
        for place in places:
            assert isinstance(with_interrupt_at(place, one_block), KeyboardInterrupt)
            assert leads_to() == before, place
    finally:
        silence.close()


def marked(mark: str) -> list[int]:
    """Processes with the mark in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def wait_for(holds: Callable[[], object]) -> None:
    """Until it holds, however slow the machine is: pytest's own time-out tells what never does."""
    while not holds():
        time.sleep(0.02)


@pytest.fixture
def killed(tmp_path: Path) -> Any:
    """Runs a script until it has started ``count`` processes, and kills it; afterwards none of them is left."""

    def run(text: str, count: int, **variables: str) -> None:
        mark = f"KILLED_TEST={tmp_path}"
        environment = os.environ | {"KILLED_TEST": str(tmp_path), "TMPDIR": str(tmp_path)} | variables
        process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(text)], env=environment)
        try:
            wait_for(lambda: len(marked(mark)) > count or process.poll() is not None)
            assert process.poll() is None
        finally:
            process.kill()
            process.wait()
        try:
            wait_for(lambda: not marked(mark))
        finally:
            for pid in marked(mark):
                os.kill(pid, signal.SIGKILL)

    return run


def test_a_compiler_ends_with_the_notebook_and_leaves_no_folder(killed: Any, pretender: Path, tmp_path: Path) -> None:
    text = """
        from torchbench_magic.cpp.run import compile_snippet
        compile_snippet("int x = 1;")
    """
    cache = tmp_path / "cache of the killed"
    killed(text, 3, MODE="slow", XDG_CACHE_HOME=str(cache))  # the compiler, its sleep, and the shell that watches
    wait_for(lambda: not list(cache.rglob("*.tmp")))


def test_a_first_call_that_never_returns_ends_with_the_notebook(killed: Any, tmp_path: Path) -> None:
    source, library = tmp_path / "endless.c", tmp_path / "endless.so"
    source.write_text("void torchbench_set_threads(int n) {}\nvoid torchbench_time(void) { for (;;); }\n")
    compiled = subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=False)
    if compiled.returncode:
        pytest.skip("no compiler of C")
    text = f"""
        from pathlib import Path
        from torchbench_magic.cpp.run import try_out
        try_out("endless", Path({str(library)!r}), 1)
    """
    killed(text, 1)


@pytest.mark.slow
def test_an_interpreter_of_processes_ends_with_the_notebook(killed: Any) -> None:
    text = """
        import torchbench_magic
        torchbench_magic.compare({"a": "time.sleep(1000)"}, setup="import time", processes=2)
    """
    killed(text, 1)
