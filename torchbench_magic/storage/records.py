"""A result as a record that can be stored: a JSON header and tables of typed columns, and back."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt
import pandas as pd

from torchbench_magic.cluster.job_profile import RankProfile, Straggler
from torchbench_magic.counting.counts import CallEdge, CallGraph, Counted, CountKey, Counts, stats_of
from torchbench_magic.errors import StoreError
from torchbench_magic.process.contention import Contention
from torchbench_magic.process.environment import EnginePlace, Environment
from torchbench_magic.process.peak_performance import Peaks
from torchbench_magic.profiling.cores.verdict import TIMELINE_COLUMNS, Concurrency, CoreUse
from torchbench_magic.profiling.efficiency.table import Efficiency, OpEfficiency
from torchbench_magic.profiling.options import ProfileOptions, Schedule
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.schema import PROFILE_TABLES, frame_of
from torchbench_magic.profiling.trace import TRACE_TABLES, Source, Trace, Track
from torchbench_magic.result_base import Doubt
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.identity import fingerprint_of, identity_of, machine_of, source_id
from torchbench_magic.timing.samples import Subject, Trial

if TYPE_CHECKING:
    from torch.utils.benchmark.utils.valgrind_wrapper.timer_interface import CallgrindStats

# ---- packed_columns --------------------------------------------------------------------------------------------------
# Columns of a table as compressed bytes and back, with everything about them checked on the way in.
#
# A column is stored with its dtype, its length and its codec by name, so that a reader in another language (or in ten
# years) needs no Python for it:
#
# ``shuffle-zlib``
#     the bytes of a little-endian array, all first bytes of its items, then all second bytes, and so on, then zlib.
#     Counters and neighbouring times share their high bytes, so this halves what zlib alone leaves (the shuffle filter
#     of HDF5 and Blosc). numpy's own file format under zlib makes a store 30 % larger (92,000 events), and saving it
#     takes twice the time.
# ``mask-shuffle-zlib``
#     one byte an item (1 where there is a value), then the array, 0 where there is none.
# ``words-zlib``
#     a JSON list of the different texts, a line feed, then their numbers as little-endian int32, -1 for None.
#
# What is read is a file that somebody may have sent: lengths are checked before memory is taken for them.

_NUMBERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")
_DTYPES = {"shuffle-zlib": _NUMBERS, "mask-shuffle-zlib": ("Int64",), "words-zlib": ("text",)}
_ITEM = {"Int64": 9} | {name: np.dtype(name).itemsize for name in _NUMBERS}
_LEVEL = 6
_USUAL_RATIO, _ALWAYS = 64, 1 << 28
"""What a record may take unpacked: so many times its size, and so many bytes (256 MiB) besides. Profiles that we write
take 3 to 20 times."""


class PackedColumn(NamedTuple):
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
    if dtype in _NUMBERS:
        codec, data = "shuffle-zlib", _shuffled(np.ascontiguousarray(values.to_numpy()))
    elif dtype == "Int64":
        there = values.notna().to_numpy(dtype=np.bool_)
        codec, data = "mask-shuffle-zlib", there.tobytes() + _shuffled(values.fillna(0).to_numpy(dtype=np.int64))
    else:
        dtype, codec, data = "text", "words-zlib", _words(name, values.to_numpy(dtype=object))
    return PackedColumn(name, dtype, len(values), codec, zlib.compress(data, _LEVEL))


def _words(name: str, texts: npt.NDArray[np.object_]) -> bytes:
    kinds = sorted({kind.__name__ for kind in set(map(type, texts[~pd.isna(texts)])) if not issubclass(kind, str)})
    if kinds:
        raise TypeError(f"column {name} holds {', '.join(kinds)}; only numbers and texts can be stored")
    numbers, words = pd.factorize(texts)  # -1 for what is not there; words in the order of their first
    listed = json.dumps(words.tolist()).encode("ascii")  # the ASCII form also holds lone surrogates
    return listed + b"\n" + numbers.astype("<i4").tobytes()


def _unpacked(column: PackedColumn) -> pd.Series | npt.NDArray[np.generic]:
    if column.rows < 0 or column.dtype not in _DTYPES.get(column.codec, ()):
        raise _damaged(column, f"codec {column.codec!r} of {column.rows} rows of {column.dtype!r}")
    if column.dtype == "text":
        return _texts(column)
    data = _inflated(column, _ITEM[column.dtype] * column.rows)
    if column.dtype == "Int64":
        there = pd.Series(np.frombuffer(data[: column.rows], dtype=np.bool_))
        return pd.Series(_array(data[column.rows :], np.dtype("int64")), dtype="Int64").where(there, pd.NA)
    return _array(data, np.dtype(column.dtype))


def _texts(column: PackedColumn) -> pd.Series:
    listed, found, codes = _inflated(column, None).partition(b"\n")
    if not found or len(codes) != 4 * column.rows:
        raise _damaged(column, f"{len(codes)} bytes for {column.rows} rows")
    try:
        words = json.loads(listed)
    except ValueError:
        raise _damaged(column, "its list of texts is no JSON") from None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise _damaged(column, "its list of texts holds something else")
    numbers = np.frombuffer(codes, dtype="<i4")
    inside = not len(numbers) or (numbers.min() >= -1 and numbers.max() < len(words))
    if len(words) > column.rows or not inside:
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
    most = expected
    if most is None:  # texts: each is named by a row
        most = 4 * column.rows + _USUAL_RATIO * len(column.data) + _ALWAYS // 8
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(column.data, most + 1)
    except zlib.error as error:
        raise _damaged(column, str(error)) from None
    if not stream.eof or (expected is not None and len(data) != expected):
        raise _damaged(column, f"it does not hold {column.rows} rows of {column.dtype}")
    return data


def _damaged(column: PackedColumn, what: str) -> StoreError:
    return StoreError(f"column {column.name!r} cannot be read ({what}): the record is damaged")


# ---- records ---------------------------------------------------------------------------------------------------------
# The header holds the result's fields as plain JSON. What JSON lacks is written with a tag: ``{"float": "nan"}``,
# ``{"tuple": [...]}``, ``{"map": {...}}``, and the records of `_RECORDS` under their class's name. Nothing else can be
# named, so reading a file can make nothing else. `comparison_record` and `profile_record` make the records.
#
# Beside the result itself the header repeats what a reader looks for first: identity, source_id, environment, options,
# torch's version and the machine.

_RECORDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *(Contention, CoreUse, Doubt, Efficiency, EnginePlace, Environment, OpEfficiency, Peaks),
        *(ProfileOptions, Schedule, Source, Straggler, Subject, Track, Trial),
    )
}
_TAGS = {"float", "tuple", "map", *_RECORDS}

VERSIONS = {"Comparison": 1, "Profile": 1, "RankProfile": 1}
"""Kind of record -> version of its layout; a field that is added needs no new one, a changed meaning does."""


@dataclass(frozen=True)
class Record:
    """One result, ready to be written.

    Attributes:
        kind: name of the result's class.
        version: of the layout of this kind.
        header: plain JSON.
        tables: name -> table of numbers and texts.
        saved: when it was written, UTC; empty for one that is not yet.
    """

    kind: str
    version: int
    header: dict[str, Any]
    tables: dict[str, pd.DataFrame]
    saved: str = ""


def state_of(header: Mapping[str, Any], kind: type) -> dict[str, Any]:
    """The fields of ``kind`` that the header holds, each of the type that is declared for it.

    Raises:
        TypeError: one is of another type.
    """
    state = {name: decoded(value) for name, value in header.items() if name in _hints(kind)}
    for name, value in state.items():
        if not fits(value, _hints(kind)[name]):
            raise TypeError(f"{name} is a {type(value).__name__}")
    return state


@cache
def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {item.name: hints[item.name] for item in fields(kind)}


def fits(value: object, hint: Any) -> bool:
    """Whether a value is of a declared type, down to the items of tuples and lists."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in (object, Any):
        return True
    if origin in (Union, UnionType):
        return any(fits(value, one) for one in arguments)
    if origin is Literal:
        return value in arguments
    if origin is tuple and isinstance(value, tuple):
        every = [arguments[0]] * len(value) if arguments[1:] == (...,) else list(arguments)
        return len(every) == len(value) and all(map(fits, value, every))
    if origin is list and isinstance(value, list):
        return all(fits(each, arguments[0]) for each in value)
    if origin is not None:
        return isinstance(value, origin)
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, int | float) if hint is float else isinstance(value, hint)


