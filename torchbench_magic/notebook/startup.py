"""What IPython's startup file installs, before the magics are loaded: names, completion, await, first use. Light."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

# ---- magic_names -----------------------------------------------------------------------------------------------------
# Whose a magic's name is. Nothing but the standard library is imported here: the startup file asks.


def is_ours(shell: Any, kind: str, magic: str) -> bool:
    """Whether the name is this package's, loaded or still to be loaded, and not a magic of the user's."""
    table = shell.magics_manager
    found = table.magics[kind].get(magic)
    if found is None:
        home = table.lazy_magics.get(magic, "")
    else:
        home = getattr(found, "spec", None) or getattr(found, "__module__", None) or ""
    return str(home).startswith("torchbench_magic")


# ---- completing ------------------------------------------------------------------------------------------------------
# Tab on the line of a magic: options, their values, names of sections and of results.
#
# The startup file installs this before the magics are loaded, so nothing heavy is imported here.

_IDENTIFIER = "torchbench_magic"
_OURS = "torchbench_magic."


def complete_lines(shell: Any) -> None:
    """Complete lines of the magics from now on."""
    matchers = _matchers(shell)
    if not any(_is_this(matcher) for matcher in matchers):
        matchers.append(_matcher(shell))


def withdraw_completing(shell: Any) -> None:
    """Leave lines alone again."""
    matchers = _matchers(shell)
    matchers[:] = [matcher for matcher in matchers if not _is_this(matcher)]


def _matchers(shell: Any) -> list[Any]:
    """Empty, and forgotten, where the shell completes nothing."""
    completer = getattr(shell, "Completer", None)
    return getattr(completer, "custom_matchers", [])


def _is_this(matcher: Any) -> bool:
    return getattr(matcher, "matcher_identifier", None) == _IDENTIFIER


def _matcher(shell: Any) -> Callable[[Any], Any]:
    from IPython.core.completer import SimpleCompletion, context_matcher

    @context_matcher(identifier=_IDENTIFIER, priority=100)
    def matcher(context: Any) -> dict[str, Any]:
        from .completion import completions_at

        found = completions_at(context.full_text, context.cursor_line, context.cursor_position, _Shell(shell))
        if found is None:
            return {"completions": [], "suppress": False}
        return {
            "completions": [SimpleCompletion(text=text, type="magic") for text in found.texts],
            "matched_fragment": found.fragment,
            "suppress": found.is_all,
            "ordered": True,
        }

    return matcher


class _Shell:
    """What a shell knows; see `notebook.completion.Known`."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def is_ours(self, magic: str, *, cell: bool) -> bool:
        return is_ours(self._shell, "cell" if cell else "line", magic)

    def results(self) -> Sequence[str]:
        names = self._shell.user_ns.items()
        kept = [(name, type(value)) for name, value in names if not name.startswith("_")]
        found = [name for name, kind in kept if kind.__module__.startswith(_OURS) and hasattr(kind, "_mime_")]
        return [*found, *(name for name in ("_timer", "_tprofile") if name in self._shell.user_ns)]

    def alternatives(self, results: Iterable[str]) -> Sequence[str]:
        held = [self._shell.user_ns.get(name) for name in [*results] or self.results()]
        frames = [value.frame for value in held if type(value).__name__ == "Comparison"]
        return list(dict.fromkeys(str(name) for frame in frames for name in frame["description"].dropna()))


# ---- awaiting --------------------------------------------------------------------------------------------------------
# ``await`` at the top of a ``%%timer`` or ``%%tprofile`` cell.
#
# A magic is an ordinary call inside the running event loop: it cannot wait for a coroutine. So a cell whose body
# awaits is rewritten, before IPython sees it as a cell magic, to a line that awaits the magic. Nothing but the
# standard library is imported here: the startup file installs the rewriting before the magics are loaded.

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
        return [f"await __import__('torchbench_magic').notebook.startup.run_cell_magic(get_ipython(), {arguments})\n"]

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
        # ipykernel replies with it when a cell fails, and sets it only in its ``run_cell``, which cells that await do
        # not pass, and where a traceback is shown, which a UsageError has none of. Without it there is no reply.
        shell._last_traceback = None
    lazily = getattr(shell, "_find_with_lazy_load", None)  # IPython's; the public way loads nothing
    found = shell.find_cell_magic(magic) if lazily is None else lazily("cell", magic)
    return await getattr(found.__self__, f"{magic}_async")(line, body)


# ---- the first use ---------------------------------------------------------------------------------------------------
# IPython loads this chapter as an extension when a magic that the startup file declared is used.


def load_ipython_extension(shell: Any) -> None:
    """Load as ``%load_ext torchbench_magic`` does, but leave magics of the user's alone."""
    from torchbench_magic.process.interrupts import interrupts_held

    with interrupts_held():
        from .loading import load_magics

        load_magics(shell, only_free_names=True)
        # So that %unload_ext and %reload_ext know the extension by the name that the user knows.
        shell.extension_manager.loaded.add("torchbench_magic")
