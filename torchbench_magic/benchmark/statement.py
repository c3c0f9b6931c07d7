"""A statement compiled as it was written: what stands behind `Timer` in the place of ``timeit.Timer``.

``timeit`` builds its loop as text, and torch dedents the statement before: both change the lines inside multi-line
strings, and a name that the statement binds becomes a local of the loop, so that ``x += 1`` on a global is an
UnboundLocalError. Here the loop is put together from syntax trees. Everything else is as in ``timeit``: setup runs
before each block inside the same function, so that names that *setup* binds go on from call to call; nothing is
subtracted; the garbage collector is off.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import linecache
import textwrap
import timeit
from collections import ChainMap
from collections.abc import Callable
from typing import Any

from torchbench_magic.core.code.bound_names import bound_names

__all__ = ["ExactTimer", "dedented", "parsed_statement", "source_of"]

_SHELL = """\
def inner(__tb_it, __tb_timer, __tb_given=__tb_given):
    "setup"
{kept}
    __tb_t0 = __tb_timer()
    for __tb_i in __tb_it:
{resets}
        "stmt"
    __tb_t1 = __tb_timer()
    return __tb_t1 - __tb_t0
"""
_FILE = "<stmt>"
_numbers = itertools.count(1)


def dedented(text: str) -> str:
    """The text as torch shows it: dedented, without the first newline and what is blank at the end."""
    return textwrap.dedent(text).removeprefix("\n").rstrip()


def parsed_statement(text: str) -> ast.Module:
    """The code of an indented text, with the lines inside its strings as they are.

    Raises:
        SyntaxError: what torch would raise.
    """
    try:
        if not _is_indented(text):
            return ast.parse(text, _FILE)
        tree = ast.parse(f"if True:\n{text}")
        (block,) = tree.body
        assert isinstance(block, ast.If)
        if not block.orelse:
            return ast.increment_lineno(ast.Module(block.body, []), -1)
    except (SyntaxError, ValueError):
        pass
    return ast.parse(dedented(text), _FILE)


def _is_indented(text: str) -> bool:
    lines = (line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    return next(lines, "")[:1] in (" ", "\t")


def source_of(text: str) -> str:
    """Text at column 0 that means what ``text`` means: torch's own form of it where that does."""
    tree, plain = parsed_statement(text), dedented(text)
    if not tree.body:
        return "pass"
    try:
        if ast.dump(ast.parse(plain)) == ast.dump(tree):
            return plain
    except SyntaxError:
        pass  # dedenting by the lines of a string has broken it
    return ast.unparse(tree)


class ExactTimer(timeit.Timer):
    """A ``timeit.Timer`` over ``written``, the texts of (statement, setup) as the user gave them.

    The other arguments are those of ``timeit.Timer``; ``stmt`` and ``setup`` are the texts that torch shows.
    """

    def __init__(
        self,
        stmt: str,
        setup: str,
        timer: Callable[[], float],
        globals: dict[str, Any],  # noqa: A002  (torch's name for it)
        *,
        written: tuple[str, str],
    ) -> None:
        self.timer = timer
        self.src = None
        self._file = f"<timer-{next(_numbers)}>"
        self._text = "\n".join(written[::-1])
        body, before = (parsed_statement(text) for text in written)
        ast.increment_lineno(body, written[1].count("\n") + 1)  # the file is the setup, then the statement
        # compiled as they stand first, as timeit does: that refuses return, yield and break outside their places
        compile(before, self._file, "exec", dont_inherit=True)
        compile(ast.Module([*before.body, *body.body], []), self._file, "exec", dont_inherit=True)
        given = ChainMap(globals, vars(builtins))
        code = compile(_loop(body, before, given), self._file, "exec", dont_inherit=True)
        made: dict[str, Any] = {"__tb_given": given}
        exec(code, globals, made)
        self.inner = made["inner"]

    def timeit(self, number: int = 1000000) -> float:
        """Seconds of ``number`` calls. An exception of the code shows the lines of its own text."""
        try:
            return super().timeit(number)
        except BaseException:
            lines = [f"{line}\n" for line in self._text.split("\n")]
            linecache.cache[self._file] = (len(self._text), None, lines, self._file)
            raise


def _loop(body: ast.Module, before: ast.Module, given: ChainMap[str, Any]) -> ast.Module:
    """The function of the loop. Names that only the globals give are put back before each call."""
    ours, theirs = bound_names(body), bound_names(before)
    others = theirs.bound | theirs.shared | ours.shared
    names = sorted(name for name in ours.reset - others if name in given)
    kept = "\n".join(f"    __tb_kept_{name} = __tb_given[{name!r}]" for name in names)
    resets = "\n".join(f"        {name} = __tb_kept_{name}" for name in names)
    tree = ast.parse(_SHELL.format(kept=kept, resets=resets))
    for node in ast.walk(tree):
        if isinstance(node, (ast.stmt, ast.expr, ast.arg)):
            node.lineno = node.end_lineno = 1
            node.col_offset = node.end_col_offset = 0
    (function,) = tree.body
    assert isinstance(function, ast.FunctionDef)
    function.body[:1] = before.body
    loop = next(part for part in function.body if isinstance(part, ast.For) and ast.unparse(part.target) == "__tb_i")
    loop.body[-1:] = body.body or [ast.Pass()]
    return ast.fix_missing_locations(tree)
