"""The code of a cell: compiled with the user's lines, run to its end where it awaits."""

from __future__ import annotations

import ast
import asyncio
import random
import sys
import traceback
from typing import Any

import pytest
import torch

from torchbench_magic.cell_body import Body
from torchbench_magic.process.code import (
    BoundNames,
    compile_body,
    compile_loop,
    completed,
    copied_tree,
    counters,
    parse_body,
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
# Numbers that a body counts in and branches on go on from call to call; all other names are put back.

n, on, best = 0, True, 1.5


def every(k: int, at: int = 4) -> str:
    last = k % at == 0
    return "step" if last else ""


def through(k: int) -> str:
    return every(k)


def always(k: int) -> int:
    return k + 1


class Trainer:
    def micro(self, i: int) -> None:
        if i % 16 == 0:
            self.done = i


class Net(torch.nn.Module):
    @torch.no_grad()
    def forward(self, i: int) -> None:
        self.trained = i if i > 4 else 0


trainer, net, here = Trainer(), Net(), sys.modules[__name__]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n += 1\nif n % 4 == 0: print()", {"n"}),
        ("n = (n + 1) % len('abcd')\nprint() if not n else None", {"n"}),
        ("n += 1\nif n == 4:\n    n = 0", {"n"}),
        ("n += 1\nlast = n == 4\nfirst = last\nfirst and print()", {"n"}),
        ("for x in 'ab':\n    n += 1\n    match n:\n        case 4: print()", {"n"}),
        ("if on: print()\non = not on", {"on"}),
        ("n += 1\nevery(n)", {"n"}),
        ("n += 1\nthrough(k=n)", {"n"}),
        ("n += 1\ntrainer.micro(n)", {"n"}),
        ("n += 1\nhere.every(n)", {"n"}),
        ("n += 1\nnet(n)", {"n"}),
        ("n += 1\ntrainer.other(n), random.randint(0, n)", set()),  # of a library
        ("n += 1\nevery(3, 5), always(n), range(n)", set()),
        ("n += 1\nprint(n)", set()),  # decides nothing
        ("while n < 9: n += 1", set()),  # ends it
        ("n = n * 3\nif n > 5: print()", set()),  # grows without end
        ("n = always(n)\nif n > 5: print()", set()),
        ("n, x = n + 1, 2\nif n > 5: print()", set()),
        ("n = 1\nif n > 5: print()", set()),  # begins with it
        ("if best > 1: best = 1.0", set()),
        ("every += 1\nif every: print()", set()),  # no number
        ("m += 1\nif m: print()", set()),  # not there
    ],
)
def test_counters_are_numbers_that_are_added_to_and_branched_on(text: str, expected: set[str]) -> None:
    tree = ast.parse(text)
    assert counters(tree, BoundNames(tree).reset, {**globals(), "random": random}) == expected


def test_a_counter_goes_on_through_the_blocks_of_all_replicas_and_everything_else_is_put_back() -> None:
    seen: list[tuple[int, int]] = []
    names = {"seen": seen, "i": 5, "j": 5}
    text = Body("i += 1\nj += 1\nif i % 4 == 0: seen.append((i, j))")
    ready = (lambda: 0, lambda: 0, lambda: None)
    for goes_on, expected in ((True, [(8, 6), (12, 6)]), (False, [])):
        loop = compile_loop(text, names, replicas=2, goes_on=goes_on)
        loop.replicas[0](range(4), *ready, loop.kept)
        loop.empty(range(4), *ready, loop.kept)
        loop.replicas[1](range(3), *ready, loop.kept)
        assert (seen, names["i"], loop.kept["i"]) == (expected, 5, 12 if goes_on else 5)
        seen.clear()
