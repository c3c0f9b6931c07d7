"""Names that code reads, and texts of cells, on their way to engines."""

from __future__ import annotations

import contextlib
import io
import linecache
import os
import pickle
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from types import CodeType, FunctionType
from typing import Any

from torchbench_magic import units
from torchbench_magic.cell_body import CellText
from torchbench_magic.errors import BodyError
from torchbench_magic.process.code import codes_within, names_looked_up
from torchbench_magic.process.object_contents import memory_of
from torchbench_magic.process.send import (
    CannotTravel,
    by_value,
    first_line,
    kind_text,
    reduced_own,
    reduced_tensor,
)
from torchbench_magic.process.send_modules import local_modules

# ---- sent_names ------------------------------------------------------------------------------------------------------
# The names that code reads, on their way to engines: by cloudpickle, as bytes, each with its size.
#
# Functions and classes of the notebook, and of modules beside it, travel themselves; installed modules are imported on
# the engine. Other hosts share no memory, so tensors travel as bytes too (to a process of this host they need not:
# `process.send`).

LIMIT = 64 << 20
"""Bytes of all names: they go to each engine, over the network as the case may be."""
_OF_THE_SHELL = frozenset({"In", "Out", "get_ipython", "exit", "quit", "open"})
"""Names that IPython gives to a notebook, and to an engine of its own accord."""


@dataclass(frozen=True)
class SentNames:
    """Names on their way.

    Attributes:
        data: for `unpack_names`.
        sizes: bytes of each name; what two of them hold is counted with the first.
        files: of the code that travels.
        has_code: functions or classes travel, which only the same Python can read.
        folders: where modules of this process are found besides the installed ones; they serve engines of this host.
    """

    data: bytes = b""
    sizes: Mapping[str, int] = field(default_factory=dict)
    files: frozenset[str] = frozenset()
    has_code: bool = False
    folders: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """``sent: model 1.2 MB, batch 3 kB``; empty where nothing is."""
        shown = sorted(self.sizes.items(), key=lambda each: -each[1])
        parts = [f"{name} {units.bytes_text(size)}" for name, size in shown[:4]]
        more = f", {len(shown) - 4} more" if len(shown) > 4 else ""
        return f"sent: {', '.join(parts)}{more}" if parts else ""


class _TooLarge(Exception):
    """Args: bytes."""


class _Limited(io.BytesIO):
    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def write(self, data: Any, /) -> int:
        written = super().write(data)
        if self.tell() > self.limit:
            raise _TooLarge(self.tell())
        return written


def pack_names(
    codes: Iterable[CodeType],
    namespace: Mapping[str, Any],
    *,
    given: Collection[str] = (),
    besides: Mapping[str, Any] | None = None,
    way: str = "make `{}` in the cell",
    limit: int = LIMIT,
) -> SentNames:
    """The names of ``namespace`` that code, or what it calls, looks up.

    Args:
        codes: of the cell.
        namespace: globals of the notebook's functions.
        given: names that the engine has of its own, such as ``rank``.
        besides: more values by name, which travel in any case; what stands before a colon is not of the name.
        way: the way out for what cannot travel, with its name in the braces.
        limit: bytes of all together.

    Raises:
        BodyError: in one line: which name cannot travel, why, and the way out.
    """
    used = {name for code in codes for name in names_looked_up(code)} - _OF_THE_SHELL - frozenset(given)
    values = {name: namespace[name] for name in sorted(used) if name in namespace and not name.startswith("__")}
    values |= besides or {}
    file, files = _Limited(limit), set[str]()
    sizes: dict[str, int] = {}
    with by_value(local_modules()):
        pickler = _pickler(file, files, limit)
        shared: dict[str, Any] = {}
        pickler.globals_ref[id(namespace)] = shared
        pickler.dump(shared)
        for name, value in values.items():
            before = file.tell()
            try:
                pickler.dump(name)
                pickler.dump(value)
            except _TooLarge as error:
                largest = _plain(max({**sizes, name: error.args[0] - before}.items(), key=lambda each: each[1])[0])
                raise BodyError(
                    f"`{largest}`: the code reads more than {limit >> 20} MB, which would be sent to each engine;"
                    f" {way.format(largest)}, so that it is made on the engine"
                ) from None
            except Exception as error:  # whatever the pickling of a user's object raises
                said = f"`{_plain(name)}` ({kind_text(value)}) cannot be sent to an engine: {first_line(error)}"
                raise BodyError(f"{said}; {way.format(_plain(name))}") from error
            sizes[name] = file.tell() - before
        pickler.dump(None)
    data = file.getvalue()
    return SentNames(data, sizes, frozenset(files), b"cloudpickle" in data, _own_folders())


