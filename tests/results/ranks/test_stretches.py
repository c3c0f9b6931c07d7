"""Sets of moments, against sets of numbers."""

from __future__ import annotations

import numpy as np
import pytest

from torchbench_magic.cluster.ranks import common, joined_stretches, nanoseconds, within, without


def random_pairs(seed: int) -> tuple[np.ndarray, np.ndarray]:
    numbers = np.random.default_rng(seed)
    begin = numbers.integers(0, 60, numbers.integers(0, 12))
    return begin, begin + numbers.integers(0, 9, len(begin))


def moments(stretches: np.ndarray) -> set[int]:
    return {n for begin, end in stretches.tolist() for n in range(begin, end)}


@pytest.mark.parametrize("seed", range(60))
def test_sets_of_moments_are_those_of_their_members(seed: int) -> None:
    one, other = joined_stretches(*random_pairs(seed)), joined_stretches(*random_pairs(seed + 1000))
    assert moments(one) == {n for b, e in zip(*random_pairs(seed), strict=True) for n in range(b, e)}
    assert moments(common(one, other)) == moments(one) & moments(other)
    assert moments(without(one, other)) == moments(one) - moments(other)
    assert moments(within(one, 10, 30)) == moments(one) & set(range(10, 30))
    assert nanoseconds(one) == len(moments(one))
    for made in (one, common(one, other), without(one, other)):
        assert (made[1:, 0] > made[:-1, 1]).all(), "sorted and apart"
