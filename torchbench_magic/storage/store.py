"""A file of results in SQLite: opened, appended to after every point, read back, asked for what was measured."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sqlite3
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from torchbench_magic.cluster.job_profile import RankProfile
from torchbench_magic.errors import StoreError
from torchbench_magic.files import path_of
from torchbench_magic.printable import printable
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.timing.across_runs import distinct, join_comparisons, take
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.identity import fingerprint, identity_of, key_of, likeness, task_of
from torchbench_magic.timing.verdict import Range, range_of
from torchbench_magic.timing.warnings import doubts_of

from .records import (
    VERSIONS,
    PackedColumn,
    Record,
    comparison_from_record,
    comparison_record,
    pack_columns,
    profile_fingerprint,
    profile_of,
    profile_record,
    rank_fingerprint,
    rank_record,
    ranks_of,
    unpack_columns,
)

# ---- sqlite_file -----------------------------------------------------------------------------------------------------
# The file behind a store: opening it, its layout, and what can be wrong with it, said in one line each.
#
# A connection lives for one operation. So no file stays open between cells, a forked worker inherits nothing, and a
# kernel that is killed leaves no lock behind. The rollback journal (SQLite's default) is kept rather than the
# write-ahead log: the store stays one file that can be copied, mailed and opened read-only, it works on network
# folders, and a commit costs about 10 ms beside points of 200 ms and more. With ``synchronous=FULL`` a committed record
# outlives the process and the machine.

Waiting = Callable[[float], object]
"""Called again and again while another process holds a file, with the seconds that it was waited for; what it raises
ends the waiting."""

LAYOUT = 1
"""Version of the tables below, kept in ``PRAGMA user_version``."""
_APPLICATION = 0x54424D31  # "TBM1", kept in PRAGMA application_id
_TRY = 0.25  # seconds that SQLite itself waits
_IN_THE_WAY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_MAGIC = b"SQLite format 3\0"

_TABLES = """
CREATE TABLE record (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run TEXT NOT NULL,            -- records of one run are the points of one result
    kind TEXT NOT NULL,           -- class of the result
    version INTEGER NOT NULL,     -- of this kind's layout
    saved TEXT NOT NULL,          -- UTC, ISO 8601
    header TEXT NOT NULL          -- JSON
) STRICT;
CREATE TABLE measurement (
    record INTEGER NOT NULL REFERENCES record (id),
    row INTEGER NOT NULL,         -- in the result's frame
    identity TEXT NOT NULL,       -- key of the run's identity
    task TEXT NOT NULL,           -- key of source, sub_label, description, env, num_threads
    likeness TEXT NOT NULL,       -- key of what makes measurements repetitions of each other
    fingerprint TEXT NOT NULL,    -- of this very measurement
    median REAL,                  -- seconds a call, NULL where the run was interrupted
    PRIMARY KEY (record, row)
) STRICT, WITHOUT ROWID;
CREATE TABLE packed (
    record INTEGER NOT NULL REFERENCES record (id),
    name TEXT NOT NULL,           -- of the table
    position INTEGER NOT NULL,    -- of the column
    "column" TEXT NOT NULL,
    dtype TEXT NOT NULL,
    rows INTEGER NOT NULL,
    codec TEXT NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (record, name, position)
) STRICT;
CREATE INDEX measurement_identity ON measurement (identity);
CREATE INDEX measurement_likeness ON measurement (likeness);
CREATE INDEX measurement_task ON measurement (task);
CREATE INDEX measurement_fingerprint ON measurement (fingerprint);
"""


@contextmanager
def writing(path: Path, *, patience: float, waiting: Waiting = lambda passed: None) -> Iterator[sqlite3.Connection]:
    """One transaction of the store at ``path``, made where there is none; committed when the block ends well.

    Args:
        patience: seconds to wait for another process that is writing.
        waiting: called meanwhile.

    Raises:
        StoreError: in one line, whatever keeps the transaction from being written.
    """
    if not path.parent.is_dir():
        raise StoreError(f"{path}: folder {path.parent} does not exist")
    _check_file(path)
    with _told(path, patience):
        connection = _connected(path, "rwc")
        try:
            _patiently(connection, "BEGIN IMMEDIATE", patience, waiting)
            if not _is_ours(connection, path):
                for statement in _TABLES.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                connection.execute(f"PRAGMA user_version = {LAYOUT}")
            yield connection
            _patiently(connection, "COMMIT", patience, waiting)  # waits for readers
        finally:
            with contextlib.suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            connection.close()


@contextmanager
def reading(path: Path, *, patience: float, waiting: Waiting = lambda passed: None) -> Iterator[sqlite3.Connection]:
    """The store at ``path``, to read from; raises as `writing` does, also where there is no file."""
    if not path.exists():
        raise StoreError(f"{path}: no such file")
    _check_file(path)
    with _told(path, patience):
        # A kernel that was killed while it wrote leaves a journal, which only a writer may roll back.
        connection = _connected(path, "rw" if os.access(path, os.W_OK) else "ro")
        try:
            connection.execute("BEGIN")
            _patiently(connection, "SELECT 1 FROM sqlite_schema", patience, waiting)
            if not _is_ours(connection, path):
                raise StoreError(f"{path}: has no results yet")
            yield connection
        finally:
            connection.close()


def _connected(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"file:{quote(str(path.resolve()))}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=_TRY, isolation_level=None)
    connection.text_factory = lambda data: data.decode("utf-8", "replace")  # a damaged file holds anything
    # The file may come from anywhere: nothing that it defines is run, and its cells are checked.
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    return connection


def _patiently(connection: sqlite3.Connection, statement: str, patience: float, waiting: Waiting) -> None:
    """Try until the file is free, for so many seconds. SQLite's own waiting would not hear Ctrl-C."""
    began = time.monotonic()
    while True:
        is_last = time.monotonic() >= began + patience
        try:
            connection.execute(statement).fetchone()
            return
        except sqlite3.OperationalError as error:
            if is_last or _code(error) not in _IN_THE_WAY:
                raise
        waiting(time.monotonic() - began)


