"""Counts as torch's types, the algebra of their difference, and who called whom."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from tests.timing.samples import pair
from torchbench_magic.counting.counts import (
    CallEdge,
    CallGraph,
    Counted,
    CountKey,
    Counts,
    Frame,
    callers_or_callees,
    stats_of,
    tree_of,
)
from torchbench_magic.counting.diff import difference
from torchbench_magic.errors import InputError
from torchbench_magic.timing.across_runs import join_comparisons
from torchbench_magic.timing.comparison import Comparison

# ==== counts ==========================================================================================================


TORCH = "/lib/libtorch_cpu.so"
LOOP = {"exclusive": {"/b/Python/ceval.c:eval [/lib/libpython3.11.so]": 100}, "inclusive": {}}


def counted(number: int = 10, threads: int = 1, **functions: int) -> Counted:
    """Totals over ``number`` calls, the loop's 100 included."""
    names = {
        "mul": f"???:at::mul(at::Tensor const&) [{TORCH}]",
        "strides": f"/w/pytorch/build/aten/iter.cpp:at::Iterator::strides() [{TORCH}]",
        "malloc": "./malloc/malloc.c:_int_malloc [/lib/libc.so.6]",
        "memcpy": "./string/memcpy.S:__memcpy_avx [/lib/libc.so.6]",
        "eval": "/b/Python/ceval.c:eval [/lib/libpython3.11.so]",
    }
    costs = {names[short]: count for short, count in functions.items()}
    costs[names["eval"]] = costs.get(names["eval"], 0) + 100
    statement = {"exclusive": costs, "inclusive": {name: 2 * count for name, count in costs.items()}}
    return Counted(stats_of(statement, LOOP, number, stmt="f(x)", setup="pass", description="f", num_threads=threads))


BASE = counted(mul=1000, malloc=200, eval=50)
OTHER = counted(mul=1500, strides=300, malloc=210, eval=50, memcpy=40)


def test_a_call_is_the_total_less_the_empty_loop() -> None:
    assert BASE.instructions == 125
    assert BASE.stats.counts() == 1350
    assert BASE.stats.baseline_exclusive_stats.sum() == 100


