from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.show.builders import HOSTILE, comparison_of
from torchbench_magic.errors import InputError, MissingTool
from torchbench_magic.process.contention import Contention
from torchbench_magic.show import html, page_data, text
from torchbench_magic.show.document import plain
from torchbench_magic.show.drawing import scale_of
from torchbench_magic.show.renderers import mimebundle
from torchbench_magic.timing import verdict_words, view
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.scaling_view import MOST_PANELS, curves_svg, plot

SIZES = [2**k for k in range(4, 12)]


def sweep(*, threads: tuple[int, ...] = (1,), names: tuple[str | None, ...] = ("mul_sum", "bmm")) -> Comparison:
    """bmm grows with the square of n, mul_sum with n; they cost the same at about n = 320."""
    points = [(n, t) for n in SIZES for t in threads]
    seconds = {n: (n * 3e-8 + 4e-6, n * n * 1e-10 + 3e-6)[: len(names)] for n in SIZES}
    return comparison_of(
        [(f"n={n}", t, seconds[n]) for n, t in points], names, axes=[(("n", n),) for n, _ in points], spread=0.004
    )


def thread_run(times: dict[int, float], names: tuple[str | None, ...] = (None,)) -> Comparison:
    return comparison_of([(None, t, [seconds] * len(names)) for t, seconds in times.items()], names, spread=0.004)


def drawn(markup: str) -> list[ElementTree.Element]:
    """The pictures in the markup, parsed: it must be well formed."""
    return [ElementTree.fromstring(part) for part in re.findall(r"<svg.*?</svg>", markup)]


def texts(markup: str) -> list[str]:
    return [element.text or "" for picture in drawn(markup) for element in picture.iter("text")]


@pytest.fixture(autouse=True)
def closed_figures() -> Iterator[None]:
    import matplotlib

    matplotlib.use("agg")
    yield
    from matplotlib import pyplot

    pyplot.close("all")


# ---- svg ----------------------------------------------------------------------------------------------------


def test_a_sweep_is_drawn_with_its_names_its_axis_and_the_place_of_the_swap() -> None:
    markup = curves_svg(sweep())
    assert markup is not None
    said = texts(markup)
    assert {"mul_sum", "bmm", "n", "µs"} <= set(said)
    (label,) = [word for word in said if "≈" in word]
    assert 300 < float(label.rpartition(" ")[2]) < 340


def test_each_measurement_is_a_mark_and_what_is_undecided_is_hollow() -> None:
    made = sweep()
    (picture,) = drawn(curves_svg(made) or "")
    marks = [e for e in picture.iter() if e.get("class") in ("m", "m o")]
    assert len(marks) == len(made.frame) + 2  # and one beside each name
    undecided = replace(made, margin=200.0)
    assert set(undecided.frame["verdict"]) == {"baseline", "same"}
    assert not [e for e in drawn(curves_svg(undecided) or "")[0].iter() if e.get("class") == "m o"]
    open_one = comparison_of(
        [(f"n={n}", 1, (1e-5, 1.01e-5)) for n in (1, 2)], axes=[(("n", 1),), (("n", 2),)], samples=8, spread=0.4
    )
    assert set(open_one.frame["verdict"]) == {"baseline", "undecided"}
    assert len([e for e in drawn(curves_svg(open_one) or "")[0].iter() if e.get("class") == "m o"]) == 2


def test_marks_lie_where_the_times_are() -> None:
    (picture,) = drawn(curves_svg(sweep(names=(None,))) or "")
    dots = [(float(e.get("cx", 0)), float(e.get("cy", 0))) for e in picture.iter("circle")][:-1]
    assert dots == sorted(dots, key=lambda dot: dot[0])
    assert [y for _, y in dots] == sorted((y for _, y in dots), reverse=True)  # larger n takes longer: higher up
    steps = [b[0] - a[0] for a, b in pairwise(dots)]
    assert max(steps) - min(steps) < 0.2  # doubling is one step on a logarithmic axis


def test_each_thread_count_of_a_sweep_has_a_panel_of_its_own_and_those_beyond_four_are_counted() -> None:
    pictures = drawn(curves_svg(sweep(threads=(1, 2))) or "")
    assert [p.get("aria-label") for p in pictures] == ["time against n, 1 thread", "time against n, 2 threads"]
    markup = curves_svg(sweep(threads=(1, 2, 3, 4, 5, 6))) or ""
    assert len(drawn(markup)) == MOST_PANELS
    assert "2 more: use .plot()" in markup


def test_thread_counts_are_drawn_against_the_usable_cores() -> None:
    markup = curves_svg(thread_run({1: 8e-3, 2: 4.2e-3, 4: 5e-3})) or ""
    assert "2 usable cores" in texts(markup)
    assert "ideal on 2 cores" in markup


def test_one_point_is_no_curve() -> None:
    assert curves_svg(thread_run({1: 8e-3})) is None
    assert curves_svg(thread_run({1: 8e-3, 2: 4e-3})) is not None
    assert curves_svg(comparison_of([("a", 1, (1.0, 2.0)), ("b", 1, (1.0, 2.0))])) is None


