"""Tab on the line of a magic: options, their values, names of sections and of results.

The startup file installs this before the magics are loaded, so nothing heavy is imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .magic_names import is_ours

__all__ = ["complete_lines", "withdraw_completing"]

_IDENTIFIER = "torchbench_magic"
_RESULTS = "torchbench_magic.results."


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
    found: list[Any] = getattr(completer, "custom_matchers", [])
    return found


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
    """What a shell knows; see `reading.completion.Known`."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def is_ours(self, magic: str, *, cell: bool) -> bool:
        return is_ours(self._shell, "cell" if cell else "line", magic)

    def results(self) -> Sequence[str]:
        names = self._shell.user_ns.items()
        kept = [(name, type(value).__module__) for name, value in names if not name.startswith("_")]
        found = [name for name, home in kept if home.startswith(_RESULTS)]
        return [*found, *(name for name in ("_timer", "_tprofile") if name in self._shell.user_ns)]

    def alternatives(self, results: Iterable[str]) -> Sequence[str]:
        held = [self._shell.user_ns.get(name) for name in [*results] or self.results()]
        frames = [value.frame for value in held if type(value).__name__ == "Comparison"]
        return list(dict.fromkeys(str(name) for frame in frames for name in frame["description"].dropna()))
