"""The blocks that are alive at the moments of a picture: all of them, to the byte, whatever is summed."""

from __future__ import annotations

import numpy as np
import pytest

from torchbench_magic.profiling.memory.picture import BlocksByColumn, blocks_by_column


def history(seed: int, count: int = 4000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(change, row that allocated its block, owner) of blocks that come and go; some were there before."""
    random = np.random.default_rng(seed)
    change, given, owner, there = [], [], [], []
    for row in range(count):
        if there and random.random() < 0.45:
            born = there.pop(int(random.integers(len(there))))
            change.append(-change[born])
            given.append(born)
            owner.append(owner[born])
        elif random.random() < 0.05:
            change.append(-int(random.integers(1, 9)))
            given.append(row)
            owner.append(-1)
        else:
            there.append(row)
            change.append(int(random.choice([4, 64, 512, 4096])))
            given.append(row)
            owner.append(int(random.integers(5)))
    return np.array(change), np.array(given), np.array(owner)


def alive_in(found: BlocksByColumn, column: int) -> tuple[int, int]:
    """(blocks, bytes)"""
    there = (found.first <= column) & (found.end > column)
    blocks, size = found.count[there], found.size[there]
    return int(blocks.sum() + found.rest_blocks[column]), int((blocks * size).sum() + found.rest_bytes[column])


@pytest.mark.parametrize("most", [10_000, 50, 0])
def test_every_moment_has_all_of_its_blocks_however_few_have_names_of_their_own(most: int) -> None:
    change, given, owner = history(seed=most)
    shown = np.sort(np.append(np.random.default_rng(1).integers(-1, len(change), 99), len(change) - 1))
    found = blocks_by_column(change, given, owner, shown, most)
    assert len(found.owner) <= most
    for column, row in enumerate(shown.tolist()):
        rows = np.arange(row + 1)
        born = set(rows[(change[: row + 1] > 0) & (owner[: row + 1] >= 0)].tolist())
        left = born - set(given[: row + 1][change[: row + 1] < 0].tolist())
        assert alive_in(found, column) == (len(left), int(change[list(left)].sum()) if left else 0)
    assert found.spec().get("restBlocks") is None or most < 10_000


def test_a_block_between_two_moments_is_counted_as_unseen() -> None:
    change, given, owner = np.array([8, 4, -4, 2]), np.array([0, 1, 1, 3]), np.array([0, 0, 0, 1])
    found = blocks_by_column(change, given, owner, np.array([0, 3]))
    assert found.unseen == 1
    assert found.spec() == {
        "owner": [0, 1], "size": [8, 2], "first": [0, 1], "end": [2, 2], "count": [1, 1], "unseen": 1,
    }  # fmt: skip


def test_without_a_change_nothing_is_alive() -> None:
    none = np.zeros(0, dtype=np.int64)
    found = blocks_by_column(none, none, none, np.array([-1, -1]))
    assert alive_in(found, 1) == (0, 0)
