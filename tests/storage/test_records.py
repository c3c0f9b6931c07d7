"""What is stored of a result: columns, the environment, counts; and that the first layout is still read."""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import sqlite3
import warnings
import zlib
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.profiling.profiles import profile_of_two_kernels
from tests.timing.samples import HERE, lone, made, pair
from torchbench_magic import load
from torchbench_magic.cell_body import Body
from torchbench_magic.cluster.job_profile import RankProfile
from torchbench_magic.counting.counts import CallEdge, CallGraph, Counted, CountKey, Counts, stats_of
from torchbench_magic.errors import StoreError
from torchbench_magic.process.contention import Contention, load_differences
from torchbench_magic.process.environment import Environment, read_environment
from torchbench_magic.process.machine import ranges_text
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.storage.records import (
    PackedColumn,
    comparison_from_record,
    comparison_record,
    pack_columns,
    profile_of,
    profile_record,
    unpack_columns,
)
from torchbench_magic.storage.resume import Recording
from torchbench_magic.storage.store import Store, save
from torchbench_magic.timing.across_runs import is_unchanged, side_by_side, since_last
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.identity import environment_differences, likeness
from torchbench_magic.timing.plan import Plan
from torchbench_magic.timing.run import compare_bodies
from torchbench_magic.timing.samples import Subject
from torchbench_magic.timing.task import Task

# ==== packed columns ==================================================================================================


def test_every_kind_of_column_comes_back_as_it_was() -> None:
    frame = pd.DataFrame(
        {
            "wall": [1e-6, float("nan"), float("inf"), -0.0],
            "number": np.array([1, -(2**62), 2**62, 0], dtype="int64"),
            "small": np.array([1, 2, 3, 255], dtype="uint8"),
            "flag": [True, False, True, True],
            "cell": pd.array([1, None, 3, -4], dtype="Int64"),
            "file": pd.Series(["a", None, "\u00e4\n\udc80", "a"], dtype=object),
        }
    )
    pd.testing.assert_frame_equal(unpack_columns(pack_columns(frame)), frame)


def test_an_empty_table_keeps_its_columns_and_types() -> None:
    frame = pd.DataFrame(
        {"wall": np.zeros(0), "cell": pd.array([], dtype="Int64"), "file": pd.Series([], dtype=object)}
    )
    pd.testing.assert_frame_equal(unpack_columns(pack_columns(frame)), frame)


def test_counters_take_a_fraction_of_their_size() -> None:
    (column,) = pack_columns(pd.DataFrame({"round": np.arange(10_000)}))
    assert len(column.data) < 10_000 * 8 / 50


def test_a_column_of_objects_is_not_stored() -> None:
    with pytest.raises(TypeError, match="column x holds list"):
        pack_columns(pd.DataFrame({"x": [[1], [2]]}))


@pytest.mark.parametrize(
    "change",
    [
        {"rows": 5},
        {"rows": 3},
        {"rows": -1},
        {"rows": 10**15},
        {"dtype": "float32"},
        {"dtype": "object"},
        {"codec": "pickle"},
        {"data": b"no zlib"},
        {"data": zlib.compress(b"\0" * 31)},
        {"data": zlib.compress(b"\0" * 32)[:-3]},
        {"codec": "words-zlib", "dtype": "text", "data": zlib.compress(b'["a"]\n' + b"\x05\0\0\0" * 4)},
        {"codec": "words-zlib", "dtype": "text", "data": zlib.compress(b'["a"\n' + b"\0" * 16)},
        {"codec": "words-zlib", "dtype": "text", "data": zlib.compress(b'[["a"]]\n' + b"\0" * 16)},
        {"codec": "mask-shuffle-zlib", "dtype": "Int64"},
    ],
    ids=str,
)
def test_a_column_that_is_not_what_it_says_is_refused(change: dict[str, object]) -> None:
    (column,) = pack_columns(pd.DataFrame({"wall": [1.0, 2.0, 3.0, 4.0]}))
    with pytest.raises(StoreError, match="the record is damaged"):
        unpack_columns([column._replace(**change)])  # type: ignore[arg-type]


