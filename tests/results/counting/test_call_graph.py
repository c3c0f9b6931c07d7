"""Who called whom: arcs, neighbours of a function in two counts, and the tree that a flame graph is drawn of."""

from __future__ import annotations

import pytest

from torchbench_magic.counting.counts import CallEdge, CallGraph, Frame, callers_or_callees, tree_of
from torchbench_magic.errors import InputError

LIB = "[/lib/libtorch_cpu.so]"


def f(name: str, file: str = "a.cpp") -> str:
    return f"{file}:{name} {LIB}"


def graph(*calls: tuple[str, str, int, int], empty: tuple[tuple[str, str, int, int], ...] = ()) -> CallGraph:
    """Arcs between functions of one file; totals over 10 calls."""
    statement, loop = ([CallEdge(f(a), f(b), n, cost) for a, b, n, cost in some] for some in (calls, empty))
    return CallGraph(tuple(statement), tuple(loop), 10)


def own(**costs: int) -> dict[str, int]:
    return {f(name): cost for name, cost in costs.items()}


def shape(frame: Frame) -> tuple[str, float, float, list[object]]:
    return frame.name, frame.total, frame.own, [shape(child) for child in frame.children]


def walked(frame: Frame) -> list[Frame]:
    return [frame, *(below for child in frame.children for below in walked(child))]


def test_arcs_are_per_call_and_the_empty_loop_is_taken_out() -> None:
    made = graph(("eval", "mul", 10, 900), ("eval", "clock", 2, 40), empty=(("eval", "clock", 2, 40),))
    assert made.frame.to_dict("records") == [
        {
            "caller": "eval",
            "callee": "mul",
            "calls": 1.0,
            "inclusive": 90.0,
            "file": "a.cpp",
            "library": "/lib/libtorch_cpu.so",
        }
    ]


def test_callers_and_callees_of_a_function_by_name_and_by_whole_text() -> None:
    made = graph(("eval", "mul", 10, 900), ("mul", "add", 30, 300), ("mul", "malloc", 10, 500))
    assert made.callers("mul")["function"].tolist() == ["eval"]
    callees = made.callees(f("mul"))
    assert list(callees.columns) == ["function", "file", "library", "calls", "inclusive"]
    assert callees[["function", "calls", "inclusive"]].to_numpy().tolist() == [["malloc", 1, 50], ["add", 3, 30]]
    with pytest.raises(InputError, match="no function is called 'nothing'"):
        made.callers("nothing")


def test_lines_inlined_from_another_file_share_the_callers_of_their_function() -> None:
    made = graph(("eval", "mul", 10, 900))
    assert made.callers(f("mul", "inlined.h"))["function"].tolist() == ["eval"]


def test_neighbours_of_two_counts_stand_beside_each_other() -> None:
    base = graph(("mul", "add", 10, 300), ("mul", "gone", 10, 100))
    other = graph(("mul", "add", 20, 700), ("mul", "new", 10, 50))
    table = callers_or_callees(base, other, {f("mul")}, "callees").set_index("function")
    columns = ["baseline_calls", "calls", "baseline_count", "count", "delta"]
    assert table.loc["add", columns].tolist() == [1, 2, 30, 70, 40]
    assert table.loc["gone", columns].tolist() == [1, 0, 10, 0, -10]
    assert table.loc["new", columns].tolist() == [0, 1, 0, 5, 5]
    assert table.index.tolist() == ["add", "gone", "new"], "the largest change first"
    together = callers_or_callees(base, other, {f("mul")}, "callees", shown=lambda name: "all")
    assert together[["function", "delta"]].to_numpy().tolist() == [["all", 35]]


def test_a_tree_of_calls_adds_up_to_the_count() -> None:
    arcs = graph(("eval", "mul", 10, 900), ("mul", "add", 10, 300))
    made = tree_of(own(eval=100, mul=600, add=300), arcs, "A")
    assert shape(made) == ("A", 100, 0, [("eval", 100, 10, [("mul", 90, 60, [("add", 30, 30, [])])])])
    assert sum(frame.own for frame in walked(made)) == pytest.approx(made.total)


def test_a_function_of_two_callers_is_shared_by_what_each_paid() -> None:
    arcs = graph(("mul", "malloc", 10, 300), ("add", "malloc", 10, 100), ("malloc", "brk", 10, 200))
    made = tree_of(own(mul=50, add=50, malloc=200, brk=200), arcs, "A")
    assert shape(made) == (
        "A",
        50,
        0,
        [
            ("mul", 35, 5, [("malloc", 30, 15, [("brk", 15, 15, [])])]),
            ("add", 15, 5, [("malloc", 10, 5, [("brk", 5, 5, [])])]),
        ],
    )


def test_functions_that_call_each_other_are_one_frame_and_still_add_up() -> None:
    # eval calls mul, which calls eval'2, which calls mul again: the arcs of the circle count the same work twice.
    arcs = graph(
        ("top", "eval", 10, 1000),
        ("eval", "mul", 10, 900),
        ("mul", "eval", 5, 400),
        ("mul", "kernel", 15, 600),
    )
    made = tree_of(own(eval=300, mul=100, kernel=600), arcs, "A")
    (circle,) = made.children
    assert circle.name == "eval and 1 more that call each other"
    assert circle.total == 100
    assert [(child.name, child.total) for child in circle.children] == [("kernel", 60), ("eval", 30), ("mul", 10)]
    assert sum(frame.own for frame in walked(made)) == pytest.approx(100)


def test_inlined_lines_belong_to_the_frame_of_their_function() -> None:
    costs = {f("eval"): 100, f("mul"): 600, f("mul", "inlined.h"): 200}
    made = tree_of(costs, graph(("eval", "mul", 10, 800)), "A")
    assert shape(made) == ("A", 90, 0, [("eval", 90, 10, [("mul", 80, 80, [])])])


def test_what_is_too_small_for_a_frame_stays_in_its_caller() -> None:
    arcs = graph(("eval", "tiny", 10, 10))
    made = tree_of(own(eval=99_990, tiny=10), arcs, "A")
    assert shape(made) == ("A", 10_000, 0, [("eval", 10_000, 10_000, [])])


def test_a_count_without_arcs_has_its_functions_side_by_side() -> None:
    made = tree_of(own(mul=600, add=300), graph(), "A")
    assert [(child.name, child.total) for child in made.children] == [("mul", 60), ("add", 30)]


def test_frames_around_the_whole_count_are_left_out() -> None:
    arcs = graph(("outer", "inner", 0, 1000), ("inner", "eval", 0, 1000), ("eval", "mul", 10, 900))
    made = tree_of(own(eval=100, mul=900), arcs, "A")
    assert shape(made) == ("A", 100, 0, [("eval", 100, 10, [("mul", 90, 90, [])])])
