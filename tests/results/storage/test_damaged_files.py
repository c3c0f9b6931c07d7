"""Files that are forged, damaged or oddly named: what is wrong is said in one line, without a chain of errors."""

from __future__ import annotations

import gzip
import sqlite3
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

import torchbench_magic
from torchbench_magic.errors import InputError, StoreError, TraceError

from ..profiles import profile_of_two_kernels
from ..samples import lone

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


def test_a_store_without_a_number_left_is_damaged_and_no_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    lone(1e-3).save(path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE sqlite_sequence SET seq = ?", (2**63 - 1,))
    connection.close()
    with pytest.raises(StoreError, match=r"is damaged \(it has no number left for another record\)$"):
        lone(2e-3).save(path)
    assert len(torchbench_magic.load(path)) == 1


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
