"""What a script hands to `compare`: statements as text, and callables, which become the statement that calls them."""

from __future__ import annotations

import builtins
import inspect
import keyword
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from traceback import walk_tb
from typing import Any

from torchbench_magic.core.code.callables import check_callable
from torchbench_magic.errors import BodyError, OptionError
from torchbench_magic.results.cell_text import Body

__all__ = ["Called", "check_named"]


@dataclass(frozen=True)
class Called:
    """The alternatives of a script.

    Attributes:
        texts: name -> statement.
        bound: name that a statement calls -> the callable.
        namespace: the names that the statements find besides.
    """

    texts: Mapping[str, str]
    bound: Mapping[str, Callable[[], object]]
    namespace: Mapping[str, Any]

    @classmethod
    def of(cls, stmts: Mapping[str, object], given: Mapping[str, Any] | None, setup: str) -> Called:
        """Read what was given; a callable is called by its own name, or by another where that is taken.

        Args:
            stmts: name -> text or callable.
            given: the caller's names; None: those of the module that the callables are of, where all are callables, so
                that the functions which they call are known.
            setup: no callable is called by a name that stands in it.

        Raises:
            BodyError: neither text nor callable; a callable that `check_callable` refuses.
        """
        namespace = given if given is not None else _home(stmts)
        texts: dict[str, str] = {}
        bound: dict[str, Callable[[], object]] = {}
        for name, stmt in stmts.items():
            if isinstance(stmt, str):
                texts[name] = stmt
                continue
            if not callable(stmt):
                raise BodyError(f"{name!r}: give text or a callable, not {type(stmt).__name__}")
            check_callable(stmt, repr(name))
            own = _name_for(stmt, name, {**namespace, **bound}, setup)
            bound[own], texts[name] = stmt, f"{own}()"
        return cls(texts, bound, namespace)

    @contextmanager
    def names_explained(self, bodies: Mapping[str, Body]) -> Iterator[None]:
        """Say in one line what to do where a statement uses a name that nobody gave.

        Raises:
            OptionError: instead of the NameError of a statement's own line. Those of functions propagate.
        """
        __tracebackhide__ = True
        files = {body.file for body in bodies.values()} | {"<setup>"}
        try:
            yield
        except NameError as error:
            *_, (last, _) = walk_tb(error.__traceback__)
            if last.f_code.co_filename not in files or isinstance(error, UnboundLocalError):
                raise
            if not error.name or hasattr(builtins, error.name):
                raise
            way = "pass globals=globals(), or globals={'" + error.name + "': ...}"
            raise OptionError(f"the statements use {error.name!r}, which compare was not given: {way}") from None


def check_named(stmts: object) -> None:
    """Refuse what is no mapping of names to statements (OptionError)."""
    example = "give a dict such as {'add': 'x + x', 'mul': '2 * x'}"
    if not isinstance(stmts, Mapping):
        raise OptionError(f"compare takes statements by name, not {type(stmts).__name__}: {example}")
    for name in stmts:
        if not isinstance(name, str):
            raise OptionError(f"compare: the name {name!r} is not text but {type(name).__name__}: {example}")


def _home(stmts: Mapping[str, object]) -> Mapping[str, Any]:
    homes = [getattr(inspect.unwrap(s), "__globals__", None) if callable(s) else None for s in stmts.values()]
    first = homes[0] if homes else None
    return first if isinstance(first, dict) and all(home is first for home in homes) else {}


def _name_for(function: Callable[..., object], given: str, taken: Mapping[str, Any], setup: str) -> str:
    """The callable's own name where it has one that is free, or stands for it already; a lambda's is the given one."""
    own = getattr(function, "__name__", "")
    if not isinstance(own, str) or not own.isidentifier():
        own = re.sub(r"\W+", "_", given).strip("_")
        own = own if own.isidentifier() else f"call_{own}".rstrip("_")
    own = f"{own}_" if keyword.iskeyword(own) else own
    nth, name = 1, own
    while taken.get(name, function) is not function or hasattr(builtins, name) or re.search(rf"\b{name}\b", setup):
        nth += 1
        name = f"{own}_{nth}"
    return name
