"""DataLoader workers: the line that waits says so, and where the workers spend their time."""

from __future__ import annotations

import functools
import itertools
import json
import multiprocessing.queues
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from multiprocessing import resource_tracker
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pandas as pd
import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, Dataset, IterableDataset  # noqa: E402
from torch.utils.data._utils import worker as torch_worker  # noqa: E402

from tests.profiling.asking import asked  # noqa: E402
from torchbench_magic import load, profile  # noqa: E402
from torchbench_magic.cell_body import Body  # noqa: E402
from torchbench_magic.process.code import compile_body  # noqa: E402
from torchbench_magic.profiling.options import Schedule  # noqa: E402
from torchbench_magic.profiling.profile import Profile  # noqa: E402
from torchbench_magic.profiling.run import profile_body  # noqa: E402
from torchbench_magic.profiling.steps import mark_loop  # noqa: E402
from torchbench_magic.profiling.workers import loop as worker_loop  # noqa: E402
from torchbench_magic.profiling.workers import record  # noqa: E402
from torchbench_magic.profiling.workers.loop import WorkerNotes, write_note  # noqa: E402

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="workers are found in /proc")
LOOP = "for b in loader:\n    pass\n"


def is_noted(function: str) -> bool:
    """In a worker: whether it was seen in ``function``, that is whether its notes say so; True in one that nobody looks
    at."""
    is_looked_at = any(each.name == "torchbench_magic" for each in threading.enumerate())
    written: list[str] = []
    for file in Path(tempfile.gettempdir()).glob("torchbench_magic_workers_*"):
        with suppress(FileNotFoundError):  # of a test that runs beside this one, and has ended
            written += file.read_text(encoding="utf-8").split("\n")[:-1]
    mine = [rows for pid, rows in map(json.loads, written) if pid == os.getpid()]
    return not is_looked_at or any(row[2] == function for rows in mine for row in rows)


class Items(Dataset[int]):
    """Twelve; each is there as soon as its worker was seen at work on it."""

    def __getitem__(self, index: int) -> int:
        self.works()
        return index

    def __len__(self) -> int:
        return 12

    def works(self) -> None:
        while not is_noted("works"):
            time.sleep(0.001)


class Sorts(Items):
    """Works in calls that keep the interpreter's lock, until one of them was seen."""

    def __init__(self) -> None:
        self.numbers = [(7919 * n) % 10_007 / 7 for n in range(10_000)]

    def works(self) -> None:
        while not is_noted("sorts"):
            self.sorts()

    def sorts(self) -> None:
        for _ in range(20):
            sorted(self.numbers)


class Streamed(IterableDataset[int]):
    def __iter__(self) -> Any:
        while not is_noted("__iter__"):
            time.sleep(0.001)
        yield from range(6)


class Fails(Items):
    def __getitem__(self, index: int) -> int:
        if index == 2:
            raise ValueError("a broken file")
        return index


class Killed(Items):
    def __getitem__(self, index: int) -> int:
        if index == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return index


@pytest.fixture(autouse=True)
def nothing_is_left() -> Any:
    loop = torch_worker._worker_loop
    yield
    assert torch_worker._worker_loop is loop  # open files are looked at for every test


