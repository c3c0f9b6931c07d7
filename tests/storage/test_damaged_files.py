"""Files that are forged, damaged or bombs: refused in one line, before they take memory or minutes."""

from __future__ import annotations

import gzip
import json
import pickle
import sqlite3
import traceback
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import torchbench_magic
from tests.profiling.profiles import profile_of_two_kernels
from tests.timing.samples import lone
from torchbench_magic import load, load_torch_pickle, load_trace
from torchbench_magic.errors import InputError, StoreError, TraceError
from torchbench_magic.profiling.chrome_trace import OWN_KEY
from torchbench_magic.storage.records import PackedColumn, pack_columns, unpack_columns

# ==== damaged files ===================================================================================================
# Files that are forged, damaged or oddly named: what is wrong is said in one line, without a chain of errors.


DEEP = 100_000


@pytest.mark.parametrize(
    "text", ["[" * DEEP, '{"traceEvents":' + "[" * DEEP + "]" * DEEP + "}", '{"a":' * DEEP, '[{"ph": ' + "[" * DEEP]
)
def test_json_of_too_many_brackets_is_told_as_that(tmp_path: Path, text: str) -> None:
    (tmp_path / "deep.json").write_text(text)
    with pytest.raises(TraceError, match="its JSON is nested too deeply to be read"):
        torchbench_magic.load_trace(tmp_path / "deep.json")


def test_a_trace_that_ends_in_the_middle_is_still_cut_off(tmp_path: Path) -> None:
    (tmp_path / "cut.json").write_text('{"traceEvents": [{"ph": "X"')
    with pytest.raises(TraceError, match="is cut off"):
        torchbench_magic.load_trace(tmp_path / "cut.json")


def test_a_packed_trace_names_no_file(tmp_path: Path) -> None:
    profile_of_two_kernels().export_trace(tmp_path / "trace.json.gz")
    raw = (tmp_path / "trace.json.gz").read_bytes()
    assert raw[3] == 0, "a flag of the header: a name follows it"
    assert b"part" not in raw[:100]
    assert gzip.decompress(raw).startswith(b"{")


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz", "page.html", "runs.sqlite"])
def test_a_name_in_bytes_is_a_name(tmp_path: Path, name: str) -> None:
    profile, path = profile_of_two_kernels(), str(tmp_path / name).encode()
    writers: dict[str, Callable[[], object]] = {
        "page.html": lambda: profile.to_html(path),  # type: ignore[arg-type]
        "runs.sqlite": lambda: profile.save(path),  # type: ignore[arg-type]
    }
    writers.get(name, lambda: profile.export_trace(path))()  # type: ignore[arg-type]
    assert (tmp_path / name).exists()


def test_reading_what_is_damaged_shows_one_error(tmp_path: Path) -> None:
    (tmp_path / "runs.sqlite").write_bytes(b"SQLite format 3\0" + b"\xff" * 300)
    (tmp_path / "times.pkl").write_bytes(b"\x80\x04garbage")
    (tmp_path / "trace.gz").write_bytes(b"\x1f\x8bgarbage")
    readers: list[tuple[Callable[[Path], object], str]] = [
        (torchbench_magic.load, "runs.sqlite"),
        (torchbench_magic.load_torch_pickle, "times.pkl"),  # type: ignore[list-item]
        (torchbench_magic.load_trace, "trace.gz"),
    ]
    for read, name in readers:
        with pytest.raises(InputError) as caught:
            read(tmp_path / name)
        shown = "".join(traceback.format_exception(caught.value))
        assert shown.count("Traceback") == 1


# ==== bombs ===========================================================================================================
# Small files that unpack to what no file of ours does are refused before they take memory or minutes.


MB = 1 << 20


@contextmanager
def within(mib: float) -> Iterator[None]:
    """Python's own memory, at its highest. Not the time: tracing takes several times that."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1] / MB
    finally:
        tracemalloc.stop()
    assert peak < mib


@pytest.mark.slow
def test_a_trace_that_unpacks_to_a_thousand_times_its_size_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    events = b'{"ph":"X","cat":"cpu_op","name":"aten::add","pid":1,"tid":1,"ts":1,"dur":1,"args":{}},\n' * 600_000
    path.write_bytes(gzip.compress(b'{"traceEvents":[\n' + events, 9))
    assert path.stat().st_size < MB
    with pytest.raises(TraceError, match="unpacks to more than 50 times its size, which no trace does"):
        load_trace(path)


def test_one_value_of_a_trace_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(b'{"comment": "' + b"x" * (128 * MB), 9))
    with within(600), pytest.raises(TraceError, match="unpacks to more than 50 times its size"):
        load_trace(path)


def test_the_profile_in_a_trace_is_held_to_the_size_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    profile_of_two_kernels().export_trace(path)
    content = json.loads(path.read_bytes())
    for columns in content[OWN_KEY]["tables"].values():
        for column in columns:
            column[2] = 10**9
    path.write_text(json.dumps(content))
    with within(200), pytest.raises(TraceError, match="are refused: the record is damaged"):
        load_trace(path)


def test_columns_that_claim_more_than_their_bytes_can_hold_are_refused() -> None:
    data = zlib.compress(bytes(100 * MB), 9)
    assert len(data) < MB
    bomb = [PackedColumn(name, "float64", 50 * MB, "shuffle-zlib", data) for name in "abc"]
    with within(50), pytest.raises(StoreError, match=r"bytes that claim to hold 1,258,291,200 are refused"):
        unpack_columns(bomb)
    words = zlib.compress(b'["' + b"x" * (100 * MB) + b'"]\n' + bytes(4), 9)
    with within(300), pytest.raises(StoreError, match="does not hold"):
        unpack_columns([PackedColumn("a", "text", 1, "words-zlib", words)])
    many = zlib.compress(json.dumps([str(i) for i in range(1000)]).encode() + b"\n" + bytes(4), 9)
    with pytest.raises(StoreError, match="names texts that are not there"):
        unpack_columns([PackedColumn("a", "text", 1, "words-zlib", many)])


def test_long_tables_of_one_value_are_read() -> None:
    numbers = {name: np.zeros(500_000) for name in "abcdefgh"}
    frame = pd.DataFrame(numbers | {"t": pd.Series(["word"] * 500_000, dtype=object)})
    pd.testing.assert_frame_equal(unpack_columns(pack_columns(frame)), frame)


def test_a_bomb_in_a_store_is_a_record_that_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    lone(1e-3).save(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE packed SET rows = ?, data = ?", (50 * MB, zlib.compress(bytes(400 * MB), 9)))
    with within(300), pytest.warns(UserWarning, match="record 1 is left out"):
        assert load(path) == []


def test_a_pickle_that_holds_one_list_many_times_over_is_refused(tmp_path: Path) -> None:
    path, nested = tmp_path / "runs.pkl", []
    for _ in range(30):
        nested = [nested, nested]
    path.write_bytes(pickle.dumps(nested))
    with pytest.raises(StoreError, match="it holds more than 1,000,000 records"):
        load_torch_pickle(path)


def test_a_pickle_that_asks_for_room_for_a_billion_objects_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.pkl"
    path.write_bytes(b"\x80\x04]r\xff\xff\xff\x3f.")
    with within(50), pytest.raises(StoreError, match="it keeps an object under the number 1,073,741,823"):
        load_torch_pickle(path)
