"""``--check`` of results that hold what the alternatives after them fill anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from torchbench_magic.errors import CheckFailed

from ..fake_clock import FakeClock, timed

CASES: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    "array": ("arr[:] = {}\narr", lambda: {"arr": np.zeros(5)}),
    "dict": ("out['loss'].fill_({})\nout", lambda: {"out": {"loss": torch.zeros(3), "name": "x"}}),
    "list": ("held.clear()\nheld.append({})\nheld", lambda: {"held": []}),
    "tuple": ("buf.fill_({})\n(buf, [buf])", lambda: {"buf": torch.zeros(3)}),
    "set": ("seen.clear()\nseen.add({})\nseen", lambda: {"seen": set()}),
}


def check(a: str, b: str, names: dict[str, Any]) -> None:
    timed(FakeClock(), {"a": f"clock.work(1)\n{a}", "b": f"clock.work(1)\n{b}"}, names=names, check=True)


@pytest.mark.parametrize("case", CASES)
def test_a_result_that_is_filled_anew_is_not_compared_with_itself(case: str) -> None:
    code, names = CASES[case]
    check(code.format(1), code.format(1), names())
    with pytest.raises(CheckFailed) as caught:
        check(code.format(1), code.format(2), names())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("a", "b"), [("True", "1"), ("[True]", "[1.0]")])
def test_a_bool_and_a_number_are_told_apart_in_one_line(a: str, b: str) -> None:
    with pytest.raises(CheckFailed, match="they are not equal") as caught:
        check(a, b, {})
    assert "\n" not in str(caught.value)
