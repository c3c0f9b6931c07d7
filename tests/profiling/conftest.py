"""What the tests of profiles share."""

from __future__ import annotations

import gc
from types import ModuleType

import pytest

from torchbench_magic.profiling.memory import holders


@pytest.fixture(scope="module", autouse=True)
def what_was_imported_before_is_not_looked_through() -> None:
    """A profile with memory looks at each object of the process; the hundred thousands of torch's own are none of a
    test's."""
    gc.freeze()


@pytest.fixture(autouse=True)
def modules_of_other_tests_hold_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search for holders looks through the user's modules, and those of all tests of this process are such."""
    is_users_module = holders.is_users_module

    def is_looked_through(module: ModuleType) -> bool:
        return is_users_module(module) and not module.__name__.startswith(("tests.", "conftest"))

    monkeypatch.setattr(holders, "is_users_module", is_looked_through)
