"""The lever that compiles what the cell calls."""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from torchbench_magic.core.code.code_reads import names_used, notebook_functions, variables_read
from torchbench_magic.core.compiler.dynamo import compiled_of, recompile_limit, switched_off_by

from .lever import Change, DoesNotApply, Site

__all__ = ["Compile", "graphs_compiled", "has_compiled_code"]

_TRAINING = {"backward", "step", "zero_grad"}
"""Names by which a function is known to train: then the modules that it calls are compiled, and not itself."""


@dataclass(frozen=True)
class Compile:
    """``torch.compile`` of the modules and functions that the cell calls by a name. Sums may be taken in another order,
    and several operations may be one with other roundings in between.

    A module shares its parameters with what is compiled of it. A function of the notebook is compiled as a copy of its
    own, a module within a function that calls it: the compiler keeps what it compiled with the code object, so that the
    user's has no compiled code of ours with it, and a second trial compiles anew.
    """

    name: str = "compile"

    def change(self, site: Site) -> Change:
        import torch

        if switch := switched_off_by():
            raise DoesNotApply(f"torch.compile is disabled here ({switch})")
        modules, functions = _targets(site)
        if not modules and not functions:
            raise DoesNotApply(_why_nothing(site))
        # without it, what is compiled draws other random numbers than torch does
        options: dict[str, Any] | None = {"fallback_random": True} if site.draws else None
        made = {name: _compiled(site.reads[name], options) for name in modules}

        def finish(names: dict[str, Any]) -> None:
            names.update((name, torch.compile(names[name], options=options)) for name in functions)

        given = ', options={"fallback_random": True}' if site.draws else ""
        named = [*modules, *functions]
        how = "; ".join(f"{name} = torch.compile({name}{given})" for name in named)
        return Change(names=made, finish=finish if functions else None, compiles=", ".join(named), how=how)


def _compiled(module: Any, options: dict[str, Any] | None) -> Any:
    """As ``torch.compile`` has it, but for the code object, which is one of its own."""
    import torch

    def call(*args: Any, **kwargs: Any) -> Any:
        return module(*args, **kwargs)

    before = set(vars(module))
    made: Any = torch.compile(module, options=options)
    for name in vars(module).keys() - before:  # torch marks what it compiled, and of a module marks the user's own
        vars(made)[name] = vars(module).pop(name)
    if type(made).__name__ == "OptimizedModule" and not hasattr(module, "_initialize_hook"):  # a lazy one is left so
        own = FunctionType(call.__code__.replace(), call.__globals__, "call", None, call.__closure__)
        made.forward = torch.compile(own, options=options)
    return made


def has_compiled_code(site: Site) -> bool:
    """Whether code is there that was compiled earlier, of the modules that the cell reads and of those within, and no
    code of theirs has as many compilations as may be: then it may run as it is."""
    limit = recompile_limit()
    models = site.of_kind(_class_of_modules()).values()
    codes = {function.__code__ for model in models for module in model.modules() if (function := _forward_of(module))}
    numbers = [len(compiled_of(code)) for code in codes]
    return any(numbers) and limit is not None and max(numbers) < limit


def _forward_of(module: Any) -> FunctionType | None:
    forward = getattr(type(module), "forward", None)
    return forward if isinstance(forward, FunctionType) else None


def _class_of_modules() -> type:
    import torch

    return torch.nn.Module


def _targets(site: Site) -> tuple[list[str], list[str]]:
    """Names of the modules and of the functions to compile: the outermost that do not train."""
    import torch

    modules: dict[str, Any] = {}
    functions: list[str] = []
    todo, seen = sorted(site.used & site.reads.keys()), set[str]()
    while todo:
        name = todo.pop()
        value = site.reads.get(name)
        if name in seen:
            continue
        seen.add(name)
        if isinstance(value, torch.nn.Module) and not _is_compiled(value):
            modules[name] = value
        elif isinstance(value, FunctionType) and _is_of_notebook(value, site):
            inner = notebook_functions([name], site.names, site.home)
            if _may_be_compiled(value) and not any(_trains(each) for each in [value, *inner]):
                functions.append(name)
            else:
                todo += sorted(variables_read([], site.names, [value]))
    with_parameters = [name for name, model in modules.items() if any(True for _ in model.parameters())]
    return sorted(with_parameters or modules), sorted(functions)


def _is_of_notebook(function: FunctionType, site: Site) -> bool:
    return function.__globals__ is site.home or function.__globals__ is site.names


def _may_be_compiled(function: FunctionType) -> bool:
    return not (inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function))


def _trains(function: FunctionType) -> bool:
    return bool(_TRAINING & {*names_used(function.__code__)})


def _is_compiled(module: Any) -> bool:
    return type(module).__name__ == "OptimizedModule"


def _why_nothing(site: Site) -> str:
    import torch

    compiled = [name for name, value in site.of_kind(torch.nn.Module).items() if _is_compiled(value)]
    if compiled:
        return f"`{compiled[0]}` is already compiled"
    return "the cell calls no module or function of the notebook by name: put its code into a function"


def graphs_compiled() -> int:
    """How many graphs torch.compile has made in this process; 0 where that is not known."""
    compiling = sys.modules.get("torch._dynamo.utils")
    counters = getattr(compiling, "counters", {})  # a private name: defaultdict of Counters
    return int(counters["stats"]["unique_graphs"]) if "stats" in counters else 0
