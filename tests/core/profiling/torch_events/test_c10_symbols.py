"""The private symbols of torch's C++ library: there in the torch that is installed, and done without where not."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torchbench_magic.profiling import kineto  # noqa: E402
from torchbench_magic.profiling.kineto import OlderBlocks, allocator_silenced  # noqa: E402


def test_the_torch_that_is_installed_shows_them() -> None:
    assert kineto.memory_reporter() is not None
    assert kineto.log_level() is not None


@pytest.mark.parametrize("name", ["_REPORTER", "_NEW", "_DELETE"])
def test_without_one_of_the_reporters_symbols_no_older_block_is_entered(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kineto, name, "_ZN3c109elsewhereEv")
    older, kept = OlderBlocks(), torch.ones(1000)
    assert not older.known
    older.enter()
    older.leave()
    assert older.nbytes == 0, kept.shape


def test_without_the_symbol_of_the_log_nothing_is_silenced_and_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    level = kineto.log_level()
    assert level is not None
    with allocator_silenced():
        assert level.value == 2
    before = level.value
    monkeypatch.setattr(kineto, "_LOG_LEVEL", "FLAGS_elsewhere")
    with allocator_silenced():
        assert level.value == before


def test_a_torch_without_a_library_of_that_name_has_neither(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch, "__file__", str(tmp_path / "__init__.py"))
    assert kineto.memory_reporter() is None
    assert kineto.log_level() is None
