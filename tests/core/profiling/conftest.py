"""What the tests of profiles share."""

from __future__ import annotations

from types import ModuleType

import pytest

from torchbench_magic.core.profiling.holding import roots


@pytest.fixture(autouse=True)
def modules_of_other_tests_hold_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search for holders looks through the user's modules, and those of all tests of this process are such."""
    is_users_module = roots.is_users_module

    def is_looked_through(module: ModuleType) -> bool:
        return is_users_module(module) and not module.__name__.startswith(("tests.", "conftest"))

    monkeypatch.setattr(roots, "is_users_module", is_looked_through)
