"""Columns of a table as compressed bytes and back, with everything about them checked on the way in.

A column is stored with its dtype, its length and its codec by name, so that a reader in another language (or in ten
years) needs no Python for it:

``shuffle-zlib``
    the bytes of a little-endian array, all first bytes of its items, then all second bytes, and so on, then zlib.
    Counters and neighbouring times share their high bytes, so this halves what zlib alone leaves (the shuffle filter
    of HDF5 and Blosc).
``mask-shuffle-zlib``
    one byte an item (1 where there is a value), then the array, 0 where there is none.
``words-zlib``
    a JSON list of the different texts, a line feed, then their numbers as little-endian int32, -1 for None.

What is read is a file that somebody may have sent: lengths are checked before memory is taken for them.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from torchbench_magic.errors import StoreError

__all__ = ["PackedColumn", "check_packed_size", "pack_columns", "unpack_columns"]

_PLAIN = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")
_NULLABLE = ("Int64",)
_ITEM = {"Int64": 9} | {name: np.dtype(name).itemsize for name in _PLAIN}
_TEXT = "text"
_LEVEL = 6
_BEST_RATIO = 1032  # zlib cannot do better; a length that claims more is false
_USUAL_RATIO, _ALWAYS = 64, 1 << 28
"""What a record may take unpacked: so many times its size, and so many bytes (256 MiB) besides. Profiles that we write
take 3 to 20 times."""


@dataclass(frozen=True)
class PackedColumn:
    """One column: ``rows`` items of ``dtype`` in ``data``, written by ``codec``."""

    name: str
    dtype: str
    rows: int
    codec: str
    data: bytes


def pack_columns(frame: pd.DataFrame) -> list[PackedColumn]:
    """The columns of ``frame``, in their order; its index is dropped, texts come back as objects.

    Raises:
        TypeError: a column is neither of numbers nor of texts and None.
    """
    return [_packed(str(name), frame[name]) for name in frame.columns]


def unpack_columns(columns: list[PackedColumn]) -> pd.DataFrame:
    """The table that `pack_columns` was given.

    Raises:
        StoreError: a column does not hold what it says it holds, or more than a record of its size can.
    """
    check_packed_size(columns)
    if len({column.rows for column in columns}) > 1:
        raise StoreError("its columns are of different lengths: the record is damaged")
    return pd.DataFrame({column.name: _unpacked(column) for column in columns})


def check_packed_size(columns: Iterable[PackedColumn], size: int | None = None) -> None:
    """Refuse columns that would take far more memory than what we write ever does.

    Args:
        size: bytes that they come from; None: those of the columns.

    Raises:
        StoreError: they would.
    """
    known = list(columns)
    if size is None:
        size = sum(len(column.data) for column in known)
    wanted = sum(_ITEM.get(column.dtype, 4) * max(column.rows, 0) for column in known)
    if wanted > _USUAL_RATIO * size + _ALWAYS:
        raise StoreError(f"{size:,} bytes that claim to hold {wanted:,} are refused: the record is damaged")


def _packed(name: str, values: pd.Series) -> PackedColumn:
    dtype = str(values.dtype)
    if dtype in _PLAIN:
        data = _shuffled(np.ascontiguousarray(values.to_numpy()))
        return PackedColumn(name, dtype, len(values), "shuffle-zlib", zlib.compress(data, _LEVEL))
    if dtype in _NULLABLE:
        there = values.notna().to_numpy(dtype=np.bool_)
        filled = values.fillna(0).to_numpy(dtype=np.int64)
        data = there.tobytes() + _shuffled(filled)
        return PackedColumn(name, dtype, len(values), "mask-shuffle-zlib", zlib.compress(data, _LEVEL))
    texts = values.to_numpy(dtype=object)
    kinds = sorted({kind.__name__ for kind in set(map(type, texts[~pd.isna(texts)])) if not issubclass(kind, str)})
    if kinds:
        raise TypeError(f"column {name} holds {', '.join(kinds)}; only numbers and texts can be stored")
    numbers, words = pd.factorize(texts)  # -1 for what is not there; words in the order of their first
    codes = numbers.astype("<i4")
    listed = json.dumps(words.tolist()).encode("ascii")  # the ASCII form also holds lone surrogates
    data = listed + b"\n" + codes.tobytes()
    return PackedColumn(name, _TEXT, len(values), "words-zlib", zlib.compress(data, _LEVEL))


def _unpacked(column: PackedColumn) -> pd.Series | npt.NDArray[np.generic]:
    if column.rows >= 0:
        if column.codec == "shuffle-zlib":
            return _plain(column)
        if column.codec == "mask-shuffle-zlib":
            return _nullable(column)
        if column.codec == "words-zlib":
            return _texts(column)
    raise _damaged(column, f"codec {column.codec!r} of {column.rows} rows")


def _plain(column: PackedColumn) -> npt.NDArray[np.generic]:
    if column.dtype not in _PLAIN:
        raise _damaged(column, f"dtype {column.dtype!r}")
    dtype = np.dtype(column.dtype)
    return _array(_inflated(column, dtype.itemsize * column.rows), dtype)


def _nullable(column: PackedColumn) -> pd.Series:
    if column.dtype not in _NULLABLE:
        raise _damaged(column, f"dtype {column.dtype!r}")
    data = _inflated(column, 9 * column.rows)
    there = np.frombuffer(data[: column.rows], dtype=np.bool_)
    values = pd.Series(_array(data[column.rows :], np.dtype("int64")), dtype="Int64")
    return values.where(pd.Series(there), pd.NA)


def _texts(column: PackedColumn) -> pd.Series:
    if column.dtype != _TEXT:
        raise _damaged(column, f"dtype {column.dtype!r}")
    listed, found, codes = _inflated(column, None).partition(b"\n")
    if not found or len(codes) != 4 * column.rows:
        raise _damaged(column, f"{len(codes)} bytes for {column.rows} rows")
    try:
        words = json.loads(listed)
    except ValueError:
        raise _damaged(column, "its list of texts is no JSON") from None
    numbers = np.frombuffer(codes, dtype="<i4")
    inside = not len(numbers) or (numbers.min() >= -1 and numbers.max() < len(words))
    if not isinstance(words, list) or len(words) > column.rows or not inside:
        raise _damaged(column, "it names texts that are not there")
    return pd.Series([None if n < 0 else words[n] for n in numbers.tolist()], dtype=object)


def _shuffled(values: npt.NDArray[np.generic]) -> bytes:
    """Little-endian bytes of ``values``, by their place in the item."""
    ordered = values.astype(values.dtype.newbyteorder("<"), copy=False)
    return ordered.view(np.uint8).reshape(len(values), values.dtype.itemsize).T.tobytes()


def _array(data: bytes, dtype: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
    """Undo `_shuffled`. Shape (rows,)."""
    items = np.frombuffer(data, dtype=np.uint8).reshape(dtype.itemsize, -1).T
    return np.ascontiguousarray(items).view(dtype.newbyteorder("<")).reshape(-1).astype(dtype, copy=False)


def _inflated(column: PackedColumn, expected: int | None) -> bytes:
    """The bytes before zlib; ``expected`` of them where that is known."""
    most = _BEST_RATIO * len(column.data) + 64
    if expected is None:  # texts: each is named by a row
        most = min(most, 4 * column.rows + _USUAL_RATIO * len(column.data) + _ALWAYS // 8)
    if expected is not None and expected > most:
        raise _damaged(column, f"{len(column.data)} bytes cannot hold {column.rows} rows")
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(column.data, (most if expected is None else expected) + 1)
    except zlib.error as error:
        raise _damaged(column, str(error)) from None
    if not stream.eof or (expected is not None and len(data) != expected):
        raise _damaged(column, f"it does not hold {column.rows} rows of {column.dtype}")
    return data


def _damaged(column: PackedColumn, what: str) -> StoreError:
    return StoreError(f"column {column.name!r} cannot be read ({what}): the record is damaged")
