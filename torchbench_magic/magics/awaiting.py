"""``await`` at the top of a ``%%timer`` or ``%%tprofile`` cell.

A magic is an ordinary call inside the running event loop: it cannot wait for a coroutine. So a cell whose body
awaits is rewritten, before IPython sees it as a cell magic, to a line that awaits the magic. Nothing but the
standard library is imported here: the startup file installs the rewriting before the magics are loaded.
"""

from __future__ import annotations

import ast
import inspect
import re
from typing import Any

from .reading.magic_names import is_ours

__all__ = ["AwaitingCells", "install", "run_cell_magic", "withdraw_awaiting"]

_CELL = re.compile(r"%%(?P<magic>timer|tprofile)(?:[ \t]+(?P<line>.*))?$")


class AwaitingCells:
    """An input transformer for one shell."""

    # IPython's word for: not to be asked whether a cell is complete. Otherwise a terminal would take the cell
    # for finished after the first line that awaits, since what it is rewritten to is.
    has_side_effects = True

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def __call__(self, lines: list[str]) -> list[str]:
        match = _CELL.match(lines[0].rstrip("\n")) if lines else None
        if match is None or not self._shell.autoawait or not is_ours(self._shell, "cell", match["magic"]):
            return lines
        body = "".join(lines[1:])
        if not ("await" in body or "async" in body) or not self._awaits(body):
            return lines
        arguments = f"{match['magic']!r}, {match['line'] or ''!r}, {body!r}"
        return [f"await __import__('torchbench_magic').magics.awaiting.run_cell_magic(get_ipython(), {arguments})\n"]

    def _awaits(self, body: str) -> bool:
        # Without prefilters: they look names up and may run automagic for a body of one line.
        text = self._shell.input_transformer_manager.transform_cell(body)
        try:
            code = compile(text, "<body>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        except (SyntaxError, ValueError):
            return False  # the magic says what is wrong, on its line
        return bool(code.co_flags & inspect.CO_COROUTINE)


def install(shell: Any) -> None:
    """Rewrite awaiting cells from now on."""
    transformers = shell.input_transformers_cleanup
    if not any(isinstance(transformer, AwaitingCells) for transformer in transformers):
        transformers.append(AwaitingCells(shell))


def withdraw_awaiting(shell: Any) -> None:
    """Leave cells alone again."""
    transformers = shell.input_transformers_cleanup
    transformers[:] = [item for item in transformers if not isinstance(item, AwaitingCells)]


async def run_cell_magic(shell: Any, magic: str, line: str, body: str) -> Any:
    """What a rewritten cell awaits: the magic's own way for code that awaits."""
    if not hasattr(shell, "_last_traceback"):
        # ipykernel replies with it when a cell fails, and sets it only in its `run_cell`, which cells that await do not
        # pass, and where a traceback is shown, which a UsageError has none of. Without it there is no reply.
        shell._last_traceback = None
    lazily = getattr(shell, "_find_with_lazy_load", None)  # IPython's; the public way loads nothing
    found = shell.find_cell_magic(magic) if lazily is None else lazily("cell", magic)
    return await getattr(found.__self__, f"{magic}_async")(line, body)
