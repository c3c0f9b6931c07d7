"""``Comparison.compare()``: torch's Compare, without its crashes and without one number for two runs."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from torch.utils.benchmark import Compare as TorchCompare
from torch.utils.benchmark import Measurement
from torch.utils.benchmark.utils.common import TaskSpec

from torchbench_magic.timing.across_runs import side_by_side
from torchbench_magic.timing.torch_compare import Compare

from .samples import lone, pair


def measurement(*times: float, stmt: str = "f(x)", **names: Any) -> Measurement:
    return Measurement(1, list(times), TaskSpec(stmt, "pass", **names))


def test_what_torch_can_show_looks_as_in_torch() -> None:
    given = [
        measurement(t, t * 1.1, t * 0.9, label="L", sub_label=s, description=d, num_threads=n, env=e)
        for t, (s, d, n, e) in zip(range(1, 17), product("ab", "cd", (1, 2), ("p", "q")), strict=True)
    ]
    for setting in ("trim_significant_figures", "colorize", "highlight_warnings"):
        ours, theirs = Compare(given), TorchCompare(given)
        getattr(ours, setting)()
        getattr(theirs, setting)()
        assert str(ours) == str(theirs)


def test_a_comparison_gives_a_compare_of_its_measurements(capsys: pytest.CaptureFixture[str]) -> None:
    made = pair(1e-3, 2e-3).compare()
    assert isinstance(made, TorchCompare)
    made.trim_significant_figures()
    made.colorize(rowwise=True)
    made.print()
    shown = capsys.readouterr().out
    assert "mul" in shown
    assert "bmm" in shown
    assert "milliseconds" in shown


@pytest.mark.parametrize(
    "given",
    [
        [measurement(1.0, description=None)],
        [measurement(1.0), measurement(1.0, env="e")],
        [measurement(1.0, env="e"), measurement(1.0), measurement(1.0, label="L")],
        [measurement(0.0, 0.0, 0.0)],
        [measurement(), measurement(1.0)],
        [measurement()],
        [],
        [measurement(1e-12, label="L"), measurement(1e3, label="L", sub_label="s")],
    ],
    ids=["no description", "some envs", "envs and labels", "zero", "one empty", "all empty", "none", "units apart"],
)
def test_nothing_makes_it_raise(given: list[Measurement]) -> None:
    for trimmed, coloured in product((False, True), repeat=2):
        made = Compare(given)
        if trimmed:
            made.trim_significant_figures()
        if coloured:
            made.colorize()
        made.highlight_warnings()
        assert str(made).strip()


def test_a_long_table_of_repeats_has_torchs_rows() -> None:
    """Two repeats of 24 points on a noisy machine."""
    times = [(t * k, f"s{k}") for t in (1.0, 1.4) for k in range(1, 25)]
    given = [measurement(t, label="L", sub_label=s, description="d") for t, s in times]
    made = Compare(given)
    assert len(cells(made)) == 24
    assert "(run 2)" not in str(made)
    assert [float(value) for _, value in cells(made)] == [float(value) for _, value in cells(TorchCompare(given))]


def cells(compare: TorchCompare) -> list[tuple[str, str]]:
    """(row, cell) of each line with a number."""
    lines = (line.split("|") for line in str(compare).splitlines() if "|" in line)
    return [(line[0].strip(), line[1].strip()) for line in lines if line[0].strip()]


def test_replicates_that_are_alike_are_merged_as_torch_does() -> None:
    assert cells(Compare([measurement(1.0), measurement(1.2)])) == [("f(x)", "1.1")]


def split(given: list[Measurement]) -> Compare:
    made = Compare(given)
    made.split_runs()
    return made


def test_a_repeated_run_of_another_speed_is_merged_and_marked_or_split_when_asked() -> None:
    """torch 2.13 makes one row of 0.38 us and 17.8 us in silence."""
    given = [measurement(0.38e-6), measurement(17.8e-6)]
    assert cells(Compare(given)) == [("f(x) *", "9.1")]
    assert "* f(x): 2 runs merged whose medians are unlike: 380 ns to 17.8 µs" in str(Compare(given))
    assert "split_runs()" in str(Compare(given))
    assert cells(split(given)) == [("f(x)", "380.0"), ("f(x) (run 2)", "17800.0")]
    named = [measurement(*m.times, description="") for m in given]  # torch's own needs a description
    assert len([line for line in str(TorchCompare(named)).splitlines() if "|" in line]) == 2  # the header and one row


def test_runs_that_share_names_but_not_code_do_not_hide_each_other() -> None:
    names = {"label": "L", "sub_label": "s", "description": "d"}
    given = [measurement(1.0, stmt="f(x)", **names), measurement(3.0, stmt="g(x)", **names)]
    assert cells(Compare(given)) == [("s *", "3.0")]
    assert "* s (d): the last of 2 runs of unlike code; not shown: 1" in str(Compare(given))
    assert "* s (d): the last of 2 runs" in Compare(given).to_markdown()
    assert "the last of 2 runs" in Compare(given)._repr_mimebundle_()["text/html"]
    assert cells(split(given)) == [("s", "1.0"), ("s (run 2)", "3.0")]
    assert "*" not in str(split(given))
    assert "1.0" not in str(TorchCompare(given))  # the first is gone


def test_the_frame_has_a_row_for_each_row_of_the_text_with_the_names_that_were_given() -> None:
    given = [measurement(1.0, 2.0, 3.0, 4.0), measurement(2.0), measurement(40.0), measurement(5.0, env="e", label="L")]
    assert list(Compare(given).frame["median"]) == [2.5, 5.0]  # as torch merges them
    frame = split(given).frame
    assert list(frame["median"]) == [2.0, 40.0, 5.0]
    assert list(frame["samples"]) == [5, 1, 1]
    assert list(frame["run"]) == [1, 2, 1]
    assert list(frame["label"]) == [None, None, "L"]
    assert list(frame["env"]) == [None, None, "e"]
    assert frame["mean"].iloc[0] == pytest.approx(12 / 5)
    assert frame["iqr"].iloc[0] == 1.0
    assert Compare([]).frame.empty


def test_the_markdown_has_the_figures_of_the_text() -> None:
    given = [
        measurement(t, t * 1.5, t * 0.9, label="L", sub_label=s, description=d, num_threads=n)
        for t, (s, d, n) in zip((1.0, 22.0, 3.5, 4.0), product("ab", "cd", (1,)), strict=False)
    ]
    made = Compare(given)
    for setting in (made.trim_significant_figures, made.highlight_warnings):
        setting()
        text, marked = str(made), made.to_markdown()
        rows = [line for line in text.splitlines() if "|" in line][1:]
        for row in rows:
            for cell in row.split("|")[1:]:
                assert f" {cell.strip()} " in marked
    assert "| threads" in marked.replace("|   threads", "| threads")
    assert Compare([]).to_markdown() == "nothing was measured\n"


def test_in_a_notebook_it_is_a_table_and_its_plain_text_is_torchs() -> None:
    given = [measurement(t, label=label, sub_label="<b>", description="d") for t, label in ((1.0, "L"), (2.0, "M"))]
    made = Compare(given)
    made.colorize()
    shown = made._repr_mimebundle_()
    assert shown["text/plain"] == str(TorchCompare(given)) or "\x1b[" in shown["text/plain"]
    assert shown["text/plain"] == str(made)
    assert shown["text/html"].count("<table>") == 2
    assert "<b>" not in shown["text/html"]
    assert "&lt;b&gt;" in shown["text/html"]
    assert Compare([])._repr_mimebundle_() == {"text/plain": "nothing was measured\n"}


def test_colours_mean_what_torchs_mean() -> None:
    given = [measurement(t, sub_label=f"{t}", description="d") for t in (1.0, 1.005, 1.5, 2.0)]
    made = Compare(given)

    def tones() -> list[str]:
        (document,) = made._documents()
        return [row.cells[-1].tone for row in document.tables[0].rows()]

    assert tones() == ["", "", "", ""]
    made.colorize()
    assert tones() == ["faster", "faster", "", "slower"]
    made.colorize(rowwise=True)
    assert tones() == ["faster"] * 4


def test_results_side_by_side_are_rows_of_their_own_however_alike() -> None:
    both = side_by_side({"before": lone(1e-3, sub_label="s"), "after": lone(1e-3, sub_label="s", seed=1)})
    assert cells(both.compare()) == [("s (before)", "1.0"), ("s (after)", "1.0")]


def test_rows_keep_torchs_names_where_one_has_no_sub_label() -> None:
    assert [row for row, _ in cells(Compare([measurement(1.0, stmt="a\nb"), measurement(1.0, sub_label="s")]))] == [
        "a b",
        "s",
    ]
