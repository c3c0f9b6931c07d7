"""What is compiled when, and where it is kept; the compiler pretends."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from torchbench_magic.cell_text import Body
from torchbench_magic.cpp import build as building
from torchbench_magic.cpp.build import Snip, build, find_toolchain
from torchbench_magic.errors import MissingTool, SnippetError


def runs(log: Path) -> list[str]:
    return log.read_text().split()


def test_the_same_text_is_compiled_once_wherever_it_stands(pretender: Path) -> None:
    first = build({"a": Snip(Body("x;", "cell-1", 5, 3)), "b": Snip.of("y;")})
    again = build({"other": Snip(Body("x;", "cell-2", 9, 4)), "same": Snip(Body("x;", "cell-2", 12, 4))})
    assert len(runs(pretender)) == 2
    assert again["other"] == again["same"] == first["a"]
    assert first["a"].library.read_text() == "made\n"
    assert not list(first["a"].library.parent.glob("*.tmp"))


def test_what_was_compiled_stands_in_the_order_that_was_asked_for(pretender: Path) -> None:
    kept = build({"b": Snip.of("y;")})["b"]
    made = build({"a": Snip.of("x;"), "b": Snip.of("y;"), "c": Snip.of("z;"), "d": Snip.of("x;")})
    assert [*made] == ["a", "b", "c", "d"]
    assert made["b"] == kept
    assert made["a"] == made["d"]


def test_two_alternatives_of_one_text_are_one_compilation(pretender: Path) -> None:
    made = build({"a": Snip.of("x;"), "b": Snip.of("x;")})
    assert len(runs(pretender)) == 1
    assert made["a"] == made["b"]


def test_statement_setup_and_global_setup_each_make_another_file(pretender: Path) -> None:
    snips = (Snip.of("x;"), Snip.of("x;", "y;"), Snip.of("x;", "", "y;"), Snip.of("y;", "x;"))
    assert len({build({"a": snip})["a"].library for snip in snips}) == 4


def test_another_compiler_and_other_flags_make_another_file(
    pretender: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = find_toolchain().identity
    monkeypatch.setenv("CXX", f"{tmp_path}/pretender -march=native")
    flagged = find_toolchain().identity
    script = tmp_path / "pretender"
    script.write_text(script.read_text().replace("1.0", "1.1"))
    os.utime(script, (1, 1))
    assert len({before, flagged, find_toolchain().identity}) == 3


def test_kernels_that_compile_one_text_at_once_both_get_the_whole_file(pretender: Path) -> None:
    found: list[Path] = []
    kernels = [threading.Thread(target=lambda: found.append(build({"a": Snip.of("x;")})["a"].library)) for _ in "ab"]
    for kernel in kernels:
        kernel.start()
    for kernel in kernels:
        kernel.join()
    assert len(found) == 2
    assert found[0] == found[1]
    assert found[0].read_text() == "made\n"


def test_no_more_compilers_run_at_once_than_there_are_cores(pretender: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building.os, "sched_getaffinity", lambda _: {0, 1})
    most, running = 0, set()
    started, finished = building._Builds._start, building._Builds._finish

    def start(self: object, one: building._Compile) -> building._Compile:
        nonlocal most
        running.add(one.number)
        most = max(most, len(running))
        return started(self, one)  # type: ignore[arg-type]

    def finish(self: object, one: building._Compile) -> str:
        running.discard(one.number)
        return finished(self, one)  # type: ignore[arg-type]

    monkeypatch.setattr(building._Builds, "_start", start)
    monkeypatch.setattr(building._Builds, "_finish", finish)
    build({f"s{i}": Snip.of(f"x{i};") for i in range(5)})
    assert most == 2
    assert len(runs(pretender)) == 5


def test_ctrl_c_ends_the_compiler_and_leaves_nothing(
    pretender: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODE", "slow")

    def interrupt() -> None:
        while not runs(pretender):  # a compiler, which sleeps for minutes, has begun
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        build({"a": Snip.of("x;"), "b": Snip.of("y;")})
    interrupting.join()
    assert not [pid for pid in runs(pretender) if os.path.exists(f"/proc/{pid}")]
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_a_missing_compiler_is_one_line_with_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingTool, match=r"g\+\+ is not installed: `sudo apt-get install g\+\+`") as caught:
        build({"a": Snip.of("x;")})
    assert "\n" not in str(caught.value)
    monkeypatch.setenv("CXX", "no-such-compiler -O3")
    with pytest.raises(MissingTool, match=r"CXX=no-such-compiler -O3 names none"):
        build({"a": Snip.of("x;")})
    for odd in ('g++ "-O3', "''", "\x1b[31m"):
        monkeypatch.setenv("CXX", odd)
        with pytest.raises(MissingTool, match=r"names none: unset CXX") as caught:
            build({"a": Snip.of("x;")})
        assert str(caught.value).isprintable()


@pytest.mark.parametrize("spoiled", ["a file is in the way", "full"])
def test_a_cache_that_cannot_be_written_is_replaced_by_a_private_one(
    spoiled: str, pretender: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if spoiled == "full":
        elsewhere = tmp_path.parent / f"{tmp_path.name}-private"
        elsewhere.mkdir()
        monkeypatch.setattr(building, "_private_folder", lambda: elsewhere)
        monkeypatch.setenv("MODE", "full")
    else:
        (tmp_path / "cache").write_text("")  # root, who may write everywhere, is refused too
    made = build({"a": Snip.of("x;")})["a"]
    assert made.library.read_text() == "made\n"
    assert tmp_path / "cache" not in made.library.parents
    assert str(tmp_path / "cache") in made.why_private
    assert ("No space left" if spoiled == "full" else "Not a directory") in made.why_private


def test_no_space_anywhere_is_one_line(pretender: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODE", "full")
    monkeypatch.setattr(building, "_private_folder", lambda: tmp_path / "private")
    with pytest.raises(SnippetError, match=r"No space left on device.*free space in") as caught:
        build({"a": Snip.of("x;")})
    assert "\n" not in str(caught.value)


def test_what_was_not_used_for_long_goes_and_the_rest_stays(pretender: Path) -> None:
    old, kept = (build({"a": Snip.of(text)})["a"].library for text in ("x;", "y;"))
    past = time.time() - 40 * 86400
    os.utime(old, (past, past))
    build({"a": Snip.of("z;")})
    assert not old.exists()
    assert kept.exists()


def test_an_unknown_name_that_no_header_of_torch_has_is_not_tried_again(
    pretender: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODE", "wrong")
    with pytest.raises(SnippetError, match=r"stmt, line 2: 'foo_bar' was not declared in this scope\n +auto z = "):
        build({"a": Snip.of("auto y = x;\nauto z = foo_bar(y);")})
    assert len(runs(pretender)) == 1


def test_headers_are_precompiled_when_snippets_are_many(
    pretender: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAIM", "Copyright (C) Free Software Foundation, Inc.")
    os.utime(tmp_path / "pretender", (2, 2))  # it is asked for its version anew
    for i in range(4):
        folder = build({"a": Snip.of(f"x{i};")})["a"].library.parent
        assert "#include <torch/types.h>" in (tmp_path / "source").read_text()
    assert not (folder / "prelude.h.gch").exists()
    build({"a": Snip.of("x4;")})
    assert (folder / "prelude.h.gch").exists()
    assert len(runs(pretender)) == 6  # five snippets, and the headers once
    source = (tmp_path / "source").read_text()
    assert source.startswith(f'#include "{folder}/prelude.h"\n')
    assert "#include <torch/types.h>" in (folder / "prelude.h").read_text()
    build({"a": Snip.of("x5;")})
    assert len(runs(pretender)) == 7