def encoded(value: Any) -> Any:
    """``value`` as plain JSON. What is neither data nor one of our records becomes its text."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, list):
        return [encoded(item) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [encoded(item) for item in value]}
    if isinstance(value, Mapping):
        return {"map": {str(name): encoded(item) for name, item in value.items()}}
    if type(value).__name__ in _RECORDS:
        return {type(value).__name__: _encoded(value, ())}
    return " ".join(repr(value).split())


def _encoded(record: Any, left_out: Collection[str]) -> dict[str, Any]:
    """The fields of a dataclass."""
    return {item.name: encoded(getattr(record, item.name)) for item in fields(record) if item.name not in left_out}


def decoded(value: Any) -> Any:
    """Undo `encoded`.

    Raises:
        ValueError: a tag that is none of ours.
    """
    if isinstance(value, list):
        return [decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    tag, content = next(iter(value.items()), ("", {}))
    if tag not in _TAGS or len(value) != 1:
        raise ValueError(f"no such tag: {tag!r}")
    if tag in _RECORDS:
        kind = _RECORDS[tag]
        return kind(**state_of(content, kind))
    readers: dict[str, Callable[[Any], Any]] = {
        "float": float,
        "tuple": lambda items: tuple(decoded(item) for item in items),
        "map": lambda items: {name: decoded(item) for name, item in items.items()},
    }
    return readers[tag](content)


@contextmanager
def _damage_told(record: Record) -> Iterator[None]:
    """What a damaged or forged record raises where a result is made of it, in one line."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise StoreError(f"a stored {record.kind} is damaged ({error})") from None


