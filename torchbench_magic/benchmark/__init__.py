"""A drop-in for ``torch.utils.benchmark``: change the prefix of the import, and the code runs.

``from torchbench_magic import benchmark`` for ``from torch.utils import benchmark``, or the prefix of any
``from torch.utils.benchmark[...] import ...``. Names, arguments, defaults, printed text and records are torch's:
`Measurement`, `TaskSpec`, `CallgrindStats` and `FunctionCounts` are torch's very classes, so that a pickle made here
loads where only torch is installed, and the other way round.

What is mended or more:

- ``Timer.collect_callgrind`` takes a fraction of a second once its process is up, and any globals.
- ``Timer(timer="cpu")`` and ``timer="device"`` choose a clock.
- ``Compare`` survives missing descriptions and environments, keeps runs of unlike speed apart, has ``frame`` and
  ``to_markdown()`` and shows itself as a table in a notebook.
- ``FuzzedParameter`` and the op fuzzers accept what torch documents (torch 2.13 refuses it).

What torch documents and is otherwise here, and why:

- ``collect_callgrind`` does not ask for globals in ``CopyIfCallgrind`` (it takes them wrapped too), and a class that
  only the notebook knows is no error: objects travel by value. Torch refuses them since it cannot send them.
- Each of its ``repeats`` is a process of its own, so that they are the same number; torch repeats in one process, where
  the heap's history moves the count.
- The retained file tells lines but not single instructions (torch passes ``--dump-instr=yes``), which nothing here
  reads and which makes it longer.
- ``Compare`` marks a row that stands for unlike runs with ``*`` and says so below; ``split_runs()`` gives each a row of
  its own, "(run 2)". torch merges them, or shows the last, without a word.
- The submodules are made when the package is imported: type checkers and editors see the names of this package, not
  those of ``benchmark.utils.common`` and the like.
"""

from __future__ import annotations

import math  # these three come along with torch's `import *`, so they do here
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from numbers import Number
from types import ModuleType
from typing import Any

from torchbench_magic.process.require_torch import import_torch

import_torch()  # before all that imports torch: it says in one line what is wrong with it
# ruff: noqa: E402

# isort: split
import torch
import torch.utils.benchmark
from torch.utils.benchmark import (
    CallgrindStats,
    Colorize,
    CopyIfCallgrind,
    FunctionCount,
    FunctionCounts,
    FuzzedSparseTensor,
    FuzzedTensor,
    Fuzzer,
    Language,
    Measurement,
    ParameterAlias,
    TaskSpec,
    ordered_unique,
    select_unit,
    set_torch_threads,
    timer,
    trim_sigfig,
    unit_to_english,
)

from torchbench_magic.timing.fuzzers import OP_FUZZERS, FuzzedParameter, op_fuzzer
from torchbench_magic.timing.torch_compare import Compare

from . import utils
from .utils.timer import Timer

__all__ = [
    "CallgrindStats",
    "Colorize",
    "Compare",
    "CopyIfCallgrind",
    "FunctionCount",
    "FunctionCounts",
    "FuzzedParameter",
    "FuzzedSparseTensor",
    "FuzzedTensor",
    "Fuzzer",
    "Language",
    "Measurement",
    "Number",
    "ParameterAlias",
    "TaskSpec",
    "Timer",
    "math",
    "op_fuzzers",
    "ordered_unique",
    "select_unit",
    "set_torch_threads",
    "timer",
    "torch",
    "trim_sigfig",
    "unit_to_english",
    "utils",
]

# The modules of ``torch.utils.benchmark`` under our prefix: a table of their names, and of what is ours in them.

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


def _add_torch_modules() -> None:
    """Make the modules, so that ``import`` finds them. Each holds all that torch's module of that name holds, the
    undocumented included, whatever torch's version; type checkers do not see them."""
    for name, ours in _MODULES.items():
        _add(f"{__name__}.{name}", import_module(f"torch.utils.benchmark.{name}"), ours)


def _add(name: str, theirs: ModuleType, ours: dict[str, Any]) -> None:
    made = module_from_spec(ModuleSpec(name, None, is_package=hasattr(theirs, "__path__")))
    own = f" with our {', '.join(ours)}" if ours else ": torch's own"
    names = {key: value for key, value in vars(theirs).items() if key == "__all__" or not key.startswith("__")}
    vars(made).update(names, **ours, __doc__=f"``{theirs.__name__}``{own}.")
    sys.modules[name] = made
    parent, _, last = name.rpartition(".")
    setattr(sys.modules[parent], last, made)


_add_torch_modules()


def __getattr__(name: str) -> Any:
    """What torch has besides, whatever its version."""
    return getattr(torch.utils.benchmark, name)
