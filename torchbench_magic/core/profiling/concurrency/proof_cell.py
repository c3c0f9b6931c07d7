"""What follows from how the cores were used: the cell that proves a cure, and what is doubtful."""

from __future__ import annotations

from collections.abc import Iterator

from torchbench_magic.results.doubts import Doubt
from torchbench_magic.results.machine.concurrency import Concurrency

__all__ = ["counts_to_compare", "doubts_of_concurrency", "proof_of"]

_MOST = 5  # counts side by side: each takes a second or more


def counts_to_compare(cores: int, current: int) -> tuple[int, ...]:
    """Counts worth comparing: 1, the powers of two below the cores, the cores, and the current one."""
    powers = [1 << bit for bit in range(cores.bit_length()) if 1 << bit <= cores]
    while len(powers) > _MOST - 2:
        powers = [powers[0], *powers[2:]]
    counts = {1, *powers, max(1, cores), max(1, current)}
    return tuple(sorted(counts if len(counts) > 1 else {1, 2}))


def proof_of(text: str | None, cores: int, current: int) -> str:
    """A cell to paste: the profiled one under ``%%timer`` at several thread counts; without a cell the magic alone.

    Args:
        text: of the profiled cell, with its magic; None where there is none.
        cores: usable ones.
        current: torch's thread count.
    """
    magic = f"%%timer --threads {','.join(map(str, counts_to_compare(cores, current)))}"
    lines = (text or "").strip("\n").splitlines()
    if lines and lines[0].lstrip().startswith("%%"):
        lines = lines[1:]
    elif any(line.lstrip().startswith("%tprofile") for line in lines):
        return magic  # a line of a cell: which part of it was profiled is not known here
    return "\n".join([magic, *lines])


def doubts_of_concurrency(seen: Concurrency | None) -> Iterator[Doubt]:
    """Processes that hung; that nothing can be said, and why."""
    if seen is None:
        return
    for text in seen.hung:
        what, _, advice = text.partition(". ")
        yield Doubt("fork-deadlock", f"{what}.", advice)
    if seen.verdict == "not available" and seen.missing:
        yield Doubt("concurrency-unknown", f"How the cores were used is unknown. {seen.missing[0]}")
