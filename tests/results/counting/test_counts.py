"""Counts as torch's types, and the algebra of their difference."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from torchbench_magic.counting.counts import Counted, CountKey, Counts, stats_of
from torchbench_magic.counting.diff import difference
from torchbench_magic.errors import InputError
from torchbench_magic.timing.across_runs import join_comparisons
from torchbench_magic.timing.comparison import Comparison

from ..samples import pair

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
