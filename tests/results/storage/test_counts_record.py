"""Counts in a store: what is saved comes back, is compared across results, and is taken over when a run resumes."""

from __future__ import annotations

import os
import re
import sqlite3
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from torchbench_magic import load
from torchbench_magic.counting.counts import CallEdge, CallGraph, Counted, CountKey, Counts, stats_of
from torchbench_magic.timing.across_runs import side_by_side
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.samples import Subject

from ..samples import made, pair

MUL, EVAL = "???:at::mul<\u202e😀'\"</script>>(Tensor) [/lib/libtorch_cpu.so]", "ceval.c:eval [/lib/libpython.so]"


def counted(mul: int, number: int = 10, env: str | None = None, threads: int = 1) -> Counted:
    def stats(cost: int) -> Any:
        own = {"exclusive": {MUL: cost, EVAL: 150}, "inclusive": {MUL: cost, EVAL: cost + 150}}
        loop = {"exclusive": {EVAL: 100}, "inclusive": {EVAL: 100}}
        return stats_of(own, loop, number, stmt="f(x)", setup="pass", description="mul", env=env, num_threads=threads)

    calls = CallGraph((CallEdge(EVAL, MUL, number, mul),), (CallEdge(EVAL, "clock.c:clock", 2, 3),), number)
    return Counted(stats(mul), (stats(mul + 7), stats(mul - 2)), calls)


def parts(stats: Any) -> tuple[object, ...]:
    """All that torch's stats hold; its own counts compare by identity."""
    costs = (stats.stmt_inclusive_stats, stats.stmt_exclusive_stats, stats.baseline_inclusive_stats,
             stats.baseline_exclusive_stats)  # fmt: skip
    listed = [(list(one), one.inclusive) for one in costs]
    return stats.task_spec, stats.number_per_run, stats.built_with_debug_symbols, listed


def compared(one: Counted, two: Counted) -> Comparison:
    found: dict[CountKey, Counted] = {("mul", None, 1): one, ("bmm", None, 1): two}
    return replace(pair(1e-6, 2e-6), counts=Counts(found, "module", 1.25))


def test_counts_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    kept = compared(counted(1000), counted(1500))
    kept.save(path)
    (found,) = load(path)
    assert isinstance(found, Comparison)
    assert (found.counts.form, found.counts.elapsed) == ("module", 1.25)
    for key, one in kept.counts.counted.items():
        other = found.counts.counted[key]
        assert [parts(stats) for stats in (other.stats, *other.shifted)] == [
            parts(stats) for stats in (one.stats, *one.shifted)
        ]
        assert other.calls is not None
        assert one.calls is not None
        assert (other.calls.statement, other.calls.empty, other.calls.number) == (
            one.calls.statement,
            one.calls.empty,
            one.calls.number,
        )
    assert found.frame[["instructions", "instructions_ratio"]].to_numpy().tolist() == [[105, 1], [155, 155 / 105]]
    assert found.diff().frame.equals(kept.diff().frame)
    assert found.diff().callers(MUL)["baseline_calls"].tolist() == [1]


def test_stats_without_calls_and_layouts_are_stored_too(tmp_path: Path) -> None:
    one, two = Counted(counted(1000).stats), Counted(counted(1500).stats)
    compared(one, two).save(tmp_path / "runs.sqlite")
    (found,) = load(tmp_path / "runs.sqlite")
    assert isinstance(found, Comparison)
    read = found.counts.counted["mul", None, 1]
    assert (parts(read.stats), read.shifted, read.calls) == (parts(one.stats), (), None)


def test_nothing_stored_is_a_pickle(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    compared(counted(1000), counted(1500)).save(path)
    with sqlite3.connect(path) as connection:
        codecs = {codec for (codec,) in connection.execute("SELECT DISTINCT codec FROM packed")}
    assert codecs <= {"shuffle-zlib", "mask-shuffle-zlib", "words-zlib"}


@pytest.mark.parametrize(
    ("before", "after"),
    [('"number": [10', '"number": [0'), ('"has_calls"', '"has_call"'), ('"num_threads"', '"thread_count"')],
)
def test_a_damaged_record_is_left_out_with_a_warning(tmp_path: Path, before: str, after: str) -> None:
    path = tmp_path / "runs.sqlite"
    compared(counted(1000), counted(1500)).save(path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE record SET header = replace(header, ?, ?)", (before, after))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert load(path) == []
    assert "is damaged" in str(said[0].message)


def run_of(env: str, mul: int, **more: int) -> Comparison:
    found: dict[CountKey, Counted] = {("mul", None, 1): counted(mul, env=env, **more)}
    subject = Subject(description="mul", stmt="f(x)", env=env)
    return replace(made(subject, medians=(1e-6,)), counts=Counts(found))


@pytest.mark.parametrize("by", ["env", "description"])
def test_stored_counts_of_two_environments_stand_side_by_side(tmp_path: Path, by: str) -> None:
    for env, mul in (("torch 2.12", 1000), ("torch 2.13", 1500)):
        run_of(env, mul).save(tmp_path / f"{env}.sqlite")
    results = {name: load(tmp_path / f"{name}.sqlite")[0] for name in ("torch 2.12", "torch 2.13")}
    both = side_by_side(results, by=by)  # type: ignore[arg-type]
    assert both.frame["instructions"].tolist() == [105, 155]
    if by == "env":
        assert both.frame["instructions_ratio"].tolist() == [1, 155 / 105]
        diff = both.diff()
        assert diff.names == ("mul (torch 2.12)", "mul (torch 2.13)")
        assert diff.frame["delta"].sum() == 50
        assert "50 more instructions" in both._repr_mimebundle_()["text/plain"]


def test_one_name_in_two_results_is_never_taken_for_the_other(tmp_path: Path) -> None:
    both = side_by_side({"old": run_of("a", 1000), "new": run_of("a", 1500)})
    assert both.frame["instructions"].tolist() == [105, 155]
    assert both.frame["instructions_ratio"].tolist() == [1, 155 / 105]
    assert both.rebase("new").frame["instructions_ratio"].tolist() == [105 / 155, 1]


def test_counts_over_other_numbers_of_calls_have_no_ratio() -> None:
    both = side_by_side({"old": run_of("a", 1000), "new": run_of("a", 1500, number=20)})
    assert both.frame["instructions_ratio"].isna().tolist() == [False, True]
    assert both.count_pairs == ()


def test_the_file_of_a_count_is_small(tmp_path: Path) -> None:
    functions = {f"file{i % 50}.cpp:at::f{i}(Tensor) [/lib/libtorch_cpu.so]": 100 + i for i in range(3000)}
    both = {"exclusive": functions, "inclusive": functions}
    one = Counted(stats_of(both, {"exclusive": {}, "inclusive": {}}, 10, stmt="f", setup="pass"))
    compared(one, one).save(tmp_path / "runs.sqlite")
    assert os.path.getsize(tmp_path / "runs.sqlite") < 300_000


def test_the_ratio_of_instructions_stands_beside_them() -> None:
    both = side_by_side({"old": run_of("torch 2.12", 1000), "new": run_of("torch 2.13", 1500)}, by="env")
    table = both._repr_mimebundle_()["text/html"].partition("</table>")[0]
    assert "instructions<br>per call<th " in table
    assert "ratio<br>instr.<tbody" in table
    words = " ".join(re.sub("<[^>]*>", " ", table).split())
    assert " 105 1 " in words
    assert words.endswith(" 155 1.476")
