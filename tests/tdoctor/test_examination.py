"""The doctor of this machine, and of trees of files in which nothing can be read; the self-test and its interrupt."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import torchbench_magic
from tests.process.trees import tree
from torchbench_magic.errors import Interrupted
from torchbench_magic.process.contention import Contention
from torchbench_magic.process.interrupts import NO_PROGRESS
from torchbench_magic.tdoctor import examination
from torchbench_magic.tdoctor.examination import (
    CASES,
    WatchedLoad,
    doctor,
    findings_of,
    self_test_findings,
    self_tests,
)
from torchbench_magic.tdoctor.findings import SelfTest

ALWAYS = {
    "threads", "affinity", "quota", "memory", "hooks", "OpenMP", "governor", "turbo", "valgrind", "compiler",
    "accelerator", "outside load", "waiting", "steal",
}  # fmt: skip


def test_this_machine_is_examined() -> None:
    found = torchbench_magic.doctor()
    kinds = {one.kind for one in found.findings}
    assert kinds >= ALWAYS
    assert found.watched >= 0.45
    assert found.self_test == ()
    assert math.isnan(found.smallest_effect)
    assert all(one.fix for one in found.warnings)
    assert found.frame["kind"].tolist() == [one.kind for one in found.findings]
    assert len(json.loads(found.to_json())["findings"]) == len(found.findings)
    assert str(found).count("\n") > len(found.findings)


@pytest.mark.parametrize(
    "files", [{}, {"/proc/1/comm": "init"}, {"/proc/self/maps": "", "/sys/fs/cgroup/cpu.max": "50000 100000"}]
)
def test_what_cannot_be_read_is_not_available_and_the_rest_goes_on(tmp_path: Path, files: dict[str, str]) -> None:
    found = {one.kind: one for one in findings_of(2, None, tree(tmp_path, files))}
    for kind in ("memory", "governor", "turbo"):
        assert found[kind].state == "not available"
    assert {"valgrind", "compiler", "accelerator", "hooks", "threads"} <= set(found)
    if files.get("/sys/fs/cgroup/cpu.max"):
        assert found["quota"].state == "warn"
        assert found["threads"].state == "warn", "2 threads on one usable core"
        assert found["OpenMP"].text == "No OpenMP runtime is loaded as a file."
    else:
        assert found["quota"].state == "not available"
        assert found["OpenMP"].state == "not available"


# ---- the self-test ------------------------------------------------------------------------------------------


class Told:
    def __init__(self) -> None:
        self.whats: list[str] = []

    def update(self, done: float, total: float | None, what: str) -> None:
        self.whats.append(what)


def test_equal_code_is_compared_with_itself_and_what_is_under_way_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "TEST_SECONDS", 0.05)
    monkeypatch.setattr(examination, "MOST_TEST_SECONDS", 0.05)
    told = Told()
    tests = list(self_tests(told))
    assert [one.name for one in tests] == list(CASES)
    for one in tests:
        assert 0 < one.median <= one.seconds
        assert one.seconds >= 0.05
        assert one.verdict in ("same", "undecided", "faster", "slower")
    assert {what.partition(" (self-test")[0] for what in told.whats} == {f"{name} against itself" for name in CASES}


def case(name: str = "x", low: float = 0.98, high: float = 1.02, verdict: str = "undecided") -> SelfTest:
    return SelfTest(name, 1e-3, 1.0, low, high, verdict, 1.2)


def test_half_the_width_of_the_interval_is_the_smallest_effect() -> None:
    assert case().smallest_effect == pytest.approx(math.sqrt(1.02 / 0.98) - 1)
    assert case(low=0.0, high=math.inf).smallest_effect == math.inf
    assert case(low=math.nan, high=math.nan).smallest_effect == math.inf


def test_equal_code_that_is_called_different_is_said() -> None:
    (found,) = self_test_findings((case(), case("y", 1.01, 1.05, "slower")))
    assert (found.state, found.evidence) == ("warn", "y: slower, 1.000")
    (found,) = self_test_findings((case(), case("y", 0.999, 1.001, "same")))
    assert found.state == "ok"
    assert list(self_test_findings(())) == []


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second in which nothing ran, without waiting for it."""
    seen = WatchedLoad(Contention(wall=0.5, pressure=0.0, steal=0.0, ext=0.02, throttled=0.0), 0.0, ())
    monkeypatch.setattr(examination, "watch_load", lambda: seen)


