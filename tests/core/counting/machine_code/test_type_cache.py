"""The numbers that CPython gives types, and the table of what it found in them."""

from __future__ import annotations

import ctypes

import pytest

from torchbench_magic.counting.level_heap import level_types


def next_tag() -> int:
    last = ctypes.pythonapi.PyType_ClearCache
    last.restype = ctypes.c_uint
    return int(last()) + 1


@pytest.mark.parametrize("classes", [0, 1, 499, 500, 501])
def test_whatever_classes_came_before_the_next_one_has_the_same_place(classes: int) -> None:
    for i in range(classes):
        getattr(type("Before", (), {"x": i}), "x")  # noqa: B009
    level_types()
    assert next_tag() % 4096 == 0
    before = next_tag()
    level_types()
    assert next_tag() == before  # nothing to do


def test_a_python_that_gives_no_numbers_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Pythonapi:
        class PyType_ClearCache:  # noqa: N801
            def __new__(cls) -> int:  # type: ignore[misc]
                asked.append(1)
                return 17

    monkeypatch.setattr(ctypes, "pythonapi", Pythonapi)
    level_types()
    assert len(asked) == 32
