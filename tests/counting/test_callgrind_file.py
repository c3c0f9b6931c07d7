"""Reading callgrind's file: the format's traps, and files that are not whole."""

from __future__ import annotations

from dataclasses import replace

import pytest

from torchbench_magic.counting.callgrind_file import parse, since
from torchbench_magic.errors import CountError

FILE = """\
# callgrind format
version: 1
creator: callgrind-3.19.0
pid: 1
cmd:  python
part: 1

desc: Trigger: Client Request: stmt
positions: line
events: Ir
summary: 171

ob=(1) /lib/libtorch.so
fl=(1) mul.cpp
fn=(1) at::mul(at::Tensor const&)
10 40
+2 10
cob=(2) /lib/libc.so
cfi=(2) malloc.c
cfn=(2) malloc
calls=3 100
-1 60
fi=(3) inlined.h
7 5
fe=(1)
12 6

ob=(2)
fl=(2)
fn=(2)
100 30
* 20
cfn=(3) _int_malloc
calls=1 5
* 10

fn=(3)
5 10

ob=(1)
fl=(1)
fn=(4) open'2
3 50
cfn=(1)
calls=0 10
* 121
totals: 171
"""


def test_self_counts_are_of_the_line_s_own_file() -> None:
    costs = parse(FILE)
    assert costs.total == 171
    assert costs.exclusive == {
        "mul.cpp:at::mul(at::Tensor const&) [/lib/libtorch.so]": 56,
        "inlined.h:at::mul(at::Tensor const&) [/lib/libtorch.so]": 5,
        "malloc.c:malloc [/lib/libc.so]": 50,
        "malloc.c:_int_malloc [/lib/libc.so]": 10,
        "mul.cpp:open'2 [/lib/libtorch.so]": 50,
    }


def test_inclusive_counts_are_what_the_callers_paid() -> None:
    inclusive = parse(FILE).inclusive
    assert inclusive["malloc.c:malloc [/lib/libc.so]"] == 60
    assert inclusive["malloc.c:_int_malloc [/lib/libc.so]"] == 10
    assert inclusive["mul.cpp:at::mul(at::Tensor const&) [/lib/libtorch.so]"] == 121
    assert inclusive["mul.cpp:open'2 [/lib/libtorch.so]"] == 171


def test_the_cost_of_a_call_that_was_still_running_is_nobodys_own() -> None:
    assert sum(parse(FILE).exclusive.values()) == 171  # calls=0: its 121 are inclusive


def test_calls_are_kept_with_how_often_and_what_they_cost() -> None:
    library = "[/lib/libtorch.so]"
    assert sorted(parse(FILE).calls) == [
        ("malloc.c:malloc [/lib/libc.so]", "malloc.c:_int_malloc [/lib/libc.so]", 1, 10),
        (f"mul.cpp:at::mul(at::Tensor const&) {library}", "malloc.c:malloc [/lib/libc.so]", 3, 60),
        (f"mul.cpp:open'2 {library}", f"mul.cpp:at::mul(at::Tensor const&) {library}", 0, 121),
    ]


def test_calls_are_known_only_of_arcs_that_were_written_before() -> None:
    counted = parse(FILE)
    assert {call.calls for call in since(counted, []).calls} == {0}
    warm = replace(counted, calls=tuple(call for call in counted.calls if "_int_malloc" not in call.callee))
    known = {call.callee.partition(" ")[0]: call.calls for call in since(counted, [warm]).calls}
    assert known == {"malloc.c:malloc": 3, "malloc.c:_int_malloc": 0, "mul.cpp:at::mul(at::Tensor": 0}


INLINED = """\
version: 1
positions: line
events: Ir

fl=(1) call.c
fn=(1) first
1 5
fi=(2) inlined.h
2 5
cfi=(1)
cfn=(3) third
calls=2 9
3 20

fn=(2) second
fi=(3) ceval.c
cfn=(3)
calls=1 9
4 10

fn=(3)
9 30
totals: 40
"""


def test_a_function_has_one_name_as_caller_and_as_callee_whatever_was_inlined() -> None:
    assert sorted(parse(INLINED).calls) == [
        ("call.c:first", "call.c:third", 2, 20),
        ("call.c:second", "call.c:third", 1, 10),
    ]


@pytest.mark.parametrize(
    "damaged",
    [
        FILE[: len(FILE) // 2],
        FILE.replace("summary: 171", "summary: 172").replace("totals: 171", "totals: 172"),
        FILE.replace("fn=(3)\n", "fn=(9)\n"),
        FILE.replace("events: Ir", "events: Dr"),
        FILE.replace("* 20", "* twenty"),
        "",
        "not callgrind's\n",
    ],
)
def test_a_file_that_is_damaged_gives_an_error_and_no_number(damaged: str) -> None:
    with pytest.raises(CountError, match="run the cell again"):
        parse(damaged)
