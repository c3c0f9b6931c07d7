"""When memory is given back to the system: after what held much is gone, and not otherwise."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import pytest

from torchbench_magic.process import memory


class Owner:
    """Something that holds much."""


@pytest.fixture
def trims(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The calls of ``malloc_trim``."""
    calls: list[int] = []
    monkeypatch.setattr(memory, "_trim", lambda: lambda keep: calls.append(keep) or 1)
    monkeypatch.setattr(memory, "_held", set())
    monkeypatch.setattr(memory, "_is_due", False)
    monkeypatch.setattr(memory, "resident_now", lambda: 0)
    return calls


def test_it_is_given_back_once_when_what_held_it_is_gone(trims: list[int]) -> None:
    owner = Owner()
    memory.give_back_with(owner)
    memory.give_back_if_due()
    assert trims == []
    del owner
    assert trims == [], "what it holds is freed only after it"
    memory.give_back_if_due()
    memory.give_back_if_due()
    assert trims == [0]


def test_what_was_used_beside_an_owner_that_is_there_is_given_back_too(
    trims: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = [50_000_000, 150_000_000, 40_000_000, 90_000_000]
    monkeypatch.setattr(memory, "_resident", 0)
    monkeypatch.setattr(memory, "resident_now", lambda: taken.pop(0))
    memory.give_back_if_due()
    assert len(taken) == 4, "nothing is read where nobody holds much"
    owner = Owner()
    memory.give_back_with(owner)
    memory.give_back_if_due()
    assert trims == []
    memory.give_back_if_due()  # 150 MB, 40 of them are left
    memory.give_back_if_due()  # 90: 50 more
    assert trims == [0]


def test_where_the_c_library_has_no_such_function_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(name: object) -> Any:
        return object()

    monkeypatch.setattr(ctypes, "CDLL", without)
    memory._trim.cache_clear()
    try:
        memory.give_back()
        assert memory._trim() is None
    finally:
        memory._trim.cache_clear()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="of glibc")
def test_glibc_has_it() -> None:
    memory._trim.cache_clear()
    assert (memory._trim() is not None) == hasattr(ctypes.CDLL(None), "malloc_trim")
