"""What calls take from iterators, queues and files: told, put back, or ended with one line."""

from __future__ import annotations

import bz2
import functools
import gzip
import itertools
import lzma
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from torchbench_magic.cell_body import Body
from torchbench_magic.result_base import Doubt
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.iterators import at_end
from torchbench_magic.timing.plan import Plan
from torchbench_magic.timing.run import compare_bodies
from torchbench_magic.timing.task import Task

from .fake_clock import FakeClock
from .fake_clock import timed as timed_long

timed = functools.partial(timed_long, min_run_time=0.001)


# ==== read files ======================================================================================================
# Files that timed code reads: put back with ``--restore``, told where they are read to the end.


def timed_reading(file: Any, body: str, *, restore: bool, **more: int) -> Comparison:
    clock = FakeClock()
    names = {"clock": clock, "file": file, "seen": set()}
    plan = Plan(threads=(1,), min_run_time=0.0001, restore=restore, **more)
    return compare_bodies(Task({"": Body(body)}, namespace=names, plan=plan, clocks=clock.clocks))


@pytest.mark.parametrize("mode", ["r", "r+", "rb", "rb+", "r+b", "a+"])
def test_a_file_that_is_only_read_is_put_back(mode: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abc\n" * 10)
    with open(tmp_path / "a.txt", mode) as file:
        file.seek(8)
        timed_reading(file, "assert file.readline()\nclock.work(10)", restore=True)
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
        timed_reading(file, "assert file.readline()\nclock.work(10)", restore=True)
        assert len(file.read()) == 36
        assert at_end(file)


@pytest.mark.parametrize("mode", ["w+", "r+", "rb+"])
def test_a_file_that_is_written_is_left_alone(mode: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("")
    with open(tmp_path / "a.txt", mode) as file:
        body = f"file.write({'b' * ('b' in mode)}'x')\nclock.work(10)"
        result = timed_reading(file, body, restore=True)
        file.flush()
        assert file.tell() == len((tmp_path / "a.txt").read_bytes()) > 10
    assert [doubt for doubt in result.warnings if doubt.kind == "used-up"] == []


# ==== taken items =====================================================================================================
# Items that timed code takes from the user's iterators are gone: it is said, but where it did not happen or is told
# otherwise.


def numbers() -> Iterator[int]:
    for i in range(10**6):
        yield 1000 + i


def taken(body: str, **options: Any) -> tuple[list[Doubt], dict[str, Any]]:
    names: dict[str, Any] = {"g": numbers(), "it": iter(list(range(10**6))), "held": [numbers()]}
    result = timed_long(FakeClock(), {"a": f"clock.work(100)\n{body}"}, names=names, **options)
    return [doubt for doubt in result.warnings if doubt.kind == "taken-items"], names


@pytest.mark.parametrize(("body", "name"), [("next(g)", "g"), ("next(it)", "it"), ("next(held[0])", "held[0]")])
def test_what_calls_take_from_an_iterator_is_said(body: str, name: str) -> None:
    (said,), _ = taken(body)
    assert said.text == f"Timed calls took items from `{name}`, which are not restored."
    assert said.action == "Make it in the body, or in setup."


def test_with_restore_a_generator_is_said_and_what_can_be_copied_is_not_taken_from() -> None:
    (said,), _ = taken("next(g)", restore=True)
    assert said.text == "Timed calls took items from `g`, which `--restore` cannot restore."
    said_of_copied, names = taken("next(it)", restore=True)
    assert said_of_copied == []
    assert next(names["it"]) == 0


def test_an_iterator_that_is_only_looked_at_or_made_in_the_body_is_not_said() -> None:
    assert taken("g.gi_frame, it.__length_hint__(), len(held)")[0] == []
    assert taken("mine = iter([1, 2])\nnext(mine)")[0] == []


def test_a_generator_that_had_begun_is_seen_by_its_variables() -> None:
    begun = numbers()
    next(begun)
    result = timed_long(FakeClock(), {"a": "clock.work(100)\nnext(begun)"}, names={"begun": begun})
    assert [doubt.kind for doubt in result.warnings].count("taken-items") == 1


def test_one_that_is_used_up_is_told_once() -> None:
    short = (n for n in range(3))
    result = timed_long(FakeClock(), {"a": "clock.work(100)\nfor n in short: pass"}, names={"short": short})
    kinds = [doubt.kind for doubt in result.warnings]
    assert "taken-items" not in kinds
    assert "short" in " ".join(doubt.text for doubt in result.warnings)


def test_an_iterator_without_end_is_timed() -> None:
    names = {"it": itertools.repeat(1), "zipped": zip(itertools.repeat(1), itertools.count(), strict=False)}
    assert not timed_long(FakeClock(), {"": "clock.work(10); next(it); next(zipped)"}, names=names).partial
