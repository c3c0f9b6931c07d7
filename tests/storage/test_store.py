"""The store: what goes in comes back, whatever happens to the file is said in one line, and nothing is lost."""

from __future__ import annotations

import json
import math
import os
import pickle
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import fields, replace
from pathlib import Path

import pandas as pd
import pytest

import torchbench_magic
from tests.profiling.profiles import profile_of_two_kernels
from tests.timing.samples import HERE, lone, made, pair
from torchbench_magic.errors import StoreError
from torchbench_magic.process.contention import Contention
from torchbench_magic.process.peak_performance import Peaks
from torchbench_magic.profiling.efficiency.table import Efficiency, OpEfficiency
from torchbench_magic.profiling.options import ProfileOptions
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.trace import Trace
from torchbench_magic.result_base import Doubt
from torchbench_magic.storage.store import Store, load
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.samples import Subject

# ==== store ===========================================================================================================


ROOT = Path(torchbench_magic.__file__).parents[1]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.sqlite"


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


# ---- what goes in comes back --------------------------------------------------------------------------------


def test_a_result_comes_back_as_it_was(path: Path) -> None:
    subject = Subject(
        label="L",
        sub_label="n=(2, 3), k=1.5",
        axes=(("n", (2, 3)), ("k", 1.5), ("name", None), ("flag", True)),
        stmt="f(x)\n'ä\\n'",
        setup="x = 1",
        functions=(("f", "0123"),),
        contention=Contention(wall=1.0, pressure=0.5),
        first_call=0.5,
    )
    before = made(
        subject,
        replace(subject, description="other"),
        medians=(1e-3, 2e-3),
        environment=replace(HERE, variables={"OMP_NUM_THREADS": "2"}, commit="abc+"),
        baseline="other",
        margin=0.02,
        elapsed=1.5,
        seed=7,
        options={"threads": (1, 2), "min_run_time": 0.2, "until": None},
        warnings=[Doubt("busy", "Busy.", "`wait`", {"pressure": 0.5, "rows": [0]})],
    )
    before.save(path)
    (after,) = load(path)
    pd.testing.assert_frame_equal(after.samples, before.samples)
    pd.testing.assert_frame_equal(after.frame, before.frame)
    assert repr(after.subjects) == repr(before.subjects)  # NaN is not equal to itself
    assert after.environment == before.environment
    assert after.warnings[0] == before.warnings[0]
    assert dict(after.warnings[0].facts) == {"pressure": 0.5, "rows": [0]}
    for name in ("baseline", "margin", "elapsed", "seed", "options", "clock", "partial"):
        assert getattr(after, name) == getattr(before, name), name
    assert after.saved.startswith("20")
    assert after.saved.endswith("Z")


def test_torchbench_magic_load_is_the_way_in(path: Path) -> None:
    pair(1e-3, 2e-3).save(str(path))
    assert [list(r.frame["description"]) for r in torchbench_magic.load(str(path))] == [["mul", "bmm"]]


def test_results_are_listed_newest_last(path: Path) -> None:
    for number in (3, 1, 2):
        lone(number * 1e-3, seed=number).save(path)
    assert [round(r.frame["median"][0] * 1e3) for r in load(path)] == [3, 1, 2]


def test_the_points_of_one_run_are_one_result(path: Path) -> None:
    store = Store(path)
    for n in (16, 32, 64):
        store.append(lone(n * 1e-6, sub_label=f"n={n}", axes=(("n", n),)), run="r")
        lone(1.0, seed=n).save(path)  # another kernel writes in between
    *_, whole = load(path)[:-1]
    assert list(whole.frame["n"]) == [16, 32, 64]
    assert len(load(path)) == 4


def test_the_same_result_is_stored_once(path: Path) -> None:
    result = pair(1e-3, 2e-3)
    result.save(path)
    result.save(path)
    result.rebase("bmm").save(path)
    assert len(load(path)) == 1


