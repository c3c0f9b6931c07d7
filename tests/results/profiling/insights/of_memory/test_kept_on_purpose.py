"""What the text of the code says of a container that grows."""

from __future__ import annotations

import ast

import pytest

from torchbench_magic.insights.leak import is_cut, is_emptied, is_made_in, is_read_after_its_loop, is_walked

LOOP = "for i in range(9):\n    kept.append(i)\n"


@pytest.mark.parametrize(
    "text",
    [
        "kept.pop(0)",
        "if len(kept) > 3:\n    kept.popleft()",
        "kept.clear()",
        "del kept[0]",
        "kept = kept[-10:]",
        "def f():\n    kept.remove(1)",
    ],
)
def test_a_container_that_is_emptied_is_known(text: str) -> None:
    assert is_emptied(ast.parse(text), "kept")


@pytest.mark.parametrize(
    "text", ["other.pop(0)", "kept.append(1)", "del kept", "kept[0] = 1", "x = kept[-1]", "kept.pop"]
)
def test_others_are_not(text: str) -> None:
    assert not is_emptied(ast.parse(text), "kept")


def test_an_attribute_is_known_within_the_methods_of_its_class() -> None:
    text = "class Log:\n    def note(self):\n        self.past.pop(0)"
    assert is_emptied(ast.parse(text), "log.past")
    assert not is_emptied(ast.parse(text), "past")
    assert not is_emptied(ast.parse(text), "log.other")


def test_results_are_read_after_the_loop_or_not() -> None:
    assert is_read_after_its_loop(ast.parse(f"{LOOP}y = torch.cat(kept)"), "kept")
    assert not is_read_after_its_loop(ast.parse(LOOP), "kept")
    assert not is_read_after_its_loop(ast.parse(f"{LOOP}kept = 1"), "kept")
    assert not is_read_after_its_loop(ast.parse("y = kept"), "kept"), "there is no loop"
    assert not is_read_after_its_loop(ast.parse(f"y = kept\n{LOOP}"), "kept"), "it is read before"


def test_a_container_is_made_in_the_cell_or_came_from_before() -> None:
    assert is_made_in(ast.parse(f"kept = []\n{LOOP}"), "kept")
    assert is_made_in(ast.parse(f"kept: list = []\n{LOOP}"), "kept")
    assert not is_made_in(ast.parse(LOOP), "kept")
    assert not is_made_in(ast.parse("for i in x:\n    kept = [i]"), "kept"), "it is another one each time"


CHAIN = "for i in range(9):\n    t = Node(i)\n    t.prev = last\n    last = t\n"


def test_a_chain_that_is_cut_is_known() -> None:
    for text in ("del last.prev", "for i in x:\n    last.prev.prev = None", "def cut(self):\n    self.prev = None"):
        assert is_cut(ast.parse(CHAIN + text), "prev"), text
    begun = "def __init__(self):\n    self.prev = None"
    for text in (begun, "last.prev = None", "last = None", "for i in x:\n    i.a = None"):
        assert not is_cut(ast.parse(text + "\n" + CHAIN), "prev"), text


def test_a_chain_that_is_walked_along_is_known() -> None:
    for text in ("while last:\n    last = last.prev", "y = last.prev.prev", "while (last := last.prev):\n    pass"):
        assert is_walked(ast.parse(CHAIN + text), "prev"), text
    assert not is_walked(ast.parse(CHAIN + "y = last.prev"), "prev")