def test_an_axis_that_goes_through_zero_is_drawn_straight() -> None:
    made = comparison_of([(f"s={s}", 1, (1e-5, 2e-5)) for s in (-1, 0, 1)], axes=[(("s", s),) for s in (-1, 0, 1)])
    assert {"−1", "0", "1"} <= set(texts(curves_svg(made) or ""))


def test_ticks_close_together_read_differently() -> None:
    made = comparison_of([(None, t, (1e-6 + t * 1e-9, 1e-6 + t * 2e-9)) for t in (1, 2, 4)], spread=1e-5)
    ticks = [word for word in texts(curves_svg(made) or "") if word.startswith("1.00")]
    assert len(set(ticks)) == len(ticks) > 1


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_becomes_markup(name: str) -> None:
    made = comparison_of(
        [(name, 1, (1e-5, 2e-5)), (name, 1, (1e-5, 2e-5))], ("base", name), axes=[((name, 1),), ((name, 2),)]
    )
    markup = curves_svg(made) or ""
    (picture,) = drawn(markup)
    assert {element.tag for element in picture.iter()} <= {
        "svg", "g", "text", "line", "polyline", "circle", "rect", "polygon", "title",
    }  # fmt: skip
    assert "<script" not in markup
    assert "<img" not in markup


def test_a_name_is_shortened_before_it_leaves_the_picture() -> None:
    markup = curves_svg(sweep(names=("m" * 300, "b" * 300))) or ""
    assert max(map(len, texts(markup))) < 60


def test_the_picture_stands_under_the_tables_of_the_output_and_its_swap_in_the_sentence() -> None:
    made = view.document(sweep())
    static = html.static(made)
    assert "bmm is faster than mul_sum below n" in plain(made.sentence)
    assert static.index("</table>") < static.index("<div slot=picture><style>") < static.index("Times as fast = ")
    assert "<svg" not in page_data.as_json(made, 100_000)
    assert 'h("slot", { name: "picture" })' in html.module()


def test_an_output_of_hundreds_of_points_stays_below_a_megabyte_and_keeps_its_picture() -> None:
    sizes = range(1, 301)
    made = comparison_of(
        [(f"n={n}", 1, (n * 1e-8, n * n * 1e-11, 1e-6)) for n in sizes],
        ("a", "b", "c"),
        axes=[(("n", n),) for n in sizes],
        samples=6,
    )
    bundle = mimebundle(made)
    assert 5_000 < len(curves_svg(made) or "") < 60_000
    assert sum(len(json.dumps(part)) for part in bundle.values()) < 1_000_000
    assert "tb-curves" in bundle["text/html"]


def test_threads_have_a_second_table_whose_rows_select_the_same_measurements() -> None:
    timings, by_threads = view.document(thread_run({1: 8e-3, 2: 4e-3}, ("a", "b"))).tables
    assert (timings.name, by_threads.name) == ("timings", "threads")
    assert sorted(row.key for row in by_threads.rows()) == sorted(row.key for row in timings.rows())


def test_a_long_sweep_over_thread_counts_shows_no_thread_table_and_explains_none() -> None:
    made = view.document(sweep(threads=(1, 2)))
    assert [table.name for table in made.tables] == ["timings"]
    assert "“use”: the largest" not in "".join(map(plain, made.footer))
    short = view.document(thread_run({1: 8e-3, 2: 4e-3}))
    assert "“use”: the largest" in "".join(map(plain, short.footer))


def test_a_lone_statement_says_which_thread_count_to_use() -> None:
    said = plain(view.document(thread_run({1: 8e-3, 2: 4e-3})).sentence)
    assert said.endswith("at 2 thread counts (medians). Use -t 2: 2.00 times the speed of 1.")


# ---- axes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values", [(1e-6, 1.01e-6), (1e-6, 3e-6), (1e-6, 1e-5), (2e-9, 30.0), (5e-3,), (-3.0, 4.0), (0.0, 1000.0)]
)
def test_an_axis_holds_its_values_and_has_a_few_round_ticks_inside(values: tuple[float, ...]) -> None:
    scale = scale_of(values)
    assert all(0 < scale.place(value) < 1 for value in values)
    assert 2 <= len(scale.ticks) <= 8
    assert all(-1e-9 <= scale.place(tick) <= 1 + 1e-9 for tick in scale.ticks)
    assert all(float(f"{tick:.6g}") == pytest.approx(tick) for tick in scale.ticks)


# ---- words --------------------------------------------------------------------------------------------------


def test_the_swap_is_named_in_words_with_both_sides() -> None:
    said = plain(verdict_words.swaps_clause(sweep()))
    assert re.fullmatch(r"bmm is faster than mul_sum below n ≈ 3\d0, slower above", said)