def test_of_a_result_that_is_there_in_part_the_rest_is_added(path: Path) -> None:
    from torchbench_magic.timing.across_runs import join_comparisons

    points = [lone(n * 1e-6, seed=n, sub_label=f"n={n}", axes=(("n", n),)) for n in (16, 32)]
    points[0].save(path)
    join_comparisons(points).save(path)
    assert [list(r.frame["n"]) for r in load(path)] == [[16], [32]]


def test_a_value_that_is_no_data_is_stored_as_its_text(path: Path) -> None:
    lone(1e-3, axes=(("f", len),), options={"where": Path("a")}).save(path)
    (after,) = load(path)
    assert after.frame["f"][0] == "<built-in function len>"
    assert "Path('a')" in str(after.options["where"])


def test_the_header_is_json_that_other_programs_read(path: Path) -> None:
    lone(1e-3, label="L", options={"min_run_time": 0.2}).save(path)
    with closing(sqlite3.connect(path)) as connection:
        kind, version, header = connection.execute("SELECT kind, version, header FROM record").fetchone()
        columns = connection.execute('SELECT "column", dtype, rows, codec FROM packed ORDER BY position').fetchall()
    read = json.loads(header)
    assert (kind, version) == ("Comparison", 1)
    assert read["identity"] == [["L", None, None, None, 1, "cpu"]]
    assert (read["torch"], read["machine"]) == ("2.13.0", ["Linux x86_64", "A", 2, None])
    assert read["options"] == {"map": {"min_run_time": 0.2}}
    assert columns[2] == ("wall", "float64", 20, "shuffle-zlib")


def test_an_interrupted_result_is_no_part_of_a_history(path: Path) -> None:
    result = lone(1e-3, partial=True)
    result.save(path)
    assert load(path)[0].partial
    assert Store(path).last(lone(2e-3, seed=1)) == {}


def test_nothing_stays_open(path: Path) -> None:
    lone(1e-3).save(path)
    load(path)
    assert sorted(p.name for p in path.parent.iterdir()) == ["runs.sqlite"]
    assert not [fd for fd in os.listdir("/proc/self/fd") if str(path) in os.path.realpath(f"/proc/self/fd/{fd}")]


# ---- what was measured before -------------------------------------------------------------------------------


def at(path: Path, times: list[str]) -> None:
    """Let the records be as old as that."""
    change(path, *(f"UPDATE record SET saved = '{t}' WHERE id = {i}" for i, t in enumerate(times, 1)))


def test_four_runs_over_twenty_seconds_are_a_history(path: Path) -> None:
    for i in range(4):
        lone(1e-3 * (1 + i / 100), seed=i).save(path)
    assert Store(path).history(lone(1e-3, seed=9)) == {}  # they are of one moment
    at(path, [f"2025-01-01T00:00:{s:02}.000Z" for s in (0, 5, 10, 21)])
    known = Store(path).history(lone(1e-3, seed=9))[0]
    assert known.low == pytest.approx(1e-3)
    assert known.high == pytest.approx(1.03e-3)
    assert (known.windows, known.of_runs) == (4, True)
    assert load(path)[0].details["reproducibility_high"][0] == pytest.approx(1.03e-3)


@pytest.mark.parametrize(
    "other",
    [
        {"stmt": "g(x)"},
        {"setup": "x = 2"},
        {"functions": (("f", "edited"),)},
        {"env": "B"},
        {"num_threads": 2},
        {"clock": "cpu"},
        {"environment": replace(HERE, torch="2.14.0")},
        {"environment": replace(HERE, cpu="B")},
        {"options": {"cold": True}},
    ],
    ids=str,
)
def test_what_differs_has_no_part_in_a_history(path: Path, other: dict[str, object]) -> None:
    for i in range(4):
        lone(1e-3, seed=i).save(path)
    at(path, [f"2025-01-01T00:00:{s:02}.000Z" for s in (0, 5, 10, 21)])
    assert Store(path).history(lone(1e-3, seed=9))
    assert Store(path).history(lone(1e-3, seed=9, **other)) == {}


