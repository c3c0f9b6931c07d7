"""The magics in terminal IPython, on a real pseudo terminal."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest

pytestmark = pytest.mark.terminal

ROOT = Path(__file__).resolve().parents[2]


class Terminal:
    """An IPython that a user types into."""

    def __init__(self, child: pexpect.spawn) -> None:
        self._child = child
        self._wait()

    def _wait(self) -> str:
        self._child.expect(r"In \[\d+\]: $")
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self._child.before).replace("\r\n", "\n")

    def type(self, *lines: str) -> str:
        """Type a cell, one line at a time; what is on the screen until the next prompt."""
        first, *others = lines
        if first.startswith("%%"):
            others += ["", ""]  # what ends a cell magic
        self._child.sendline(first)
        for line in others:
            self._child.expect(r"\.\.\.: $")
            self._child.sendline(line)
        return self._wait()

    def start(self, line: str) -> None:
        self._child.sendline(line)

    def interrupt(self) -> str:
        """Ctrl-C, and what is on the screen until the next prompt."""
        self._child.sendintr()
        return self._wait()

    def expect(self, text: str) -> None:
        self._child.expect_exact(text)


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    folder = tmp_path_factory.mktemp("terminal")
    environment = environ(folder)
    command = ["-m", "IPython", "--simple-prompt", "--no-banner", "--no-confirm-exit", "--colors=nocolor"]
    child = pexpect.spawn(
        sys.executable, command, env=environment, cwd=str(folder), encoding="utf-8", timeout=120, dimensions=(60, 120)
    )
    made = Terminal(child)
    made.type("%load_ext torchbench_magic")
    made.type("import torch; x = torch.ones(8)")
    yield made
    child.sendline("exit")
    child.expect(pexpect.EOF)
    child.close()


def environ(folder: Path) -> dict[str, Any]:
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return os.environ | {
        "IPYTHONDIR": str(folder / "ipython"),
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
    }


def test_a_timing_is_printed_once_as_text(terminal: Terminal) -> None:
    shown = terminal.type("%timer -n 5 -r 5 x + 1")
    assert shown.count("median ·") == 1
    assert "Out[" not in shown
    assert "<" not in shown.partition("\n")[2]


def test_alternatives_are_a_table(terminal: Terminal) -> None:
    shown = terminal.type("%%timer -n 20 -r 20", "# --- a", "x + 1", "# --- b", "(x + 1).sum()")
    assert re.search(r"^threads +alternative", shown, re.MULTILINE)
    assert "baseline" in shown


def test_a_profile_shows_the_value_and_the_lines(terminal: Terminal) -> None:
    shown = terminal.type("%%tprofile", "y = x * 2", "y.sum().item()")
    assert re.search(r"Out\[\d+\]: 16\.0", shown)
    assert "y = x * 2" in shown


def test_a_top_level_await_works(terminal: Terminal) -> None:
    shown = terminal.type("%%tprofile -q", "import asyncio", "await asyncio.sleep(0, 'slept')")
    assert "'slept'" in shown


def test_an_exception_shows_the_line_of_the_cell(terminal: Terminal) -> None:
    shown = terminal.type("%%timer", "x", "1 / 0")
    assert "ZeroDivisionError" in shown
    assert re.search(r"In\[\d+\], line 3", shown)
    assert "----> 3 1 / 0" in shown
    assert "torchbench_magic" not in shown


def test_a_wrong_option_is_one_line(terminal: Terminal) -> None:
    shown = terminal.type("%timer -t 0 x")
    assert shown.strip().splitlines()[-1].startswith("UsageError: %timer: -t '0'")


def test_a_long_run_writes_one_line_over_and_ctrl_c_keeps_what_is_there(terminal: Terminal, tmp_path: Path) -> None:
    there = tmp_path / "there"
    terminal.type("import itertools, time; calls = itertools.count()")
    terminal.type(f"nap = lambda: (time.sleep(0.002), next(calls) == 300 and open({str(there)!r}, 'w'))")
    terminal.start("%timer --min-run-time 600 nap()")
    terminal.expect("Ctrl-C to stop and keep partial results")
    while not there.exists():  # after so many calls samples are kept
        time.sleep(0.02)
    shown = terminal.interrupt()
    assert "KeyboardInterrupt" in shown
    assert "artial" in shown
    assert "True" in terminal.type("_timer.partial")


@pytest.mark.slow
def test_a_script_of_cells_runs_without_a_terminal(tmp_path: Path) -> None:
    script = tmp_path / "script.ipy"
    script.write_text(
        "%load_ext torchbench_magic\nimport torch, time\nx = torch.ones(8)\n"
        "r = %timer --min-run-time 1.2 time.sleep(0.05)\nprint(type(r).__name__)\n"
    )
    command = [sys.executable, "-m", "IPython", "--colors=nocolor", str(script)]
    ran = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=environ(tmp_path), timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Comparison" in ran.stdout
    assert "\r" not in ran.stdout
    assert "measuring" not in ran.stdout