@pytest.mark.interpreter
def test_the_stats_unpickle_in_plain_torch(tmp_path: Path) -> None:
    (tmp_path / "stats.pkl").write_bytes(pickle.dumps((BASE.stats, OTHER.stats)))
    code = (
        "import pickle, sys\na, b = pickle.load(open('stats.pkl', 'rb'))\n"
        "print(b.delta(a).sum(), b.as_standardized().counts(), 'torchbench_magic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(OTHER.stats.delta(BASE.stats).sum()), "2200", "False"]


def test_a_difference_is_per_call_and_adds_up() -> None:
    diff = difference(BASE, OTHER, ("a", "b"))
    frame = diff.frame.set_index("function")
    names = ["function", "file", "library", "baseline_count", "count", "delta", "noise", "group"]
    assert list(diff.frame.columns) == names
    assert frame.loc["at::mul(at::Tensor const&)", ["baseline_count", "count", "delta"]].tolist() == [100, 150, 50]
    assert frame.loc["at::Iterator::strides()", ["baseline_count", "count", "delta"]].tolist() == [0, 30, 30]
    assert frame["delta"].sum() == OTHER.instructions - BASE.instructions
    assert diff.whole is not None
    assert (diff.whole.baseline, diff.whole.count, diff.whole.delta) == (125, 210, 85)
    assert diff.frame["delta"].abs().is_monotonic_decreasing


def test_functions_are_grouped_by_whose_they_are() -> None:
    frame = difference(BASE, OTHER, ("a", "b")).frame.set_index("function")
    assert frame["group"].to_dict() == {
        "at::mul(at::Tensor const&)": "torch",
        "at::Iterator::strides()": "torch",
        "_int_malloc": "allocator and lookup",
        "__memcpy_avx": "other",
        "eval": "Python",
    }
    assert frame.loc["at::mul(at::Tensor const&)", "library"] == TORCH


def test_the_deltas_are_torchs_own() -> None:
    ours, torchs = difference(BASE, OTHER, ("a", "b")).counts, OTHER.stats.delta(BASE.stats)
    assert list(ours) == list(torchs)
    assert ours.inclusive is False
    assert difference(BASE, OTHER, ("a", "b"), inclusive=True).counts.inclusive is True


def test_transform_adds_up_what_gets_one_name() -> None:
    diff = difference(BASE, OTHER, ("a", "b"))
    by_library = diff.transform(lambda text: text.rpartition(" [")[2].rstrip("]"))
    frame = by_library.frame.set_index("function")
    assert frame.loc[TORCH, ["baseline_count", "count", "delta", "group"]].tolist() == [100, 180, 80, "torch"]
    assert frame["delta"].sum() == diff.frame["delta"].sum()


def test_filter_and_denoise_keep_what_they_say() -> None:
    diff = difference(BASE, OTHER, ("a", "b"))
    only = diff.filter(lambda text: "Iterator" in text)
    assert only.frame["function"].tolist() == ["at::Iterator::strides()"]
    assert only.counts.sum() == 300
    quiet = diff.denoise()
    assert "_int_malloc" not in set(quiet.frame["function"])
    assert quiet.frame["delta"].sum() == diff.frame["delta"].sum() - 1
    assert quiet.applied == ("denoise",)


def test_standardize_is_torchs() -> None:
    diff = difference(BASE, OTHER, ("a", "b")).standardize()
    standard = OTHER.stats.as_standardized().delta(BASE.stats.as_standardized())
    assert list(diff.counts) == list(standard)
    assert set(diff.frame["group"]) == {"torch", "Python", "other", "allocator and lookup"}


def test_noise_is_what_shifted_layouts_move_the_delta_by() -> None:
    assert difference(BASE, OTHER, ("a", "b")).frame["noise"].isna().all()
    base = Counted(BASE.stats, (counted(mul=1000, malloc=240, eval=50).stats,))
    other = Counted(OTHER.stats, (counted(mul=1500, strides=300, malloc=190, eval=50, memcpy=40).stats,))
    diff = difference(base, other, ("a", "b"))
    noise = diff.frame.set_index("function")["noise"]
    assert noise["_int_malloc"] == 6  # (190 - 240) - (210 - 200), a tenth a call
    assert noise["at::mul(at::Tensor const&)"] == 0
    assert diff.whole is not None
    assert diff.whole.noise == 6


def test_counts_over_other_numbers_are_not_compared() -> None:
    with pytest.raises(InputError, match="over 10 calls and b over 20"):
        difference(BASE, counted(20, mul=1), ("a", "b"))


def compared(**counts: Counted) -> Comparison:
    from dataclasses import replace

    found: dict[CountKey, Counted] = {
        (name, None, one.stats.task_spec.num_threads): one for name, one in counts.items()
    }
    return replace(pair(1e-6, 2e-6), counts=Counts(found))


def test_a_comparison_has_the_instructions_of_its_rows() -> None:
    frame = compared(mul=BASE, bmm=OTHER).frame
    assert frame["instructions"].tolist() == [125, 210]
    assert frame["instructions_ratio"].tolist() == [1, 210 / 125]
    alone = compared(bmm=OTHER).frame
    assert alone["instructions"].isna().tolist() == [True, False]
    assert alone["instructions_ratio"].isna().all()


def test_counts_are_found_by_key_and_by_description() -> None:
    counts = compared(mul=BASE, bmm=OTHER).counts
    assert counts["mul"] is counts["mul", None, 1] is BASE.stats
    assert len(counts) == 2
    twice = Counts({("mul", None, 1): BASE, ("mul", None, 2): BASE})
    with pytest.raises(KeyError, match="was counted 2 times"):
        twice["mul"]
    with pytest.raises(KeyError, match="was not counted"):
        twice["bmm"]


def test_diff_takes_the_other_alternative_against_the_baseline() -> None:
    comparison = compared(mul=BASE, bmm=OTHER)
    assert comparison.diff().names == ("mul", "bmm")
    assert comparison.diff("mul", "bmm").frame["delta"].sum() == -comparison.diff().frame["delta"].sum()
    assert comparison.rebase("bmm").diff().names == ("bmm", "mul")
    assert comparison.diff(inclusive=True).whole is None


def test_diff_says_in_one_line_what_is_not_there() -> None:
    for comparison, name, told in (
        (pair(1e-6, 2e-6), None, "time the cell with --callgrind"),
        (compared(mul=BASE), None, "one alternative was counted"),
        (compared(mul=BASE, bmm=OTHER), "sum", "'sum' was not counted"),
    ):
        with pytest.raises(InputError, match=told):
            comparison.diff(name)


def test_joined_results_keep_the_counts_of_both() -> None:
    one, two = compared(mul=BASE), compared(bmm=OTHER)
    assert set(join_comparisons([one, two]).counts) == {("mul", None, 1), ("bmm", None, 1)}


def test_the_difference_stands_under_the_comparison_in_text_and_html() -> None:
    comparison = compared(mul=BASE, bmm=OTHER)
    bundle = comparison._repr_mimebundle_()
    for kind in ("text/plain", "text/html"):
        assert "85 more instructions" in bundle[kind]
        assert "at::Iterator::strides()" in bundle[kind]
    text = bundle["text/plain"]
    assert "total without allocator and lookup" in text
    assert max(map(len, text.splitlines())) <= 100
    assert "instructions" not in pair(1e-6, 2e-6)._repr_mimebundle_()["text/plain"]


def test_a_difference_within_its_noise_is_not_called_one() -> None:
    base = Counted(BASE.stats, (counted(mul=1000, malloc=900, eval=50).stats,))
    other = Counted(counted(mul=1000, malloc=300, eval=50).stats, (BASE.stats,))
    text = repr(difference(base, other, ("a", "b")))
    assert text.startswith("b runs about as many instructions as a")


def test_a_count_that_came_out_higher_once_is_no_difference() -> None:
    """Seen in one count of some thousands, by 77 of 10,032,432 instructions, with no cause found: of two alternatives
    each is counted three times, so it tells itself apart."""
    calm = counted(mul=10_032_432)
    stray = counted(mul=10_032_509)
    for base, other in ((calm, stray), (stray, calm)):
        three = [Counted(each.stats, (calm.stats, calm.stats)) for each in (base, other)]
        diff = difference(*three, ("a", "b"))
        assert abs(diff.total.delta) == diff.total.noise == 7.7
        assert repr(diff).startswith("b runs about as many instructions as a")
        assert "within noise" in repr(diff)


def test_many_functions_stay_below_a_megabyte() -> None:
    def many(shift: int) -> Counted:
        costs = {f"???:f{i}<{'T' * 200}>() [{TORCH}]": 1000 + i * shift for i in range(5000)}
        both = {"exclusive": costs, "inclusive": costs}
        return Counted(stats_of(both, LOOP, 10, stmt="f(x)", setup="pass", num_threads=1))

    diff = difference(many(0), many(1), ("a", "b"))
    assert len(diff.frame) == 5001  # the loop's own function too
    html = diff._repr_mimebundle_()["text/html"]
    assert len(html.encode()) < 1_000_000
    assert "more, which differ by at most" in html
    assert "5\u202f001 functions" in html
    assert "All rows: .frame" in html


# ==== call graph ======================================================================================================
# Who called whom: arcs, neighbours of a function in two counts, and the tree that a flame graph is drawn of.


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


def test_lines_inlined_from_another_file_share_the_callers_of_their_function() -> None:
    made = graph(("eval", "mul", 10, 900))
    assert made.arc_names([f("mul", "inlined.h")]) == {f("mul")}


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