@pytest.fixture(autouse=True)
def notes_and_sentences_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker writes after each look, and a wait is told of however short it was."""
    monkeypatch.setattr(worker_loop, "_WRITTEN_EVERY", 0.0)
    monkeypatch.setattr(worker_loop, "_WRITTEN_SHARE", 0.0)
    monkeypatch.setattr(record, "_LEAST", 0.0)


def functions(made: Profile) -> set[str]:
    return set(made.workers["function"])


def doubt_of(made: Profile) -> str:
    (found,) = [each.text for each in made.warnings if each.kind == "workers"]
    return found


# ---- a profile with a real loader ---------------------------------------------------------------------------------


def test_a_line_that_waits_for_workers_says_so_and_where_they_spend_it(tmp_path: Path) -> None:
    loader = DataLoader(Items(), num_workers=2, batch_size=2)
    state = dict(vars(loader))
    made = profile(LOOP, globals={"loader": loader})
    assert vars(loader) == state
    work = made.workers[made.workers["function"] == "works"]
    assert set(work["worker"]) == {0, 1}
    assert set(work["file"]) == {__file__}
    spent = made.workers[made.workers["function"] != worker_loop.WAITING]
    sums = spent.groupby(["file", "line", "function"], dropna=False, sort=False)["seconds"].sum()
    most = sums.idxmax()[2]
    said = "was spent starting them" if most == worker_loop.STARTING else f"in `{most}`"
    assert " waits " in doubt_of(made)
    assert said in doubt_of(made), sums
    assert "workers of the DataLoader" in str(made)
    made.save(tmp_path / "runs.sqlite")
    (kept,) = load(tmp_path / "runs.sqlite")
    assert kept.workers.equals(made.workers)


@pytest.mark.parametrize(("data", "function"), [(Sorts(), "sorts"), (Streamed(), "__iter__")])
def test_a_line_that_keeps_the_interpreters_lock_is_seen_and_so_is_a_stream(data: Any, function: str) -> None:
    """The worker goes on until it was: it does not let go of the lock by itself there."""
    assert function in functions(profile(LOOP, globals={"loader": DataLoader(data, num_workers=1)}))


def test_workers_of_a_cells_own_loop_were_started_before_its_recorded_steps() -> None:
    outcome = profiled_steps(LOOP, {"loader": DataLoader(Items(), num_workers=1, batch_size=2)})
    assert outcome.steps == (1, 2, 3)
    assert "they started before the recorded steps, or ended at once" in doubt_of(outcome)
    assert "in this cell" not in str(outcome)
    (action,) = [each.action for each in outcome.warnings if each.kind == "workers"]
    assert action.startswith("Profile the whole cell, without steps")


def profiled_steps(text: str, names: dict[str, Any]) -> Profile:
    """The steps 1 to 3 of the loop of a cell, as ``--steps 3 --warmup 1``."""
    body = compile_body(Body(text, "<cell>"), transform_ast=mark_loop)
    schedule = Schedule.of("wait=0,warmup=1,active=3,repeat=1")
    return profile_body(body, asked(namespace=names, schedule=schedule, in_loop=True)).profile


@pytest.mark.slow
def test_spawned_workers_are_seen_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3]))  # a spawned worker imports the class of its dataset
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))  # not that of a shell that another test made
    spawned = DataLoader(Items(), num_workers=1, multiprocessing_context="spawn", batch_size=4)
    try:
        assert "works" in functions(profile(LOOP, globals={"loader": spawned}))
    finally:
        resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]  # a process of Python's own that stays


def test_workers_from_before_are_not_looked_into() -> None:
    loader = DataLoader(Items(), num_workers=1, persistent_workers=True)
    for _ in loader:
        pass
    made = profile(LOOP, globals={"loader": loader})
    assert made.workers.empty
    assert "they started before this cell, or ended at once" in doubt_of(made)
    del loader


def test_workers_that_outlive_the_profile_go_on_without_it() -> None:
    loader = DataLoader(Items(), num_workers=1, persistent_workers=True)
    assert "works" in functions(profile(LOOP, globals={"loader": loader}))
    assert len(list(loader)) == 12


def test_an_error_in_a_worker_is_the_users_as_without() -> None:
    loader = DataLoader(Fails(), num_workers=1, persistent_workers=True)
    with pytest.raises(ValueError, match="a broken file"):
        profile(LOOP, globals={"loader": loader})
    loader._iterator._shutdown_workers()  # type: ignore[union-attr]  # torch takes five seconds where a collection does


@pytest.mark.slow
def test_a_killed_worker_is_the_users_as_without(tmp_path: Path) -> None:
    """Of a killed worker torch leaves pipes and a thread behind: in a process of its own."""
    text = f"""import os, tempfile
from {__name__} import DataLoader, Killed, LOOP, profile
try:
    profile(LOOP, globals=dict(loader=DataLoader(Killed(), num_workers=1)))
except RuntimeError as error:
    print(error, [name for name in os.listdir(tempfile.gettempdir()) if "torchbench" in name])  # torch leaves its own