def test_a_bomb_is_not_inflated() -> None:
    bomb = PackedColumn("wall", "float64", 4, "shuffle-zlib", zlib.compress(b"\0" * 200_000_000))
    with pytest.raises(StoreError, match="does not hold 4 rows"):
        unpack_columns([bomb])


def test_columns_of_different_lengths_are_refused() -> None:
    columns = pack_columns(pd.DataFrame({"a": [1.0, 2.0]})) + pack_columns(pd.DataFrame({"b": [1.0]}))
    with pytest.raises(StoreError, match="different lengths"):
        unpack_columns(columns)


# ==== environment record ==============================================================================================
# What the doctor learns is stored with each result: read back, missing in older records, said where it differs.


LATER = ("quota", "affinity", "governor", "libraries")
FULL = replace(HERE, quota=math.inf, affinity="0-1", governor="powersave", libraries=("OpenMP: libgomp.so.1 (torch)",))
QUIET = Contention(wall=1.0, pressure=0.0, steal=0.0, ext=0.02, throttled=0.0)
BUSY = Contention(wall=1.0, pressure=0.4, steal=0.2, ext=1.0, throttled=0.3)


def older(record_header: dict[str, Any]) -> dict[str, Any]:
    """The header as an earlier release wrote it."""
    known = record_header["environment"]["Environment"]
    kept = {name: value for name, value in known.items() if name not in LATER}
    assert len(kept) == len(known) - len(LATER)
    return {**record_header, "environment": {"Environment": kept}}


def test_this_process_records_its_limits_and_libraries() -> None:
    read = read_environment()
    assert read.quota is not None
    assert read.affinity
    assert any(one.startswith("OpenMP: ") and "torch" in one for one in read.libraries or ())


@pytest.mark.parametrize(("numbers", "text"), [([], ""), ([3], "3"), ([0, 1, 2, 8, 10, 11], "0-2,8,10-11")])
def test_processors_are_written_as_linux_does(numbers: list[int], text: str) -> None:
    assert ranges_text(numbers) == text


@pytest.mark.parametrize("quota", [math.inf, 0.5, None])
def test_a_comparison_keeps_them(quota: float | None) -> None:
    environment = replace(FULL, quota=quota)
    read = comparison_from_record(comparison_record(lone(1e-6, environment=environment)))
    assert read.environment == environment


def test_a_record_of_an_earlier_release_is_read_and_nothing_is_claimed_of_it() -> None:
    record = comparison_record(lone(1e-6, environment=FULL))
    read = comparison_from_record(replace(record, header=older(json.loads(json.dumps(record.header)))))
    assert read.environment == HERE
    assert environment_differences(read.environment, FULL) == []
    assert environment_differences(FULL, read.environment) == []
    assert likeness(read, 0) == likeness(lone(1e-6, environment=FULL), 0)


def test_a_profile_keeps_what_wanted_the_processor_while_it_ran() -> None:
    profile = replace(profile_of_two_kernels(), environment=FULL, contention=BUSY)
    read = profile_of(profile_record(profile))
    assert read.environment == FULL
    assert repr(read.contention) == repr(BUSY)  # NaN is not equal to itself
    record = profile_record(profile)
    before = profile_of(replace(record, header={k: v for k, v in record.header.items() if k != "contention"}))
    assert before.contention is None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"quota": 0.5}, ["CPU quota: none -> 0.5 cores"]),
        ({"affinity": "2-3"}, ["usable processors: 0-1 -> 2-3"]),
        ({"governor": "performance"}, ["governor: powersave -> performance"]),
        ({"governor": ""}, []),
        (
            {"libraries": ("OpenMP: libiomp5.so (mkl)",)},
            ["no longer loaded: OpenMP: libgomp.so.1 (torch)", "loaded now: OpenMP: libiomp5.so (mkl)"],
        ),
        ({"variables": {"OMP_NUM_THREADS": "2"}}, ["OMP_NUM_THREADS: none -> 2"]),
        ({"load": 9.0}, []),
    ],
)
def test_each_difference_is_said(changed: dict[str, Any], said: list[str]) -> None:
    now = replace(FULL, **changed)
    assert environment_differences(FULL, now) == said
    found = since_last(lone(1e-6, seed=1, environment=now), {0: (lone(1e-6, environment=FULL), 0)})
    text = next(doubt.text for doubt in found.warnings if doubt.kind in ("changed", "unchanged"))
    assert text.startswith(
        f"Since the last stored run: {'; '.join(said)}." if said else "Since the last stored run: source"
    )


