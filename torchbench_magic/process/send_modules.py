"""Modules of the notebook on their way to another process, and how they are made there."""

from __future__ import annotations

import functools
import gc
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from .code import codes_within
from .frame_owner import is_library_file

# ---- extensions ------------------------------------------------------------------------------------------------------
# ``torch.utils.cpp_extension.load_inline`` builds a module somewhere under the user's cache and loads it from there: no
# ``import`` finds it. So such a module, and its functions, travel by the path of its file.


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


# ---- made_modules ----------------------------------------------------------------------------------------------------
# The notebook's modules in the counting process: made of what travelled, never of their files.

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


class Guard:
    """Stands before the finders: a file beside the notebook may not be what the notebook has loaded from it."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name in self._names:
            raise ImportError(
                f"the code imports the module {name} in a way that was not recognised: import it in the counted cell"
            )


def check_same_in_notebook(named: Mapping[tuple[str, str], tuple[Any, ...]], described: Callable[[Any], Any]) -> None:
    """Give names of installed modules that the code uses the meaning that they have in the notebook.

    Args:
        named: (module, name) -> its `description` in the notebook.
        described: `description`.

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


# ---- notebook_modules ------------------------------------------------------------------------------------------------
# The modules of the notebook's process as they are now: which of them travel, and what in the others was replaced.
#
# A module beside the notebook, or of a package that is being worked on, may be another one than its file: edited and
# not loaded anew, changed by an assignment, or its file gone. So it travels as it is, and its file is not read. What is
# installed is imported in the counting process; what somebody put in its place there travels as well.

ALL_NAMES = frozenset({"vars", "globals", "__dict__", "dir", "eval", "exec"})
"""Code that uses one of these may read any name of a module."""

_NEVER_LOCAL = frozenset({"torch", "torchgen", "functorch", "numpy", "cloudpickle", "torchbench_magic", "sys"})
"""What the counting process has of its own, even where it is installed from a folder that is being worked on."""
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_LONGEST = 1000
"""Characters of a constant that is compared."""


@dataclass(frozen=True)
class Replaced:
    """Something of the notebook in the place of a name of an installed module or of one of its classes."""

    owner: Any
    name: str
    value: Any

    @property
    def place(self) -> str:
        if isinstance(self.owner, ModuleType):
            return f"{self.owner.__name__}.{self.name}"
        return f"{self.owner.__module__}.{self.owner.__qualname__}.{self.name}"


@dataclass(frozen=True)
class Loaded:
    """What of this process the counting process has not.

    Attributes:
        local: name -> module, of those that travel.
        homes: id of a dict of globals -> its module, of those in ``local``.
        own: ids of dicts that are globals of functions written in the notebook or in a local module.
        replaced: what stands in the place of names of installed modules.
    """

    local: Mapping[str, ModuleType] = field(default_factory=dict)
    homes: Mapping[int, ModuleType] = field(default_factory=dict)
    own: frozenset[int] = frozenset()
    replaced: tuple[Replaced, ...] = ()

    @classmethod
    def now(cls, namespace: Mapping[str, Any], *, with_replaced: bool = True) -> Loaded:
        """Of this process; ``namespace``: globals of the code that is counted."""
        modules = _modules()
        local = {name: module for name, module in modules.items() if _is_local(name, module, modules)}
        homes = {id(contents(module)): module for module in local.values()}
        main = modules.get("__main__")
        own = frozenset({*homes, id(namespace), *([] if main is None else [id(contents(main))])})
        installed = [m for n, m in modules.items() if n not in local and n.partition(".")[0] not in _NOT_LOOKED_AT]
        names = frozenset({*local, "__main__"})
        replaced = _replaced(installed, lambda value: _is_own(value, own, names)) if with_replaced else ()
        return cls(local, homes, own, tuple(replaced))

    def is_replaced(self, value: Any) -> bool:
        """Whether something of the notebook stands where this function or class of an installed module belongs."""
        if not self.replaced:
            return False
        place = f"{value.__module__}.{value.__qualname__}"
        return any(one.place == place and one.value is not value for one in self.replaced)


_NOT_LOOKED_AT = frozenset({"sys", "__main__", "__mp_main__", "torchbench_magic", "IPython", "ipykernel", "pytest"})
"""Modules where names are bound to what is the user's in the ordinary way, such as the last exception."""


