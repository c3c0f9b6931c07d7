"""DataLoader workers: the line that waits says so, and where the workers spend their time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, Dataset, IterableDataset  # noqa: E402
from torch.utils.data._utils import worker as torch_worker  # noqa: E402

from torchbench_magic import load, profile  # noqa: E402
from torchbench_magic.core.code.body import compile_body  # noqa: E402
from torchbench_magic.core.profiling.loop_steps import mark_loop  # noqa: E402
from torchbench_magic.core.profiling.profiler import profile_body  # noqa: E402
from torchbench_magic.core.profiling.recording import worker_loop  # noqa: E402
from torchbench_magic.core.profiling.recording.worker_notes import WorkerNotes, open_notes, write_note  # noqa: E402
from torchbench_magic.core.profiling.recording.workers import WorkerRecord  # noqa: E402
from torchbench_magic.core.profiling.waiting_for_workers import waits_for_workers  # noqa: E402
from torchbench_magic.results.cell_text import Body  # noqa: E402
from torchbench_magic.results.profiling.profile import Profile  # noqa: E402
from torchbench_magic.results.profiling.schedule import Schedule  # noqa: E402

from ..asking import asked  # noqa: E402

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="workers are found in /proc")
SLOW = "for b in loader:\n    pass\n"


class Slow(Dataset[int]):
    def __getitem__(self, index: int) -> int:
        self.sleeps()
        return index

    def __len__(self) -> int:
        return 12

    def sleeps(self) -> None:
        time.sleep(0.05)


class Sorts(Slow):
    """Nearly all of its time is a call that keeps the interpreter's lock; a call that lets go of it follows."""

    def __init__(self) -> None:
        self.numbers = [(7919 * n) % 100_003 / 7 for n in range(100_000)]

    def __getitem__(self, index: int) -> int:
        self.sorts()
        self.lets_go()
        return index

    def sorts(self) -> None:
        sorted(self.numbers)

    def lets_go(self) -> None:
        time.sleep(0)


class Streamed(IterableDataset[int]):
    def __iter__(self) -> Any:
        for index in range(6):
            time.sleep(0.05)
            yield index


class Fails(Slow):
    def __getitem__(self, index: int) -> int:
        time.sleep(0.1)
        if index == 2:
            raise ValueError("a broken file")
        return index


class Killed(Slow):
    def __getitem__(self, index: int) -> int:
        time.sleep(0.3)
        if index == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return index


@pytest.fixture(autouse=True)
def nothing_is_left() -> Any:
    loop = torch_worker._worker_loop
    yield
    assert torch_worker._worker_loop is loop  # open files are looked at for every test


def functions(made: Profile) -> set[str]:
    return set(made.workers["function"])


def doubt_of(made: Profile) -> str:
    (found,) = [each.text for each in made.warnings if each.kind == "workers"]
    return found


def test_a_line_that_waits_for_workers_says_so_and_where_they_spend_it(tmp_path: Path) -> None:
    loader = DataLoader(Slow(), num_workers=2, batch_size=2)
    state = dict(vars(loader))
    made = profile(SLOW, globals={"loader": loader})
    assert vars(loader) == state
    assert set(made.workers["worker"]) == {0, 1}
    work = made.workers[made.workers["line"].notna()]
    top = work.groupby(["file", "function"])["seconds"].sum().idxmax()
    assert top == (__file__, "sleeps")
    assert "waits" in doubt_of(made)
    assert "test_workers.py" in doubt_of(made)
    assert "workers of the DataLoader" in str(made)
    made.save(tmp_path / "runs.sqlite")
    (kept,) = load(tmp_path / "runs.sqlite")
    assert kept.workers.equals(made.workers)


def test_a_line_that_keeps_the_interpreters_lock_is_seen_and_not_the_one_after_it() -> None:
    made = profile(SLOW, globals={"loader": DataLoader(Sorts(), num_workers=1)})
    by_function = made.workers.groupby("function")["seconds"].sum()
    assert by_function.get("sorts", 0.0) > by_function.get("lets_go", 0.0)


def test_while_it_looks_the_interpreters_lock_is_handed_over_soon_and_as_before_afterwards(tmp_path: Path) -> None:
    before, seen = sys.getswitchinterval(), list[tuple[float, float]]()

    class Ended:
        def wait(self, seconds: float) -> bool:
            seen.append((sys.getswitchinterval(), seconds))
            return len(seen) > 40

    file = os.open(tmp_path / "notes", os.O_WRONLY | os.O_CREAT)
    worker_loop._look(threading.get_ident(), file, Ended())  # type: ignore[arg-type]
    assert all(interval == pytest.approx(worker_loop._SWITCH) for interval, _ in seen)
    assert sys.getswitchinterval() == pytest.approx(before)
    assert len({round(seconds, 6) for _, seconds in seen}) == len(seen), "no two waits are equal"


def rows(*found: tuple[str, int | None, float]) -> pd.DataFrame:
    names = [name for name, _, _ in found]
    lines = pd.array([line for _, line, _ in found], dtype="Int64")
    cells = pd.array([None if line is None else 7 for line in lines], dtype="Int64")
    seconds = [took for _, _, took in found]
    return pd.DataFrame({"cell": cells, "line": lines, "file": "a.py", "function": names, "seconds": seconds})


def test_workers_of_a_cells_own_loop_were_started_before_its_recorded_steps() -> None:
    outcome = profiled_steps(SLOW, {"loader": DataLoader(Slow(), num_workers=1, batch_size=2)})
    assert outcome.steps == (1, 2, 3)
    assert "which were started before the recorded steps and used" in doubt_of(outcome)
    assert "before this cell" not in str(outcome)
    (action,) = [each.action for each in outcome.warnings if each.kind == "workers"]
    assert action.startswith("Profile the whole cell, without steps")


