"""A large profile lets go of what it was made from, and holds little of each event itself."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torchbench_magic import load_trace, profile  # noqa: E402
from torchbench_magic.profiling import kineto  # noqa: E402
from torchbench_magic.profiling import profile as large_profiles  # noqa: E402
from torchbench_magic.profiling import profiler as module  # noqa: E402

LOOP = "for i in range({n}):\n    y = x + 1\n    z = y * 2\n"


def made(n: int, **options: Any) -> Any:
    return profile(LOOP.format(n=n), globals={"x": torch.ones(4)}, **options)


@pytest.fixture
def given_back(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is large is smaller here; each time that memory is given back."""
    calls: list[str] = []
    monkeypatch.setattr(large_profiles, "LARGE", 1000)
    monkeypatch.setattr(large_profiles, "give_back", lambda: calls.append("given back"))
    return calls


def test_memory_is_given_back_once_for_a_large_profile_and_never_for_a_small_one(given_back: list[str]) -> None:
    made(10)
    assert given_back == []
    made(600)
    assert given_back == ["given back"]


def test_a_trace_that_is_read_is_no_smaller_than_one_that_was_made(given_back: list[str], tmp_path: Any) -> None:
    made(600).export_trace(tmp_path / "trace.json")
    given_back.clear()
    load_trace(tmp_path / "trace.json")
    assert given_back == ["given back"]


def test_torchs_events_and_the_run_are_gone_before_memory_is_given_back_without_a_collection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs: list[weakref.ref[Any]] = []
    held: list[object] = []
    profilers: list[Any] = []
    report, new = module.report, kineto.new_profiler

    def noted(run: Any, *given: Any, **named: Any) -> Any:
        runs.append(weakref.ref(run))
        return report(run, *given, **named)

    def kept(**options: bool) -> Any:
        profilers.append(new(**options))  # torch's own refers to itself, and stays as long
        return profilers[-1]

    monkeypatch.setattr(module, "report", noted)
    monkeypatch.setattr(kineto, "new_profiler", kept)
    monkeypatch.setattr(large_profiles, "LARGE", 0)
    monkeypatch.setattr(
        large_profiles,
        "give_back",
        lambda: held.extend([runs[-1](), profilers[-1].profiler.kineto_results]),
    )
    made(3)  # what is set up once
    gc.disable()
    try:
        made(100, memory=True)
    finally:
        gc.enable()
    assert held[-2:] == [None, None]


@pytest.mark.parametrize("options", [{}, {"memory": True, "shapes": True}], ids=["plain", "memory and shapes"])
def test_it_holds_less_than_two_hundred_bytes_an_event_and_no_object_for_each(options: dict[str, bool]) -> None:
    found = made(1000, **options)
    trace = found.trace
    tables = [trace.events, trace.nodes, trace.segments, found.lines, found.ops, found.frames]
    tables += [] if found.memory is None else [found.memory]
    in_columns = sum(int(table.memory_usage(index=False).sum()) for table in tables)
    assert in_columns < 200 * found.n_events
    texts = [table[name] for table in tables for name in table.columns if table[name].dtype == object]
    assert len({id(value) for column in texts for value in column}) < 300, "equal texts are one object"
