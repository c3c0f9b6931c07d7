"""Real jobs over gloo: scripts under torchrun and processes of their own, also where one rank fails or Ctrl-C comes."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from torchbench_magic import load_ranks, rank_profile
from torchbench_magic.errors import Busy, InputError
from torchbench_magic.rankrun import main

ROOT = Path(__file__).parents[2]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]

SCRIPT = """
import sys, time, torch, torch.distributed as dist

def late():
    time.sleep(0.06)  # beyond a twentieth of the whole job, on a busy machine too

how = sys.argv[1]
dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(10):
    if rank == 1:
        late()
    if how == "fails" and rank == 1 and step == 7:
        raise RuntimeError("planted")
    if how == "waits" and step == 7:
        open(f"ready{rank}", "w").close()
        time.sleep(600 * rank)
    dist.all_reduce(torch.ones(10))
if how == "destroys":
    dist.destroy_process_group()
if how == "exits":
    sys.exit(3)
"""
WITH_OWN_PROFILER = """
import sys, torch, torch.distributed as dist
from torch.profiler import profile

dist.init_process_group("gloo")
for step in range(5):
    dist.all_reduce(torch.ones(10))
with profile() as own:
    for step in range(5):
        dist.all_reduce(torch.ones(10))
sys.stdout.write(f"own events {len(own.events()) > 5}" + chr(10))  # in one piece, beside the other rank
"""


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path


def started(folder: Path, how: str) -> subprocess.Popen[str]:
    command = [*TORCHRUN, "-m", "torchbench_magic.rankrun", "--out", "traces", "script.py", how]
    return subprocess.Popen(
        command, cwd=folder, env=environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip


def head_of(file: Path) -> dict[str, Any]:
    made = json.loads(gzip.decompress(file.read_bytes()))
    return {name: value for name, value in made.items() if name != "traceEvents"}


@pytest.mark.parametrize("how", ["destroys", "keeps"])
@pytest.mark.slow
def test_an_unchanged_script_leaves_a_trace_a_rank_and_the_late_line_is_named(folder: Path, how: str) -> None:
    process = started(folder, how)
    said, _ = process.communicate()
    assert process.returncode == 0, said
    assert [file.name for file in sorted((folder / "traces").iterdir())] == ["rank0.json.gz", "rank1.json.gz"]
    for rank in (0, 1):
        told = head_of(folder / "traces" / f"rank{rank}.json.gz")["torchbench_magic_rank"]
        assert (told["rank"], told["world_size"], told["backend"]) == (rank, 2, "gloo")
    profile = load_ranks(folder / "traces")
    assert profile.straggler is not None
    assert (profile.straggler.rank, profile.straggler.place) == (1, "script.py:4 late")
    assert profile.backend == "gloo"
    assert not profile.warnings


@pytest.mark.slow
def test_a_script_that_fails_on_one_rank_leaves_both_traces_at_once(folder: Path) -> None:
    process = started(folder, "fails")
    said, _ = process.communicate()
    assert process.returncode != 0
    assert "RuntimeError: planted" in said
    of_ranks = "\n".join(line for line in said.splitlines() if line.startswith("[rank"))
    assert "planted" in of_ranks
    assert not re.search(r"rankrun\.py|runpy", of_ranks), "the frames of the script alone"
    assert re.search(r'File "\S*script\.py", line 14, in <module>', said)
    first = re.search(r"torchbench_magic: rank (\d) ended with (\w+)", said)
    assert first is not None
    assert first.groups() == ("1", "RuntimeError")
    profile = load_ranks(folder / "traces")
    assert profile.ranks["rank"].tolist() == [0, 1]
    assert profile.collectives == 7
    assert profile.straggler is not None
    assert profile.straggler.rank == 1
    assert re.match(r"Rank 1 ended early, at .* with RuntimeError", profile.ended)


@pytest.mark.slow
def test_a_script_with_a_profiler_of_its_own_keeps_it_and_the_recording_ends_there(folder: Path) -> None:
    (folder / "script.py").write_text(WITH_OWN_PROFILER)
    said, _ = (process := started(folder, "")).communicate()
    assert process.returncode == 0, said
    assert said.count("own events True") == 2
    assert "rank 1 starts a torch profiler of its own, and only one can run at a time: this recording ends" in said
    profile = load_ranks(folder / "traces")
    assert profile.collectives == 5
    assert [doubt.kind for doubt in profile.warnings] == ["gave-way"]


@pytest.mark.slow
def test_after_ctrl_c_both_traces_are_there(folder: Path) -> None:
    process = started(folder, "waits")
    while not all((folder / f"ready{rank}").exists() for rank in (0, 1)):
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate()
    assert process.returncode != 0
    profile = load_ranks(folder / "traces")
    assert profile.ranks["rank"].tolist() == [0, 1]
    assert profile.collectives == 7


@pytest.mark.interpreter
def test_the_exit_status_of_the_script_stays(folder: Path) -> None:
    command = [sys.executable, "-m", "torchbench_magic.rankrun", "--out", "traces", "--no-stack", "one.py", "--x", "a"]
    (folder / "one.py").write_text("import sys, torch\nassert sys.argv == ['one.py', '--x', 'a']\ntorch.ones(3) + 1\n"
                                   "assert __name__ == '__main__'\nsys.exit(3)\n")  # fmt: skip
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    profile = load_ranks(folder / "traces")
    assert [doubt.kind for doubt in profile.warnings] == ["one-rank"]
    assert "aten::add" in set(profile.ops["op"])


@pytest.mark.parametrize(("text", "last"), [("def f():\n    1 / 0\nf()\n", "ZeroDivisionError: division by zero"),
                                            ("import nothing_there\n", "ModuleNotFoundError"),
                                            ("x = = 1\n", "SyntaxError")])  # fmt: skip
@pytest.mark.slow
def test_the_traceback_of_a_script_is_that_of_python(tmp_path: Path, text: str, last: str) -> None:
    (tmp_path / "one.py").write_text(text)
    plain = [sys.executable, str(tmp_path / "one.py")]
    ours = [sys.executable, "-m", "torchbench_magic.rankrun", "--out", "traces", str(tmp_path / "one.py")]
    said = [
        subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True).stderr
        for command in (plain, ours)
    ]
    assert last in said[0]
    assert said[0] in said[1]


PROCESSES = """
import sys
import torch, torch.distributed as dist, torch.multiprocessing as mp
from torchbench_magic import rank_profile

