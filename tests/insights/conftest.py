"""Insights are looked for in profiles that run: what holds of tests of profiles holds here."""

from __future__ import annotations

from tests.profiling.conftest import (  # noqa: F401  # fixtures
    modules_of_other_tests_hold_nothing,
    what_was_imported_before_is_not_looked_through,
)
