"""``python -m torchbench_magic doctor`` as a user runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from torchbench_magic import __main__
from torchbench_magic.errors import Interrupted
from torchbench_magic.tdoctor.findings import Diagnosis, Finding

ROOT = Path(__file__).parents[1]


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "torchbench_magic", "doctor", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=120, env={**os.environ, **environment},
    )  # fmt: skip


@pytest.mark.interpreter
def test_it_prints_what_it_finds_and_bad_news_is_no_error() -> None:
    done = command(TORCH_DISTRIBUTED_DEBUG="DETAIL")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    words = " ".join(done.stdout.split())
    assert "TORCH_DISTRIBUTED_DEBUG=DETAIL" in words
    assert "torch checks: Switch it off, unless you want to measure it." in words
    assert re.search(r"\d+ findings in \d+ m?s · load watched for \d+ ms", words)


@pytest.mark.slow
def test_the_self_test_is_told_in_numbers() -> None:
    done = command("--self-test")
    assert done.returncode == 0, done.stderr
    assert "matrix product (256 × 256)" in done.stdout
    assert "be resolved now" in " ".join(done.stdout.split())


@pytest.mark.interpreter
def test_a_wrong_option_is_refused() -> None:
    done = command("--selftest")
    assert done.returncode == 2
    assert "--selftest" in done.stderr


def test_an_interrupt_prints_what_there_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import torchbench_magic

    known = Diagnosis((Finding("quota", "ok", "No cgroup limits the CPU time."),), partial=True)

    def stopped(**_: object) -> None:
        raise Interrupted(known)

    monkeypatch.setattr(torchbench_magic, "doctor", stopped, raising=False)
    assert __main__.main(["doctor", "--self-test"]) == 130
    assert "No cgroup limits the CPU time." in capsys.readouterr().out