def interrupted_after(tests: int, error: KeyboardInterrupt):  # type: ignore[no-untyped-def]
    def some(progress: object) -> Iterator[SelfTest]:
        yield from [case(str(n)) for n in range(tests)]
        raise error

    return some


@pytest.mark.parametrize(
    ("error", "kept"),
    [(KeyboardInterrupt(), ["0"]), (Interrupted(case("last")), ["0", "last"]), (Interrupted(None), ["0"])],
)
def test_an_interrupt_keeps_what_was_measured(
    monkeypatch: pytest.MonkeyPatch, quiet: None, error: KeyboardInterrupt, kept: list[str]
) -> None:
    monkeypatch.setattr(examination, "self_tests", interrupted_after(1, error))
    with pytest.raises(Interrupted) as raised:
        doctor(self_test=True)
    partial = raised.value.partial
    assert [one.name for one in partial.self_test] == kept  # type: ignore[union-attr]
    assert partial.partial  # type: ignore[union-attr]
    assert {one.kind for one in partial.findings} >= {*ALWAYS, "self-test"}  # type: ignore[union-attr]
    assert "It was interrupted: this is what was measured until then." in " ".join(str(partial).split())


def test_a_comparison_that_is_interrupted_gives_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchbench_magic import compare

    whole = compare({"first": "1 + 1", "second": "1 + 1"}, min_run_time=0.01, max_run_time=0.01)

    def stopped(*_: object, **__: object) -> None:
        raise Interrupted(whole)

    monkeypatch.setattr("torchbench_magic.script.compare.compare", stopped)
    with pytest.raises(Interrupted) as raised:
        list(self_tests(NO_PROGRESS))
    assert isinstance(raised.value.partial, SelfTest)
    assert raised.value.partial.name == next(iter(CASES))


def test_the_whole_self_test_is_part_of_the_diagnosis(monkeypatch: pytest.MonkeyPatch, quiet: None) -> None:
    monkeypatch.setattr(examination, "self_tests", lambda progress: iter([case(), case("y", 0.999, 1.001, "same")]))
    made = examination.doctor(self_test=True)
    assert made.smallest_effect == case().smallest_effect
    assert not made.partial
    assert {one.kind for one in made.findings} >= {"self-test"}


ELSEWHERE = """
import json, os, sys
import pandas, torch
del os.sched_getaffinity, os.getloadavg, os.sysconf
sys.modules["resource"] = None

def without(event, arguments):
    if event in ("open", "os.listdir") and str(arguments[0]).startswith(("/proc", "/sys", "/dev/nvidia")):
        raise FileNotFoundError(arguments[0])

sys.addaudithook(without)
import torchbench_magic
made = torchbench_magic.doctor()
print(made)
print(json.dumps({one.kind: one.state for one in made.findings}))
"""


@pytest.mark.slow
def test_where_there_is_neither_proc_nor_sys_each_says_so_and_the_rest_is_there() -> None:
    done = subprocess.run([sys.executable, "-c", ELSEWHERE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    states = json.loads(done.stdout.splitlines()[-1])
    for kind in ("outside load", "waiting", "steal", "affinity", "quota", "memory", "OpenMP", "governor", "turbo"):
        assert states[kind] == "not available", kind
    assert states["hooks"] == "ok"
    assert " ".join(done.stdout.split()).startswith(
        "Nothing was found that distorts a measurement, but the load of other processes is unknown here"
    )
