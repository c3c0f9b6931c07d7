"""One timing on a host at a time."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from torchbench_magic.cluster.on_engine import host_to_itself
from torchbench_magic.errors import Busy

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no fcntl")

HOLD = """
import sys
from torchbench_magic.cluster.on_engine import host_to_itself
with host_to_itself():
    print("held", flush=True)
    sys.stdin.readline()
"""


class Clock:
    """A clock that only waiting moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_another_process_waits_until_it_is_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    clock = Clock()
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], env=os.environ | {"TMPDIR": str(tmp_path)}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as other:  # fmt: skip
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "held\n"
        said = "its host was measuring something else for 60 s"
        with pytest.raises(Busy, match=said), host_to_itself(60, clock, clock.sleep):
            raise AssertionError
        assert clock.now > 60
        other.stdin.write("\n")
        other.stdin.close()
        other.wait(20)
        with host_to_itself(60, clock, clock.sleep):
            pass
    assert list(tmp_path.iterdir()) == [], "no file is made"


def test_it_is_released_when_the_block_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), host_to_itself(0):
            raise ZeroDivisionError
