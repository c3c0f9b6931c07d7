"""The code of a cell: compiled with the user's lines, run to its end where it awaits."""

from __future__ import annotations

import ast
import asyncio
import traceback
from typing import Any

import numpy as np
import pytest
import torch

from torchbench_magic.cell_body import Body
from torchbench_magic.process.code import (
    BoundNames,
    compile_body,
    compile_loop,
    completed,
    copied_tree,
    counts,
    parse_body,
    read_first,
)

# ==== body ============================================================================================================
# A body is compiled with the lines and the file name that the user sees.


def test_the_trailing_expression_is_the_value() -> None:
    namespace: dict[str, Any] = {}
    assert compile_body(Body("x = 3\nx + 1")).run(namespace) == 4
    assert namespace["x"] == 3


def test_a_body_that_ends_in_a_statement_has_no_value() -> None:
    assert compile_body(Body("x = 3")).run({}) is None


def test_an_exception_names_the_visible_line_and_the_cells_file() -> None:
    body = compile_body(Body("x = 1\n1 / 0\n", file="<cell-7>", first_line=5, cell=7))
    with pytest.raises(ZeroDivisionError) as caught:
        body.run({})
    frame = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (frame.filename, frame.lineno) == ("<cell-7>", 6)


@pytest.mark.parametrize("source", ["x = 1\nx = = 2", "x = 1\nreturn x", "x = 1\nf(a for a in x, 1)"])
def test_a_syntax_error_names_the_visible_line_and_the_cells_file(source: str) -> None:
    with pytest.raises(SyntaxError) as caught:
        compile_body(Body(source, file="<cell-7>", first_line=3))
    assert (caught.value.filename, caught.value.lineno) == ("<cell-7>", 4)


def test_functions_of_the_body_keep_the_visible_line() -> None:
    namespace: dict[str, Any] = {}
    compile_body(Body("def f():\n    pass\n", first_line=4)).run(namespace)
    assert namespace["f"].__code__.co_firstlineno == 4


def test_await_is_allowed_at_the_top_and_in_the_trailing_expression() -> None:
    async def value() -> int:
        await asyncio.sleep(0)
        return 5

    body = compile_body(Body("y = await value()\nawait value() + y"))
    assert body.is_coroutine
    assert asyncio.run(body.run_async({"value": value})) == 10
    with pytest.raises(RuntimeError, match="run_async"):
        body.run({"value": value})


def test_run_async_runs_a_body_without_await_too() -> None:
    body = compile_body(Body("x = 2\nx * 2"))
    assert not body.is_coroutine
    assert asyncio.run(body.run_async({})) == 4


def test_flags_of_this_package_do_not_leak_into_the_body() -> None:
    namespace: dict[str, Any] = {}
    compile_body(Body("def f(a: 1 + 1): pass")).run(namespace)
    assert namespace["f"].__annotations__ == {"a": 2}


def test_ast_transformers_of_the_session_are_applied() -> None:
    class Negate(ast.NodeTransformer):
        def visit_Constant(self, node: ast.Constant) -> ast.AST:
            return ast.copy_location(ast.Constant(-node.value), node)

    assert compile_body(Body("3"), transform_ast=Negate().visit).run({}) == -3
    assert isinstance(parse_body(Body("3")), ast.Module)


def test_a_copy_of_a_tree_takes_nothing_along_that_others_hung_onto_its_nodes() -> None:
    """As tracebacks of IPython do, onto nodes that all trees share."""
    tree = ast.parse("def f(x, *y):\n    return {'a': [x + 1, *y]}\nz = f(1)")
    shared = tree.body[1].targets[0].ctx  # type: ignore[attr-defined]
    shared.parent = ast.parse("other = 1")
    try:
        made = copied_tree(tree)
    finally:
        del shared.parent
    assert ast.dump(made, include_attributes=True) == ast.dump(tree, include_attributes=True)
    assert {*map(id, ast.walk(made))}.isdisjoint(map(id, ast.walk(tree)))
    assert not any(hasattr(node, "parent") for node in ast.walk(made))


# ==== coroutines ======================================================================================================
# A coroutine is run to its end without an event loop, or refused.


