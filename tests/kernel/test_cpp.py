"""C++ in a notebook: ``%%timer --cpp``, and functions built by ``load_inline``."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Kernel

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]

# torch's first C++ example, and the shapes of its comparison
BROADCAST = """\
%%timer --cpp --callgrind -t 1 -o cpp_counts
// --- setup
auto x = torch::ones({128, 128});
auto y = torch::ones({128, 128});
auto column = torch::ones({128, 1});
// --- same shape
x * y;
// --- broadcast
x * column;
"""

# torch's benchmark recipe: two functions that differ by how they take their arguments
LOAD_INLINE = '''\
import shlex, torch
from torch.utils import cpp_extension
cpp_extension.TORCH_LIB_PATH = shlex.quote(cpp_extension.TORCH_LIB_PATH)  # torch does not: its path may hold a space

batched_dot_src = """
at::Tensor batched_dot_mul_sum_v0(const at::Tensor a, const at::Tensor b) {
  return a.mul(b).sum(-1);
}

at::Tensor batched_dot_mul_sum_v1(const at::Tensor& a, const at::Tensor& b) {
  return a.mul(b).sum(-1);
}
"""
cpp_lib = cpp_extension.load_inline(
    name="cpp_lib",
    cpp_sources=batched_dot_src,
    extra_cflags=["-O3"],
    functions=["batched_dot_mul_sum_v0", "batched_dot_mul_sum_v1"],
)
x = torch.ones(100, 1)
'''

BY_VALUE_OR_REFERENCE = """\
%%timer --callgrind -t 1 --baseline "by value"
# --- by value
cpp_lib.batched_dot_mul_sum_v0(x, x)
# --- by reference
cpp_lib.batched_dot_mul_sum_v1(x, x)
"""

DELTA = """\
by_value, by_reference = _timer.counts["by value"], _timer.counts["by reference"]
delta = by_reference.delta(by_value).denoise()


def bare(text):
    for before, after in (("build/aten/src", "..."), ("c10::", "")):
        text = text.replace(before, after)
    return text.split(":", 1)[1].split(" [")[0]


