"""The doctor asks the machine itself: what its tests do not plant is read."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def the_machine_is_quiet() -> None:
    """Not here."""