def _plain(name: str) -> str:
    """Without the place that it is of."""
    return name.rpartition(":")[2]


def _own_folders() -> tuple[str, ...]:
    """Of ``sys.path``, without what is installed."""
    found = dict.fromkeys(os.path.abspath(each or os.getcwd()) for each in [os.getcwd(), *sys.path])
    installed = (sys.prefix, sys.base_prefix, sys.exec_prefix)
    return tuple(each for each in found if not each.startswith(installed) and "site-packages" not in each)


def _pickler(file: io.BytesIO, files: set[str], limit: int) -> Any:
    import cloudpickle
    import torch

    class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # untyped
        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, torch.Tensor):
                if obj.grad_fn is not None:
                    raise CannotTravel("it is, or holds, a result of autograd (it has a grad_fn): use .detach()")
                _, size = memory_of(obj)
                if size > limit:
                    raise _TooLarge(size)  # before its bytes are copied
                plain = type(obj) in (torch.Tensor, torch.nn.Parameter) and not obj.is_quantized
                if plain and obj.layout is torch.strided and obj.device.type == "cpu":
                    return reduced_tensor(obj)
            elif isinstance(obj, torch.UntypedStorage):
                flat = torch.empty(0, dtype=torch.uint8).set_(obj)
                # a copy: memory that NumPy shares cannot be resized any more
                return _storage, (flat.clone().numpy().tobytes(),)
            elif (travels := reduced_own(obj)) is not None:
                return travels
            travels = super().reducer_override(obj)
            if isinstance(obj, FunctionType) and travels is not NotImplemented:
                files.update(code.co_filename for code in codes_within(obj.__code__))
            return travels

    return _Pickler(file, protocol=5)


def _storage(data: bytes) -> Any:
    import torch

    return torch.frombuffer(bytearray(data), dtype=torch.uint8).untyped_storage() if data else torch.UntypedStorage(0)


def unpack_names(data: bytes) -> dict[str, Any]:
    """On the engine: the names, in the dict that the notebook's functions among them have as globals.

    Raises:
        BodyError: in one line: which name cannot be made there, and why.
    """
    if not data:
        return {}
    loader = pickle.Unpickler(io.BytesIO(data))  # of the user's own notebook
    shared: dict[str, Any] = loader.load()
    values = {}
    while (name := loader.load()) is not None:
        try:
            values[name] = loader.load()
        except Exception as error:  # whatever the making of a user's object raises
            why = f"{type(error).__name__}: {first_line(error)}"
            raise BodyError(f"`{name}` cannot be made on the engine ({why})") from error
    shared.update(values)
    return shared


@contextlib.contextmanager
def folders_known(folders: Iterable[str]) -> Iterator[None]:
    """On an engine of the notebook's host: modules of the notebook's folders are found in the block."""
    more = [each for each in folders if each not in sys.path and os.path.isdir(each)]
    sys.path.extend(more)
    try:
        yield
    finally:
        for each in more:
            if each in sys.path:
                sys.path.remove(each)


# ---- sent_cells ------------------------------------------------------------------------------------------------------
# Texts of the notebook's cells on their way to engines, so that lines there stand on ``In[n]``.


def pack_cells(files: Iterable[str], text_of: Callable[[str], CellText | None]) -> list[dict[str, Any]]:
    """The cells among ``files``, as plain values."""
    texts = {file: text_of(file) for file in sorted(set(files))}
    shown = {file: list(linecache.getlines(file)) for file in texts}  # as compiled, or as seen under a magic
    return [{"text": asdict(text), "lines": shown[file]} for file, text in texts.items() if text is not None]


@contextmanager
def known_cells(cells: Sequence[Mapping[str, Any]]) -> Iterator[Callable[[str], CellText | None]]:
    """On the engine: `linecache` has the texts in the block; gives file -> its cell, None for what is no cell."""
    made = {}
    for each in cells:
        text = CellText(**{**each["text"], "visible": tuple(each["text"]["visible"])})
        made[text.file] = text
    pairs = zip(made.values(), cells, strict=True)
    with known_lines({text.file: each["lines"] or [f"{line}\n" for line in text.lines] for text, each in pairs}):
        yield made.get


@contextmanager
def known_lines(lines: Mapping[str, list[str]]) -> Iterator[None]:
    """On the engine: `linecache` has the lines of these files in the block."""
    before = {file: linecache.cache.get(file) for file in lines}
    for file, text in lines.items():
        linecache.cache[file] = (sum(map(len, text)), None, text, file)
    try:
        yield
    finally:
        for file, entry in before.items():
            if entry is None:
                linecache.cache.pop(file, None)
            else:
                linecache.cache[file] = entry
