"""A coroutine is run to its end without an event loop, or refused."""

from __future__ import annotations

import asyncio

import pytest

from torchbench_magic.process.code import completed


async def two() -> int:
    return 2


def test_what_never_suspends_gives_its_result() -> None:
    async def doubled() -> int:
        return 2 * await two()

    assert completed(doubled()) == 4


def test_what_suspends_is_closed_and_refused() -> None:
    ended = []

    async def waits() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            ended.append(True)

    with pytest.raises(RuntimeError, match="awaits"):
        completed(waits())
    assert ended
