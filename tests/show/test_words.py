"""What is read: few words, that fit the terminal, in plain English."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from tests.profiling.loops.test_view import looped
from tests.timing.samples import lone
from tests.timing.test_view import EQUAL, tried
from torchbench_magic.result_base import Doubt
from torchbench_magic.show import html, markdown, page_data, text
from torchbench_magic.show.document import MOST_DOUBTS, plain
from torchbench_magic.timing import view
from torchbench_magic.timing.changes import in_place
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.repeat_warnings import doubts_of_subjects
from torchbench_magic.timing.samples import are_speeds

from .builders import comparison_of
from .test_outputs_stay import RESULTS

ROOT = Path(__file__).parents[2]
WIDTHS = (80, 100, 132)

OTHERS: dict[str, Any] = {
    "levers": lambda: tried(no_grad=(0.5, EQUAL), compile=(0.4, EQUAL)),
    "loops": looped,
    "doubted": lambda: comparison_of(warnings=BUSY),
    "names": lambda: comparison_of([(f"({10**n}, 64) floats", 1, (1e-6, 2e-6)) for n in range(6)], ("b" * 50, "m")),
}

# ---- the width ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in (*RESULTS, *OTHERS) if name not in ("page", "torch_compare")])
def test_no_line_of_plain_text_is_wider_than_the_terminal_and_two_doubts_are_the_most(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text is that of ``print``; ``text/plain`` is the same, as test_outputs_stay.py has it."""
    result = (RESULTS | OTHERS)[name]()
    for columns in WIDTHS:
        monkeypatch.setenv("COLUMNS", str(columns))
        said = str(result)
        wide = [line for line in said.splitlines() if text._columns_of(line) > columns]
        assert wide == [], f"at {columns} columns"
        if name != "diagnosis":
            assert said.count("\n! ") <= MOST_DOUBTS + 1


def test_a_number_is_never_cut_to_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = figures(RESULTS["engines"]())
    monkeypatch.setenv("COLUMNS", "60")
    assert figures(RESULTS["engines"]()) == wide


def figures(result: Comparison) -> set[str]:
    table = view.document(result).tables[0]
    return set(re.findall(r"\d+\.\d+", text.table_text(table, width=text.columns_at_hand())))


def test_a_table_in_parts_names_its_rows_in_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    parts = text.table_text(view.document(RESULTS["engines"]()).tables[0], width=60).split("\n\n")
    assert len(parts) > 1
    for part in parts:
        assert "mul" in part
        assert "bmm" in part
    assert "verdict" in parts[-1]


# ---- doubts ---------------------------------------------------------------------------------------------------------

BUSY = [
    Doubt("co-load", "Other processes used up to 1.0 of 2 cores.", "", {"ext": 1.0}),
    Doubt("busy", "Busy machine: CPU pressure 62 %.", "", {"pressure": 0.62}),
    Doubt("noisy", "Absolute times of bmm are unreliable: IQR up to 31 %.", "", {"rows": [0]}),
    Doubt("memory", "Stopped early: the code keeps 3 GiB more than at its start."),
    Doubt("clock", "The CPU ran at 60 % of its highest clock."),
    Doubt("medians", "mul_sum: the medians alone give another ratio."),
]


def test_at_most_two_doubts_are_shown_and_the_rest_is_folded() -> None:
    made = view.document(comparison_of(warnings=BUSY))
    assert text.render(made).count("\n! ") == MOST_DOUBTS + 1
    assert "! 2 more: .warnings" in text.render(made)
    assert markdown.render(made).count("\n> ") == MOST_DOUBTS + 1
    still = html.static(made)
    before, _, folded = still.partition("<details><summary>2 more warnings</summary>")
    assert (before.count("border-left:3px"), folded.count("border-left:3px")) == (MOST_DOUBTS, 2)
    spec = page_data.as_dict(made)
    assert (len(spec["doubts"]), len(spec["moreDoubts"])) == (MOST_DOUBTS, 2)


def test_what_is_changed_in_place_is_a_clause_and_no_warning() -> None:
    (changed,) = in_place({"x": 7}, {"a": 4, "b": 5}, {})
    shown = text.render(view.document(comparison_of(warnings=[changed])))
    assert "x changed in place 7 times in 9 calls, shared by the alternatives" in " ".join(shown.split())
    assert "!" not in shown
    alone = replace(lone(3.2e-6), warnings=[changed])
    assert "x changed in place 7 times in 9 calls" in " ".join(str(alone).split())


def test_what_the_sentence_says_of_later_calls_is_not_said_again_below_it() -> None:
    made = lone(3.2e-6)
    subjects = [replace(made.subjects[0], used_up=(("more", "`xs` grew"),))]
    shown = " ".join(str(replace(made, subjects=subjects, warnings=doubts_of_subjects(subjects))).split())
    assert shown.count("Each call does more than the one before: xs grew") == 1
    assert "! Create or copy it in the code, so that every call starts from the same state." in shown


