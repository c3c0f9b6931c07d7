"""Compiled extension modules of a notebook on their way to the counting process.

``torch.utils.cpp_extension.load_inline`` builds a module somewhere under the user's cache and loads it from there: no
``import`` finds it. So such a module, and its functions, travel by the path of its file.
"""

from __future__ import annotations

import gc
import importlib.util
import sys
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder
from types import BuiltinFunctionType, ModuleType
from typing import Any

__all__ = ["reduced_extension"]


def reduced_extension(obj: Any) -> tuple[Any, ...] | None:
    """How to pickle an extension module that no import finds, or one of its functions; None for anything else."""
    if isinstance(obj, ModuleType):
        return (_loaded, (obj.__name__, obj.__file__)) if _is_unfindable(obj) else None
    if isinstance(obj, BuiltinFunctionType):
        home = getattr(obj, "__module__", None)
        if not isinstance(home, str) or home in sys.modules or home in sys.builtin_module_names:
            return None
        everything = gc.get_objects()  # by type(): isinstance would wake objects that warn when they are looked at
        modules = (m for m in everything if issubclass(type(m), ModuleType) and m.__name__ == home)
        module = next((m for m in modules if getattr(m, obj.__name__, None) is obj), None)
        return None if module is None else (getattr, (module, obj.__name__))
    return None


def _is_unfindable(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not file.endswith((*EXTENSION_SUFFIXES, ".so")) or "." in module.__name__:
        return False
    return PathFinder.find_spec(module.__name__) is None


def _loaded(name: str, file: str) -> ModuleType:
    """The module, loaded from its file once."""
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no extension module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