def _named_under(word: str, parts: Sequence[Record]) -> dict[str, pd.DataFrame]:
    """The tables of records within a record: ``cycles.0.lines``."""
    return {f"{word}.{at}.{name}": table for at, part in enumerate(parts) for name, table in part.tables.items()}


def _parts_of(record: Record, word: str, headers: Sequence[dict[str, Any]], saved: str = "") -> Iterator[Record]:
    """Undo `_named_under`: the profiles within a record."""
    for at, header in enumerate(headers):
        start = f"{word}.{at}."
        tables = {name.removeprefix(start): t for name, t in record.tables.items() if name.startswith(start)}
        yield Record("Profile", VERSIONS["Profile"], header, tables, saved)


# ---- counts_record ---------------------------------------------------------------------------------------------------
# Instruction counts as plain JSON and tables of typed columns, and back: what a store keeps of them.
#
# The header says what each count is of; the tables hold one row a function and one row an arc. A function of no cost is
# not kept, as callgrind's reader keeps none.

_SPEC = ("stmt", "setup", "global_setup", "label", "sub_label", "description", "env", "num_threads")
_COSTS = {
    "count": "int64",
    "layout": "int64",
    "part": object,
    "function": object,
    "exclusive": "int64",
    "inclusive": "int64",
}
_CALLS = {"count": "int64", "part": object, "caller": object, "callee": object, "calls": "int64", "inclusive": "int64"}
_PARTS = ("statement", "empty")


