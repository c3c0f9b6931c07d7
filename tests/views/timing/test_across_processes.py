"""How many processes a verdict is from, in the sentence over a comparison."""

from __future__ import annotations

import pytest

from tests.results.samples import lone, pair
from torchbench_magic.show import markdown, text
from torchbench_magic.show.html import static
from torchbench_magic.show.palette import HUES
from torchbench_magic.timing import view
from torchbench_magic.timing.across_runs import join_processes
from torchbench_magic.timing.columns_view import in_how_many


@pytest.mark.parametrize(("ratio", "said"), [(1.02, True), (0.98, True), (1.05, False), (0.9, False), (1.0, False)])
def test_a_verdict_of_one_kernel_that_the_next_may_turn_round_says_so(ratio: float, said: bool) -> None:
    assert [str(phrase.text) for phrase in in_how_many(pair(1e-6, ratio * 1e-6))] == [", in this session"] * said


def test_processes_have_decided_for_the_next_kernel_too() -> None:
    made = join_processes({n: pair(1e-6, 1.02e-6, seed=n) for n in range(1, 7)})
    assert made.frame["verdict"][1] == "slower"
    assert made.of_this_kernel == ()
    assert [str(phrase.text) for phrase in in_how_many(made)] == [", over 6 processes"]


def test_each_process_is_a_dot_wherever_the_table_is_read() -> None:
    made = join_processes({n: pair(1e-6, ratio * 1e-6, seed=n) for n, ratio in enumerate((0.9, 0.96, 1.1), 1)})
    document = view.document(made)
    html = static(document)
    dots = f'<span style=display:inline-block;height:8px;width:3px;background-color:{HUES["torch"]}></span>'
    at_1 = f'<span style=display:inline-block;height:8px;width:1px;background-color:{HUES["other"]}></span>'
    assert html.count(dots) == 3
    first, rest = html.split(at_1)
    assert (first.count(dots), rest.count(dots)) == (1, 2)
    assert "`·      \\| ·    ·`" in markdown.render(document)
    assert "·      | ·    ·" in text.render(document)


def test_of_a_lone_statement_the_medians_of_the_processes_are_said() -> None:
    made = join_processes({n: lone(n * 1e-6, seed=n) for n in (1, 2, 3)})
    said = " ".join(repr(made).split())
    assert "medians of 3 processes 1.0" in said
    assert "one run" not in said
