"""What is said and drawn of ranks."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from torchbench_magic import load_ranks
from torchbench_magic.cluster.rank_view import document, strips
from torchbench_magic.cluster.ranks import RankProfile

TRACES = Path(__file__).parents[2] / "core" / "ranks" / "traces"


@pytest.fixture(scope="module")
def slept() -> RankProfile:
    return load_ranks(TRACES / "sleep_1_of_3")


def test_text_and_markdown_name_the_straggler_its_line_and_the_threshold(slept: RankProfile) -> None:
    assert slept.straggler is not None
    for text in (repr(slept), slept.to_markdown()):
        flat = " ".join(text.split())
        assert "Rank 1 delays the others by" in flat
        assert re.search(r"A rank is named only if it delays the others by at least [\d.]+ ms", flat)
        assert "augment" in flat
        assert "straggler" in flat
        assert "Clocks agree within" in flat
    rows = [line.split()[0] for line in repr(slept).splitlines() if re.match(r"^ +\d ", line)]
    assert rows == ["0", "1", "2"]


def test_without_a_straggler_the_most_blame_and_the_threshold_are_said() -> None:
    none = load_ranks(TRACES / "none_of_2")
    most = int(none.ranks["rank"].iloc[none.ranks["blame"].argmax()])
    assert f"No rank delays the others: rank {most} delays them most, by" in " ".join(repr(none).split())
    assert "not often enough to rule out chance" in " ".join(repr(none).split())
    quiet = replace(none, ranks=none.ranks.assign(blame=[1e-4, 0.0]))
    assert "below the threshold of" in " ".join(repr(quiet).split())
    unknown = replace(none, collectives=1)
    assert "the first does not count" in " ".join(repr(unknown).split())
    lost = replace(none, threshold=float("inf"))
    assert "how their clocks differ is unknown" in " ".join(repr(lost).split())


def test_the_strip_draws_each_rank_and_who_was_waited_for(slept: RankProfile) -> None:
    markup = strips(slept)
    assert re.findall(r">(rank \d)</text><rect", markup) == ["rank 0", "rank 1", "rank 2"]
    assert 'class="w5">rank 1<' in markup
    assert markup.count('class="br"') == min(12, len(slept.waits))
    for what, drawn in (("compute", 'class="compute"'), ("wait", 'fill="url(#')):
        assert (what in set(slept.timeline["what"])) == (drawn in markup)
    ends = [float(x) + float(w) for x, w in re.findall(r'x="([\d.]+)" y="\d+" width="([\d.]+)" height="16"', markup)]
    assert 600 < max(ends) <= 690.1


def test_of_many_ranks_the_strip_and_the_operations_show_some(slept: RankProfile) -> None:
    import pandas as pd

    many = pd.concat([slept.ranks.assign(rank=slept.ranks["rank"] + 3 * n) for n in range(10)], ignore_index=True)
    ops = slept.ops.assign(**{f"rank_{rank}": 1e-3 for rank in range(30)})
    big = replace(slept, ranks=many, ops=ops, hosts=("a",) * 30)
    assert len(re.findall(r">rank \d+</text>", strips(big).split('class="br"')[0])) == 16
    table = document(big).tables[1]
    assert sum(column.name.startswith("rank_") for column in table.columns) == 8


def test_hosts_are_a_column_where_they_differ_and_are_escaped(slept: RankProfile) -> None:
    hosts = ("a", "<b>", "c")
    page = replace(slept, hosts=hosts).to_html() or ""
    assert "<b>" not in page
    assert "host" in [column.name for column in document(replace(slept, hosts=hosts)).tables[0].columns]
    assert "host" not in [column.name for column in document(slept).tables[0].columns]


def test_selected_rows_of_the_widget_are_ranks(slept: RankProfile) -> None:
    widget = slept.explore()
    widget.selection = ["rank 2"]
    assert widget.rows["rank"].tolist() == [2]
