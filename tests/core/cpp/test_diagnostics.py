"""What compilers said, word for word, and what of it a user is shown."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from torchbench_magic.cell_text import Body
from torchbench_magic.cpp.build import Snip, faults_of, told, unknown_names

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
