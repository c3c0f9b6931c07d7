"""Memory is given back to the system where the C library can do so, and nothing fails where it cannot."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from torchbench_magic.process.freed_memory import give_back


def test_the_c_library_is_asked_for_all_of_it_and_one_without_such_a_function_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[int] = []

    def trim(keep: int) -> int:
        calls.append(keep)
        return 1

    library: Any = SimpleNamespace(malloc_trim=trim)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    give_back()
    assert calls == [0]
    library = object()
    give_back()
    assert calls == [0]
