"""A disk without room, a real one: one line, what was there is there still, and nothing else is left.

A small file system in memory is filled to its last block. To mount one takes root: elsewhere these tests are skipped,
and the limit of a file's size, which every process can set for itself, stands in.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import torchbench_magic
from tests.cpp.conftest import pretender as pretender
from tests.profiling.profiles import profile_of_two_kernels
from tests.show.builders import comparison_of
from tests.timing.samples import lone
from torchbench_magic.cell_body import Body
from torchbench_magic.counting.client import Server
from torchbench_magic.counting.count import Job, count_instructions
from torchbench_magic.cpp.build import Snip, build
from torchbench_magic.errors import CountError, InputError, SnippetError, StoreError

ROOT = Path(__file__).resolve().parents[1]
SIZE = 2 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("a file system can be mounted by root only")
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=700", "tmpfs", str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode:
        pytest.skip(f"this system mounts none: {ran.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path) -> None:
    """Leave no room at all."""
    with (disk / "filler").open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            return


def listed(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


WRITERS: dict[str, Callable[[Path], object]] = {
    "page.html": lambda path: comparison_of().to_html(path),
    "trace.json": lambda path: profile_of_two_kernels().export_trace(path),
    "trace.json.gz": lambda path: profile_of_two_kernels().export_trace(path),
    "stacks.txt": lambda path: _stacks(path),
}


def _stacks(path: Path) -> None:
    import torch

    torchbench_magic.profile(lambda: torch.ones(3) + 1).export_stacks(path)


@pytest.mark.parametrize("name", WRITERS)
def test_what_was_there_is_there_still_and_nothing_else(disk: Path, name: str) -> None:
    WRITERS[name](disk / name)
    before = (disk / name).read_bytes()
    fill(disk)
    with pytest.raises(InputError) as caught:
        WRITERS[name](disk / name)
    assert str(caught.value) == f"{disk / name}: the disk is full: free some space, or use another disk"
    assert (disk / name).read_bytes() == before
    assert listed(disk) == sorted(["filler", name])
    (disk / name).unlink()
    fill(disk)
    with pytest.raises(InputError, match="the disk is full"):
        WRITERS[name](disk / name)
    assert listed(disk) == ["filler"]


def test_a_store_keeps_what_it_had_and_goes_on_when_there_is_room(disk: Path) -> None:
    path = disk / "runs.sqlite"
    lone(1e-3).save(path)
    fill(disk)
    for _ in range(2):
        with pytest.raises(StoreError) as caught:
            comparison_of(samples=2000).save(path)
        assert str(caught.value) == f"{path}: the disk is full: free some space, or use another disk"
        assert len(torchbench_magic.load(path)) == 1
    (disk / "filler").unlink()
    lone(2e-3).save(path)
    assert len(torchbench_magic.load(path)) == 2


def test_a_new_store_on_a_full_disk_is_no_store_and_leaves_nothing_in_the_way(disk: Path) -> None:
    fill(disk)
    with pytest.raises(StoreError, match="the disk is full"):
        lone(1e-3).save(disk / "runs.sqlite")
    (disk / "filler").unlink()
    lone(1e-3).save(disk / "runs.sqlite")
    assert len(torchbench_magic.load(disk / "runs.sqlite")) == 1


def test_compiling_on_a_full_disk_is_one_line(disk: Path, pretender: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(disk / "cache"))
    (disk / "cache").mkdir(mode=0o700)
    fill(disk)
    with pytest.raises(SnippetError) as caught:
        build({"a": Snip.of("x;")})
    assert "free space in" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not [path for path in (disk / "cache").rglob("*") if path.is_file()]


LIMITED = """
import json, resource, sys
from pathlib import Path
from tests.test_full_disk import WRITERS, lone, comparison_of
folder = Path(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
said = {}
for name, write in [*WRITERS.items(), ("runs.sqlite", lambda path: comparison_of(samples=2000).save(path))]:
    try:
        write(folder / name)
    except Exception as error:
        said[name] = [type(error).__mro__[-4].__name__, str(error)]
print(json.dumps(said))
"""


@pytest.mark.slow
def test_a_limit_of_file_size_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    """Of those that write more than it allows, which a trace in gzip and a file of stacks do not."""
    ran = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    said: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    assert {"page.html", "trace.json", "runs.sqlite"} <= said.keys()
    for name, (_, text) in said.items():
        assert text.startswith(f"{tmp_path / name}: ")
        assert "(ulimit -f)" in text
        assert "\n" not in text
    assert not [name for name in listed(tmp_path) if name.endswith((".part", "-journal"))]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 4096


@pytest.mark.slow
@pytest.mark.valgrind
def test_a_count_says_it_and_the_next_one_with_room_is_right(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")
    monkeypatch.setattr(tempfile, "tempdir", str(disk))
    server, job = Server(idle=0), Job(Body("1 + 1"), {}, 10)
    try:
        first = count_instructions(job, server)[0][0].total
        fill(disk)
        with pytest.raises(CountError, match=rf"did not write its counts into {disk}.*: is the disk full") as caught:
            count_instructions(job, server)
        assert "\n" not in str(caught.value)
        (disk / "filler").unlink()
        assert count_instructions(job, server)[0][0].total == first
    finally:
        server.close()
    assert listed(disk) == []