def test_swaps_beyond_three_are_counted() -> None:
    said = plain(verdict_words.swaps_clause(sweep(threads=(1, 2, 3, 4, 5))))
    assert said.count(" is faster than ") == 3
    assert said.endswith("; 2 more swaps")
    assert "(1 thread)" in said


def test_nothing_is_said_where_nothing_swaps() -> None:
    assert verdict_words.swaps_clause(comparison_of()) == ()


def test_the_thread_table_marks_the_count_to_use_and_what_is_beyond_the_cores() -> None:
    made = thread_run({1: 8e-3, 2: 4e-3, 4: 4.4e-3})
    table = view.threads_table(made)
    assert table is not None
    lines = text.table_text(table).splitlines()[3:]
    assert [line.split()[0] for line in lines] == ["1", "2", "4"]
    assert ["use" in line for line in lines] == [False, True, False]
    assert ["oversubscribed" in line for line in lines] == [False, False, True]
    assert "2.00" in lines[1]
    assert plain(view.threads_advice(made)) == "Use -t 2: 2.00 times the speed of 1."
    assert view.doubt(made) == ()


def test_the_advice_says_when_more_threads_do_not_pay() -> None:
    assert plain(view.threads_advice(thread_run({1: 8e-3, 2: 7.9e-3}))) == "Use -t 1: more threads gain less than 10 %."


def test_alternatives_with_different_advice_are_named() -> None:
    made = comparison_of([(None, 1, (8e-3, 8e-3)), (None, 2, (4e-3, 8e-3))], ("a", "b"), spread=0.004)
    assert plain(view.threads_advice(made)) == "Use -t 2 for a, -t 1 for b."


def test_a_curve_under_outside_load_gives_a_reason_instead_of_advice() -> None:
    made = thread_run({1: 8e-3, 2: 4e-3})
    busy = replace(made, subjects=tuple(replace(s, contention=Contention(ext=0.6)) for s in made.subjects))
    assert view.threads_advice(busy) == ()
    assert plain(view.doubt(busy)) == "No thread count recommended: other processes used up to 0.6 cores."


def test_one_thread_count_has_no_thread_table() -> None:
    assert view.threads_table(thread_run({2: 1e-3})) is None


# ---- matplotlib ---------------------------------------------------------------------------------------------


def labels(ax: Any) -> list[str]:
    return [entry.get_text() for entry in ax.get_legend().get_texts()]


def test_a_plot_has_a_line_for_each_alternative_on_logarithmic_axes() -> None:
    ax = sweep().plot()
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert labels(ax) == ["mul_sum", "bmm"]
    assert ax.get_xlabel() == "n"
    assert ax.get_ylabel() == "time of one call (µs)"
    heights = ax.containers[0].lines[0].get_ydata()
    assert heights[0] == pytest.approx(16 * 0.03 + 4, rel=0.01)
    assert any("n ≈ 3" in note.get_text() for note in ax.texts)


def test_a_plot_against_threads_shades_what_is_beyond_the_cores() -> None:
    ax = plot(thread_run({1: 8e-3, 2: 4e-3, 4: 4e-3}))
    assert ax.get_xlabel() == "threads"
    assert "beyond 2 cores" in labels(ax)


def test_the_axis_can_be_chosen_and_the_figure_given() -> None:
    from matplotlib import pyplot

    _, ax = pyplot.subplots()
    made = sweep(threads=(1, 2))
    assert plot(made, axis="num_threads", ax=ax) is ax
    assert ax.get_xlabel() == "threads"
    assert len(labels(ax)) == 2 * len(SIZES) + 1


def test_a_name_with_a_dollar_is_text_and_no_formula() -> None:
    ax = plot(sweep(names=("$a$", r"$\frac{")))
    ax.figure.canvas.draw()
    assert labels(ax)[0] == r"\$a\$"


@pytest.mark.parametrize(
    ("made", "axis", "message"),
    [
        (comparison_of([("a", 1, (1.0, 2.0))]), None, "no axis to plot"),
        (sweep(), "m", "its axes: n, num_threads"),
        (
            comparison_of([("a", 1, (1.0, 2.0)), ("b", 1, (1.0, 2.0))], axes=[(("mode", "sum"),), (("mode", "max"),)]),
            "mode",
            "has no numbers",
        ),
    ],
)
def test_what_cannot_be_plotted_is_one_line(made: Comparison, axis: str | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        plot(made, axis=axis)


def test_a_missing_matplotlib_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingTool, match=r"pip install 'torchbench_magic\[plot\]'"):
        plot(sweep())


def test_times_without_an_interval_are_plotted_without_whiskers() -> None:
    made = comparison_of(
        [(f"n={n}", 1, (1e-5 * n,)) for n in (1, 2)], (None,), axes=[(("n", 1),), (("n", 2),)], samples=1
    )
    assert all(math.isnan(low) for low in made.details["precision_low"])
    ax = plot(made)
    ax.figure.canvas.draw()
    assert len(ax.containers) == 1
