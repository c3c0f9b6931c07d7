"""The notebook's modules in the counting process: made of what travelled, never of their files."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

__all__ = ["Guard", "cached", "check_same_in_notebook", "made_module", "original", "put_in_place", "viewed"]

_MISSING = object()


def made_module(name: str, facts: dict[str, Any], is_known: bool) -> ModuleType:
    """An empty module, which its functions have as globals; ``is_known``: an import of its name finds it."""
    module = ModuleType(name)
    vars(module).update(facts)
    if is_known:
        sys.modules[name] = module
        parent, _, leaf = name.rpartition(".")
        if parent in sys.modules:
            setattr(sys.modules[parent], leaf, module)
    return module


def original(module: str, qualname: str) -> Any:
    """What an installed module itself has under a name that is replaced in the notebook."""
    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    return found


def cached(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    """`functools.lru_cache`, as empty as before its first call."""
    return functools.lru_cache(**parameters)(function)


def viewed(base: Any, form: str, shape: tuple[int, ...]) -> memoryview:
    """A memoryview of the whole of ``base``."""
    plain = memoryview(base).cast("B")
    return plain if form == "B" and len(shape) == 1 else plain.cast(form, shape)  # type: ignore[call-overload]


class Guard:
    """Stands before the finders: a file beside the notebook may not be what the notebook has loaded from it."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name in self._names:
            raise ImportError(
                f"the code imports the module {name} in a way that was not recognised: import it in the counted cell"
            )


def put_in_place(replaced: Iterable[tuple[Any, str, Any]]) -> None:
    """What the notebook has put in the place of names of installed modules and of their classes."""
    for owner, name, value in replaced:
        setattr(owner, name, value)


def check_same_in_notebook(named: Mapping[tuple[str, str], tuple[Any, ...]], described: Callable[[Any], Any]) -> None:
    """Give names of installed modules that the code uses the meaning that they have in the notebook.

    Args:
        named: (module, name) -> its `notebook_modules.description` in the notebook.
        described: `notebook_modules.description`.

    Raises:
        ImportError: what the notebook has there is not found here.
    """
    for (home, name), told in named.items():
        module = sys.modules.get(home)
        if module is None:
            continue
        there = described(vars(module).get(name, _MISSING))
        if there == told and type(there[-1]) is type(told[-1]):
            continue
        if told[0] == "plain":
            setattr(module, name, told[1])
            continue
        try:
            value = original(*told[1:])
        except (ImportError, AttributeError):
            value = _MISSING
        if described(value) != told:
            raise ImportError(f"{home}.{name} was replaced in this notebook ({'.'.join(told[1:])}), and is not found")
        setattr(module, name, value)
