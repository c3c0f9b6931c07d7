"""Many small cases in one test: each is checked, and all that fail are told, each with its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

_LONGEST = 400


def every_case(cases: Iterable[tuple[Any, ...]], check: Callable[..., object]) -> None:
    """Call ``check`` with each case; what it raises is told with the case, after the last one."""
    failed, count = [], 0
    for case in cases:
        count += 1
        try:
            check(*case)
        except (Exception, pytest.fail.Exception) as error:
            said = f"{type(error).__name__}: {error}"
            failed.append(f"{case!r:.{_LONGEST}}\n    {said[:_LONGEST]}")
    assert count, "no case was checked"
    assert not failed, f"{len(failed)} of {count} cases:\n" + "\n".join(failed)
