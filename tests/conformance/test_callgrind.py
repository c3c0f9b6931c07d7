"""``Timer.collect_callgrind`` of the drop-in: torch's meaning, any globals, real counts."""

from __future__ import annotations

import math
import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.benchmark.utils import timer as torch_timer

from torchbench_magic.benchmark import CallgrindStats, CopyIfCallgrind, Timer
from torchbench_magic.counting import client_requests
from torchbench_magic.counting.client import close_server, the_server
from torchbench_magic.errors import CountError

pytestmark = [
    pytest.mark.valgrind,
    pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed"),
]


@pytest.fixture(scope="module", autouse=True)
def server() -> Any:
    """The process of this module's counts: started once, and gone afterwards."""
    Timer("pass").collect_callgrind(1)
    yield
    close_server()


@torch.jit.script
def add_one(x):
    return x + 1


class Plus(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


def test_stats_are_torchs_with_torchs_text() -> None:
    stats = Timer("x + 1", "x = torch.ones(3)", label="L", description="d", num_threads=1).collect_callgrind()
    assert type(stats) is CallgrindStats
    assert stats.number_per_run == 100
    assert stats.task_spec == Timer("x + 1", "x = torch.ones(3)", label="L", description="d")._task_spec
    text = repr(stats)
    assert "Noisy symbols removed" in text
    assert re.search(rf"Instructions: +{stats.counts()} +{stats.counts(denoise=True)}\n", text)
    assert re.search(rf"Baseline: +{stats.baseline_exclusive_stats.sum()} ", text)
    assert "100 runs per measurement, 1 thread" in text
    assert ("not built with debug symbols" in text) == (not stats.built_with_debug_symbols)
    assert stats.built_with_debug_symbols == ("BUILD_TYPE=RelWithDebInfo" in torch.__config__.show())
    assert stats.stmt_callgrind_out is None


def test_the_empty_statement_is_the_baseline() -> None:
    stats = Timer("pass").collect_callgrind(50)
    assert stats.counts() == stats.baseline_exclusive_stats.sum() > 0


def test_without_a_baseline_its_counts_are_empty_and_the_statement_counts_the_same() -> None:
    timer = Timer("x + 1", "x = torch.ones(3)")
    bare, full = timer.collect_callgrind(10, collect_baseline=False), timer.collect_callgrind(10)
    assert (len(bare.baseline_exclusive_stats), bare.baseline_exclusive_stats.inclusive) == (0, False)
    assert (len(bare.baseline_inclusive_stats), bare.baseline_inclusive_stats.inclusive) == (0, True)
    assert bare.counts() == full.counts()


def test_counts_are_totals_over_number_calls_of_a_linear_statement() -> None:
    few, many = (Timer("math.gcd(12, 18)", "import math").collect_callgrind(number) for number in (100, 400))
    per_call = [(one.counts() - one.baseline_exclusive_stats.sum()) / one.number_per_run for one in (few, many)]
    assert per_call[0] == pytest.approx(per_call[1], rel=0.05)
    assert few.counts() * 3.5 < many.counts() < few.counts() * 4.5


def test_repeats_make_a_tuple_of_equal_counts() -> None:
    found = Timer("x += 1", "x = torch.ones(1)").collect_callgrind(100, repeats=3)
    assert type(found) is tuple
    assert len({one.counts() for one in found}) == 1
    assert type(Timer("pass").collect_callgrind(1, repeats=1)) is tuple


@pytest.mark.slow
def test_any_globals_are_counted_wrapped_or_not() -> None:
    def local(x: torch.Tensor) -> torch.Tensor:
        return x * scale

    scale = 2.0
    given = {"f": local, "x": torch.ones(4, 4).t(), "model": Plus(), "add_one": add_one, "k": CopyIfCallgrind(5)}
    stats = Timer("f(x); model(x); add_one(x); k + 1; assert x.stride() == (1, 4)", globals=given).collect_callgrind(5)
    assert any("aten" in name.lower() or "at::native" in name for _, name in stats.stats())


def test_setup_may_make_what_cannot_be_sent() -> None:
    setup = "x = torch.ones(1, requires_grad=True)\nfor _ in range(5):\n    x = x + 1.0"
    assert Timer("y = x * 2", setup).collect_callgrind(5).counts() > 0


def test_the_setup_of_a_wrapped_global_runs_too() -> None:
    given = {"k": CopyIfCallgrind(2, setup="import math")}
    assert Timer("k + 1", "assert math.pi", globals={**given, "math": math}).collect_callgrind(5).counts() > 0


@pytest.mark.slow
def test_functions_from_main_are_counted_as_tutorials_hand_them(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from torchbench_magic.benchmark import Timer\n"
        "def twice(x):\n    return x + x\n"
        "stats = Timer('f(2)', 'from __main__ import twice as f').collect_callgrind(10)\n"
        "assert stats.counts() > stats.baseline_exclusive_stats.sum()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run([sys.executable, str(script)], check=True, timeout=280, env=environment)


def test_the_retained_file_is_callgrinds_and_its_annotator_reads_the_same_counts(tmp_path: Path) -> None:
    stats = Timer("x + 1", "x = torch.ones(3)").collect_callgrind(20, retain_out_file=True)
    file = tmp_path / "callgrind.out"
    assert stats.stmt_callgrind_out is not None
    file.write_text(stats.stmt_callgrind_out)
    command = ["callgrind_annotate", "--threshold=100", "--show-percs=no", str(file)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    total = re.search(r"^([0-9,]+) +PROGRAM TOTALS", said, re.MULTILINE)
    assert total is not None
    assert int(total[1].replace(",", "")) == stats.counts()


def test_frames_around_the_whole_count_are_left_out_of_the_inclusive_ones_as_in_torch() -> None:
    stats = Timer("x + 1", "x = torch.ones(3)").collect_callgrind(20)
    assert all(count != stats.counts() for count, _ in stats.stats(inclusive=True))
    assert max(count for count, _ in stats.stats(inclusive=True)) > stats.counts() / 2


def test_stats_survive_a_pickle() -> None:
    stats = Timer("x + 1", "x = torch.ones(3)").collect_callgrind(10)
    again = pickle.loads(pickle.dumps(stats))
    assert again.stats()._data == stats.stats()._data
    assert len(stats.delta(again)) == 0


def test_one_process_serves_all_counts_of_a_kernel() -> None:
    first = Timer("x * y", globals={"x": torch.ones(128), "y": torch.ones(128)})
    first.collect_callgrind()
    process = the_server().pid
    Timer("x + 1", globals={"x": torch.ones(3)}, num_threads=2).collect_callgrind(repeats=2)
    assert the_server().pid == process is not None


# ---- refusals ------------------------------------------------------------------------------------------------------


def test_less_than_one_repeat_and_a_replaced_torch_are_refused_with_torchs_words() -> None:
    with pytest.raises(ValueError, match="`repeats` must be >= 1"):
        Timer("pass").collect_callgrind(repeats=0)
    with pytest.raises(ValueError, match="does not support mocking out `torch`"):
        Timer("pass", globals={"torch": 3}).collect_callgrind()


def test_a_faulty_statement_raises_its_own_exception_here() -> None:
    with pytest.raises(ZeroDivisionError):
        Timer("1 / 0").collect_callgrind()


def test_what_cannot_be_sent_is_named_in_one_line_and_is_an_oserror_as_in_torch() -> None:
    import threading

    with pytest.raises(OSError, match="`lock`") as raised:
        Timer("lock.locked()", globals={"lock": threading.Lock()}).collect_callgrind()
    assert isinstance(raised.value, CountError)
    assert "\n" not in str(raised.value)


def test_code_that_fails_in_the_process_that_counts_says_so() -> None:
    with pytest.raises(OSError, match=r"Failed to collect callgrind profile: .*other process"):
        Timer(
            "check()",
            "import os\ndef check():\n    if os.getpid() != here: raise RuntimeError('other process')",
            globals={"here": os.getpid()},
        ).collect_callgrind()


def test_a_missing_valgrind_is_an_oserror_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    close_server()
    monkeypatch.setenv("PATH", "")
    with pytest.raises(OSError, match="apt-get install valgrind"):
        Timer("pass").collect_callgrind()


def test_where_the_fast_way_cannot_run_torchs_own_is_taken_and_the_reason_said(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(client_requests, "why_unsupported", lambda: "not here")
    monkeypatch.setattr(
        torch_timer.Timer, "collect_callgrind", lambda self, number, **options: asked.append((number, options))
    )
    with pytest.warns(UserWarning, match="torch's own collector.*Linux on x86_64"):
        Timer("pass").collect_callgrind(7, repeats=2, collect_baseline=False)
    assert asked == [(7, {"repeats": 2, "collect_baseline": False, "retain_out_file": False})]
