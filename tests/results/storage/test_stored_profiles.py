"""Profiles in a store: what is read back is what was kept, and a damaged or newer record is said to be one."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import fields, replace
from pathlib import Path

import pandas as pd
import pytest

import torchbench_magic
from torchbench_magic.process.peaks import Peaks
from torchbench_magic.profiling.efficiency.table import Efficiency, OpEfficiency
from torchbench_magic.profiling.options import ProfileOptions
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.trace import Trace
from torchbench_magic.results import Doubt
from torchbench_magic.storage.store import Store, load

from ..profiles import profile_of_two_kernels
from ..samples import HERE, lone

PEAKS = Peaks(2, (("float32", 2, 1e11),), ((1 << 20, 2, 5e10),), 1e-6, (("L2", 1 << 20),), 0.01, True, ("Said.",))
JUDGED = OpEfficiency("aten::mm", "[[2, 2]]", "", "ab", 3, 0, 2, 0.5, 16.0, 32.0, 4.0, 4.0, "[2]", "float32", 0.25,
                      "compute", "compute", True, 7.0, 1e-3, 0.4, 0.3)  # fmt: skip
EFFICIENCY = Efficiency(PEAKS, (JUDGED,), 0.9, 10.0, 0.1, 0.8, (("aten::mm", "[[2, 2]]", "ref"),), ("Said.",))


def full(**changes: object) -> Profile:
    given = {
        "environment": HERE,
        "options": ProfileOptions(threads=2, shapes=True, lines_of=("m",)),
        "warnings": [Doubt("kind", "Text.", "`do`", {"seconds": 0.5})],
        "ranges": ("step",),
        "threads": ("MainThread", "worker \udc80"),
        "partial": True,
        "calls": (("aten::mm", "[[2, 2], [2, 2]]", "['float', 'float']", "[[2, 1], [2, 1]]", "['', '']", "", 3),),
        "bytes_before": 4096.0,
        "flops_coverage": 0.25,
        "unprofiled_time": 0.009,
        "profiler_cost": "noticeable",
        "repeats": ((0.01, 0.009),),
        "efficiency": EFFICIENCY,
    }
    return profile_of_two_kernels(**(given | changes))


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as connection, connection:
        yield connection


def assert_same(one: Profile, other: Profile) -> None:
    for item in fields(Profile):
        a, b = getattr(one, item.name), getattr(other, item.name)
        if isinstance(a, pd.DataFrame):
            pd.testing.assert_frame_equal(a, b)
        elif isinstance(a, Trace):
            for name in ("events", "nodes", "segments"):
                pd.testing.assert_frame_equal(getattr(a, name), getattr(b, name))
            for name in ("names", "tracks", "sources", "functions", "inputs", "begin", "duration", "process"):
                assert getattr(a, name) == getattr(b, name), name
        elif item.name == "cycles":
            assert len(a) == len(b)
        elif item.name != "saved":
            assert a == b or (a != a and b != b), item.name  # NaN is not known, in both


def test_a_profile_comes_back_as_it_was(tmp_path: Path) -> None:
    profile = full()
    profile.save(tmp_path / "runs.sqlite")
    (read,) = load(tmp_path / "runs.sqlite")
    assert isinstance(read, Profile)
    assert_same(profile, read)
    assert [dict(doubt.facts) for doubt in read.warnings] == [{"seconds": 0.5}]
    assert read.saved


def test_a_profile_comes_back_in_another_process_without_torch(tmp_path: Path) -> None:
    full().save(tmp_path / "runs.sqlite")
    code = (
        "import sys, torchbench_magic\n"
        f"(profile,) = torchbench_magic.load({str(tmp_path / 'runs.sqlite')!r})\n"
        "print(profile.lines['source'].tolist()[0], len(profile.trace), 'torch' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split("\n")[0] == "y = x @ x 6 False"


def test_the_cycles_of_a_profile_are_kept_with_it(tmp_path: Path) -> None:
    cycles = (full(wall_time=0.004), full(wall_time=0.006))
    full(cycles=cycles).save(tmp_path / "runs.sqlite")
    (read,) = load(tmp_path / "runs.sqlite")
    assert isinstance(read, Profile)
    for one, other in zip(cycles, read.cycles, strict=True):
        assert_same(one, other)


def test_timings_and_profiles_share_a_file(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.sqlite")
    store.append(lone(1e-3))
    store.append(full())
    store.append(lone(2e-3, seed=1))
    assert [type(result).__name__ for result in store.results()] == ["Comparison", "Profile", "Comparison"]
    assert len(store.comparisons()) == 2
    assert list(store.last(lone(3e-3, seed=2))) == [0]  # the profile is no earlier run of the timing


def test_a_profile_is_not_stored_twice(tmp_path: Path) -> None:
    for profile in (full(), full(), full(wall_time=0.5)):
        profile.save(tmp_path / "runs.sqlite")
    kept = load(tmp_path / "runs.sqlite")
    assert [profile.wall_time for profile in kept if isinstance(profile, Profile)] == [0.01, 0.5]


@pytest.mark.slow
def test_two_processes_may_store_at_once(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from tests.results.profiles import profile_of_two_kernels\n"
        "for n in range(8): profile_of_two_kernels(wall_time=float(sys.argv[2]) + n).save(sys.argv[3])"
    )
    root = Path(torchbench_magic.__file__).parents[1]
    given = [str(root), str(tmp_path / "runs.sqlite")]
    running = [
        subprocess.Popen([sys.executable, "-c", code, given[0], start, given[1]]) for start in ("100", "200")
    ]
    assert [process.wait(120) for process in running] == [0, 0]
    kept = sorted(result.wall_time for result in load(tmp_path / "runs.sqlite") if isinstance(result, Profile))
    assert kept == [*(100.0 + n for n in range(8)), *(200.0 + n for n in range(8))]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE record SET header = replace(header, '\"wall_time\":', '\"wall_time\": \"long\", \"was\":')",
        "DELETE FROM packed WHERE name = 'trace.events' AND \"column\" = 'kind'",
        "DELETE FROM packed WHERE name = 'lines'",
        "UPDATE packed SET rows = rows + 1 WHERE name = 'trace.events'",
        "UPDATE packed SET data = x'00' WHERE name = 'ops'",
    ],
)
def test_a_damaged_profile_is_left_out_with_a_warning(tmp_path: Path, damage: str) -> None:
    full().save(tmp_path / "runs.sqlite")
    with opened(tmp_path / "runs.sqlite") as connection:
        assert connection.execute(damage).rowcount > 0
    with pytest.warns(UserWarning, match="record 1 is left out"):
        left = load(tmp_path / "runs.sqlite")
    assert left == []


def test_a_profile_of_a_newer_layout_is_left_out(tmp_path: Path) -> None:
    full().save(tmp_path / "runs.sqlite")
    with opened(tmp_path / "runs.sqlite") as connection:
        connection.execute("UPDATE record SET version = 99")
    with pytest.warns(UserWarning, match="a newer torchbench_magic wrote"):
        assert load(tmp_path / "runs.sqlite") == []


def test_fields_that_a_later_version_adds_are_passed_over(tmp_path: Path) -> None:
    full().save(tmp_path / "runs.sqlite")
    with opened(tmp_path / "runs.sqlite") as connection:
        (text,) = connection.execute("SELECT header FROM record").fetchone()
        connection.execute("UPDATE record SET header = ?", (json.dumps(json.loads(text) | {"later": 1}),))
    (read,) = load(tmp_path / "runs.sqlite")
    assert_same(full(), replace(read, saved=""))  # type: ignore[arg-type]
