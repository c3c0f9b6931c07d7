"""The notebook's variables on their way to the process that counts.

Only the names that the code uses travel, by cloudpickle; tensors by their storage, in one piece of anonymous memory
that both processes hold, so that views stay views of one storage and no file is left behind. What cannot travel is
named, with the way out, before valgrind does anything.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from torchbench_magic.errors import CountError

from . import extensions

__all__ = ["LIMIT", "Parcel", "pack", "unpack"]

LIMIT = 1 << 30
"""Bytes of tensors that one count may take along: they are copied twice."""

_ALIGN = 64


class _CannotTravel(Exception):
    """Why one object cannot be sent, and the way out."""


class Parcel:
    """Pickled variables, and a descriptor of the bytes of their tensors (None without any); close it after use."""

    def __init__(self, data: bytes, storages: _Storages) -> None:
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


class _Storages:
    """Storages laid out one after the other, each once."""

    def __init__(self, limit: int) -> None:
        self._limit, self._size = limit, 0
        self._places: dict[int, tuple[int, int]] = {}
        self._held: list[tuple[int, int, Any]] = []

    def place(self, storage: torch.UntypedStorage) -> tuple[int, int]:
        key = storage._cdata
        if key not in self._places:
            size = storage.nbytes()
            if self._size + size > self._limit:
                raise _CannotTravel(
                    f"the tensors take more than {self._limit >> 20} MiB: count on smaller ones, instructions per"
                    " element are the same"
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
        _check_memory(2 * self._size)  # here, and the copy that is counted on
        descriptor = _anonymous()
        try:
            os.posix_fallocate(descriptor, 0, self._size)
            self._write(descriptor)
        except OSError as error:
            os.close(descriptor)
            raise CountError(
                f"the tensors ({self._size >> 20} MiB) cannot be handed over: {error.strerror}; free memory, or count"
                " on smaller tensors"
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


def _check_memory(needed: int) -> None:
    """Refuse what would have the system kill a process; where it does not say what is free, nothing is refused."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
        free = int(text.partition("MemAvailable:")[2].split()[0]) << 10
    except (OSError, IndexError, ValueError):
        return
    if needed > free:
        raise CountError(
            f"the tensors are copied twice, which takes {needed >> 20} MiB, and {free >> 20} MiB of memory are free:"
            " count on smaller tensors"
        )


def _pickler(file: io.BytesIO, storages: _Storages) -> Any:
    import cloudpickle

    class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # untyped
        def persistent_id(self, obj: Any) -> Any:
            if isinstance(obj, torch.UntypedStorage):
                return ("storage", *storages.place(obj))
            return None

        def reducer_override(self, obj: Any) -> Any:
            kind = type(obj)
            if isinstance(obj, torch.Tensor):
                if obj.device.type != "cpu":
                    raise _CannotTravel(f"it is on {obj.device}, and only code on the CPU can be counted: use .cpu()")
                if kind is torch.Tensor and not obj.is_leaf:
                    raise _CannotTravel("it is a result of autograd (it has a grad_fn): use .detach()")
            if kind in (torch.Tensor, torch.nn.Parameter) and obj.layout is torch.strided and not obj.is_quantized:
                seen = (tuple(obj.shape), obj.stride(), obj.storage_offset())
                marks = (obj.requires_grad, kind is torch.nn.Parameter, obj.is_conj(), obj.is_neg())
                return _rebuilt, (obj.untyped_storage(), obj.dtype, *seen, *marks)
            travels = extensions.reduced(obj)
            return super().reducer_override(obj) if travels is None else travels

    return _Pickler(file, protocol=5)


def _rebuilt(
    storage: Any,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    offset: int,
    requires_grad: bool,
    is_parameter: bool,
    is_conj: bool,
    is_neg: bool,
) -> torch.Tensor:
    tensor: torch.Tensor = torch.empty(0, dtype=dtype).set_(storage, offset, shape, stride)
    if is_conj:
        tensor = tensor.conj()
    if is_neg:
        tensor = torch._neg_view(tensor)
    if is_parameter:
        return torch.nn.Parameter(tensor, requires_grad=requires_grad)
    return tensor.requires_grad_(requires_grad)


def pack(names: Iterable[str], namespace: Mapping[str, Any], limit: int = LIMIT) -> Parcel:
    """Pickle the variables that the code uses; functions that have ``namespace`` as globals share one dict there too.

    Raises:
        CountError: in one line: which variable cannot travel, why, and the way out.
    """
    used = sorted(name for name in set(names) if name in namespace and not name.startswith("__"))
    try:
        return Parcel(*_dumped(used, namespace, limit))
    except CountError:
        raise
    except Exception as error:  # whatever the pickling of a user's object raises
        for name in used:
            try:
                _dumped([name], namespace, limit)
            except Exception as own:  # noqa: BLE001
                kind = type(namespace[name])
                told = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.").removeprefix("__main__.")
                why = str(own) if isinstance(own, _CannotTravel) else _out(own, name)
                raise CountError(f"`{name}` ({told}) cannot be sent to the process that counts: {why}") from error
        if isinstance(error, _CannotTravel):
            raise CountError(f"the variables cannot be sent to the process that counts: {error}") from error
        raise CountError(f"the variables cannot be sent to the process that counts: {_first_line(error)}") from error


def _out(error: Exception, name: str) -> str:
    return f"{_first_line(error)}; make `{name}` inside the statement"


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _dumped(names: list[str], namespace: Mapping[str, Any], limit: int) -> tuple[bytes, _Storages]:
    storages, file = _Storages(limit), io.BytesIO()
    pickler = _pickler(file, storages)
    shared: dict[str, Any] = {}
    pickler.globals_ref[id(namespace)] = shared
    pickler.dump((shared, {name: namespace[name] for name in names}))
    return file.getvalue(), storages


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, memory: Any) -> None:
        super().__init__(file)
        self._memory = memory
        self._made: dict[tuple[int, int], Any] = {}

    def persistent_load(self, place: Any) -> Any:
        _, start, size = place
        if (start, size) not in self._made:
            held = torch.empty(size, dtype=torch.uint8)
            if size:
                held.copy_(torch.frombuffer(self._memory, dtype=torch.uint8, count=size, offset=start))
            self._made[start, size] = held.untyped_storage()
        return self._made[start, size]


def unpack(data: bytes, storages: int | None, implied: Mapping[str, Any]) -> dict[str, Any]:
    """The variables as globals for the code, with what is ``implied`` where they do not have it."""
    memory = None
    if storages is not None:
        memory = mmap.mmap(storages, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    shared: dict[str, Any]
    shared, values = _Unpickler(io.BytesIO(data), memory).load()
    for name, value in implied.items():
        shared.setdefault(name, value)
    shared.update(values)
    return shared