# ---- load: a fact, no identity --------------------------------------------------------------------------------


def run(contention: Contention | None, seed: int = 0, environment: Environment = FULL) -> Comparison:
    subject = Subject(description="a", stmt="f(x)", label="L", inputs=(), contention=contention)
    return made(subject, medians=(1e-6,), seed=seed, environment=environment)


def test_what_the_load_was_in_both_runs_is_said_and_changes_no_identity() -> None:
    before, now = run(QUIET), run(BUSY, 1)
    expected = [
        "other processes used 0.02 -> 1.00 cores",
        "the hypervisor took 0.00 -> 0.20 cores",
        "some task waited for a core 0 % -> 40 % of the time",
        "the CPU quota stopped it 0 % -> 30 % of the time",
    ]
    assert load_differences(QUIET, BUSY) == expected
    assert likeness(before, 0) == likeness(now, 0)
    assert is_unchanged((before, 0), (now, 0))
    for found in (since_last(now, {0: (before, 0)}), side_by_side({"last stored run": before, "this run": now})):
        said = [doubt.text for doubt in found.warnings if doubt.kind == "other-load"]
        assert said == [f"From last stored run to this run the load of the machine changed: {'; '.join(expected)}."]


@pytest.mark.parametrize("other", [None, Contention(wall=1.0), replace(QUIET, ext=0.05, steal=0.01, pressure=0.05)])
def test_a_load_that_is_alike_or_not_known_is_not_said(other: Contention | None) -> None:
    assert load_differences(QUIET, other) == []
    found = since_last(run(other, 1), {0: (run(QUIET), 0)})
    assert not [doubt for doubt in found.warnings if doubt.kind == "other-load"]


def test_two_profiles_say_it_too() -> None:
    from torchbench_magic.profiling.diff import ProfileDiff

    two = [replace(profile_of_two_kernels(), contention=seen) for seen in (QUIET, BUSY)]
    said = [doubt.text for doubt in ProfileDiff(*two).warnings if doubt.kind == "other-load"]
    assert len(said) == 1
    assert said[0].startswith("From baseline to other the load of the machine changed: other processes used 0.02")
    assert not [doubt for doubt in ProfileDiff(two[0], two[0]).warnings if doubt.kind == "other-load"]


# ---- --resume -------------------------------------------------------------------------------------------------


def measured(path: Path, environment: Environment, *, resume: bool) -> Comparison:
    recording = Recording(Store(path), environment, resume=resume)
    task = Task(
        {"add": Body("1 + 1")}, namespace={}, plan=Plan(number=1, repeat=2), keep=recording.keep, skip=recording.skip
    )
    return recording.finish(compare_bodies(task))


def taken(result: Comparison) -> bool:
    return any(doubt.kind == "resumed" for doubt in result.warnings)


def edit(path: Path, change: Any) -> None:
    """Change the header of every stored record."""
    with closing(sqlite3.connect(path)) as connection:
        for number, header in connection.execute("SELECT id, header FROM record").fetchall():
            text = json.dumps(change(json.loads(header)))
            connection.execute("UPDATE record SET header = ? WHERE id = ?", (text, number))
        connection.commit()