def _modules() -> dict[str, ModuleType]:
    return {n: m for n, m in sys.modules.copy().items() if issubclass(type(m), ModuleType)}


def contents(module: ModuleType) -> dict[str, Any]:
    """The names of a module; one that loads itself when it is looked at is left asleep."""
    found: dict[str, Any] = object.__getattribute__(module, "__dict__")
    return found


def looked_up_names(code: CodeType) -> Iterator[str]:
    """Names that code, or code inside it, looks up by their text or holds as a text, as for `getattr`."""
    for part in codes_within(code):
        yield from part.co_names
        yield from (text for text in part.co_consts if isinstance(text, str) and text.isidentifier())


def description(value: Any) -> tuple[Any, ...] | None:
    """What says of a function, a class or a plain value which one it is, in every process; None for anything else."""
    kind = type(value)
    if kind in _PLAIN:
        return None if isinstance(value, str | bytes) and len(value) > _LONGEST else ("plain", value)
    if kind in (FunctionType, BuiltinFunctionType, type):
        return ("named", str(getattr(value, "__module__", None)), str(value.__qualname__))
    return None


# ---- which are local --------------------------------------------------------------------------------------------


def _is_local(name: str, module: ModuleType, modules: Mapping[str, ModuleType]) -> bool:
    top = name.partition(".")[0]
    if top in _NEVER_LOCAL or name in ("__main__", "__mp_main__"):
        return False
    names = contents(module)
    file = names.get("__file__")
    if isinstance(file, str):
        return not file.endswith((*EXTENSION_SUFFIXES, ".so")) and not is_library_file(file)
    if names.get("__spec__") is None:
        return _is_made_by_hand(name, names, modules)
    folders = names.get("__path__")  # of a package without a file of its own
    if folders is None:
        return False  # built in
    first = next(iter(folders), None)
    return isinstance(first, str) and not is_library_file(os.path.join(first, "__init__.py"))


def _is_made_by_hand(name: str, names: Mapping[str, Any], modules: Mapping[str, ModuleType]) -> bool:
    """`types.ModuleType` called in the notebook; installed packages make such modules below their own name."""
    top = name.partition(".")[0]
    if top != name:
        return top in modules and _is_local(top, modules[top], modules)
    functions = [value for value in names.values() if type(value) is FunctionType]
    return bool(functions) and not any(is_library_file(f.__code__.co_filename) for f in functions)


# ---- what was replaced ------------------------------------------------------------------------------------------


_INNER = {
    staticmethod: "__func__",
    classmethod: "__func__",
    MethodType: "__func__",
    partial: "func",
    functools._lru_cache_wrapper: "__wrapped__",
}
"""What holds a function -> the attribute that is it."""


def _is_own(value: Any, homes: frozenset[int], modules: frozenset[str]) -> bool:
    """Whether a value was written in the notebook or in a local module: those with these globals, or of these names."""
    kind = type(value)
    if kind is FunctionType:
        # ipyparallel gives functions of its own the notebook's names as globals (``interactive``)
        return id(value.__globals__) in homes and not is_library_file(value.__code__.co_filename)
    if kind in _INNER:
        return _is_own(getattr(value, _INNER[kind]), homes, modules)
    if kind is property:
        return any(_is_own(part, homes, modules) for part in (value.fget, value.fset) if part is not None)
    home = type.__getattribute__(value if issubclass(kind, type) else kind, "__dict__").get("__module__")
    return isinstance(home, str) and home in modules


def _replaced(installed: list[ModuleType], is_own: Callable[[Any], bool]) -> Iterator[Replaced]:
    """In modules and in their classes; about 0.1 s for torch's 150,000 names."""
    classes: dict[int, type] = {}
    for module in installed:
        for name, value in list(contents(module).items()):
            if name.startswith("__") or issubclass(type(value), ModuleType):
                continue
            if is_own(value):
                yield Replaced(module, name, value)
            elif issubclass(type(value), type):
                classes[id(value)] = value
    for owner in classes.values():
        for name, value in list(type.__getattribute__(owner, "__dict__").items()):
            if type(value) in _OF_CLASSES and is_own(value):
                yield Replaced(owner, name, value)


_OF_CLASSES = (FunctionType, property, *(kind for kind in _INNER if kind is not MethodType))
