"""A comparison as markdown for a pull request: short, without markup of others, with the cell that repeats it."""

from __future__ import annotations

import re
from dataclasses import fields, replace

import pytest
from IPython.core.interactiveshell import InteractiveShell

from tests.counting.test_view import compared, counted
from tests.notebook.conftest import loaded, shell  # noqa: F401
from tests.show.builders import HOSTILE, comparison_of, two_shapes
from torchbench_magic.errors import OptionError
from torchbench_magic.result_base import Doubt
from torchbench_magic.timing import reports
from torchbench_magic.timing.across_runs import side_by_side
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.identity import source_id
from torchbench_magic.timing.plan import Plan
from torchbench_magic.timing.reports import MOST_BYTES, repeat_cell

from .samples import lone


def test_it_has_the_sentence_a_table_doubts_where_it_ran_and_how_to_repeat_it() -> None:
    text = two_shapes(warnings=[Doubt("busy", "Others computed.", "Wait.")]).to_markdown()
    lines = text.splitlines()
    assert lines[0].startswith("`mul_sum` is 1.6")
    assert sum(line.startswith("|") for line in lines) == 2 + 4
    assert "> Others computed. Wait." in lines
    assert any(line.startswith("1 of 2 threads · CPU · torch 2.13.0+cpu") for line in lines)
    assert "<details><summary>How to repeat it</summary>" in lines
    assert "# --- mul_sum" in lines


def test_only_one_table_is_there_and_no_definitions() -> None:
    text = comparison_of().to_markdown()
    assert len(re.findall(r"^\|:?-", text, re.MULTILINE)) == 1
    assert "Times as" not in text


def test_a_statement_alone_has_its_facts() -> None:
    text = lone(3.2e-6).to_markdown()
    assert "median" in text
    assert len(text.encode()) <= MOST_BYTES


def test_whatever_it_is_of_it_takes_no_more_than_4_kb() -> None:
    names = tuple(f"{n}{text}" for n, text in enumerate(HOSTILE))
    doubts = [Doubt(f"kind-{n}", "text " * 200, "act " * 200) for n in range(20)]
    many = [(f"n={n}", 1, (1e-6, 2e-6)) for n in range(200)]
    for made in (
        comparison_of(
            [("x" * 5000, 1, [1e-6 * (n + 1) for n in range(len(names))])], names, warnings=doubts, stmt="f(x)\n" * 3000
        ),
        comparison_of(many, axes=[(("n", n),) for n in range(200)], samples=6),
        comparison_of(warnings=doubts),
    ):
        text = made.to_markdown()
        assert len(text.encode()) <= MOST_BYTES
        assert "CPU · torch 2.13.0+cpu" in text
        assert not re.search(
            r"<(?!/?(details|summary)>)", re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text, flags=re.DOTALL)
        )


def test_what_is_left_out_is_said() -> None:
    many = [(f"n={n}", 1, (1e-6, 2e-6)) for n in range(200)]
    text = comparison_of(many, axes=[(("n", n),) for n in range(200)], samples=6).to_markdown()
    assert re.search(r"of 400 rows|more rows|400", text)
    doubts = [Doubt(f"kind-{n}", f"Doubt {n}. " * 40) for n in range(12)]
    assert "> 10 more: .warnings" in comparison_of(warnings=doubts).to_markdown()


def test_where_doubts_fill_the_page_they_are_cut_and_the_cell_stays() -> None:
    doubts = [Doubt("lever", "Not timed: " + "this and that. " * 20)]
    doubts += [Doubt(f"k{n}", f"Doubt {n}. " * 60) for n in range(7)]
    names = tuple(f"alternative {n}" for n in range(8))
    times = [1e-6 * (n + 1) for n in range(8)]
    made = comparison_of([(None, 1, times)], names, warnings=doubts, stmt="f(x)\ng(x)\nh(x)")
    text = made.to_markdown(max_bytes=3072)
    assert len(text.encode()) <= 3072
    assert "too long" not in text
    assert text.count("h(x)") == 8
    assert sum(line.startswith("| `alternative") or "`alternative" in line[:30] for line in text.splitlines()) >= 8
    assert text.index("> Doubt 0.") < text.index("> Doubt 1.")
    assert "> 6 more: .warnings" in text
    assert "Not timed" not in text, "that a lever does not apply spoils no number"


