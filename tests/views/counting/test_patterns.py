"""What the reader types as a regular expression: it works, or it is said in one line and in time."""

from __future__ import annotations

import pytest

from torchbench_magic.counting.explore import matching, replaced
from torchbench_magic.errors import InputError

NAMES = ["at::mul(at::Tensor)", "_int_malloc", "مرحبا\u202e", "a\nb", "\ud800"]


def test_a_pattern_is_looked_for_without_regard_to_case() -> None:
    assert matching("TENSOR|b$", NAMES) == [True, False, False, True, False]


def test_a_replacement_may_name_groups() -> None:
    assert replaced(r"(\w+)::", r"\1.", NAMES)[0] == "at.mul(at.Tensor)"
    assert replaced("", "", NAMES) == NAMES


@pytest.mark.parametrize(
    ("pattern", "to", "told"),
    [("(", "x", "not a usable pattern: missing"), ("(a)", r"\2", "not a usable replacement: invalid group reference")],
)
def test_what_is_no_pattern_is_said_in_one_line(pattern: str, to: str, told: str) -> None:
    with pytest.raises(InputError, match=told) as caught:
        replaced(pattern, to, NAMES)
    assert "\n" not in str(caught.value)


def test_a_pattern_that_explodes_is_given_up_in_time() -> None:
    with pytest.raises(InputError, match=r"takes longer than 0\.5 s"):
        matching("(a+)+$", ["a" * 40 + "!"], limit=0.5)
