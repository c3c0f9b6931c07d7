"""Files are written whole or not at all, and never over what is something else."""

from __future__ import annotations

import gzip
import os
import socket
import stat
from pathlib import Path

import pytest

from torchbench_magic.errors import InputError, TraceError
from torchbench_magic.files import PAGE, STACKS, TRACE, FileKind, check_target, path_of, whole_file

CONTENT = {
    PAGE.name: b"<!doctype html><html><title>torchbench_magic: Comparison</title>",
    STACKS.name: b"a;b 12\na;c 3\n",
    TRACE.name: b'{\n"schemaVersion": 1,\n"traceEvents": []}',
    "torch's trace": b'{"schemaVersion": 1, "deviceProperties": []',
    "a packed trace": gzip.compress(b'[{"ph":"X"}]'),
    "another page": b"<!doctype html><html><title>My thesis</title>",
    "text": b"dear diary\n",
    "JSON": b'{"a": 1}',
    "numbers": b"12\n",
    "a list": b"milk 2\neggs 12\n",
    "broken gzip": b"\x1f\x8b\x08zzzz",
    "a store": b"SQLite format 3\0",
}


def write(kind: FileKind, path: Path | str, text: str = "new", **more: bool) -> None:
    with whole_file(path, kind, **more) as part:
        part.write_text(text)


@pytest.mark.parametrize("kind", [PAGE, STACKS, TRACE], ids=lambda kind: kind.name)
@pytest.mark.parametrize("there", CONTENT)
def test_only_a_file_of_the_same_kind_gives_way_unless_told(tmp_path: Path, kind: FileKind, there: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(CONTENT[there])
    may = there == kind.name or (kind is TRACE and there in ("torch's trace", "a packed trace"))
    if may:
        write(kind, path)
    else:
        with pytest.raises(kind.error, match=f"exists and is not {kind.name}; use another name, or replace it with"):
            write(kind, path)
        assert path.read_bytes() == CONTENT[there]
        write(kind, path, overwrite=True)
    assert path.read_text() == "new"
    assert [*tmp_path.iterdir()] == [path]


def test_an_empty_file_gives_way_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    path.chmod(0o640)
    write(PAGE, path)
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_where_writing_fails_what_was_there_is_there_still(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(CONTENT[PAGE.name])

    def half(error: BaseException) -> None:
        with whole_file(path, PAGE) as part:
            part.write_text("half")
            raise error

    with pytest.raises(InputError, match="the disk is full"):
        half(OSError(28, "No space left on device"))
    with pytest.raises(KeyboardInterrupt):
        half(KeyboardInterrupt())
    assert path.read_bytes() == CONTENT[PAGE.name]
    assert [*tmp_path.iterdir()] == [path]


def test_a_full_disk_is_one_line() -> None:
    with pytest.raises(InputError, match="/dev/full: is a pipe or a device, not a file; use another name"):
        write(PAGE, "/dev/full")


def test_links_pipes_folders_and_what_is_read_only_get_one_line(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(CONTENT[PAGE.name])
    link, pipe, listening, read_only = (tmp_path / name for name in ("link", "pipe", "listening", "read_only"))
    link.symlink_to(target)
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(listening))
    read_only.write_bytes(CONTENT[PAGE.name])
    read_only.chmod(0o444)
    for path, said in (
        (link, f"is a link to {target}; give the name of the file itself"),
        (pipe, "is a pipe or a device, not a file"),
        (listening, "is a pipe or a device, not a file"),
        (tmp_path, "is a folder; name a file in it, such as"),
        (Path("/"), "is a folder"),
        (f"{tmp_path}/new/", "is a folder"),
        (read_only, "cannot be written: the file is read-only"),
        (target / "below", "does not exist"),
        (tmp_path / "no" / "folder", "does not exist"),
    ):
        for overwrite in (False, True):
            with pytest.raises(InputError, match=said) as caught:
                check_target(path, PAGE, overwrite=overwrite)
            assert "\n" not in str(caught.value)
    assert target.read_bytes() == CONTENT[PAGE.name]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a" * 300, "file name too long"),
        ("a" * 250, "file name too long"),
        ("a\0b", r"'a\\x00b': not a valid file name: it contains the character NUL"),
        ("~no_such_user_here/a", "there is no user of that name"),
        ("\ud800", "not a valid file name: it contains an incomplete character"),
    ],
)
def test_names_that_no_file_can_have_are_one_line(name: str, said: str) -> None:
    with pytest.raises(TraceError, match=said) as caught:
        check_target(name, TRACE)
    assert "\n" not in str(caught.value)
    str(caught.value).encode()


def test_a_name_of_another_kind_of_bytes_is_a_name(tmp_path: Path) -> None:
    name = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")  # Latin-1, as an old disk has it
    write(STACKS, name)
    assert path_of(name).read_text() == "new"