def profiled_steps(text: str, names: dict[str, Any]) -> Profile:
    """The steps 1 to 3 of the loop of a cell, as ``--steps 3 --warmup 1``."""
    body = compile_body(Body(text, "<cell>"), transform_ast=mark_loop)
    schedule = Schedule.of("wait=0,warmup=1,active=3,repeat=1")
    return profile_body(body, asked(namespace=names, schedule=schedule, in_loop=True)).profile


def waiting(wall: float, *found: tuple[str, int | None, float]) -> Any:
    op = {"op": ["enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"], "cpu_time": [1.0]}
    ops = pd.DataFrame({**op, "file": ["a.py"], "line": [3], "cell": [8]})
    return waits_for_workers(ops, rows(*found), WorkerRecord({}, {}), wall)


def test_the_share_in_the_words_is_that_of_the_table() -> None:
    doubt = waiting(1.2, ("load", 5, 6.0), ("other", 6, 1.0), (worker_loop.WAITING, None, 3.0))
    assert "60 % of their time at In[7]:5" in doubt.text


def test_the_start_of_workers_is_said_as_such_and_is_no_line_to_make_cheaper() -> None:
    doubt = waiting(1.2, ("load", 5, 1.0), (worker_loop.STARTING, None, 3.0))
    assert "75 % of these workers' time was spent starting them" in doubt.text
    assert "persistent_workers" in doubt.action


def test_a_wait_that_is_a_small_share_of_the_cell_gets_no_advice() -> None:
    assert waiting(7.9, ("load", 5, 1.0)) is None


@pytest.mark.slow
def test_spawned_workers_and_streams_are_seen_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[4]))  # a spawned worker imports the class of its dataset
    made = profile(SLOW, globals={"loader": DataLoader(Streamed(), num_workers=1)})
    assert "__iter__" in functions(made)
    spawned = DataLoader(Slow(), num_workers=1, multiprocessing_context="spawn", batch_size=4)
    try:
        assert "sleeps" in functions(profile(SLOW, globals={"loader": spawned}))
    finally:
        resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]  # a process of Python's own that stays


def test_workers_from_before_are_not_looked_into_and_their_processor_time_is_said() -> None:
    loader = DataLoader(Slow(), num_workers=1, persistent_workers=True)
    for _ in loader:
        pass
    made = profile(SLOW, globals={"loader": loader})
    assert made.workers.empty
    assert "started before this cell" in doubt_of(made)
    del loader


def test_workers_that_outlive_the_profile_go_on_without_it() -> None:
    loader = DataLoader(Slow(), num_workers=1, persistent_workers=True)
    assert "sleeps" in functions(profile(SLOW, globals={"loader": loader}))
    assert len(list(loader)) == 12


@pytest.mark.slow
def test_an_error_and_a_killed_worker_are_the_users_as_without(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a broken file"):
        profile(SLOW, globals={"loader": DataLoader(Fails(), num_workers=1)})
    # of a killed worker torch leaves pipes and a thread behind: in a process of its own
    text = f"""import os, tempfile
from {__name__} import DataLoader, Killed, SLOW, profile
try:
    profile(SLOW, globals=dict(loader=DataLoader(Killed(), num_workers=1)))
except RuntimeError as error:
    print(error, [name for name in os.listdir(tempfile.gettempdir()) if not name.startswith("pymp-")])  # Python's own
"""
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, env=environment, timeout=100)
    assert "exited unexpectedly" in ran.stdout or "killed by signal" in ran.stdout, ran.stderr
    assert ran.stdout.strip().endswith("[]"), "no file is left"


def test_notes_are_read_until_they_are_sealed_and_what_a_killed_worker_left_half_written_is_no_note() -> None:
    notes = WorkerNotes()
    file = open_notes(notes.place)
    assert file is not None
    try:
        write_note(file, {("a.py", 3, "f"): 0.5})
        write_note(file, {("a.py", 3, "f"): 1.5})
        os.write(file, b'[7, [["a.py", 4')
        assert notes.close() == {os.getpid(): {("a.py", 3, "f"): 1.5}}
        with pytest.raises(OSError, match="not permitted"):
            write_note(file, {})
    finally:
        os.close(file)


def test_where_no_file_can_lie_in_memory_one_on_the_disk_serves_and_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS and Windows."""
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert "sleeps" in functions(profile(SLOW, globals={"loader": DataLoader(Slow(), num_workers=1)}))
    assert not list(tmp_path.glob("torchbench*"))
    notes = WorkerNotes()
    notes.close()
    assert open_notes(notes.place) is None


def test_a_worker_that_starts_when_the_profile_has_ended_writes_to_nothing_else() -> None:
    """Another file may have the descriptor by then."""
    notes = WorkerNotes()
    notes.close()
    assert open_notes(notes.place) is None
    with tempfile.TemporaryFile() as other:
        taken = notes.place._replace(path=f"/proc/self/fd/{other.fileno()}")
        assert open_notes(taken) is None


def test_without_workers_there_is_no_table_and_no_sentence() -> None:
    made = profile(SLOW, globals={"loader": [1, 2]})
    assert made.workers.empty
    assert "workers" not in [each.kind for each in made.warnings]


def test_an_idle_worker_is_waiting_and_a_library_is_not_the_users_place() -> None:
    assert worker_loop._place(None)[0] == ("", 0, worker_loop.WAITING)