def to_record(counts: Counts) -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
    """Header and tables.

    ``counts``: ``count`` is a position in the header's ``keys``; ``layout`` 0 is the count itself, those from 1 on were
    counted in shifted heaps; ``part`` is the statement or the empty loop. ``calls``: arcs, of layout 0.
    """
    costs: list[tuple[object, ...]] = []
    calls: list[tuple[object, ...]] = []
    known = []
    for at, one in enumerate(counts.counted.values()):
        for layout, stats in enumerate((one.stats, *one.shifted)):
            costs += [(at, layout, *row) for row in _costs(stats)]
        if one.calls is not None:
            for part, arcs in zip(_PARTS, (one.calls.statement, one.calls.empty), strict=True):
                calls += [(at, part, *arc) for arc in arcs]
        known.append(one.calls is not None)
    header = {
        "form": counts.form,
        "elapsed": counts.elapsed,
        "keys": [list(key) for key in counts.counted],
        "specs": [{name: getattr(one.stats.task_spec, name) for name in _SPEC} for one in counts.counted.values()],
        "number": [one.stats.number_per_run for one in counts.counted.values()],
        "debug_symbols": [one.stats.built_with_debug_symbols for one in counts.counted.values()],
        "shifted": [len(one.shifted) for one in counts.counted.values()],
        "has_calls": known,
    }
    return header, {"counts": _table(costs, _COSTS), "calls": _table(calls, _CALLS)}


def from_record(header: Mapping[str, Any], tables: Mapping[str, pd.DataFrame]) -> Counts:
    """Undo `to_record`.

    Raises:
        KeyError, TypeError, ValueError: it is damaged.
    """
    costs = dict(iter(tables["counts"].groupby(["count", "layout", "part"], sort=False)))
    arcs = dict(iter(tables["calls"].groupby(["count", "part"], sort=False)))
    found: dict[CountKey, Counted] = {}
    for at, key in enumerate(header["keys"]):
        number, symbols = header["number"][at], header["debug_symbols"][at]
        if not (isinstance(number, int) and number > 0 and isinstance(symbols, bool)):
            raise ValueError("a count of no calls")
        layouts = range(header["shifted"][at] + 1)
        stats = [_stats(costs, at, layout, number, symbols, header["specs"][at]) for layout in layouts]
        graph = None
        if header["has_calls"][at]:
            statement, empty = (tuple(_calls(arcs.get((at, part)))) for part in _PARTS)
            graph = CallGraph(statement, empty, number)
        found[_key(key)] = Counted(stats[0], tuple(stats[1:]), graph)
    return Counts(found, str(header["form"]), float(header["elapsed"]))


def _key(parts: list[Any]) -> CountKey:
    description, sub_label, threads, *result = parts
    if not (all(text is None or isinstance(text, str) for text in (description, sub_label)) and threads >= 1):
        raise ValueError("a key that is none")
    if result:
        return description, sub_label, threads, str(result[0])
    return description, sub_label, threads


def _costs(stats: CallgrindStats) -> Iterator[tuple[object, ...]]:
    both = (
        (stats.stmt_exclusive_stats, stats.stmt_inclusive_stats),
        (stats.baseline_exclusive_stats, stats.baseline_inclusive_stats),
    )
    for part, (own, inclusive) in zip(_PARTS, both, strict=True):
        a, b = ({function: count for count, function in some} for some in (own, inclusive))
        for function in dict.fromkeys([*a, *b]):
            yield part, function, a.get(function, 0), b.get(function, 0)


