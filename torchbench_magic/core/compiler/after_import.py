"""Something done as soon as a module is imported, by whoever imports it."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import CodeType, FunctionType, ModuleType
from typing import Any

__all__ = ["AfterImport"]


class AfterImport:
    """Calls ``then(module)`` when ``name`` was imported, from `start` to `stop`. A finder in ``sys.meta_path`` that
    finds nothing itself: it has Python's own loader run and calls after it.

    Every import that is not in ``sys.modules`` yet passes by, at the cost of comparing its name.
    """

    def __init__(self, name: str, then: Callable[[Any], None]) -> None:
        self._name, self._then = name, then

    @staticmethod
    def codes() -> tuple[CodeType, ...]:
        """Of what an import calls."""
        made = (*vars(AfterImport).values(), *vars(_Then).values())
        return tuple(one.__code__ for one in made if isinstance(one, FunctionType))

    def start(self) -> None:
        sys.meta_path.insert(0, self)

    def stop(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """As ``sys.meta_path`` asks for it."""
        if name != self._name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        loader: Any = _Then(spec.loader, self._then)
        spec.loader = loader
        return spec


class _Then:
    """A loader that calls when the module has been executed; all else of it is the loader's own."""

    def __init__(self, loader: Any, then: Callable[[Any], None]) -> None:
        self._loader, self._then = loader, then

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._then(module)