def _check_file(path: Path) -> None:
    """Say what a file is that is no SQLite file; SQLite itself says "not a database" to all of them."""
    if path.is_dir():
        raise StoreError(f"{path}: is a folder; name a file in it, such as {path / 'runs.sqlite'}")
    try:
        with path.open("rb") as file:
            start = file.read(len(_MAGIC))
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror})") from None
    if start in (b"", _MAGIC):
        return
    if start[:1] == b"\x80" or start[:2] == b"PK":
        way = "if it is a pickle of torch's Measurements, torchbench_magic.load_torch_pickle(path) reads it"
        raise StoreError(f"{path}: is not a store of results; {way}")
    raise StoreError(f"{path}: is not a store of results (no SQLite file); give another name")


def _is_ours(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the layout is there; False for an empty file.

    Raises:
        StoreError: another program's file, or one of a newer version.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (layout,) = connection.execute("PRAGMA user_version").fetchone()
    schema = connection.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_schema").fetchall()
    tables = {name for kind, name, _ in schema if kind == "table"}
    if application == _APPLICATION:
        # Of these a store has none, and each is code that the file brings along.
        acting = [name for kind, name, sql in schema if kind in ("trigger", "view") or "VIRTUAL" in sql[:20].upper()]
        if acting:
            what = f"holds a trigger, view or foreign table ({acting[0]})"
            raise StoreError(f"{path}: {what}, which no results file has; nothing was read")
        if layout > LAYOUT:
            newer = f"has layout {layout} and this torchbench_magic knows {LAYOUT}"
            raise StoreError(f"{path}: {newer}: a newer one wrote it; upgrade torchbench_magic")
        if not {"record", "measurement", "packed"} <= tables:
            raise StoreError(f"{path}: is damaged (its tables are not there)")
        return True
    if application or layout or tables:
        raise StoreError(f"{path}: is a SQLite file of another program; use another name")
    return False


@contextmanager
def _told(path: Path, patience: float) -> Iterator[None]:
    """SQLite's errors in words that say what to do."""
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(f"{path}: {_reason(error, patience)}") from None
    except UnicodeDecodeError as error:  # SQLite quotes what the file holds
        raise StoreError(f"{path}: is damaged ({error.reason})") from None


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF  # without the extended part


def _reason(error: sqlite3.Error, patience: float) -> str:
    code = _code(error)
    if code in _IN_THE_WAY:
        return f"another process has held it locked for {patience:g} s; end its transaction, or give another name"
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return "cannot be written: the file or its folder is read-only; use another name"
    if code == sqlite3.SQLITE_FULL:
        return "the disk is full: free some space, or use another disk"
    if code == sqlite3.SQLITE_IOERR:
        why = "check the disk, and this process's limit (ulimit -f)"
        return f"cannot be read or written ({_one_line(error)}): {why}"
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return f"is damaged ({_one_line(error)})"
    return f"SQLite says: {_one_line(error)}"


def _one_line(error: sqlite3.Error) -> str:
    """SQLite quotes what the file holds."""
    return " ".join(str(error).split())[:200]


# ---- store -----------------------------------------------------------------------------------------------------------
# Two kernels may write to one store at the same time. Nothing in it is ever changed or merged: a run that is repeated
# is another record, and what is read is plain data (see `storage.records`), never a pickle.

PATIENCE = 30.0
"""Seconds to wait for another kernel that is writing."""

_LONGEST_NAME = 255 - len("-journal")  # SQLite's own file beside it
_INSERT = "INSERT INTO record (run, kind, version, saved, header) VALUES (?, ?, ?, strftime('%Y-%m-%dT%H:%M:%fZ'), ?)"


class Store:
    """The results in one file.

    Args:
        path: of the file; it is made when something is first appended.
        patience: seconds to wait for another process that is writing.
        waiting: called again and again meanwhile, with the seconds that have passed; what it raises ends the waiting.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        patience: float = PATIENCE,
        waiting: Waiting = lambda passed: None,
    ) -> None:
        self.path = path_of(path, StoreError)
        if len(os.fsencode(self.path.name)) > _LONGEST_NAME:
            raise StoreError(f"{self.path.name[:60]}...: store name too long; use a shorter one")
        self.patience, self.waiting = patience, waiting

    def check(self) -> None:
        """Find out before a long run whether the store can be written.

        Raises:
            StoreError: it cannot, and why.
        """
        with writing(self.path, patience=self.patience, waiting=self.waiting):
            pass

    def append(self, *results: Comparison | Profile | RankProfile, run: str | None = None) -> None:
        """Add results in one transaction; measurements and profiles that are there already are left out.

        Args:
            run: results appended under one run are read back as one; without it each is one by itself.

        Raises:
            StoreError: the file cannot be written as it stands; nothing was added.
        """
        with writing(self.path, patience=self.patience, waiting=self.waiting) as connection:
            for result in results:
                if isinstance(result, Profile | RankProfile):
                    _write_profile(connection, result)
                    continue
                keys = [fingerprint(result, row) for row in range(len(result.subjects))]
                rows = _groups_without(result, keys, _known(connection, keys))
                if rows:
                    new = take(result, rows) if len(rows) < len(keys) else result
                    _write(connection, comparison_record(new), new, run if run is not None else uuid.uuid4().hex)

    def results(self) -> list[Comparison | Profile | RankProfile]:
        """Every result, newest last; the points of one run are one result.

        A record that is damaged, or that a newer version wrote, is left out with a Python warning.

        Raises:
            StoreError: no such file, or it cannot be read as it stands.
        """
        with reading(self.path, patience=self.patience, waiting=self.waiting) as connection:
            rows = connection.execute("SELECT id, run FROM record ORDER BY id").fetchall()
            runs: dict[str, list[Comparison | Profile | RankProfile]] = {}
            for number, run in rows:
                found = self._read(connection, number)
                parts = runs.pop(run, [])  # the run of the newest record goes last
                runs[run] = parts if found is None else [*parts, found]
            whole: list[Comparison | Profile | RankProfile] = []
            for parts in runs.values():
                whole += [part for part in parts if not isinstance(part, Comparison)]
                if points := [part for part in parts if isinstance(part, Comparison)]:
                    made = _whole(points)
                    whole.append(replace(made, history=_history(connection, made)))
            return whole

    def comparisons(self) -> list[Comparison]:
        """Those of `results` that are timings."""
        return [result for result in self.results() if isinstance(result, Comparison)]

    def of_task(self, key: str) -> list[tuple[str, Comparison]]:
        """(run, record) of each record that holds a measurement of this task (see `identity.task_of`), newest last."""
        if not self.path.exists():
            return []
        with reading(self.path, patience=self.patience, waiting=self.waiting) as connection:
            query = "SELECT DISTINCT id, run FROM record JOIN measurement ON record = id WHERE task = ? ORDER BY id"
            rows = connection.execute(query, (key,)).fetchall()
            read = [(run, self._read(connection, number)) for number, run in rows]
            return [(run, found) for run, found in read if isinstance(found, Comparison)]

    def last(self, result: Comparison) -> dict[int, tuple[Comparison, int]]:
        """Row of ``result`` -> the last stored record that holds its identity, and the row there; not itself."""
        query = (
            "SELECT record, row FROM measurement WHERE identity = ? AND fingerprint <> ? AND median IS NOT NULL"
            " ORDER BY record DESC LIMIT 1"
        )
        found: dict[int, tuple[Comparison, int]] = {}
        with reading(self.path, patience=self.patience, waiting=self.waiting) as connection:
            read = cache(partial(self._read, connection))
            for row, subject in enumerate(result.subjects):
                hit = connection.execute(query, (key_of(identity_of(subject)), fingerprint(result, row))).fetchone()
                if hit is None:
                    continue
                number, there = hit
                record = read(number)
                if isinstance(record, Comparison) and there < len(record.subjects):
                    found[row] = record, there
        return found

    def last_profile(self, profile: Profile) -> Profile | None:
        """The last stored profile of the same code and thread count; not itself."""
        own = profile_fingerprint(profile)
        found = [
            stored
            for stored in self.results()
            if isinstance(stored, Profile)
            and (stored.source_id, stored.num_threads) == (profile.source_id, profile.num_threads)
            and profile_fingerprint(stored) != own
        ]
        return found[-1] if found else None

    def history(self, result: Comparison) -> dict[int, Range]:
        """Row of ``result`` -> range of the medians of the stored runs that repeat it, where they make a history."""
        with reading(self.path, patience=self.patience, waiting=self.waiting) as connection:
            return _history(connection, result)

    def _read(self, connection: sqlite3.Connection, number: int) -> Comparison | Profile | RankProfile | None:
        """One record as a result; None, with a warning, where it is damaged."""
        query = "SELECT kind, version, saved, header FROM record WHERE id = ?"
        row = connection.execute(query, (number,)).fetchone()  # none where the file's own index is damaged
        kind, version, saved, header = (None,) * 4 if row is None else row
        if not (isinstance(version, int) and isinstance(kind, str) and isinstance(header, str)):
            warnings.warn(printable(f"{self.path}: record {number} is left out: it is damaged"), stacklevel=4)
            return None
        if version > VERSIONS.get(kind, 0):
            newer = f"is left out: it is a {kind} of layout {version}, which a newer torchbench_magic wrote"
            warnings.warn(printable(f"{self.path}: record {number} {newer}; upgrade it here"), stacklevel=4)
            return None
        try:
            record = Record(kind, version, _json(header), _tables(connection, number), str(saved))
            makers: dict[str, Callable[[Record], Comparison | Profile | RankProfile]] = {
                "Profile": profile_of, "RankProfile": ranks_of,
            }  # fmt: skip
            return makers.get(kind, comparison_from_record)(record)
        except StoreError as error:
            warnings.warn(printable(f"{self.path}: record {number} is left out: {error}"), stacklevel=4)
            return None


def load(path: str | os.PathLike[str]) -> list[Comparison | Profile | RankProfile]:
    """The results in the store at ``path``, newest last: timings, profiles, jobs of ranks. Nothing in the file is run.

    Raises:
        StoreError: no such file, or it is no store, or its tables are of a newer version.
    """
    return Store(path).results()


def save(result: Comparison | Profile | RankProfile, path: str | os.PathLike[str]) -> None:
    """See `Storable.save`."""
    Store(path).append(result)


def _whole(parts: Sequence[Comparison]) -> Comparison:
    """The points of one run as one result, with the doubts that its numbers raise."""
    made = join_comparisons(parts)
    return replace(made, warnings=distinct([*made.warnings, *doubts_of(made)]), saved=parts[-1].saved)


def _history(connection: sqlite3.Connection, result: Comparison) -> dict[int, Range]:
    query = "SELECT median, julianday(saved) FROM record JOIN measurement ON record = id WHERE likeness = ?"
    found = {}
    for row in range(len(result.subjects)):
        usable = "typeof(median) = 'real' AND julianday(saved) IS NOT NULL"
        runs = connection.execute(f"{query} AND {usable}", (likeness(result, row),)).fetchall()
        days = [day for _, day in runs]
        known = range_of([median for median, _ in runs], (max(days) - min(days)) * 86400) if runs else None
        if known is not None:
            found[row] = known
    return found


def _groups_without(result: Comparison, keys: Sequence[str], known: set[str]) -> list[int]:
    """Rows of the groups in which a measurement is new; a group that was sampled together stays together."""
    new = {subject.group for subject, key in zip(result.subjects, keys, strict=True) if key not in known}
    return [row for row, subject in enumerate(result.subjects) if subject.group in new]


def _known(connection: sqlite3.Connection, keys: Sequence[str]) -> set[str]:
    query = "SELECT 1 FROM measurement WHERE fingerprint = ? LIMIT 1"
    return {key for key in keys if connection.execute(query, (key,)).fetchone()}


def _write_profile(connection: sqlite3.Connection, profile: Profile | RankProfile) -> None:
    """Add what is no timing, unless it is there."""
    if isinstance(profile, Profile):
        found, made = profile_fingerprint(profile), profile_record(profile)
    else:
        found, made = rank_fingerprint(profile), rank_record(profile)
    key = key_of(tuple(made.header["identity"][0]))
    if _known(connection, [found]):
        return
    number = _write_record(connection, made, uuid.uuid4().hex)
    row = (number, 0, key, key, key, found, None)  # no median: it is no repetition of a timing
    connection.execute("INSERT INTO measurement VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def _write(connection: sqlite3.Connection, record: Record, result: Comparison, run: str) -> None:
    medians = result.frame["median"].tolist()
    number = _write_record(connection, record, run)
    connection.executemany(
        "INSERT INTO measurement VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (
                number,
                row,
                key_of(identity_of(s)),
                task_of(s.setup, s.stmt, s.sub_label, s.description, s.env, s.num_threads),
                likeness(result, row),
                fingerprint(result, row),
                None if result.partial or math.isnan(medians[row]) else medians[row],
            )
            for row, s in enumerate(result.subjects)
        ],
    )


def _write_record(connection: sqlite3.Connection, record: Record, run: str) -> int:
    """Header and tables of a record; its number."""
    text = json.dumps(record.header, allow_nan=False)
    number = connection.execute(_INSERT, (run, record.kind, record.version, text)).lastrowid
    assert number is not None  # a row was inserted
    connection.executemany(
        "INSERT INTO packed VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (number, name, position, *column)
            for name, table in record.tables.items()
            for position, column in enumerate(pack_columns(table))
        ],
    )
    return number


def _tables(connection: sqlite3.Connection, number: int) -> dict[str, Any]:
    query = 'SELECT name, "column", dtype, rows, codec, data FROM packed WHERE record = ? ORDER BY name, position'
    columns: dict[str, list[PackedColumn]] = {}
    for name, *column in connection.execute(query, (number,)):
        columns.setdefault(name, []).append(PackedColumn(*column))
    try:
        return {name: unpack_columns(found) for name, found in columns.items()}
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise StoreError(f"its columns are damaged ({error})") from None


def _json(text: str) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise StoreError("its header is no JSON object: it is damaged")
    return header
