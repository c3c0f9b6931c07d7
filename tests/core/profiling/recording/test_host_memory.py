"""Bytes of Python and numpy per line, and that tracemalloc is left as it was found."""

from __future__ import annotations

import tracemalloc

import pytest

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")

from torchbench_magic.profiling.memory import record as module  # noqa: E402

from ..profiling_text import profiled, row  # noqa: E402

MIB = 1 << 20


def test_numpy_arrays_stand_on_their_lines_with_their_temporaries() -> None:
    text = "a = np.ones(MIB)\nb = (a + 1).sum()\nc = bytes(3 * MIB)\ndel a\nfor _ in range(1000):\n    d = 1\n"
    outcome = profiled(text, {"np": np, "MIB": MIB}, host_memory=True)
    slack = 100_000
    assert row(outcome, 1)["host_net"] == pytest.approx(8 * MIB, abs=slack)
    assert row(outcome, 2)["host_net"] == pytest.approx(0, abs=slack), "the sum is a number"
    assert row(outcome, 2)["host_peak"] == pytest.approx(16 * MIB, abs=slack), "a and its temporary copy"
    assert row(outcome, 3)["host_net"] == pytest.approx(3 * MIB, abs=slack)
    assert row(outcome, 4)["host_net"] == pytest.approx(-8 * MIB, abs=slack)
    assert row(outcome, 6)["host_net"] == pytest.approx(0, abs=slack)


def test_the_record_of_the_line_events_is_not_counted() -> None:
    outcome = profiled("for i in range(12_000):\n    pass\n", {}, host_memory=True)
    assert outcome.profile.n_line_events > 24_000, "a MB of them and of what is read at each"
    assert abs(outcome.profile.lines["host_net"].sum()) < 60_000
    assert outcome.profile.lines["host_peak"].max() < 400_000


def test_a_line_has_the_peak_of_what_it_calls_and_the_end_of_its_locals() -> None:
    outcome = profiled("def f():\n    b = bytes(5 * MIB)\n    return 1\nf()\n", {"MIB": MIB}, host_memory=True)
    assert row(outcome, 4)["host_peak"] == pytest.approx(5 * MIB, abs=100_000)
    assert row(outcome, 2)["host_net"] == pytest.approx(5 * MIB, abs=100_000)
    assert row(outcome, 4)["host_net"] == pytest.approx(-5 * MIB, abs=100_000), "locals end after the return"


def test_tensors_are_not_in_it_and_other_bytes_are_not_asked_for() -> None:
    outcome = profiled("x = torch.ones(MIB)\n", {"torch": torch, "MIB": MIB}, host_memory=True)
    assert abs(row(outcome, 1)["host_net"]) < 100_000
    assert outcome.profile.memory is None


def test_tracemalloc_is_off_afterwards_also_after_an_error() -> None:
    assert not tracemalloc.is_tracing()
    outcome = profiled("x = 1\n1 / 0\n", {}, host_memory=True)
    assert isinstance(outcome.error, ZeroDivisionError)
    assert not tracemalloc.is_tracing()


def test_a_tracemalloc_that_runs_already_goes_on() -> None:
    tracemalloc.start(3)
    try:
        kept = bytes(MIB)
        outcome = profiled("a = bytes(2 * MIB)\n", {"MIB": MIB}, host_memory=True)
        assert tracemalloc.is_tracing()
        assert tracemalloc.get_traceback_limit() == 3
        assert tracemalloc.get_object_traceback(kept) is not None, "what it knew it still knows"
    finally:
        tracemalloc.stop()
    assert row(outcome, 1)["host_net"] == pytest.approx(2 * MIB, abs=100_000)
    (doubt,) = [d for d in outcome.profile.warnings if d.kind == "host-memory"]
    assert "already running" in doubt.text


def test_its_cost_in_time_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for plain, traced, said in ((100e-9, 350e-9, 250), (300e-9, 200e-9, 0)):
        takes = iter([plain, traced])
        monkeypatch.setattr(module, "_allocation_time", lambda takes=takes: next(takes))
        doubts = profiled("x = 1\n", {}, host_memory=True).profile.warnings
        (doubt,) = [doubt for doubt in doubts if doubt.kind == "host-memory"]
        assert doubt.facts["per_allocation"] == pytest.approx(said * 1e-9)
        assert f"made each of its allocations {said} ns slower" in doubt.text


def test_the_cost_of_an_allocation_is_that_of_the_quickest_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([0.0, 4.0, 10.0, 12.0, 20.0, 29.0, 30.0, 33.0, 40.0, 45.0])
    monkeypatch.setattr(module, "_clock", lambda: next(readings))
    assert module._allocation_time() == pytest.approx(2.0 / module._BLOCKS)
    assert next(readings, None) is None, "each trial is timed"


def test_with_it_no_line_is_said_to_be_partly_outside() -> None:
    names = {"torch": torch, "np": np}
    text = "x = torch.ones(9)\ny = x.numpy()\n"
    kinds = [d.kind for d in profiled(text, names, memory=True, host_memory=True).profile.warnings]
    assert "outside-torch" not in kinds
    assert "outside-torch" in [d.kind for d in profiled(text, names, memory=True).profile.warnings]