def test_resume_takes_over_what_an_earlier_release_stored(tmp_path: Path) -> None:
    path, here = tmp_path / "runs.sqlite", read_environment()
    measured(path, here, resume=False)
    edit(path, older)
    assert load(path)[0].environment.quota is None  # type: ignore[union-attr]
    assert taken(measured(path, here, resume=True))


@pytest.mark.parametrize(
    "changed", [{"affinity": "62-63"}, {"libraries": ()}, {"governor": "another"}, {"load": 99.0}], ids=str
)
def test_resume_does_not_ask_for_what_varies_from_run_to_run(tmp_path: Path, changed: dict[str, Any]) -> None:
    path, here = tmp_path / "runs.sqlite", read_environment()
    measured(path, here, resume=False)
    assert taken(measured(path, replace(here, **changed), resume=True))


def test_resume_does_not_ask_for_the_load_of_then(tmp_path: Path) -> None:
    path, here = tmp_path / "runs.sqlite", read_environment()
    measured(path, here, resume=False)

    def busy(header: dict[str, Any]) -> dict[str, Any]:
        for subject in header["subjects"]["tuple"]:
            seen = subject["Subject"]["contention"]["Contention"]
            seen.update(steal=1.5, pressure=0.9, ext=1.9)
        return header

    edit(path, busy)
    result = measured(path, here, resume=True)
    assert taken(result)
    assert result.subjects[0].contention is not None
    assert result.subjects[0].contention.steal == 1.5


def test_resume_measures_again_under_another_quota(tmp_path: Path) -> None:
    path, here = tmp_path / "runs.sqlite", replace(read_environment(), quota=math.inf)
    measured(path, here, resume=False)
    edit(
        path,
        lambda header: {
            **header,
            "environment": {"Environment": {**header["environment"]["Environment"], "quota": 1.5}},
        },
    )
    result = measured(path, here, resume=True)
    assert not taken(result)
    (said,) = [doubt.text for doubt in result.warnings if doubt.kind == "measured-again"]
    assert said == "Measured again, since the stored run differs: the CPU quota was 1.5 cores, is none."


@pytest.mark.parametrize(
    "name",
    ["OMP_WAIT_POLICY", "KMP_BLOCKTIME", "MKL_NUM_THREADS", "MALLOC_ARENA_MAX", "LD_PRELOAD", "GLIBC_TUNABLES"],
)
def test_variables_of_threads_and_allocators_are_recorded_and_told_between_environments(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(name, raising=False)
    without = read_environment()
    monkeypatch.setenv(name, "made-up")
    monkeypatch.setenv("MADE_UP_OMP_", "no")
    read = read_environment()
    assert read.variables == {**without.variables, name: "made-up"}
    kept = comparison_from_record(comparison_record(lone(1e-6, environment=read)))
    assert kept.environment.variables[name] == "made-up"
    two = {"a": lone(1e-3, env="old", environment=without), "b": lone(1e-3, env="new", environment=kept.environment)}
    told = [doubt.text for doubt in side_by_side(two, by="env").warnings if doubt.kind == "differs"]
    assert told == [f"From a to b: {name}: none -> made-up."]


def test_steal_and_pressure_of_a_run_are_told_between_environments() -> None:
    calm, busy = (Contention(wall=1.0, pressure=p, steal=s, ext=0.0) for p, s in ((0.01, 0.0), (0.6, 0.4)))
    kept = [
        comparison_from_record(comparison_record(with_load(lone(1e-3, env=env), load)))
        for env, load in (("old", calm), ("new", busy))
    ]
    assert [str(one.subjects[0].contention) for one in kept] == [str(calm), str(busy)]  # NaN is not equal to itself
    both = side_by_side(dict(zip("ab", kept, strict=True)), by="env")
    (told,) = (doubt.text for doubt in both.warnings if doubt.kind == "other-load")
    assert told == (
        "From a to b the load of the machine changed: the hypervisor took 0.00 -> 0.40 cores;"
        " some task waited for a core 1 % -> 60 % of the time."
    )


def with_load(made: Comparison, load: Contention) -> Comparison:
    return replace(made, subjects=tuple(replace(subject, contention=load) for subject in made.subjects))


# ==== counts record ===================================================================================================
# Counts in a store: what is saved comes back, is compared across results, and is taken over when a run resumes.


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


# ==== first layout ====================================================================================================
# A store of the first layout, written on 28 November 2026 and kept: what is changed later still reads it.


KEPT = Path(__file__).parent / "first_layout.sqlite.gz"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "runs.sqlite").write_bytes(gzip.decompress(KEPT.read_bytes()))
    return tmp_path / "runs.sqlite"


