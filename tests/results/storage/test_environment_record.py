"""What the doctor learns is stored with each result: read back, missing in older records, said where it differs."""

from __future__ import annotations

import json
import math
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from torchbench_magic.cell_text import Body
from torchbench_magic.process.contention import Contention, load_differences
from torchbench_magic.process.environment import Environment, ranges_text, read_environment
from torchbench_magic.storage.records import comparison_from_record, comparison_record, profile_of, profile_record
from torchbench_magic.storage.resume import Recording
from torchbench_magic.storage.store import Store, load
from torchbench_magic.timing.across_runs import is_unchanged, side_by_side, since_last
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.identity import environment_differences, likeness
from torchbench_magic.timing.plan import Plan
from torchbench_magic.timing.run import compare_bodies
from torchbench_magic.timing.samples import Subject
from torchbench_magic.timing.task import Task

from ..profiles import profile_of_two_kernels
from ..samples import HERE, lone, made

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
