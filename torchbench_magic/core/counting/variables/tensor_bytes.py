"""The bytes of tensors on their way to another process: storages laid out in memory that both processes hold."""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path
from typing import Any

import torch

from torchbench_magic.errors import CountError

from .pickled_objects import CannotTravel
from .purpose import Purpose

__all__ = ["Parcel", "Storages"]

_ALIGN = 64


class Parcel:
    """Pickled variables, and a descriptor of the bytes of their tensors (None without any); close it after use."""

    def __init__(self, data: bytes, storages: Storages) -> None:
        self.data = data
        self.storages = storages.written()

    def close(self) -> None:
        if self.storages is not None:
            os.close(self.storages)
            self.storages = None

    def __enter__(self) -> Parcel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Storages:
    """Storages laid out one after the other, each once.

    Args:
        purpose: how many bytes may travel, and what an error says.
    """

    def __init__(self, purpose: Purpose) -> None:
        self._size, self.purpose = 0, purpose
        self._places: dict[int, tuple[int, int]] = {}
        self._held: list[tuple[int, int, Any]] = []

    def place(self, storage: torch.UntypedStorage) -> tuple[int, int]:
        key = storage._cdata
        if key not in self._places:
            size = storage.nbytes()
            if self._size + size > self.purpose.limit:
                raise CannotTravel(
                    f"the tensors take more than {self.purpose.limit >> 20} MiB: {self.purpose.smaller}"
                )
            self._places[key] = (self._size, size)
            self._held.append((self._size, size, storage))
            self._size += -(-size // _ALIGN) * _ALIGN
        return self._places[key]

    def written(self) -> int | None:
        """A descriptor of memory that holds them all; None where there is nothing to hold.

        Raises:
            CountError: there is not that much memory.
        """
        if not self._size:
            return None
        _check_memory(2 * self._size, self.purpose)  # here, and the copy that is counted on
        descriptor = _anonymous()
        try:
            os.posix_fallocate(descriptor, 0, self._size)
            self._write(descriptor)
        except OSError as error:
            os.close(descriptor)
            raise CountError(
                f"the tensors ({self._size >> 20} MiB) cannot be sent: {error.strerror}; free memory, or"
                f" {self.purpose.smaller}"
            ) from error
        return descriptor

    def _write(self, descriptor: int) -> None:
        with mmap.mmap(descriptor, self._size) as memory:
            for start, size, storage in self._held:
                if size:
                    flat = torch.empty(0, dtype=torch.uint8).set_(storage)
                    memory[start : start + size] = flat[:size].numpy().tobytes()


def _anonymous() -> int:
    """A descriptor of memory without a name: /dev/shm, 64 MB in containers or not there at all, is not needed."""
    try:
        return os.memfd_create("torchbench")
    except OSError:  # a kernel or a sandbox without it: a file on disk that is unlinked at once
        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno())


def _check_memory(needed: int, purpose: Purpose) -> None:
    """Refuse what would have the system kill a process; where it does not say what is free, nothing is refused."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
        free = int(text.partition("MemAvailable:")[2].split()[0]) << 10
    except (OSError, IndexError, ValueError):
        return
    if needed > free:
        raise CountError(
            f"the tensors are copied twice, which takes {needed >> 20} MiB, and {free >> 20} MiB of memory are free:"
            f" {purpose.smaller}"
        )