"""
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, env=environment)
    assert "exited unexpectedly" in ran.stdout or "killed by signal" in ran.stdout, ran.stderr
    assert ran.stdout.strip().endswith("[]"), "no file is left"


def test_notes_are_read_until_they_are_removed_and_what_a_killed_worker_left_half_written_is_no_note() -> None:
    notes = WorkerNotes()
    write_note(notes.path, {("a.py", 3, "f"): 0.5})
    write_note(notes.path, {("a.py", 3, "f"): 1.5})
    with open(notes.path, "a") as file:
        file.write('[7, [["a.py", 4')
    assert notes.close() == {os.getpid(): {("a.py", 3, "f"): 1.5}}
    assert not os.path.exists(notes.path)
    with pytest.raises(FileNotFoundError):
        write_note(notes.path, {})


def test_without_workers_there_is_no_table_and_no_sentence() -> None:
    made = profile(LOOP, globals={"loader": [1, 2]})
    assert made.workers.empty
    assert "workers" not in [each.kind for each in made.warnings]


# ---- starts of workers ------------------------------------------------------------------------------------------


TWICE = "for _ in range(2):\n    for b in {}:\n        pass\n"
ANEW = "DataLoader(items, num_workers=1, batch_size=4)"


@pytest.mark.parametrize(
    ("text", "persistent", "again"),
    [
        (LOOP, False, 0),
        (TWICE.format("loader"), False, 1),
        (TWICE.format("loader"), True, 0),
        (TWICE.format(ANEW), False, 1),
        (f"{LOOP}for b in {ANEW}:\n    pass\n", False, 0),  # training and evaluation
    ],
    ids=["one epoch", "two epochs", "kept", "made anew", "two loaders"],
)
def test_workers_are_started_again_where_their_loader_has_started_some_before(
    text: str, persistent: bool, again: int
) -> None:
    items = Items()
    loader = DataLoader(items, num_workers=2, batch_size=4, persistent_workers=persistent)
    made = profile(text, globals={"loader": loader, "items": items, "DataLoader": DataLoader})
    assert record.starts_again(made.workers) == again
    assert made.workers["loader"].notna().all()


# ---- the thread that looks ----------------------------------------------------------------------------------------


class Told:
    """A clock that only waiting moves, and the moment at which the worker ends."""

    def __init__(self, looks: int) -> None:
        self.now, self.left = 100.0, looks
        self.waits: list[float] = []
        self.intervals: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        self.intervals.append(sys.getswitchinterval())
        self.now += seconds
        self.left -= 1
        return self.left < 0


def looked(monkeypatch: pytest.MonkeyPatch, places: Iterable[tuple[Any, bool]], looks: int) -> tuple[Any, ...]:
    """(the clock, what was written and when) of a thread that looks so often and finds these places."""
    clock, left = Told(looks), iter(places)
    written: list[tuple[float, dict[Any, float]]] = []
    monkeypatch.setattr(worker_loop, "time", SimpleNamespace(monotonic=clock.monotonic))
    monkeypatch.setattr(worker_loop, "_age", lambda: 3.0)
    monkeypatch.setattr(worker_loop, "_place", lambda frame: next(left))
    monkeypatch.setattr(worker_loop, "write_note", lambda file, seconds: written.append((clock.now, dict(seconds))))
    worker_loop._look(threading.get_ident(), os.devnull, clock)  # type: ignore[arg-type]
    return clock, written


def test_a_place_has_the_time_since_the_look_before_and_the_start_all_until_the_first_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torchs, waits = ("worker.py", 9, "_worker_loop"), ("", 0, worker_loop.WAITING)
    load, decode = ("data.py", 5, "load"), ("data.py", 8, "decode")
    found = [(torchs, True), (torchs, True), (waits, False), (load, False), (torchs, True), (load, False)]
    clock, written = looked(monkeypatch, [*found, (decode, False), (waits, False)], 8)
    at = clock.waits
    assert written[-1][1] == pytest.approx(
        {
            ("", 0, worker_loop.STARTING): 3.0 + at[0] + at[1],
            waits: at[2] + at[7],
            load: at[3] + at[5],
            torchs: at[4],
            decode: at[6],
        }
    ), "the age of the process is of its start, and what follows the last look is nobody's"


def test_the_sums_are_written_every_fifth_of_a_second_and_later_every_tenth_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()  # of `notes_and_sentences_at_once`
    _, written = looked(monkeypatch, itertools.repeat((("data.py", 5, "load"), False)), 2000)
    moments = [at - 100.0 for at, _ in written]
    for before, at in zip([0.0, *moments], moments[:-1], strict=False):  # the last one is at the end
        least = max(0.2, 0.1 * at)
        assert least <= at - before <= least + 0.016, (before, at)
    sums = [sum(seconds.values()) for _, seconds in written]
    assert sums[:-1] == pytest.approx([3.0 + at for at in moments[:-1]]), "each holds all until then"


def test_while_it_looks_the_interpreters_lock_is_handed_over_soon_and_as_before_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = sys.getswitchinterval()
    clock, _ = looked(monkeypatch, itertools.repeat((("data.py", 5, "load"), False)), 40)
    assert max(clock.intervals) < 2e-4, "else lines that let go of it by themselves are seen in place of those before"
    assert sys.getswitchinterval() == before
    assert 0.005 <= min(clock.waits) <= max(clock.waits) <= 0.015
    assert len({round(seconds, 6) for seconds in clock.waits}) == len(clock.waits), "no two waits are equal"


def test_a_switch_interval_that_the_worker_sets_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    before = sys.getswitchinterval()

    def places() -> Iterator[tuple[Any, bool]]:
        sys.setswitchinterval(0.02)
        yield ("data.py", 5, "load"), False

    try:
        looked(monkeypatch, places(), 1)
        assert sys.getswitchinterval() == pytest.approx(0.02)
    finally:
        sys.setswitchinterval(before)


def test_once_the_notes_are_gone_it_looks_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = WorkerNotes()
    notes.close()
    clock = Told(1000)
    monkeypatch.setattr(worker_loop, "time", SimpleNamespace(monotonic=clock.monotonic))
    worker_loop._sample(threading.get_ident(), notes.path, clock)  # type: ignore[arg-type]
    assert len(clock.waits) == 1


def named(name: str, file: str) -> Any:
    """A function of this name and file that calls what it is given."""
    names: dict[str, Any] = {}
    exec(compile(f"def {name}(call):\n    return call()", file, "exec"), names)
    return names[name]


USERS, TORCHS = "/of/a/user/data.py", str(Path(torch_worker.__file__))
LOOPS = named("_worker_loop", TORCHS)
FETCHES = named("fetch", str(Path(torch_worker.__file__).with_name("fetch.py")))
GETS = named("get", multiprocessing.queues.__file__)


@pytest.mark.parametrize(
    ("stack", "place", "is_of_loop"),
    [
        ([LOOPS, FETCHES, named("load", USERS)], (USERS, 2, "load"), False),
        ([LOOPS, FETCHES, named("load", USERS), named("dumps", json.__file__)], (USERS, 2, "load"), False),
        ([LOOPS, FETCHES, named("load", USERS), named("decode", USERS)], (USERS, 2, "decode"), False),
        ([LOOPS, FETCHES, named("dumps", json.__file__)], (json.__file__, 2, "dumps"), False),
        ([LOOPS, named("seed", json.__file__)], (json.__file__, 2, "seed"), True),
        ([LOOPS, GETS], ("", 0, worker_loop.WAITING), False),
        ([named("main", USERS), LOOPS], ("", 0, worker_loop.WAITING), True),
    ],
    ids=["user", "library of user", "innermost", "library", "before a batch", "waits", "loop itself"],
)
def test_the_place_is_the_innermost_line_of_the_users_within_the_loop(
    stack: list[Any], place: tuple[str, int, str], is_of_loop: bool
) -> None:
    found: list[Any] = []

    def innermost() -> None:
        found.append(worker_loop._place(sys._getframe().f_back))

    call: Callable[[], object] = innermost
    for each in reversed(stack):
        call = functools.partial(each, call)
    call()
    assert found == [(place, is_of_loop)]


def test_of_no_frame_the_worker_waits() -> None:
    assert worker_loop._place(None) == (("", 0, worker_loop.WAITING), True)


# ---- what is said of it -------------------------------------------------------------------------------------------


def rows(*found: tuple[str, int | None, float]) -> pd.DataFrame:
    names = [name for name, _, _ in found]
    lines = pd.array([line for _, line, _ in found], dtype="Int64")
    cells = pd.array([None if line is None else 7 for line in lines], dtype="Int64")
    seconds = [took for _, _, took in found]
    columns = {"cell": cells, "line": lines, "file": "a.py", "function": names, "seconds": seconds}
    return pd.DataFrame({"loader": pd.array([1] * len(found), dtype="Int64"), "start": 0, **columns})


def waiting(wall: float, *found: tuple[str, int | None, float], starts: int = 1) -> Any:
    op = {"op": ["enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"], "cpu_time": [1.0]}
    ops = pd.DataFrame({**op, "file": ["a.py"], "line": [3], "cell": [8]})
    every = [rows(*found).assign(start=start) for start in range(starts)]
    return record.waits_for_workers(ops, pd.concat(every, ignore_index=True), wall)


def test_the_share_in_the_words_is_that_of_the_table() -> None:
    doubt = waiting(1.2, ("load", 5, 6.0), ("other", 6, 1.0), (worker_loop.WAITING, None, 3.0))
    assert "60 % of their time at In[7]:5" in doubt.text


def test_the_start_of_workers_is_said_as_such_and_is_no_line_to_make_cheaper() -> None:
    found = ("load", 5, 1.0), (worker_loop.STARTING, None, 3.0)
    doubt = waiting(1.2, *found, starts=2)
    assert "75 % of these workers' time was spent starting them" in doubt.text
    assert "persistent_workers" in doubt.action
    assert "between epochs" not in waiting(1.2, *found).action


def test_a_wait_that_is_a_small_share_of_the_cell_gets_no_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # of `notes_and_sentences_at_once`
    assert waiting(7.9, ("load", 5, 1.0)) is None
    assert waiting(4.9, ("load", 5, 1.0)) is not None
