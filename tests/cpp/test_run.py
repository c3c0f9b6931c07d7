"""Compiled snippets, timed and counted for real; and Ctrl-C while they are made and run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.interrupting import lines_run, with_interrupt_at
from torchbench_magic import load
from torchbench_magic.cell_body import Body
from torchbench_magic.counting.client import CodeFailed, Server, close_server, the_server
from torchbench_magic.counting.count import LibraryJob, count_instructions
from torchbench_magic.cpp import run
from torchbench_magic.cpp.run import Silence, Snippet, SnippetTask, compare_snippets, try_out
from torchbench_magic.errors import OptionError, SnippetError
from torchbench_magic.process.contention import Clocks
from torchbench_magic.process.interrupts import interrupts_held, interrupts_let_through
from torchbench_magic.timing.identity import identity_of
from torchbench_magic.timing.plan import Plan
from torchbench_magic.timing.samples import Subject

from .conftest import SNIPS

# ==== snippet =========================================================================================================
# Compiled snippets, timed and counted for real. What they do is known to the instruction.


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")
    yield the_server()
    close_server()


@pytest.mark.compiler
@pytest.mark.one_of_each
def test_setup_runs_once_for_all_blocks_and_the_statement_as_often_as_asked(throwing: Snippet) -> None:
    def blocks(loop: object) -> None:
        loop.block(3000)  # type: ignore[attr-defined]
        loop.block(1999)  # type: ignore[attr-defined]
        loop.block(1)  # type: ignore[attr-defined]

    def setups() -> int:
        """How often so far: the count lives as long as the compiled library, whatever else the tests did with it."""
        with pytest.raises(SnippetError, match=r"throwing throws c10::Error: \d+ setups, 5000 calls$") as raised:
            throwing.opened(blocks)
        return int(str(raised.value).split()[-4])

    assert setups() + 1 == setups()


@pytest.mark.compiler
@pytest.mark.one_of_each
def test_timeit_runs_setup_and_a_warm_up_call_before_as_torch_does(throwing: Snippet) -> None:
    throwing.timeit(4998)
    with pytest.raises(SnippetError, match=r"\d+ setups, 5000 calls"):
        throwing.timeit(4999)


def test_a_long_timeit_is_interrupted_between_blocks(compiled: dict[str, Snippet]) -> None:
    def timed() -> None:
        threading.Timer(0.7, os.kill, (os.getpid(), signal.SIGINT)).start()
        compiled["hundred"].timeit(10**13)  # three days

    with pytest.raises(KeyboardInterrupt):
        timed()


def test_what_is_raised_inside_an_open_snippet_comes_out_of_it(compiled: dict[str, Snippet]) -> None:
    def fail(_loop: object) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        compiled["hundred"].opened(fail)
    assert compiled["hundred"].opened(lambda loop: loop.block(10)[0] >= 0)


def test_alternatives_are_compared_side_by_side(compiled: dict[str, Snippet], tmp_path: Path) -> None:
    bodies = {name: SNIPS[name].stmt for name in ("hundred", "two hundred")}
    found = compare_snippets(SnippetTask(bodies, plan=Plan(min_run_time=0.1, threads=(1,))))
    assert found.frame["ratio"][1] == pytest.approx(2, rel=0.2)  # nops take their place in the pipeline, no more
    assert found.frame["verdict"].tolist() == ["baseline", "slower"]
    assert found.measurements[0].task_spec.stmt == SNIPS["hundred"].stmt.source
    assert {subject.language for subject in found.subjects} == {"c++"}
    found.save(tmp_path / "runs.sqlite")
    (again,) = load(tmp_path / "runs.sqlite")
    assert [(s.language, s.stmt) for s in again.subjects] == [(s.language, s.stmt) for s in found.subjects]


def test_options_that_need_python_are_refused() -> None:
    for plan in (Plan(check=True), Plan(restore=True), Plan(clock="device")):
        with pytest.raises(OptionError, match="are for Python"):
            compare_snippets(SnippetTask({"a": Body("x;")}, plan=plan))
    with pytest.raises(OptionError, match="--device"):
        compare_snippets(SnippetTask({"a": Body("x;")}, plan=Plan(device="nowhere")))


def test_one_text_in_two_languages_is_two_sources() -> None:
    python, cpp, other = (
        Subject(stmt="f()"),
        Subject(stmt="f()", language="c++"),
        Subject(stmt="f()", language="c++", global_setup="int f();"),
    )
    assert len({identity_of(subject) for subject in (python, cpp, other)}) == 3


@pytest.mark.valgrind
class TestCounts:
    def test_counts_are_the_instructions_that_were_written(self, compiled: dict[str, Snippet], server: Server) -> None:
        found = {}
        for name in ("hundred", "two hundred"):
            statement, empty = count_instructions(LibraryJob(str(compiled[name].library), 50), server)[0]
            found[name] = statement.total
            assert statement.total - empty.total == pytest.approx(50 * (100 if name == "hundred" else 200), abs=50 * 3)
        assert found["two hundred"] - found["hundred"] == 50 * 100

    def test_three_jobs_count_the_same_at_once_and_alone(self, compiled: dict[str, Snippet], server: Server) -> None:
        job, found = LibraryJob(str(compiled["throwing"].library), 100), []
        threads = [
            threading.Thread(target=lambda: found.append(count_instructions(job, server)[0][0].total)) for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [count_instructions(job, server)[0][0].total] * 3

    def test_what_the_notebook_sends_with_a_job_does_not_move_a_count(
        self, compiled: dict[str, Snippet], server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job, path = LibraryJob(str(compiled["allocating"].library), 100), os.environ["PATH"]
        first = count_instructions(job, server)[0][0].total
        for length in (10, 300, 1000, 5000):
            monkeypatch.setenv("PATH", f"{path}:/nowhere/" + "y" * length)
            assert count_instructions(job, server)[0][0].total == first, length

    def test_another_layout_of_the_heap_is_the_same_code(self, compiled: dict[str, Snippet], server: Server) -> None:
        plain, *shifted = count_instructions(LibraryJob(str(compiled["allocating"].library), 100), server, layouts=3)
        assert len({statement.total for statement, _ in (plain, *shifted)}) > 1
        for statement, _ in shifted:
            assert statement.total == pytest.approx(plain[0].total, rel=0.03)

    def test_an_exception_is_told_as_it_is_in_cpp(self, compiled: dict[str, Snippet], server: Server) -> None:
        with pytest.raises(CodeFailed, match=r"c10::Error: 1 setups, 5000 calls"):
            count_instructions(LibraryJob(str(compiled["throwing"].library), 6000), server)


def library_that(does: str, folder: Path) -> Path:
    """What a snippet looks like from outside, compiled without torch."""
    source, library = folder / "a.cpp", folder / "a.so"
    source.write_text(
        '#include <cstdlib>\nextern "C" void torchbench_set_threads(int) {}\n'
        f'extern "C" int torchbench_count(long, long, char*, long) {{ {does} return 1; }}\n'
    )
    subprocess.run(["g++", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    return library


@pytest.mark.parametrize(
    ("does", "told"),
    [
        ("*(volatile int*)0 = 1;", r"a crashed in its first call \(SIGSEGV\).*the session is unaffected"),
        ("abort();", r"a crashed in its first call \(SIGABRT\)"),
        ("exit(7);", r"a ended its process \(exit code 7\)"),
    ],
)
def test_a_snippet_that_ends_its_process_does_so_in_one_of_its_own(does: str, told: str, tmp_path: Path) -> None:
    library = library_that(does, tmp_path)
    for _ in range(2):  # it is not remembered as harmless
        with pytest.raises(SnippetError, match=told):
            try_out("a", library, 1)


def test_a_snippet_that_never_returns_is_ended_by_ctrl_c(tmp_path: Path) -> None:
    mark = tmp_path / "called"
    library = library_that(f'std::system("touch {mark}"); for (;;) asm volatile("");', tmp_path)

    def interrupt() -> None:
        while not mark.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        try_out("a", library, 1)
    interrupting.join()
    commands = [path for path in Path("/proc").glob("[0-9]*/cmdline") if os.access(path, os.R_OK)]
    assert not [path for path in commands if path.exists() and str(library).encode() in path.read_bytes()]


def test_a_snippet_that_returned_is_not_called_again(tmp_path: Path) -> None:
    mark = tmp_path / "called"
    library = library_that(f'std::system("echo x >> {mark}");', tmp_path)
    for _ in range(2):
        try_out("a", library, 1)
    assert mark.read_text() == "x\n"


def test_what_is_printed_is_led_to_nowhere_and_back(capfd: pytest.CaptureFixture[str]) -> None:
    silence = Silence()
    for _ in range(2):
        with silence:
            os.write(1, b"hidden")
            os.write(2, b"hidden")
        os.write(1, b"seen ")
    silence.close()
    assert tuple(capfd.readouterr()) == ("seen seen ", "")


# ==== interrupts ======================================================================================================
# Ctrl-C, and the end of the notebook's process, while C++ is compiled, tried and timed.


READ_IN_PROC = pytest.mark.skipif(sys.platform != "linux", reason="descriptors and processes are read in /proc")


@READ_IN_PROC
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


@pytest.mark.compiler
@READ_IN_PROC
def test_a_first_call_that_never_returns_ends_with_the_notebook(killed: Any, tmp_path: Path) -> None:
    source, library = tmp_path / "endless.c", tmp_path / "endless.so"
    source.write_text("void torchbench_set_threads(int n) {}\nvoid torchbench_count(void) { for (;;); }\n")
    compiled = subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=False)
    if compiled.returncode:
        pytest.skip("no compiler of C")
    text = f"""
        from pathlib import Path
        from torchbench_magic.cpp.run import try_out
        try_out("endless", Path({str(library)!r}), 1)
    """
    killed(text, 1)


@READ_IN_PROC
@pytest.mark.slow
def test_an_interpreter_of_processes_ends_with_the_notebook(killed: Any) -> None:
    text = """
        import torchbench_magic
        torchbench_magic.compare({"a": "time.sleep(1000)"}, setup="import time", processes=2)
    """
    killed(text, 1)
