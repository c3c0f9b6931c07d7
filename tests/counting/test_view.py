"""The difference of counts as text and html: all alternatives, their groups, hostile names, nothing at all."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from tests.show.sent import sent
from tests.timing.samples import pair
from torchbench_magic.counting.counts import CallEdge, CallGraph, Counted, CountKey, Counts, stats_of
from torchbench_magic.counting.diff import CountsDiff, difference
from torchbench_magic.errors import InputError
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.samples import Subject

TORCH = "[/lib/libtorch_cpu.so]"
HOSTILE = f"<script>alert(1)</script>\"'😀\u202egnp.exe{'x' * 10_000}"


def counted(moved: int = 0, symbols: bool = False, description: str | None = None, **costs: int) -> Counted:
    names = {"malloc": "./malloc.c:_int_malloc [/lib/libc.so.6]", "hostile": f"???:{HOSTILE} {TORCH}"}

    def stats(extra: int) -> Any:
        found = {names.get(name, f"???:at::{name}() {TORCH}"): cost for name, cost in costs.items()}
        found[names["malloc"]] = found.get(names["malloc"], 0) + extra
        both = {"exclusive": found, "inclusive": found}
        empty: dict[str, dict[str, int]] = {"exclusive": {}, "inclusive": {}}
        made = stats_of(both, empty, 1, stmt="f", setup="pass", description=description)
        return replace(made, built_with_debug_symbols=symbols)

    calls = CallGraph(
        tuple(CallEdge("c.c:main", f"???:at::{name}() {TORCH}", 1, cost) for name, cost in costs.items()), (), 1
    )
    return Counted(stats(0), (stats(moved),), calls)


def compared(points: tuple[str | None, ...] = (None,), **counts: Counted) -> Comparison:
    subjects, found = [], dict[CountKey, Counted]()
    for group, point in enumerate(points):
        for name, one in counts.items():
            subjects.append(Subject(description=name, sub_label=point, stmt="f", group=group))
            found[name, point, 1] = one
    samples = pair(1e-6, 2e-6).samples
    samples = samples[samples["measurement"] == 0]
    frames = [samples.assign(measurement=row) for row in range(len(subjects))]
    return replace(pair(1e-6, 2e-6), subjects=tuple(subjects), samples=pd.concat(frames), counts=Counts(found))


def test_an_alternative_that_runs_nothing_has_no_per_cent() -> None:
    text = str(compared(A=counted(mul=100), B=counted()))
    assert "instructions per call than A" in text
    assert "gone %" not in text


def spec_of(html: str) -> Any:
    (spec,) = [spec for spec in sent(html) if spec["kind"] == "difference of instruction counts"]
    return spec


def test_every_alternative_has_a_difference_and_one_is_shown_at_a_time() -> None:
    made = compared(("n=1", "n=2"), A=counted(mul=100), B=counted(mul=150), C=counted(mul=70))
    bundle = made._repr_mimebundle_()
    spec = spec_of(bundle["text/html"])
    assert spec["choice"] is True
    assert [table["name"] for table in spec["tables"]] == ["B, n=1", "C, n=1", "B, n=2", "C, n=2"]
    sentences = ["".join(part if isinstance(part, str) else part[0] for part in t["sentence"]) for t in spec["tables"]]
    assert sentences[0].startswith("B runs 50 more instructions per call than A at n=1")
    assert sentences[3].startswith("C runs 30 fewer instructions per call than A at n=2")
    text = bundle["text/plain"]
    assert text.count("instructions per call than A") == 1
    assert "3 more differences: .diff(('C', 'n=1', 1)) and so on." in text
    assert made.diff(("C", "n=2", 1)).frame["delta"].sum() == -30


def test_one_difference_needs_no_choice() -> None:
    made = compared(A=counted(mul=100), B=counted(mul=150))
    spec = spec_of(made._repr_mimebundle_()["text/html"])
    assert "choice" not in spec
    assert ".diff().frame" in spec["tables"][0]["hidden"]


def test_groups_have_sums_and_the_totals_stand_below_with_and_without_the_allocator() -> None:
    diff = difference(counted(mul=100, malloc=20), counted(mul=150, add=10, malloc=21), ("A", "B"))
    lines = [re.split(r"\s{2,}", line.strip()) for line in repr(diff).splitlines()]
    assert ["torch", "100", "160", "+60", "+60"] in lines
    assert ["allocator and lookup", "20", "21", "+1", "+5"] in lines
    assert ["total", "120", "181", "+61", "+51"] in lines
    assert ["total without allocator and lookup", "100", "160", "+60", "+60"] in lines


def test_a_group_that_its_noise_explains_says_so() -> None:
    diff = difference(counted(moved=9, mul=100, malloc=20), counted(moved=2, mul=150, malloc=25), ("A", "B"))
    assert diff.frame.set_index("function").loc["_int_malloc", "noise"] == 7
    assert "allocator and lookup, within noise" in repr(diff)
    assert "torch, within noise" not in repr(diff)
    assert "changed the total by at most 7" in repr(diff)
    assert re.search(r"change +noise\n", repr(diff))


def test_noise_has_no_column_where_no_layout_moved_anything() -> None:
    diff = difference(counted(mul=100, malloc=20), counted(mul=150, malloc=20), ("A", "B"))
    assert (diff.frame["noise"] == 0).all()
    assert not re.search(r"change +noise\n", repr(diff))
    assert "did not change the total" in repr(diff)


def test_a_build_without_debug_symbols_says_so() -> None:
    for symbols, expected in ((False, True), (True, False)):
        diff = difference(counted(symbols=symbols, a=1), counted(symbols=symbols, a=2), ("A", "B"))
        assert ("no debug symbols" in repr(diff)) is expected


@pytest.mark.parametrize("name", [HOSTILE, "<b>", "a" * 10_000, "\u202e", "😀"])
def test_names_are_never_markup_and_never_long(name: str) -> None:
    diff = difference(counted(mul=1, hostile=1), counted(mul=2, hostile=5), (name, name + "2"))
    bundle = diff._repr_mimebundle_()
    assert "<script>alert" not in bundle["text/html"]
    for text in (*bundle.values(), diff.to_markdown()):
        assert "\u202e" not in text
        assert len(text) < 200_000
    assert max(map(len, bundle["text/plain"].splitlines())) <= 100


def test_nothing_to_show_is_shown() -> None:
    same = difference(counted(), counted(), ("A", "B"))
    assert repr(same).startswith("B runs as many instructions as A")
    assert "no" in repr(same.filter(lambda name: False))
    html = same.filter(lambda name: False)._repr_mimebundle_()["text/html"]
    read = re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)
    for shown in (same.to_markdown(), read, json.dumps(sent(html))):
        assert "nan" not in shown.lower().replace("nano", "")


def test_without_counts_one_line_says_how_to_count() -> None:
    with pytest.raises(InputError, match="time the cell with --callgrind"):
        pair(1e-6, 2e-6).diff()
    with pytest.raises(InputError, match="time the cell with --callgrind"):
        pair(1e-6, 2e-6).counts.flamegraph()
    with pytest.raises(InputError, match="count it with %%timer --callgrind"):
        Counts({("A", None, 1): Counted(counted(a=1).stats)}).flamegraph()


def test_stats_that_were_pickled_elsewhere_are_differenced() -> None:
    one, two = counted(mul=100, description="A").stats, counted(mul=150, description="B").stats
    diff = CountsDiff.between(one, two)
    assert diff.names == ("A", "B")
    assert diff.frame["delta"].sum() == 50
    assert CountsDiff.between(one, one).names == ("baseline", "other")
    with pytest.raises(InputError, match="these counts have no record of callers"):
        diff.callers("at::mul()")


def test_functions_are_grouped_by_file_and_library() -> None:
    diff = difference(counted(mul=100, add=5, malloc=20), counted(mul=150, add=6, malloc=21), ("A", "B"))
    by_library = diff.group_by("library").frame
    assert dict(zip(by_library["function"], by_library["delta"], strict=True)) == {
        "/lib/libtorch_cpu.so": 51,
        "/lib/libc.so.6": 1,
    }
    assert diff.group_by("file").frame["function"].tolist() == ["/lib/libtorch_cpu.so", "./malloc.c"]
    with pytest.raises(InputError, match="not by 'line'"):
        diff.group_by("line")  # type: ignore[arg-type]


def test_the_flame_graph_has_the_functions_and_says_what_is_assumed() -> None:
    made = compared(A=counted(mul=100), B=counted(mul=150, add=50))
    graph = made.diff().flamegraph()
    assert list(graph.names) == ["B", "main", "at::mul()", "at::add()"]
    assert graph.measures[0].total.tolist() == [200, 200, 150, 50]
    html = graph._repr_mimebundle_()["text/html"]
    assert "shared among its callers" in sent(html)[0]["note"]
    assert made.counts.flamegraph("A").measures[0].total.tolist()[0] == 100
    with pytest.raises(InputError, match="several statements were counted"):
        made.counts.flamegraph()