async def two() -> int:
    return 2


def test_what_never_suspends_gives_its_result() -> None:
    async def doubled() -> int:
        return 2 * await two()

    assert completed(doubled()) == 4


def test_what_suspends_is_closed_and_refused() -> None:
    ended = []

    async def waits() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            ended.append(True)

    with pytest.raises(RuntimeError, match="awaits"):
        completed(waits())
    assert ended


# ==== counters ========================================================================================================
# The names of code that counts go on from call to call; else all are put back.


HELD = {"n": 0, "on": True, "best": 1.5, "one": np.int64(1), "text": "", "x": torch.ones(1), "every": abs, "last": 3}
HELD["it"] = iter([])


@pytest.mark.parametrize(
    "text",
    [
        "n += 1\nif n % 4 == 0: print()",
        "n = (n + 1) % len('abcd')",
        "n = min(n * 2, 512)",
        "n = (n * 5 + 3) % 64",
        "n = every(n)",
        "n += 1\nx = x / (1 - best**n)",
        "n = n * 2 if n < 99 else 1",
        "if on: print()\non = not on",
        "if (n := n + 1) % 4: print()",
        "n, y = n + 1, 2",
        "while n < 9: n += 1",
        "if best > 1: best = 1.0",
        "best **= 2",
        "one += 1",
        "n += 1; x = x + 1",
        "if print() is None or n: last = n\nelse: n = last",
        "try: next(it)\nexcept StopIteration: it = iter('ab')",
        "if next(it, None) is None: it = iter('ab')",
        "if text is None: text = every()",
        "print(text)\ntext = ''",
        "text += 'a'\nif len(text) > 9: text = ''",
        "y = x\nx = every()",
    ],
)
def test_code_counts_where_it_reads_a_number_and_then_binds_it_or_binds_a_name_to_something_else(text: str) -> None:
    tree = ast.parse(text)
    first = read_first(compile(tree, "<body>", "exec"))
    assert counts(tree, BoundNames(tree).reset & first, HELD)


@pytest.mark.parametrize(
    "text",
    [
        "n = 1\nif n > 5: print()",
        "for last in range(n): print(last)",  # as an earlier loop of the notebook left it
        "for i in range(3):\n    last = i\n    print(last)",
        "m += 1",  # not there
        "text += 'a'",
        "x = x + 1",
        "n = n * 3",  # grows without a bound
        "n **= n",
        "every += 1",
        "it = map(abs, it)",
        "x, text = text, x",
        "x += 1",
        "x = x + 1\nif every(): x = every()",
        "x, it = next(it), every(it)",
        "next(it)",
    ],
)
def test_other_code_does_not(text: str) -> None:
    tree = ast.parse(text)
    first = read_first(compile(tree, "<body>", "exec"))
    assert not counts(tree, BoundNames(tree).reset & first, HELD)


def test_names_go_on_through_the_blocks_of_all_replicas_where_code_counts_and_else_are_put_back() -> None:
    seen: list[tuple[int, str]] = []
    ready = (lambda: 0, lambda: 0, lambda: None)
    for text, goes_on, left, expected in (
        ("i += 1\ns += 'x'\nif i % 4 == 0: seen.append((i, s))", True, (12, "x" * 7), [(8, "xxx"), (12, "xxxxxxx")]),
        ("i += 1\ns += 'x'\nif i % 4 == 0: seen.append((i, s))", False, (5, ""), []),
        ("s += 'x'\nseen.append((i, s))", True, (5, ""), [(5, "x")] * 7),
        ("i += 1\nif i % 4 == 0: seen.append((i, s))\ndel s", True, (12, ""), [(8, ""), (12, "")]),
    ):
        names = {"seen": seen, "i": 5, "s": ""}
        loop = compile_loop(Body(text), names, replicas=2, goes_on=goes_on)
        loop.replicas[0](range(4), *ready, loop.kept)
        loop.empty(range(4), *ready, loop.kept)
        loop.replicas[1](range(3), *ready, loop.kept)
        assert (seen, loop.kept.get("i", 5), loop.kept["s"], names["i"], names["s"]) == (expected, *left, 5, "")
        seen.clear()