def test_the_last_run_of_an_identity_is_found_but_not_the_result_itself(path: Path) -> None:
    first, second, now = (
        lone(m, seed=i, label="L", stmt=s) for i, (m, s) in enumerate([(1, "f()"), (2, "f()"), (3, "g()")])
    )
    first.save(path)
    assert Store(path).last(first) == {}
    second.save(path)
    now.save(path)
    ((found, row),) = Store(path).last(now).values()
    assert (found.frame["median"][row], row) == (pytest.approx(2), 0)


def test_a_label_of_a_cell_is_no_identity_and_a_given_one_is(path: Path) -> None:
    lone(1.0, label="In[3]", stmt="f(x)").save(path)
    assert Store(path).last(lone(2.0, seed=1, label="In[7]", stmt="f(x)"))
    assert not Store(path).last(lone(2.0, seed=1, label="In[3]", stmt="g(x)"))


# ---- two kernels --------------------------------------------------------------------------------------------

WRITER = """
import sys
from tests.timing.samples import lone
from torchbench_magic.storage.store import Store
store, who = Store(sys.argv[1], patience=60), int(sys.argv[2])
for i in range(40):
    store.append(lone(1e-3, seed=1000 * who + i, label=f"{who}/{i}"), run=f"{who}/{i}")
"""


@pytest.mark.interpreter
def test_two_processes_that_write_at_once_lose_nothing(path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(path)]
    writers = [subprocess.Popen([*command, str(who)], cwd=ROOT) for who in (1, 2)]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0]
    labels = {result.frame["label"][0] for result in load(path)}
    assert labels == {f"{who}/{i}" for who in (1, 2) for i in range(40)}


def test_a_lock_that_is_held_too_long_is_said_in_one_line_and_harms_nothing(path: Path) -> None:
    lone(1e-3).save(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreError, match=r"runs\.sqlite: another process has held it locked for 0\.2 s"):
            Store(path, patience=0.2).append(lone(2e-3, seed=1))
        with pytest.raises(StoreError, match="locked"):
            Store(path, patience=0.2).results()
        other.execute("ROLLBACK")
    Store(path).append(lone(2e-3, seed=1))
    assert len(load(path)) == 2


# ---- bad stores ---------------------------------------------------------------------------------------------


def _newer(path: Path) -> None:
    lone(1e-3).save(path)
    change(path, "PRAGMA user_version = 2")


def _newer_record(path: Path) -> None:
    lone(1e-3).save(path)
    change(path, "UPDATE record SET version = 2")


def _unknown_kind(path: Path) -> None:
    lone(1e-3).save(path)
    change(path, "UPDATE record SET kind = 'LaterProfile'")


def _torn(path: Path) -> None:
    for i in range(5):
        lone(1e-3, seed=i).save(path)
    path.write_bytes(path.read_bytes()[:9000])


