"""Sizes of the processor's caches, and how to empty them."""

from __future__ import annotations

import glob
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

__all__ = ["cache_flusher", "data_caches", "last_level_cache"]

_FALLBACK = 64 << 20
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@lru_cache(maxsize=1)
def last_level_cache() -> int:
    """Bytes of the largest cache that processor 0 sees; 64 MiB where the system does not tell."""
    sizes = []
    for name in glob.glob("/sys/devices/system/cpu/cpu0/cache/index*/size"):
        try:
            sizes.append(_bytes(Path(name).read_text()))
        except (OSError, ValueError, KeyError):
            continue
    return max(sizes, default=_FALLBACK)


def data_caches() -> tuple[tuple[str, int], ...]:
    """("L1", bytes), ("L2", bytes), ... of the caches for data that processor 0 sees, the smallest first; empty where
    the system does not tell."""
    found: dict[str, int] = {}
    for folder in glob.glob("/sys/devices/system/cpu/cpu0/cache/index*"):
        try:
            if Path(folder, "type").read_text().strip() == "Instruction":
                continue
            found[f"L{int(Path(folder, 'level').read_text())}"] = _bytes(Path(folder, "size").read_text())
        except (OSError, ValueError, KeyError):
            continue
    return tuple(sorted(((name, size) for name, size in found.items() if size > 0), key=lambda each: each[1]))


def _bytes(text: str) -> int:
    """``32K`` in bytes."""
    text = text.strip()
    return int(text[:-1]) * _UNITS[text[-1]] if text[-1:] in _UNITS else int(text)


def cache_flusher() -> Callable[[], None]:
    """A function that evicts everything else from the caches, by writing twice the last level's size."""
    import torch

    buffer = torch.zeros(2 * last_level_cache() // 8, dtype=torch.int64)

    def flush() -> None:
        buffer.add_(1)

    return flush
