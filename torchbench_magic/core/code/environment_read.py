"""Environment variables that code may read: ``os.environ["MODE"]``, ``os.getenv(NAME)``, a helper that is given a name.

Which ones is told from texts: those in code that asks for variables, and, since a helper may be given its name, those
in all code that is read with it. A variable that is named otherwise (a text that is put together) is not known.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from types import CodeType
from typing import Any

from torchbench_magic.results.timing.values_read import NOT_SET, TEXT, Value, variable_label

from .code_reads import codes_within, globals_read, names_used
from .held_values import digest

__all__ = ["VariablesRead", "is_environment"]

_ASKING = frozenset(("environ", "environb", "getenv", "getenvb"))
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_SHOWN = re.compile(r"[0-9.]{1,8}|true|false|yes|no|on|off", re.IGNORECASE)
"""Values that are kept as they are; of others only a digest, since they may be secrets."""


def is_environment(value: Any) -> bool:
    """Whether this is the process's environment, which no piece of code reads as a whole."""
    return value is os.environ or value is getattr(os, "environb", None)


class VariablesRead:
    """Collects the code that is read with a body, and tells the variables that it may ask for."""

    def __init__(self) -> None:
        self._asks = False
        self._direct: set[str] = set()
        self._others: set[str] = set()

    def take(self, code: CodeType, home: Mapping[str, Any]) -> None:
        """Note a piece of code, and the globals that it finds."""
        read = [home[name] for name in globals_read(code) if name in home]
        names = {*_texts_of(code), *(one for one in read if type(one) is str and _NAME.fullmatch(one))}
        if not _ASKING.isdisjoint(names_used(code)) or any(is_environment(one) or one is os.getenv for one in read):
            self._asks = True
            self._direct |= names
        else:
            self._others |= names

    def values(self) -> Iterator[Value]:
        """Each variable with what it holds. One that only other code names counts where it is set."""
        if not self._asks:
            return
        for name in sorted(self._direct | self._others):
            held = os.environ.get(name)
            if held is not None or name in self._direct:
                yield variable_label(name), _kept(held), ""


def _kept(held: str | None) -> str:
    if held is None:
        return NOT_SET
    return repr(held) if _SHOWN.fullmatch(held) else TEXT + digest(held)


def _texts_of(code: CodeType) -> Iterator[str]:
    waiting = [constant for part in codes_within(code) for constant in part.co_consts]
    while waiting:
        one = waiting.pop()
        if type(one) is str and _NAME.fullmatch(one):
            yield one
        elif type(one) in (tuple, frozenset):
            waiting += one
