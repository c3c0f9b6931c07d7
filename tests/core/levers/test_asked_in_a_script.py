"""``compare(..., try_=...)`` and ``Insight.try_``: what cannot be tried is refused in the words of a script."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchbench_magic import compare
from torchbench_magic.errors import OptionError
from torchbench_magic.levers.trial import check_levers
from torchbench_magic.results import Cure, Insight
from torchbench_magic.show.document import plain
from torchbench_magic.timing.view import document


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "one statement with itself under levers, and here are 2: give one, and what runs before it as setup="),
        ({"stmts": {}}, "here are 0"),
        ({"stmts": {"a": "1"}, "processes": 2}, "try_ does not go with processes"),
        ({"stmts": {"a": "1"}, "engines": "x"}, "try_ does not go with engines"),
        ({"stmts": {"a": "1"}, "baseline": "a"}, "try_ does not go with baseline"),
        ({"stmts": {"a": "1"}, "threads": (1, 2)}, "give threads one number"),
        ({"stmts": {"a": "1"}, "try_": "comple"}, "try_: no lever is called 'comple'; the nearest is compile"),
        ({"stmts": {"a": "1"}, "try_": "compile:3,threads:x"}, "try_: compile takes no value"),
        ({"stmts": {"a": "1"}, "try_": ["threads:x"]}, "try_: 'threads:x': give a whole number of threads"),
        ({"stmts": {"a": "1"}, "try_": "bf16,bf16"}, "try_: a lever is given twice"),
    ],
)
def test_what_cannot_be_tried_is_told_without_the_syntax_of_a_cell(asked: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"stmts": {"a": "1", "b": "2"}, "try_": True}
    with pytest.raises(OptionError) as caught:
        compare(**(given | asked))
    assert said in str(caught.value)
    assert "--" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_cell_is_told_with_its_option() -> None:
    with pytest.raises(OptionError, match=r"^--try: bf16 takes no value, and 'bf16:8' has"):
        check_levers(["bf16:8"])


def test_a_lever_of_an_insight_that_is_none_is_told_so() -> None:
    insight = Insight("kind", seconds=1.0, share=0.5, text="It takes long.", cures=(Cure("Do.", lever="no_grad"),))
    with pytest.raises(OptionError, match=r"^try_: no lever is called 'zzz'"):
        insight.try_("zzz")


def test_one_that_does_not_apply_is_the_answer_with_the_reason() -> None:
    names = {"x": torch.ones(3)}
    made = compare({"s": "x * 2"}, globals=names, try_="channels_last", min_run_time=0.01, max_run_time=0.02)
    said = plain(document(made).sentence)
    assert said.startswith("channels_last was not timed: the cell reads no module with a 2-d convolution. as it is")
