"""Snippets that are compiled once for all tests of a session, and a compiler that only pretends."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import pytest

from torchbench_magic.cell_body import Body
from torchbench_magic.cpp import build
from torchbench_magic.cpp.build import Snip
from torchbench_magic.cpp.run import Snippet, compile_snippets

NOPS = """asm volatile(".rept {0}\\n nop\\n .endr");"""

SNIPS = {
    "hundred": Snip(Body(NOPS.format(100))),
    "two hundred": Snip(Body(NOPS.format(200))),
    "allocating": Snip.of("auto y = x * x;", "auto x = at::ones({128, 128});"),
    "throwing": Snip.of(
        'if (++calls == limit) TORCH_CHECK(false, setups, " setups, ", calls, " calls");\nif (calls == -1) break;',
        "static int setups = 0;\n++setups;\nint64_t calls = 0;\nauto [limit, shape] = limits();",
        "#include <utility>\nstd::pair<int64_t, int> limits() { return {5000, 3}; }",
    ),
}


@pytest.fixture(scope="session")
def throwing() -> Snippet:
    """The one snippet that `make test` compiles: for the others torch's headers are read as often again."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    return compile_snippets({"throwing": SNIPS["throwing"]})["throwing"]


@pytest.fixture(scope="session")
def compiled(throwing: Snippet) -> dict[str, Snippet]:
    """`SNIPS`, compiled; with precompiled headers, which other files of the worker use too."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(build, "_OFTEN", 0)
        return compile_snippets(SNIPS)


@pytest.fixture
def pretender(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that writes a line a run into ``runs``, does what ``MODE`` says, and makes a file."""
    script = tmp_path / "pretender"
    script.write_text(
        f"""#!/bin/sh
case "$*" in *--version*) echo "pretender 1.0 $CLAIM"; exit 0;; esac
echo $$ >> {tmp_path}/runs
cp snippet.cpp {tmp_path}/source 2>/dev/null
while [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done
case "$MODE" in
    slow) sleep 600;;
    full) case $out in {tmp_path}/*) echo "as: error writing snippet.o: No space left on device"; exit 1;; esac;;
    wrong) echo "stmt:2:5: error: 'foo_bar' was not declared in this scope"; exit 1;;
esac
echo made > "$out"
"""
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "runs").touch()
    monkeypatch.setenv("CXX", str(script))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "runs"