def test_one_busy_machine_is_one_doubt() -> None:
    first, *others = view.document(comparison_of(warnings=BUSY)).doubts
    assert plain(first).startswith(
        "Busy machine (other processes used up to 1.0 cores, CPU pressure 62 %, IQR up to 2.8 %): absolute times are"
        " unreliable and can be many times too long; the ratios are still valid."
    )
    assert not re.search("CPU pressure|IQR|other processes", " ".join(map(plain, others)))
    assert len(comparison_of(warnings=BUSY).warnings) == len(BUSY), "the data keeps each"


# ---- one direction --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "word", "figure"),
    [((2e-6, 1e-6), "fast", 2.0), ((1e-6, 2e-6), "long", 2.0), ((2e-6, 1e-6, 4e-6), "fast", 0.5)],
)
def test_the_sentence_and_the_table_tell_a_ratio_the_same_way(
    times: tuple[float, ...], word: str, figure: float
) -> None:
    made = comparison_of([(None, 1, times)], ("a", "b", "c")[: len(times)])
    document = view.document(made)
    (column,) = [at for at, column in enumerate(document.tables[0].columns) if column.name == "ratio"]
    assert document.tables[0].columns[column].unit == f"as {word}"
    other = {"fast": "as long", "long": "as fast"}[word]
    assert other not in plain(document.sentence)
    assert other not in " ".join(map(plain, document.footer))
    cells = [row.cells[column] for row in document.tables[0].rows()]
    assert any(float(cell.text) == pytest.approx(figure, rel=0.02) for cell in cells)
    assert are_speeds(made.frame["verdict"]) == (word == "fast")
    for cell, ratio in zip(cells, made.frame["ratio"], strict=True):
        assert cell.value == pytest.approx(1 / ratio if word == "fast" else ratio), "the data has the ratio of times"


# ---- plain English --------------------------------------------------------------------------------------------------

WORN = (
    "times faster",
    "slower, 1 times",
    "o not read the single times",
    "ratios stand",
    "comparison holds",
    "single times are long",
    "precision now",
    "both %",
    "shown twice",
    "time and the memory go to",
    "leaves no doubt",
    "makes the magics known",
    "makes\nthe magics known",
    "was in the way",
    "keep what is there",
    ", outside the times",
    "convolutions part",
    "changed its mind",
    "one window of time",
    "be dear",
    "every number stands on",
    "Times per op hold",
    "holds the others up",
    "holds the trace hook",
    "there is no folder",
    "the empty loop taken out",
)
"""What readers stumbled over, and may not come back where it is read."""


@functools.cache
def read_texts() -> tuple[tuple[str, str], ...]:
    """(where, text) of what the product prints, and of its documents."""
    found: list[tuple[str, str]] = []
    for path in (ROOT / "torchbench_magic").rglob("*.py"):
        found += ((str(path), one) for one in literals(path.read_text(encoding="utf-8")))
    for path in (ROOT / "torchbench_magic" / "show" / "static").glob("*.js"):
        found.append((str(path), "\n".join(re.findall(r'"[^"\n]*"|`[^`]*`', path.read_text(encoding="utf-8")))))
    for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        found.append((str(path), path.read_text(encoding="utf-8")))
    for path in (ROOT / "examples").glob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        found += ((str(path), "".join(cell["source"])) for cell in cells if cell["cell_type"] == "markdown")
    return tuple(found)


def literals(source: str) -> Iterator[str]:
    """Texts in the code, those that only explain it (docstrings) aside, and those of assertions."""
    left: list[Any] = [compile(source, "<source>", "exec", dont_inherit=True, optimize=2)]
    while left:
        one = left.pop()
        for constant in one.co_consts if isinstance(one, CodeType) else one:
            if isinstance(constant, str):
                yield constant
            elif isinstance(constant, tuple | frozenset | CodeType):
                left.append(constant)


def test_the_texts_of_the_code_are_those_that_may_be_shown() -> None:
    source = """
'explains'
ONE = 'module' ' text'
class C:
    'explains'
    word: str = f'part {ONE} and'
    'explains'
    def f(self, default='default', *others) -> None:
        'explains'
        return [x for x in ('in a', 'tuple') if x in {'in a', 'set'}] + [lambda: 'of a lambda']
"""
    wanted = {"module text", "part ", " and", "default", "in a", "tuple", "set", "of a lambda"}
    assert wanted <= {*literals(source)}
    assert "explains" not in {*literals(source)}


def test_no_worn_phrase_comes_back() -> None:
    found = {(where, worn) for where, said in read_texts() for worn in WORN if worn in said}
    assert sorted(found) == []


def test_the_phrases_are_looked_for_where_they_would_be() -> None:
    places = {Path(where).suffix for where, _ in read_texts()}
    assert places == {".py", ".js", ".md", ".ipynb"}
    assert any("times as fast" in said for _, said in read_texts())
