"""What of C++ is compiled when, where it is kept, what of it is loaded, and what the compiler said."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from torchbench_magic.cell_body import Body
from torchbench_magic.cpp import build as building
from torchbench_magic.cpp.build import Cache, Snip, build, faults_of, find_toolchain, the_cache, told, unknown_names
from torchbench_magic.errors import MissingTool, SnippetError

# ==== build ===========================================================================================================
# What is compiled when, and where it is kept; the compiler pretends.


def runs(log: Path) -> list[str]:
    return log.read_text().split()


def test_the_same_text_is_compiled_once_wherever_it_stands(pretender: Path) -> None:
    first = build({"a": Snip(Body("x;", "cell-1", 5, 3)), "b": Snip.of("y;")})
    again = build({"other": Snip(Body("x;", "cell-2", 9, 4)), "same": Snip(Body("x;", "cell-2", 12, 4))})
    assert len(runs(pretender)) == 2
    assert again["other"] == again["same"] == first["a"]
    assert first["a"].read_text() == "made\n"
    assert not list(first["a"].parent.glob("*.tmp"))


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
    assert len({build({"a": snip})["a"] for snip in snips}) == 4


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
    kernels = [threading.Thread(target=lambda: found.append(build({"a": Snip.of("x;")})["a"])) for _ in "ab"]
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

    def start(self: object, one: building._Compile) -> None:
        nonlocal most
        running.add(one.number)
        most = max(most, len(running))
        started(self, one)  # type: ignore[arg-type]

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


def test_a_cache_that_cannot_be_written_is_said_in_one_line(pretender: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")  # root, who may write everywhere, is refused too
    with pytest.raises(SnippetError, match=r"cpp cannot be written \(Not a directory\); set XDG_CACHE_HOME") as caught:
        build({"a": Snip.of("x;")})
    assert "\n" not in str(caught.value)


def test_a_compiler_without_space_says_so_in_one_line(pretender: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODE", "full")
    with pytest.raises(SnippetError, match=r"a does not compile: .*No space left on device") as caught:
        build({"a": Snip.of("x;")})
    assert "\n" not in str(caught.value)


def test_what_was_not_used_for_long_goes_and_the_rest_stays(pretender: Path) -> None:
    old, kept = (build({"a": Snip.of(text)})["a"] for text in ("x;", "y;"))
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
        folder = build({"a": Snip.of(f"x{i};")})["a"].parent
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


# ==== cache ===========================================================================================================
# What is kept compiled is loaded into the kernel: only what is ours is taken.


def test_a_user_without_a_home_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    for asked in ("", "no/absolute/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", asked)
        with pytest.raises(SnippetError, match="this user has no home folder"):
            the_cache()


def test_in_a_folder_that_others_can_write_nothing_is_kept_or_taken(pretender: Path) -> None:
    build({"a": Snip.of("x;")})
    folder = the_cache().folder
    for each in (folder, folder.parent):
        each.chmod(0o777)
        with pytest.raises(SnippetError, match="can be written by other users"):
            build({"a": Snip.of("x;")})
        each.chmod(0o700)


@pytest.mark.parametrize("umask", [0o002, 0o000, 0o077])
def test_whatever_the_umask_the_cache_is_the_users_own(umask: int, pretender: Path, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        for text in ("x;", "y;"):
            build({"a": Snip.of(text)})
        shutil.rmtree(the_cache().folder.parent)  # as a cleaner does while the kernel runs
        build({"a": Snip.of("x;")})
        build({"a": Snip.of("x;")})
    finally:
        os.umask(before)
    assert len(runs(pretender)) == 3


def test_beyond_its_size_what_was_used_longest_ago_goes(tmp_path: Path) -> None:
    cache, now = Cache(tmp_path / "cache"), time.time()
    targets = [cache.folder / "key" / f"{name}.so" for name in "abcd"]
    for age, target in enumerate(targets):
        with cache.making(target) as workshop:
            (workshop / target.name).write_bytes(b"x" * 1000)
            os.replace(workshop / target.name, target)
        target.with_name(f"{target.name}.returned").touch()
        os.utime(target, (now - age * 7200, now - age * 7200))
    cache.prune(most=2500)
    assert [target.exists() for target in targets] == [True, True, False, False]
    left = {path.name for path in (tmp_path / "cache" / "key").iterdir()}
    assert left == {f"{name}.so{ending}" for name in "ab" for ending in ("", ".returned")}
    cache.prune(most=0)
    assert [target.exists() for target in targets] == [True, False, False, False]  # the first is in use


# ==== diagnostics =====================================================================================================
# What compilers said, word for word, and what of it a user is shown.


SHELL = """\
#include <cstdint>
namespace torchbench {
enum class Status { Ok };
struct Calls { std::int64_t made; };
using Serve = void*;
using Message = char*;
template <typename Loop> void serve(Loop&, Serve, void*);
Status raised(Message);
}
"""
"""As much of the shell's header as g++ needs to read on; torch's own take ten seconds."""
SNIP = Snip(
    Body("auto z = foo(x);\nz.add(1)\n", "<cell>", first_line=8, cell=3),
    [Body("int n = 1;", "<cell>", 1, 3), Body("auto x = torch::onse({3});\n", "<cell>", 5, 3)],
    [Body("#include <nowhere.h>\n", "<cell>", 3, 3)],
)

GCC = """\
stmt: In lambda function:
stmt:1:10: error: 'foo' was not declared in this scope
stmt:2:9: error: expected ';' before '}' token
"""
HEADER = """\
In file included from /torch/include/ATen/core/Tensor.h:3,
                 from snippet.cpp:1:
/torch/include/ATen/core/Tensor.h: In instantiation of 'T at::item() [with T = Foo]':
stmt:2:3:   required from here
/torch/include/ATen/core/Tensor.h:77:12: error: static assertion failed
/torch/include/ATen/core/Tensor.h:77:12: note: 'false' evaluates to false
"""
MISSING_HEADER = """\
global setup:1:10: fatal error: nowhere.h: No such file or directory
compilation terminated.
"""
CLANG = """\
setup 2:1:17: error: no member named 'onse' in namespace 'torch'; did you mean 'ones'?
/torch/include/c10/util/Array.h:9:3: error: no matching function
stmt:1:10: note: in instantiation of function template specialization 'f<int>' requested here
2 errors generated.
"""


def test_errors_stand_on_the_lines_of_the_cell() -> None:
    assert told("b", SNIP, GCC).splitlines() == [
        "b does not compile:",
        "  In[3], line 8: 'foo' was not declared in this scope",
        "    auto z = foo(x);",
        "             ^",
        "  In[3], line 9: expected ';' before '}' token",
        "    z.add(1)",
        "            ^",
    ]


def test_an_error_in_a_header_stands_on_the_line_that_led_there() -> None:
    (fault,) = faults_of(HEADER, SNIP)
    assert (fault.part, fault.line, fault.text) == ("stmt", 2, "static assertion failed")
    assert "In[3], line 9: static assertion failed" in told("b", SNIP, HEADER)


def test_a_header_that_is_not_there_is_an_error_of_the_global_setup() -> None:
    assert "In[3], line 3: nowhere.h: No such file or directory" in told("b", SNIP, MISSING_HEADER)


def test_clang_is_understood_too() -> None:
    first, second = faults_of(CLANG, SNIP)
    assert (first.part, first.line) == ("setup 2", 1)
    assert "In[3], line 5: no member named 'onse'" in told("b", SNIP, CLANG)
    assert (second.part, second.line) == ("stmt", 1)


def test_three_errors_are_shown_and_the_rest_counted() -> None:
    said = "".join(f"stmt:1:{i}: error: number {i}\n" for i in range(1, 8))
    text = told("b", SNIP, said)
    assert "number 3" in text
    assert "number 4" not in text
    assert text.endswith("and 4 more errors")


def test_an_error_outside_of_the_users_code_hints_at_what_was_left_open() -> None:
    assert told("b", SNIP, "torchbench:9:1: error: expected '}' at end of input\n") == (
        "b does not compile: expected '}' at end of input; is a brace, bracket or quote unclosed?"
    )
    assert told("b", SNIP, "") == "b does not compile: the compiler said nothing"


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("part", ["global setup", "setup", "stmt"])
def test_what_is_missing_at_the_end_of_a_piece_is_on_its_last_line(part: str) -> None:
    whole = {"global setup": "int a;\nint b;\n", "setup": "int c = 1;\nint d = 2;\n", "stmt": "++c;\n++d;\n"}
    texts = whole | {part: whole[part].rstrip().removesuffix(";") + "\n"}  # the last semicolon is left out
    snip = Snip.of(texts["stmt"], texts["setup"], texts["global setup"])
    command = ["g++", "-std=c++20", "-fsyntax-only", "-x", "c++", "-"]
    done = subprocess.run(command, input=SHELL + snip.text, capture_output=True, text=True)
    first = faults_of(done.stderr, snip)[0]
    assert (first.part, first.line) == (part, 2), done.stderr
    assert "expected" in first.text


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("'nn' is not a member of 'torch'", {"nn"}),
        ("'torch::nn' has not been declared", {"nn"}),
        ("'Linear' in namespace 'torch::nn' does not name a type", {"Linear"}),
        ("no member named 'optim' in namespace 'torch'", {"optim"}),
        ("'class at::Tensor' has no member named 'frob'", {"frob"}),
        ("use of undeclared identifier 'py'", {"py"}),
        ("invalid use of incomplete type 'class c10::Foo'", {"Foo"}),
        ("expected ';' before '}' token", set()),
    ],
)
def test_names_that_another_header_might_declare_are_found(text: str, name: set[str]) -> None:
    assert unknown_names(faults_of(f"stmt:1:1: error: {text}\n", SNIP)) == name