torch.set_printoptions(linewidth=160)
print(delta.transform(bare))
print("TOTAL", delta.sum(), by_reference.counts() - by_value.counts())
"""


@pytest.fixture(scope="module")
def kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    """Its headers are precompiled at once: most tests here compile."""
    started = start_kernel()
    started._client.timeout = 900  # other work on the machine makes a compiler slow
    often = "from torchbench_magic.cpp import build\nbuild._OFTEN = 0"
    assert not started.run(f"import torch\ntorch.set_num_threads(1)\n{often}").error
    return started


def test_a_missing_compiler_is_said_at_once_and_the_kernel_goes_on(kernel: Kernel) -> None:
    kernel.run("import os\nkept_path = os.environ['PATH']\nos.environ['PATH'] = '/nowhere'")
    ran = kernel.run("%%timer --cpp\nx * y;")
    assert ran.stderr.startswith("UsageError: C++ snippets need a compiler, and g++ is not installed: `sudo apt-get")
    assert len(ran.stderr.strip().splitlines()) == 1
    assert not kernel.run("os.environ['PATH'] = kept_path").error


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('--cpp --sweep "n=[1, 2]"', "--cpp: --sweep is for Python"),
        ("--cpp --fuzz binary", "--cpp: --fuzz is for Python"),
        ("--cpp --check", "--cpp: --check is for Python"),
        ("--cpp --restore", "--cpp: --restore is for Python"),
        ("--cpp --resume", "--cpp: --resume is for Python"),
        ("--cpp --clock device", "--cpp: --clock device is for Python"),
        ("--cpp --callgrind --callgrind-form module", "--cpp: --callgrind-form is for Python"),
        ("--global-setup '#include <vector>'", "--global-setup is C++ at the level of a file: give --cpp too"),
    ],
)
def test_what_only_one_language_can_do_is_refused_in_one_line(kernel: Kernel, line: str, told: str) -> None:
    ran = kernel.run(f"%%timer {line}\n1;")
    assert ran.stderr.startswith(f"UsageError: {told}")
    assert len(ran.stderr.strip().splitlines()) == 1


@pytest.mark.slow
@pytest.mark.timeout(1800)
class TestCompiled:
    @pytest.mark.valgrind
    def test_torchs_example_is_timed_counted_and_compared(self, kernel: Kernel) -> None:
        ran = kernel.run(BROADCAST)
        assert not ran.stderr
        text = ran.text()
        verdict = r"broadcast ((is|takes) \S+ times as (fast|long)|takes the same time) as same shape"
        assert re.search(verdict, text) or "undecided" in text  # whichever this machine finds
        assert re.search(
            r"broadcast runs [\d ]+ more instructions per call than same shape", text.replace("\u202f", " ")
        )
        assert "TensorIterator" in text or "cpu_kernel" in text or "function_ref" in text
        again = kernel.run(f"first = cpp_counts.frame.instructions.tolist()\n{''}")
        assert not again.error
        kernel.run(BROADCAST.replace("--cpp ", "--cpp -q "))  # compiled already, and counted to the same number
        ran = kernel.run("print(cpp_counts.frame.instructions.tolist() == first)")
        assert ran.stdout == "True\n"

    @pytest.mark.parametrize(
        ("cell", "line", "told"),
        [
            (
                "%%timer --cpp\n// --- setup\nint n = 1;\n// --- a\nn++;\nfoo_bar(n);\n// --- b\nn--;",
                6,
                "'foo_bar' was not",
            ),
            # what is missing at the end of a part is noticed behind it: there is no line of the cell to name
            ("%%timer --cpp\n// --- setup\nint n = 1\n// --- a\nn++;\n// --- b\nn--;", None, "expected ',' or ';'"),
            ("%%timer --cpp int n = none;\nn++;", 1, "'none' was not declared"),
            (
                "%%timer --cpp\n// --- global setup\nint two() { retrun 2; }\n// --- a\ntwo();\n// --- b\n;",
                3,
                "'retrun' was not declared",
            ),
            ('%%timer --cpp --global-setup "#include <nowhere.h>"\n;', 1, "nowhere.h: No such file or directory"),
            ("%%timer --cpp\nif (true) {\n  int n = 1;\n", 2, ""),
        ],
    )
    def test_errors_of_the_compiler_stand_on_the_cells_lines(
        self, kernel: Kernel, cell: str, line: int | None, told: str
    ) -> None:
        ran = kernel.run(cell)
        assert ran.stderr.startswith("UsageError: ")
        assert "does not compile" in ran.stderr
        if told and line is None:
            assert told in ran.stderr
        elif told:
            assert f"In[{kernel.number}], line {line}: {told}" in ran.stderr
        else:
            assert "is a brace, bracket or quote unclosed?" in ran.stderr
        assert "/" not in ran.stderr.replace("No such file or", "")  # nobody's path but the cell's

    def test_a_snippet_that_throws_crashes_or_leaves_the_loop_is_one_line(self, kernel: Kernel) -> None:
        for cell, told in (
            ('TORCH_CHECK(false, "no good");', "statement throws c10::Error: no good"),
            (
                "torch::ones({2}) + torch::ones({3});",
                "statement throws c10::Error: The size of tensor a (2) must match",
            ),
            ("*(volatile int*)0 = 1;", "statement crashed in its first call (SIGSEGV)"),
            ("break;", "statement leaves the timed loop"),
        ):
            ran = kernel.run(f"%%timer --cpp\n{cell}")
            assert ran.stderr.startswith(f"UsageError: {told}"), ran.stderr
            assert len(ran.stderr.strip().splitlines()) == 1
        assert kernel.run("print(torch.ones(2).sum().item())").stdout == "2.0\n"

    def test_a_snippet_that_never_returns_is_interrupted(self, kernel: Kernel, tmp_path: Path) -> None:
        cache, there = Path(os.environ["XDG_CACHE_HOME"]), tmp_path / "in the first call"
        before = set(cache.glob("torchbench_magic/cpp/*/*.so"))
        with kernel.interrupted_when(there.exists):
            ran = kernel.run(f'%%timer --cpp\nfopen("{there}", "w");\nfor (;;) {{ asm volatile(""); }}')
        assert "KeyboardInterrupt" in ran.error
        (library,) = set(cache.glob("torchbench_magic/cpp/*/*.so")) - before
        running = [p for p in Path("/proc").glob("[0-9]*/cmdline") if str(library).encode() in _bytes(p)]
        assert not running

    def test_what_lean_headers_lack_is_compiled_with_all_of_torch(self, kernel: Kernel) -> None:
        ran = kernel.run(
            "%%timer --cpp -t 1\n// --- setup\ntorch::nn::Linear layer(4, 4);\nauto x = torch::ones({2, 4});\n"
            "// --- statement\nlayer->forward(x);\ntorch::NoGradGuard off;\nlayer->forward(x);"
        )
        assert not ran.stderr
        assert re.search(r"^layer->forward\(x\); …  .* median", ran.text(), re.MULTILINE)

    def test_a_statement_that_the_compiler_removes_is_told(self, kernel: Kernel) -> None:
        ran = kernel.run("%%timer --cpp\n// --- setup\nint n = 1;\n// --- a\nn + 1;\n// --- b\nn + 2;")
        assert "the compiler removed the statement" in " ".join(ran.text().split())

    def test_what_a_snippet_prints_is_shown_of_its_first_call_only(self, kernel: Kernel) -> None:
        ran = kernel.run('%%timer --cpp\nstd::cout << "hello from C++" << std::endl;')
        assert ran.text()
        assert ran.stdout.count("hello from C++") <= 1  # none where the kernel does not show what C++ prints

    @pytest.mark.valgrind
    def test_functions_of_load_inline_are_counted(self, kernel: Kernel) -> None:
        assert not kernel.run(LOAD_INLINE).error
        ran = kernel.run(BY_VALUE_OR_REFERENCE)
        assert "not counted" not in ran.text()
        assert re.search(r"batched_dot_mul_sum_v0\(.* gone", ran.text())
        assert re.search(r"batched_dot_mul_sum_v1\(.* new", ran.text())
        ran = kernel.run(DELTA)
        assert not ran.error
        # which of the two takes less is the compiler's choice (it inlines one more into its caller); that nothing else
        # differs is not
        assert re.search(r" \d+ +batched_dot_mul_sum_v1\(at::Tensor const&, at::Tensor const&\)\n", ran.stdout)
        assert re.search(r" -\d+ +batched_dot_mul_sum_v0\(at::Tensor, at::Tensor\)\n", ran.stdout)
        assert not re.search(r"at::(native|_ops)", ran.stdout)
        total, difference = (int(n) for n in ran.stdout.rpartition("TOTAL")[2].split())
        assert total == pytest.approx(difference, abs=50)
        named = kernel.run("f = cpp_lib.batched_dot_mul_sum_v1\nby_name = %timer -q --callgrind -t 1 f(x, x)")
        assert not named.error
        assert not kernel.run("assert len(by_name.counts) == 1, by_name.warnings").error


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it ended
        return b""
