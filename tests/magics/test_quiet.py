"""What ``-q`` did not show is in no output either, and goes when its variable goes."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., str]


@pytest.mark.parametrize("keeping", ["del {name}", "{name} = None", "%reset -f"])
@pytest.mark.parametrize(
    ("cell", "name"),
    [("%%tprofile -q\ny = x + 1", "_tprofile"), ("%tprofile -q x + 1", "_tprofile"),
     ("%timer -q -n 2 -r 2 x + 1", "_timer"), ("%%timer -q -n 2 -r 2\nx + 1", "_timer")],
)  # fmt: skip
@pytest.mark.slow
def test_a_quiet_result_is_in_its_variable_and_nowhere_else(
    loaded: Any, run: Run, cell: str, name: str, keeping: str
) -> None:
    loaded.user_ns["x"] = 1.0
    run(loaded, cell)
    result = loaded.user_ns[name]
    assert all(loaded.user_ns.get(place) is not result for place in ("_", "__", "___"))
    assert not loaded.user_ns["Out"]
    assert all(value is not result for value in loaded.user_ns_hidden.values())
    assert loaded.last_execution_result.result is None
    gone = weakref.ref(result)
    del result
    gc.collect()
    gc.disable()  # what is collected at some time is held until then
    try:
        run(loaded, keeping.format(name=name))
        assert gone() is None
    finally:
        gc.enable()


def test_what_could_not_be_stored_is_told_though_nothing_else_is(
    loaded: Any, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    run(loaded, "import shutil")
    said = run(loaded, "%%tprofile -q --trace runs/t.json\nshutil.rmtree('runs')")
    assert "The trace could not be written: " in said
    assert "`.export_trace(PATH)` writes it." in said
    assert "wall time" not in said


def test_a_result_that_was_shown_stays_in_out_as_ever(loaded: Any, run: Run) -> None:
    loaded.user_ns["x"] = 1.0
    run(loaded, "%tprofile x + 1")
    assert loaded.user_ns["Out"][1] is loaded.user_ns["_"] is loaded.user_ns["_tprofile"]


def test_memory_is_given_back_at_the_end_of_the_cell_that_lets_go_of_a_large_profile(
    loaded: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchbench_magic.process import memory
    from torchbench_magic.profiling import profile

    trims: list[int] = []
    monkeypatch.setattr(profile, "LARGE", 0)
    monkeypatch.setattr(memory, "_trim", lambda: lambda keep: trims.append(keep) or 1)
    monkeypatch.setattr(memory, "_resident_now", lambda: 0)
    loaded.user_ns["x"] = 1.0
    run(loaded, "%tprofile -q x + 1")
    made = len(trims)
    run(loaded, "1 + 1")
    assert len(trims) == made
    run(loaded, "del _tprofile")
    assert len(trims) == made + 1
