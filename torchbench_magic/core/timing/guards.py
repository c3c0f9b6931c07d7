"""What is watched and put back around the blocks: inputs, sizes of containers, memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torchbench_magic.results.doubts import Doubt

__all__ = ["Inputs", "MemoryGuard", "Sizes", "prints"]


class Inputs:
    """Copies of the tensors that timed code reads; `restore` copies back those that were changed, in place.

    The copy goes into the same buffer: another buffer can differ in speed by up to 11 %.
    """

    def __init__(self, tensors: Iterable[tuple[str, Any]]) -> None:
        self._kept = [(t, t.detach().clone(), t._version) for _, t in tensors if not t.is_inference()]

    def restore(self) -> None:
        import torch

        with torch.no_grad():
            for i, (tensor, copy, version) in enumerate(self._kept):
                if tensor._version != version:
                    tensor.data.copy_(copy)  # through .data: the version counts the code's changes only
                    self._kept[i] = (tensor, copy, tensor._version)


class Sizes:
    """Lengths of the lists, dicts and sets that code reads, at one moment."""

    def __init__(self, names: Iterable[str], namespace: Mapping[str, Any]) -> None:
        values = {n: namespace[n] for n in names if n in namespace}
        self._kept = {n: (v, len(v)) for n, v in values.items() if isinstance(v, (list, dict, set, bytearray))}

    def grown(self, calls: int) -> list[Doubt]:
        """Say which of them another length now has than then."""
        changes = {name: len(value) - before for name, (value, before) in self._kept.items() if len(value) != before}
        return [
            Doubt(
                "grows",
                f"`{name}` {'grew' if by > 0 else 'shrank'} by {abs(by)} items in {calls} calls: later calls did other"
                " work than earlier ones.",
                f"Make a fresh `{name}` in the body, or take its cost out of it.",
                {"name": name, "items": by, "calls": calls},
            )
            for name, by in changes.items()
        ]


def prints(characters: int) -> list[Doubt]:
    """Say that the timed code printed so much."""
    if not characters:
        return []
    text = (
        f"The code prints: {characters} characters of output were dropped after the first call, and the times are of"
        " printing to nowhere."
    )
    return [Doubt("prints", text, "", {"characters": characters})]


class MemoryGuard:
    """Notices a body that keeps what it allocates, before the machine runs out of memory."""

    def __init__(self, read: Callable[[], tuple[int, int, int] | None] | None = None) -> None:
        self._read = read if read is not None else read_memory
        first = self._read()
        self._start = first[0] if first else 0

    def check(self) -> Doubt | None:
        """A doubt when this process has grown and less than a tenth of the machine's memory is left."""
        now = self._read()
        if now is None:
            return None
        own, available, total = now
        grown = own - self._start
        if available > total / 10 or grown < total / 10:
            return None
        return Doubt(
            "memory",
            f"Stopped early: the code keeps {grown / 2**30:.1f} GiB more than it started with, and"
            f" {available / 2**30:.1f} GiB of memory are left.",
            "",
            {"grown": grown, "available": available},
        )


def read_memory() -> tuple[int, int, int] | None:
    """(resident bytes of this process, available bytes, total bytes); None where /proc does not tell."""
    try:
        with open("/proc/self/statm") as file:
            own = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        with open("/proc/meminfo") as file:
            facts = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in file}
        return own, facts["MemAvailable"], facts["MemTotal"]
    except (OSError, ValueError, KeyError, IndexError):
        return None
