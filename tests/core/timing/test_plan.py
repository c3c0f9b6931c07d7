"""Values that cannot be are refused wherever they are set."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from torchbench_magic.errors import OptionError
from torchbench_magic.timing.plan import Plan

NO_SECONDS = [0, -1, math.nan, math.inf, -math.inf, "1", True, [1]]
NO_SHARE = [0, -0.1, math.nan, math.inf, "1 %", 11]
NO_COUNT = [0, -1, 2.5, math.nan, "3", True]
BAD: list[tuple[str, Any]] = [
    *(("min_run_time", value) for value in [*NO_SECONDS, None]),
    *(("max_run_time", value) for value in NO_SECONDS),
    *((name, value) for name in ("margin", "until", "adaptive") for value in NO_SHARE),
    *((name, value) for name in ("number", "repeat") for value in NO_COUNT),
    *((name, 10**13) for name in ("number", "repeat")),
    *(("threads", (value,)) for value in [*NO_COUNT, 4097, 10**30]),
    *(("seed", value) for value in (-1, 1.5, math.nan, "7", True, 2**32)),
]


def test_a_value_that_cannot_be_is_one_line_with_its_name() -> None:
    wrong: list[str] = []
    for name, value in BAD:
        try:
            Plan(**{name: value})
        except OptionError as error:
            if re.fullmatch(rf"{name}: give [^\n]+", str(error)) is None:
                wrong.append(f"{name}={value!r}: {error}")
        else:
            wrong.append(f"{name}={value!r}: taken")
    assert wrong == []


def test_numbers_of_numpy_are_numbers() -> None:
    made = Plan(min_run_time=np.float32(0.5), number=np.int64(3), threads=(np.int32(2),))
    assert (made.min_run_time, made.number, made.threads) == (0.5, 3, (2,))
