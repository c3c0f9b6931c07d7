"""The file behind a store: opening it, its layout, and what can be wrong with it, said in one line each.

A connection lives for one operation. So no file stays open between cells, a forked worker inherits nothing, and a
kernel that is killed leaves no lock behind. The rollback journal (SQLite's default) is kept rather than the
write-ahead log: the store stays one file that can be copied, mailed and opened read-only, it works on network
folders, and a commit costs about 10 ms beside points of 200 ms and more. With ``synchronous=FULL`` a committed record
outlives the process and the machine.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from torchbench_magic.errors import StoreError

__all__ = ["LAYOUT", "Waiting", "reading", "writing"]

Waiting = Callable[[float], object]
"""Called again and again while another process holds a file, with the seconds that it was waited for; what it raises
ends the waiting."""

LAYOUT = 1
"""Version of the tables below, kept in ``PRAGMA user_version``."""
_APPLICATION = 0x54424D31  # "TBM1", kept in PRAGMA application_id
_TRY = 0.25  # seconds that SQLite itself waits
_IN_THE_WAY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_MAGIC = b"SQLite format 3\0"
_LAST_NUMBER = 2**63 - 1

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
        with contextlib.suppress(_InTheWay):
            _tried(connection, statement, is_last=time.monotonic() >= began + patience)
            return
        waiting(time.monotonic() - began)


class _InTheWay(Exception):
    """Another process holds the file locked."""


def _tried(connection: sqlite3.Connection, statement: str, *, is_last: bool) -> None:
    try:
        connection.execute(statement).fetchone()
    except sqlite3.OperationalError as error:
        if is_last or _code(error) not in _IN_THE_WAY:
            raise
        raise _InTheWay from None


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
        raise StoreError(f"{path}: {_reason(error, path, patience)}") from None
    except UnicodeDecodeError as error:  # SQLite quotes what the file holds
        raise StoreError(f"{path}: is damaged ({error.reason})") from None


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF  # without the extended part


def _reason(error: sqlite3.Error, path: Path, patience: float) -> str:
    code = _code(error)
    if code in _IN_THE_WAY:
        return f"another process has held it locked for {patience:g} s; end its transaction, or give another name"
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return "cannot be written: the file or its folder is read-only; use another name"
    if code == sqlite3.SQLITE_FULL and _has_no_number_left(path):
        return "is damaged (it has no number left for another record)"
    if code == sqlite3.SQLITE_FULL:
        return "the disk is full: free some space, or use another disk"
    if code == sqlite3.SQLITE_IOERR:
        why = "check the disk, and this process's limit (ulimit -f)"
        return f"cannot be read or written ({_one_line(error)}): {why}"
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return f"is damaged ({_one_line(error)})"
    return f"SQLite says: {_one_line(error)}"


def _has_no_number_left(path: Path) -> bool:
    """Whether the file says that its last record had the highest number there is: SQLite calls that full too."""
    with contextlib.suppress(sqlite3.Error), contextlib.closing(_connected(path, "ro")) as connection:
        (last,) = connection.execute("SELECT max(seq) FROM sqlite_sequence").fetchone()
        return bool(last == _LAST_NUMBER)
    return False


def _one_line(error: sqlite3.Error) -> str:
    """SQLite quotes what the file holds."""
    return " ".join(str(error).split())[:200]
