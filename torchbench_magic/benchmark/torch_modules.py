"""The modules of ``torch.utils.benchmark`` under our prefix: a table of their names, and of what is ours in them."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from types import ModuleType
from typing import Any

from torchbench_magic.timing.fuzzers import OP_FUZZERS, FuzzedParameter, op_fuzzer
from torchbench_magic.timing.torch_compare import Compare

_MODULES: dict[str, dict[str, Any]] = {  # a package stands before its modules
    "utils._stubs": {},
    "utils.common": {},
    "utils.compare": {"Compare": Compare},
    "utils.cpp_jit": {},
    "utils.fuzzer": {"FuzzedParameter": FuzzedParameter},
    "utils.sparse_fuzzer": {},
    "utils.valgrind_wrapper": {},
    "utils.valgrind_wrapper.timer_interface": {},
    "op_fuzzers": {},
    **{f"op_fuzzers.{module}": {name: op_fuzzer(kind)} for kind, (module, name) in OP_FUZZERS.items()},
}
"""Module -> names that it has from us. `utils.timer` is a file here, and so is `utils.compile`: what it imports is
heavy, and must wait until somebody asks for it."""


def add_torch_modules(package: str) -> None:
    """Make the modules, so that ``import`` finds them. Each holds all that torch's module of that name holds, the
    undocumented included, whatever torch's version; type checkers do not see them."""
    for name, ours in _MODULES.items():
        _add(f"{package}.{name}", import_module(f"torch.utils.benchmark.{name}"), ours)


def _add(name: str, theirs: ModuleType, ours: dict[str, Any]) -> None:
    made = module_from_spec(ModuleSpec(name, None, is_package=hasattr(theirs, "__path__")))
    own = f" with our {', '.join(ours)}" if ours else ": torch's own"
    names = {key: value for key, value in vars(theirs).items() if key == "__all__" or not key.startswith("__")}
    vars(made).update(names, **ours, __doc__=f"``{theirs.__name__}``{own}.")
    sys.modules[name] = made
    parent, _, last = name.rpartition(".")
    setattr(sys.modules[parent], last, made)