def test_a_cell_that_takes_more_than_half_of_the_room_gives_way() -> None:
    text = comparison_of(stmt="f(x)\n" * 1500).to_markdown()
    assert "the cell is too long to show here" in text


def test_a_cell_cannot_end_its_fence() -> None:
    made = comparison_of(stmt='f("""\n```\n````\n""")')
    assert "\n`````python\n" in made.to_markdown()


@pytest.mark.parametrize("most", [0, 100, True, "x"])
def test_a_bound_that_nothing_fits_is_refused(most: object) -> None:
    with pytest.raises(OptionError, match="max_bytes"):
        comparison_of().to_markdown(max_bytes=most)


def test_each_option_of_a_plan_is_in_the_cell_that_repeats_its_result() -> None:
    """Or known not to be: names, and where it ran."""
    written_apart, not_written = {"threads", "levers", "processes", "baseline"}, {"seed", "env", "engines"}
    names = {"label", "sub_label", "description"}
    known = {*reports._VALUES, *reports._FLAGS, *written_apart, *not_written, *names}
    assert {field.name for field in fields(Plan)} == known


def test_results_that_no_cell_makes_have_none() -> None:
    aside = side_by_side({"before": lone(1e-6), "now": lone(2e-6)})
    assert repeat_cell(aside) is None
    assert "How to repeat" not in aside.to_markdown()
    odd = comparison_of(names=("ends in -", "b"))
    assert repeat_cell(odd) is None


def test_points_that_are_no_product_are_no_sweep() -> None:
    points = [(None, 1, (1e-6, 2e-6)) for _ in range(3)]
    made = comparison_of(points, axes=[(("n", 1), ("k", 1)), (("n", 1), ("k", 2)), (("n", 2), ("k", 1))])
    assert repeat_cell(made) is None
    whole = comparison_of(points[:2], axes=[(("n", 1), ("k", "a b")), (("n", 2), ("k", "a b"))])
    assert (repeat_cell(whole) or "").splitlines()[0].endswith("--sweep 'n=[1, 2]' --sweep 'k=['\"'\"'a b'\"'\"']'")


def test_what_was_counted_is_counted_once_more() -> None:
    made = compared(one=counted(add=10), other=counted(add=20))
    assert (repeat_cell(made) or "").splitlines()[0].endswith("-t 1 --callgrind 1")


QUICK = "%%timer -n 2 -r 3 -q -o made"
CELLS = {
    "two alternatives": f"{QUICK}\n# --- setup\ny = x + 1\n# --- one\ny * 2\n# --- the other\ny + y\n",
    "a statement": f"{QUICK}\nx * 2\n",
    "a statement with setup": f"{QUICK}\n# --- setup\ny = x + 1\n# --- alone\ny * 2\n",
    "levers": "%%timer --min-run-time 0.01 -q -o made --try no_grad,foreach\n# --- setup\ny = x + 1\n# --- s\ny * 2\n",
    "a sweep": f'{QUICK} --sweep "n=[1, 2]" --margin 3 --baseline b\n# --- a\nx * n\n# --- b\nx + n\n',
}


@pytest.mark.parametrize("name", CELLS)
def test_the_cell_that_repeats_it_measures_the_same(name: str, loaded: InteractiveShell) -> None:  # noqa: F811
    loaded.run_cell("import torch\nx = torch.rand(4)")
    loaded.run_cell(CELLS[name])
    first = loaded.user_ns["made"]
    cell = repeat_cell(first)
    assert cell is not None
    head, _, body = cell.partition("\n")
    result = loaded.run_cell(f"{head} -q -o again\n{body}\n")
    assert result.success, cell
    again = loaded.user_ns["again"]
    assert _work(again) == _work(first)
    assert (again.baseline, again.margin) == (first.baseline, first.margin)


def _work(made: Comparison) -> list[tuple[object, ...]]:
    return [
        (source_id(each.before, each.stmt), each.description, each.axes, each.num_threads)
        for each in (replace(subject, label=None) for subject in made.subjects)
    ]


def test_inputs_that_a_fuzzer_drew_are_repeated_by_no_cell() -> None:
    made = two_shapes()
    drawn = replace(made, subjects=tuple(replace(each, drawn=True) for each in made.subjects))
    assert repeat_cell(made) is not None
    assert repeat_cell(drawn) is None