def _overwritten(path: Path) -> None:
    lone(1e-3).save(path)
    content = bytearray(path.read_bytes())
    content[4096:] = os.urandom(len(content) - 4096)
    path.write_bytes(bytes(content))


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "text": (lambda path: path.write_text("label,median\n"), "is not a store of results"),
    "pickle": (lambda path: path.write_bytes(pickle.dumps([1])), r"load_torch_pickle\(path\) reads it"),
    "foreign": (lambda path: change(path, "CREATE TABLE t (x)"), "is a SQLite file of another program"),
    "folder": (lambda path: path.mkdir(), "is a folder"),
    "newer": (_newer, "layout 2 .* a newer one wrote it; upgrade"),
    "torn": (_torn, "is damaged"),
    "overwritten": (_overwritten, "is damaged"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_file_that_is_no_store_is_left_as_it_is_and_named_in_one_line(path: Path, kind: str) -> None:
    spoil, said = BAD[kind]
    spoil(path)
    before = None if path.is_dir() else path.read_bytes()
    for use in (load, lone(1e-3).save):
        with pytest.raises(StoreError, match=said) as caught:
            use(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
    assert before is None or path.read_bytes() == before


@pytest.mark.parametrize("spoil", [_newer_record, _unknown_kind])
def test_a_record_of_a_newer_version_is_left_out_with_a_word(path: Path, spoil: Callable[[Path], None]) -> None:
    spoil(path)
    lone(2e-3, seed=7).save(path)
    with pytest.warns(UserWarning, match="record 1 is left out: .*a newer torchbench_magic wrote; upgrade it here"):
        (left,) = load(path)
    assert left.frame["median"][0] == pytest.approx(2e-3, rel=0.1)


@pytest.mark.parametrize(
    "brought",
    [
        "CREATE TRIGGER t AFTER INSERT ON record BEGIN DELETE FROM record; END",
        "CREATE VIEW v AS SELECT * FROM record",
        "CREATE VIRTUAL TABLE v USING fts5(x)",
    ],
)
def test_what_a_received_store_brings_along_does_not_act(path: Path, brought: str) -> None:
    lone(1e-3).save(path)
    change(path, brought)
    before = path.read_bytes()
    for use in (load, lone(2e-3, seed=1).save):
        with pytest.raises(StoreError, match=r"holds a trigger, view or foreign table \([tv]\)"):
            use(path)
    assert path.read_bytes() == before


def test_a_store_that_is_free_again_after_a_while_is_written(path: Path) -> None:
    lone(1e-3).save(path)
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN EXCLUSIVE")
        told: list[float] = []

        def waiting(passed: float) -> None:
            told.append(passed)
            if len(told) == 2:
                other.execute("ROLLBACK")

        Store(path, patience=math.inf, waiting=waiting).append(lone(2e-3, seed=1))
    assert len(told) == 2
    assert len(load(path)) == 2


def test_there_is_no_such_file_and_no_such_folder(path: Path) -> None:
    with pytest.raises(StoreError, match="no such file"):
        load(path)
    with pytest.raises(StoreError, match="does not exist"):
        lone(1e-3).save(path / "deeper.sqlite")
    assert not path.exists()


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()
    with pytest.raises(StoreError, match="has no results yet"):
        load(path)
    lone(1e-3).save(path)
    assert len(load(path)) == 1


@pytest.mark.parametrize(
    "spoil",
    [
        "UPDATE record SET header = '{' WHERE id = 2",
        "UPDATE record SET header = '[]' WHERE id = 2",
        """UPDATE record SET header = '{"subjects": {"os": {}}}' WHERE id = 2""",
        """UPDATE record SET header = json_set(header, '$.subjects.tuple[0].Subject.group', 'x') WHERE id = 2""",
        """UPDATE record SET header = json_remove(header, '$.environment') WHERE id = 2""",
        """UPDATE record SET header = json_set(header, '$.subjects', json('[]')) WHERE id = 2""",
        """UPDATE record SET header = json_set(header, '$.margin', -3.0) WHERE id = 2""",
        "UPDATE packed SET rows = 7 WHERE record = 2 AND position = 2",
        "UPDATE packed SET data = x'00' WHERE record = 2 AND position = 2",
        "DELETE FROM packed WHERE record = 2 AND position = 2",
        "DELETE FROM packed WHERE record = 2",
        f"UPDATE record SET header = '{'[' * 100_000}' WHERE id = 2",
    ],
    ids=lambda text: text[:70],
)
def test_a_damaged_record_is_left_out_with_a_warning_and_the_others_come(path: Path, spoil: str) -> None:
    for i in range(3):
        lone(1e-3 * (i + 1), seed=i).save(path)
    change(path, spoil)
    with pytest.warns(UserWarning, match=r"record 2 is left out: .*damaged"):
        found = load(path)
    assert [round(r.frame["median"][0] * 1e3) for r in found] == [1, 3]


def test_a_full_disk_is_said_and_what_is_stored_stays(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lone(1e-3).save(path)
    connect = sqlite3.connect

    def small(*args: object, **options: object) -> sqlite3.Connection:
        connection = connect(*args, **options)  # type: ignore[call-overload]
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + 1}")
        return connection  # type: ignore[no-any-return]

    monkeypatch.setattr(sqlite3, "connect", small)
    with pytest.raises(StoreError, match="the disk is full: free some space"):
        made(*[Subject(sub_label=str(i)) for i in range(20)], medians=[1e-3] * 20, blocks=500).save(path)
    monkeypatch.undo()
    assert len(load(path)) == 1


READ_ONLY = """
import os, sys
from tests.timing.samples import lone
from torchbench_magic.errors import StoreError
from torchbench_magic.storage.store import load
path = sys.argv[1]
if os.getuid() == 0:
    os.setuid(65534)  # root may write everywhere
for name in (path, os.path.join(os.path.dirname(path), "new.sqlite")):
    try:
        lone(2e-3, seed=1).save(name)
    except StoreError as error:
        print(error)
print(len(load(path)))
"""


@pytest.mark.interpreter
def test_a_read_only_store_is_said_and_can_be_read(path: Path) -> None:
    lone(1e-3).save(path)
    for folder in (path.parent, *path.parent.parents):
        if folder.stat().st_uid == os.getuid() and folder != Path("/tmp") and folder != Path("/"):
            folder.chmod(0o755)
    path.chmod(0o444)
    path.parent.chmod(0o555)
    try:
        said = subprocess.run(
            [sys.executable, "-c", READ_ONLY, str(path)], cwd=ROOT, capture_output=True, text=True, timeout=120
        )
    finally:
        path.parent.chmod(0o755)
    lines = said.stdout.splitlines()
    assert len(lines) == 3, said.stderr
    assert all("cannot be written: the file or its folder is read-only" in line for line in lines[:2])
    assert lines[2] == "1"


def test_a_kernel_killed_while_it_writes_leaves_a_store_that_works(path: Path) -> None:
    """SIGKILL in the middle of a commit: the journal is rolled back by whoever opens the file next."""
    lone(1e-3).save(path)
    script = (
        "import os, sqlite3, sys\n"
        "c = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "c.execute('PRAGMA cache_size = 1')\n"
        "c.execute('BEGIN IMMEDIATE')\n"
        "c.execute('UPDATE record SET header = ?', ('x' * 200_000,))\n"  # spills to the file before the commit
        "os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", script, str(path)]).returncode == -9
    assert (path.parent / "runs.sqlite-journal").exists()
    assert isinstance(load(path)[0], Comparison)
    lone(2e-3, seed=1).save(path)
    assert len(load(path)) == 2


# ==== stored profiles =================================================================================================
# Profiles in a store: what is read back is what was kept, and a damaged or newer record is said to be one.


PEAKS = Peaks(2, (("float32", 2, 1e11),), ((1 << 20, 2, 5e10),), 1e-6, (("L2", 1 << 20),), 0.01, True, ("Said.",))
JUDGED = OpEfficiency("aten::mm", "[[2, 2]]", "", "ab", 3, 0, 2, 0.5, 16.0, 32.0, 4.0, 4.0, "[2]", "float32", 0.25,
                      "compute", "compute", True, 7.0, 1e-3, 0.4)  # fmt: skip
EFFICIENCY = Efficiency(PEAKS, (JUDGED,), 0.9, 10.0, 0.1, 0.8, ("Said.",))


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


@pytest.mark.interpreter
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
        "from tests.profiling.profiles import profile_of_two_kernels\n"
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