def _table(rows: list[tuple[object, ...]], types: Mapping[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=list(types)).astype(dict(types))


def _stats(
    costs: Mapping[Any, pd.DataFrame], at: int, layout: int, number: int, symbols: bool, spec: Mapping[str, Any]
) -> CallgrindStats:
    if set(spec) != set(_SPEC):
        raise ValueError("a task that is not described")

    def counts(part: str) -> dict[str, dict[str, int]]:
        rows = costs.get((at, layout, part), pd.DataFrame(columns=list(_COSTS)))
        costing = ((kind, rows[rows[kind] != 0]) for kind in ("exclusive", "inclusive"))
        return {kind: dict(zip(some["function"].tolist(), some[kind].tolist(), strict=True)) for kind, some in costing}

    return stats_of(counts("statement"), counts("empty"), number, debug_symbols=symbols, **spec)


def _calls(rows: pd.DataFrame | None) -> Iterator[CallEdge]:
    if rows is not None:
        columns = (rows[name].tolist() for name in ("caller", "callee", "calls", "inclusive"))
        yield from (CallEdge(*row) for row in zip(*columns, strict=True))


# ---- comparison_record -----------------------------------------------------------------------------------------------

_LEFT_OUT = {"samples", "saved", "unpaired", "history", "counts"}  # tables; facts of the store, of other results


def comparison_record(result: Comparison) -> Record:
    header = {
        "identity": [list(identity_of(subject)) for subject in result.subjects],
        "source_id": [source_id(subject.before, subject.stmt) for subject in result.subjects],
        "torch": result.environment.torch,
        "machine": list(machine_of(result.environment)),
        **_encoded(result, _LEFT_OUT),
    }
    tables = {"samples": result.samples}
    if result.counts:
        header["counts"], counted = to_record(result.counts)
        tables |= counted
    return Record("Comparison", VERSIONS["Comparison"], header, tables)


def comparison_from_record(record: Record) -> Comparison:
    """The comparison of a record.

    Raises:
        StoreError: it is damaged.
    """
    with _damage_told(record):
        header = dict(record.header)
        counted = header.pop("counts", None)
        state = state_of(header, Comparison)
        if counted is not None:
            state["counts"] = from_record(counted, record.tables)
        made = Comparison(samples=record.tables["samples"], **state, saved=record.saved)
        rows = made.samples["measurement"]
        if len(rows) and not (rows.min() >= 0 and rows.max() < len(made.subjects)):
            raise ValueError("samples of a measurement that is not there")
        if not 0 <= made.margin < math.inf:
            raise ValueError(f"a margin of {made.margin}")
    return made


# ---- profile_record --------------------------------------------------------------------------------------------------
# A profile as a record that can be stored, and back: its tables and the columns of its trace, nothing recomputed.

_PROFILE_PARTS = ("trace", "concurrency", "cycles")
"""Fields that have tables of their own."""


def profile_record(profile: Profile) -> Record:
    """The record of a profile: one JSON header, and each table under its name (those of the trace as
    ``trace.events``)."""
    trace, environment, cores = profile.trace, profile.environment, profile.concurrency
    held = {item.name: getattr(profile, item.name) for item in fields(profile)}
    tables = {name: value for name, value in held.items() if isinstance(value, pd.DataFrame)}
    cycles = [profile_record(cycle) for cycle in profile.cycles]
    header = {
        "identity": [["profile", profile.source_id, profile.num_threads]],
        "source_id": [profile.source_id],
        "torch": environment.torch if environment is not None else None,
        "machine": list(machine_of(environment)) if environment is not None else None,
        **_encoded(profile, {*tables, "trace", "concurrency", "cycles", "saved"}),
        "trace": None if trace is None else _encoded(trace, set(TRACE_TABLES)),
        "concurrency": None if cores is None else _encoded(cores, {"timeline"}),
        "cycles": [cycle.header for cycle in cycles],
    }
    tables |= _named_under("cycles", cycles)
    if trace is not None:
        tables |= {f"trace.{name}": getattr(trace, name) for name in TRACE_TABLES}
    if cores is not None:
        tables["concurrency.timeline"] = cores.timeline
    return Record("Profile", VERSIONS["Profile"], header, tables)


def profile_of(record: Record) -> Profile:
    """The profile of a record.

    Raises:
        StoreError: it is damaged.
    """
    with _damage_told(record):
        header = {name: value for name, value in record.header.items() if name not in _PROFILE_PARTS}
        state = state_of(header, Profile)
        own = {item.name for item in fields(Profile)}
        tables: dict[str, Any] = {
            name: _as_declared(table, PROFILE_TABLES[name]) if name in PROFILE_TABLES else table
            for name, table in record.tables.items()
            if name in own
        }
        headers = record.header.get("cycles") or ()
        cycles = tuple(map(profile_of, _parts_of(record, "cycles", headers, record.saved)))
        parts: dict[str, Any] = {"trace": _trace_of(record), "concurrency": _concurrency_of(record), "cycles": cycles}
        return Profile(**tables, **parts, **state, saved=record.saved)


def _trace_of(record: Record) -> Trace | None:
    header = record.header.get("trace")
    if header is None:
        return None
    tables: dict[str, Any] = {name: record.tables[f"trace.{name}"] for name in TRACE_TABLES}  # it checks them itself
    return Trace(**tables, **state_of(header, Trace))


def _concurrency_of(record: Record) -> Concurrency | None:
    header = record.header.get("concurrency")
    if header is None:
        return None
    timeline = _as_declared(record.tables["concurrency.timeline"], TIMELINE_COLUMNS)
    return Concurrency(timeline=timeline, **state_of(header, Concurrency))


def _as_declared(table: pd.DataFrame, columns: Mapping[str, str]) -> pd.DataFrame:
    """The stored columns in the types that are declared for them; a column that came later holds nothing."""
    return frame_of(columns, {name: table[name] for name in columns if name in table})


def profile_fingerprint(profile: Profile) -> str:
    """Recognises this very run, wherever it is stored: by its text, when it ran, and the time of each line and op."""
    begin = 0 if profile.trace is None else profile.trace.begin
    said = f"{profile.source_id} {profile.num_threads} {profile.wall_time!r} {begin}"
    times = [profile.lines[name] for name in ("wall_time", "self_cpu_time", "python_time")]
    return fingerprint_of(said, [*times, profile.ops["cpu_time"]])


# ---- rank_record -----------------------------------------------------------------------------------------------------

_TABLES = ("ranks", "ops", "clock_error", "timeline", "waits")
_RANK_PARTS = (*_TABLES, "profiles", "saved")


def rank_record(result: RankProfile) -> Record:
    """The record of a job: one JSON header, its tables, and those of each rank as ``profiles.0.lines``."""
    parts = [profile_record(each) for each in result.profiles]
    first = parts[0].header if parts else {}
    header = {
        "identity": [["ranks", first.get("source_id"), len(result.ranks)]],
        **{name: first.get(name) for name in ("source_id", "torch", "machine")},
        **_encoded(result, _RANK_PARTS),
        "profiles": [part.header for part in parts],
    }
    tables: dict[str, pd.DataFrame] = {name: getattr(result, name) for name in _TABLES}
    tables |= _named_under("profiles", parts)
    return Record("RankProfile", VERSIONS["RankProfile"], header, tables)


def ranks_of(record: Record) -> RankProfile:
    """The job of a record.

    Raises:
        StoreError: it is damaged.
    """
    with _damage_told(record):
        header = {name: value for name, value in record.header.items() if name not in _RANK_PARTS}
        state = state_of(header, RankProfile)
        tables: dict[str, Any] = {name: _as_made(record.tables[name]) for name in _TABLES}
        profiles = tuple(map(profile_of, _parts_of(record, "profiles", record.header["profiles"])))
        return RankProfile(**tables, **state, profiles=profiles, saved=record.saved)


def _as_made(table: pd.DataFrame) -> pd.DataFrame:
    """Texts in the type that pandas gives to new ones."""
    return pd.DataFrame({c: table[c].tolist() if table[c].dtype == object else table[c] for c in table.columns})


def rank_fingerprint(result: RankProfile) -> str:
    """Recognises this very run, wherever it is stored: by when its ranks ran, and the times of each."""
    begun = [each.trace.begin for each in result.profiles if each.trace is not None]
    times = (result.ranks[name] for name in ("compute", "communication", "wait", "other"))
    return fingerprint_of(f"{begun} {result.span!r} {result.files}", times)