def run(rank, store, how):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    with rank_profile("traces") as recorded:
        for step in range(8):
            dist.all_reduce(torch.ones(10))
            recorded.step()
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(run, (sys.argv[1], ""), 2)
"""


@pytest.mark.slow
def test_processes_of_their_own_measure_their_clocks(tmp_path: Path) -> None:
    (tmp_path / "spawned.py").write_text(PROCESSES)
    command = [sys.executable, "spawned.py", str(tmp_path / "store")]
    plain = {name: value for name, value in environment().items() if name not in ("RANK", "WORLD_SIZE")}
    began = time.monotonic_ns()
    done = subprocess.run(command, cwd=tmp_path, env=plain, capture_output=True, text=True)
    lasted = time.monotonic_ns() - began
    assert done.returncode == 0, done.stderr
    clock = head_of(tmp_path / "traces" / "rank1.json.gz")["torchbench_magic_rank"]["clock"]
    assert abs(clock["offset_ns"]) <= clock["error_ns"], "one host: the true offset is 0"
    assert 0 < clock["error_ns"] < lasted, "half of a round trip, which is within the job"
    profile = load_ranks(tmp_path / "traces")
    assert profile.ranks["rank"].tolist() == [0, 1]
    assert (profile.steps, profile.collectives) == (8, 8)


def test_a_trace_is_written_after_an_exception_and_a_second_profiler_is_refused(tmp_path: Path) -> None:
    import torch

    with pytest.raises(RuntimeError, match="shape"), rank_profile(tmp_path / "t"):
        (torch.ones(3) + 1).view(2)
    assert "aten::add" in set(load_ranks(tmp_path / "t").ops["op"])
    with torch.profiler.profile(), pytest.raises(Busy, match="already running"), rank_profile(tmp_path / "t"):
        pass


def test_what_cannot_be_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="no folder can be made there"), rank_profile(tmp_path / "file"):
        pass
    with pytest.raises(SystemExit) as ended:
        main(["--out", str(tmp_path), str(tmp_path / "none.py")])
    assert ended.value.code == 2
    assert "no such file" in capsys.readouterr().err
    monkeypatch.setenv("RANK", "one")
    with pytest.raises(InputError, match="RANK='one'"), rank_profile(tmp_path):
        pass


def test_what_another_file_holds_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "rank0.json.gz").write_text("notes")
    with pytest.raises(InputError, match="already exists and is not a trace"), rank_profile(tmp_path):
        pass
    assert (tmp_path / "rank0.json.gz").read_text() == "notes"
    assert [file.name for file in tmp_path.iterdir()] == ["rank0.json.gz"]


def test_neither_torch_nor_pandas_is_imported_before_it_is_needed() -> None:
    heavy = "('torch', 'pandas', 'IPython')"
    code = f"import sys, torchbench_magic.rankrun; print([n for n in {heavy} if n in sys.modules])"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
