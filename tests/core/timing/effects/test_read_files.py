"""Files that timed code reads: put back with ``--restore``, told where they are read to the end."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchbench_magic.cell_text import Body
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.iterators import at_end
from torchbench_magic.timing.plan import Plan
from torchbench_magic.timing.run import compare_bodies
from torchbench_magic.timing.task import Task

from ..fake_clock import FakeClock


def timed(file: Any, body: str, *, restore: bool, **more: int) -> Comparison:
    clock = FakeClock()
    names = {"clock": clock, "file": file, "seen": set()}
    plan = Plan(threads=(1,), min_run_time=0.0001, restore=restore, **more)
    return compare_bodies(Task({"": Body(body)}, namespace=names, plan=plan, clocks=clock.clocks))


@pytest.mark.parametrize("mode", ["r", "r+", "rb", "rb+", "r+b", "a+"])
def test_a_file_that_is_only_read_is_put_back(mode: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abc\n" * 10)
    with open(tmp_path / "a.txt", mode) as file:
        file.seek(8)
        timed(file, "assert file.readline()\nclock.work(10)", restore=True)
        assert file.tell() == 8
        assert len(file.read()) == 32
        assert at_end(file)


@pytest.mark.parametrize("opened", [gzip.open, bz2.open, lzma.open])
@pytest.mark.parametrize("mode", ["rb", "rt"])
def test_a_packed_file_is_put_back(opened: Callable[..., Any], mode: str, tmp_path: Path) -> None:
    with opened(tmp_path / "a", "wb") as file:
        file.write(b"abc\n" * 10)
    with opened(tmp_path / "a", mode) as file:
        file.readline()
        timed(file, "assert file.readline()\nclock.work(10)", restore=True)
        assert len(file.read()) == 36
        assert at_end(file)


@pytest.mark.parametrize("mode", ["w+", "r+", "rb+"])
def test_a_file_that_is_written_is_left_alone(mode: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("")
    with open(tmp_path / "a.txt", mode) as file:
        body = f"file.write({'b' * ('b' in mode)}'x')\nclock.work(10)"
        result = timed(file, body, restore=True)
        file.flush()
        assert file.tell() == len((tmp_path / "a.txt").read_bytes()) > 10
    assert [doubt for doubt in result.warnings if doubt.kind == "used-up"] == []
