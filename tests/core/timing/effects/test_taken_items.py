"""Items that timed code takes from the user's iterators are gone: it is said, but where it did not happen or is told
otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from torchbench_magic.results import Doubt

from ..fake_clock import FakeClock, timed


def numbers() -> Iterator[int]:
    for i in range(10**6):
        yield 1000 + i


def taken(body: str, **options: Any) -> tuple[list[Doubt], dict[str, Any]]:
    names: dict[str, Any] = {"g": numbers(), "it": iter(list(range(10**6))), "held": [numbers()]}
    result = timed(FakeClock(), {"a": f"clock.work(100)\n{body}"}, names=names, **options)
    return [doubt for doubt in result.warnings if doubt.kind == "taken-items"], names


@pytest.mark.parametrize(("body", "name"), [("next(g)", "g"), ("next(it)", "it"), ("next(held[0])", "held[0]")])
def test_what_calls_take_from_an_iterator_is_said(body: str, name: str) -> None:
    (said,), _ = taken(body)
    assert said.text == f"Timed calls took items from `{name}`, which are not restored."
    assert said.action == "Make it in the body, or in setup."


def test_with_restore_a_generator_is_said_and_what_can_be_copied_is_not_taken_from() -> None:
    (said,), _ = taken("next(g)", restore=True)
    assert said.text.endswith("`--restore` cannot restore a generator.")
    said_of_copied, names = taken("next(it)", restore=True)
    assert said_of_copied == []
    assert next(names["it"]) == 0


def test_an_iterator_that_is_only_looked_at_or_made_in_the_body_is_not_said() -> None:
    assert taken("g.gi_frame, it.__length_hint__(), len(held)")[0] == []
    assert taken("mine = iter([1, 2])\nnext(mine)")[0] == []


def test_a_generator_that_had_begun_is_seen_by_its_variables() -> None:
    begun = numbers()
    next(begun)
    result = timed(FakeClock(), {"a": "clock.work(100)\nnext(begun)"}, names={"begun": begun})
    assert [doubt.kind for doubt in result.warnings].count("taken-items") == 1


def test_one_that_is_used_up_is_told_once() -> None:
    short = (n for n in range(3))
    result = timed(FakeClock(), {"a": "clock.work(100)\nfor n in short: pass"}, names={"short": short})
    kinds = [doubt.kind for doubt in result.warnings]
    assert "taken-items" not in kinds
    assert "short" in " ".join(doubt.text for doubt in result.warnings)