def test_each_kind_of_result_is_read_with_its_values(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lone, counted, profile, ranks = load(path)

    assert isinstance(lone, Comparison)
    assert lone.frame["median"][0] == pytest.approx(1e-3, rel=1e-3)
    assert (lone.frame["n"][0], lone.frame["f"][0]) == (16, "<built-in function len>")
    assert lone.options == {"margin": math.inf}
    assert lone.samples.dtypes.astype(str).to_dict() == {
        "round": "int64", "measurement": "int64", "wall": "float64", "cpu": "float64", "number": "int64",
        "position": "int64",
    }  # fmt: skip
    assert lone.samples["round"].tolist() == list(range(20))
    assert lone.environment.cpu == "A"

    assert isinstance(counted, Comparison)
    assert counted.frame["instructions"].tolist() == [105, 155]
    (key, _), layouts = counted.counts.counted, counted.counts.counted["mul", None, 1]
    assert (key, len(layouts.shifted)) == (("mul", None, 1), 2)
    assert layouts.calls is not None
    assert [arc[2:] for arc in layouts.calls.statement] == [(10, 1000)]
    assert counted.diff().frame["delta"].sum() == 50

    assert isinstance(profile, Profile)
    assert profile.lines["source"].tolist() == ["y = x @ x", "z = y.relu()", "torch.cuda.synchronize()"]
    assert profile.lines["cell"].tolist() == [3, 3, 3]
    assert profile.lines["efficiency_class"].tolist() == [None, None, None]
    assert profile.lines["peak"].dtype == "Int64"
    assert profile.threads == ("MainThread", "worker \udc80")
    assert [cycle.wall_time for cycle in profile.cycles] == [0.004]
    assert profile.efficiency is not None
    assert profile.efficiency.rows[0].op == "aten::mm"
    assert profile.trace is not None
    assert profile.trace.events["start"].tolist() == [1_000_000, 5_000_000, 2_000_000, 5_500_000, 4_000_000, 9_000_000]
    assert profile.trace.names[0] == "aten::mm"

    assert isinstance(ranks, RankProfile)
    assert ranks.ranks["rank"].tolist() == [0, 1]
    assert ranks.ranks["transfer"].tolist() == pytest.approx([0.02382, 0.02382], rel=1e-3)
    assert ranks.timeline["what"].tolist()[:3] == ["compute", "transfer", "other"]
    assert ranks.files == ("rank0.json", "rank1.json")


def test_what_is_read_can_be_written_again_and_is_the_same(path: Path, tmp_path: Path) -> None:
    before = load(path)
    for result in before:
        save(result, tmp_path / "again.sqlite")
    after = load(tmp_path / "again.sqlite")
    assert [type(result) for result in after] == [type(result) for result in before]
    for one, other in zip(before, after, strict=True):
        for item in fields(one):
            table = getattr(one, item.name)
            if isinstance(table, pd.DataFrame):
                pd.testing.assert_frame_equal(table, getattr(other, item.name))


def test_a_run_that_is_there_is_not_stored_again(path: Path) -> None:
    for result in load(path):
        save(result, path)
    assert len(load(path)) == 4
