"""Levers: changes that may make a cell faster, each with the reason where it does not apply."""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType
from typing import Any

from torchbench_magic.process.code import globals_read, names_used, notebook_functions, variables_read
from torchbench_magic.process.dynamo_internals import compiled_of, recompile_limit, switched_off_by
from torchbench_magic.process.environment import read_environment
from torchbench_magic.process.settings import set_threads
from torchbench_magic.process.static_introspection import is_a, is_tensor
from torchbench_magic.timing.restore import is_training_state

# ---- lever -----------------------------------------------------------------------------------------------------------
# What a lever is: when it applies, what it changes for a copy of the names, and what may change in the result.


class DoesNotApply(Exception):
    """A lever does not apply to a cell; the text says why."""


@dataclass(frozen=True)
class Site:
    """A cell as levers find it: its setup has run, and it was called.

    Attributes:
        names: what the cell finds, as its setup left it; not to be changed.
        home: the notebook's own names, which its functions read.
        used: names that the body itself uses.
        reads: variable -> value, of what the body and the functions that it may call read.
        functions: of the notebook, that it may call.
        tree: of the body.
        mentioned: names of globals and attributes in all of that code.
        tensors: label -> tensor, of all that it reaches, those of modules and optimizers included.
        trains: a call of it computes gradients.
        draws: a call of it draws random numbers.
        threads: torch's, that the baseline runs with.
        call_seconds: of a warm call.
    """

    names: Mapping[str, Any]
    home: Mapping[str, Any]
    used: frozenset[str]
    reads: Mapping[str, Any]
    functions: tuple[FunctionType, ...]
    tree: ast.Module
    mentioned: frozenset[str]
    tensors: Mapping[str, Any] = field(default_factory=dict)
    trains: bool = False
    draws: bool = False
    threads: int = 1
    call_seconds: float = 0.0

    def of_kind(self, kind: type) -> dict[str, Any]:
        """The variables that hold an instance of a class."""
        return {name: value for name, value in self.reads.items() if is_a(value, kind)}

    @property
    def device(self) -> str:
        """Type of the accelerator that its tensors are on; "cpu" where they are on none."""
        return next((t.device.type for t in self.tensors.values() if t.device.type != "cpu"), "cpu")

    def has_dtype(self, *dtypes: Any) -> bool:
        """Whether one of its tensors is of one of these."""
        return any(tensor.dtype in dtypes for tensor in self.tensors.values())


@dataclass(frozen=True)
class Change:
    """What a lever does to one cell.

    Attributes:
        names: variable -> what the cell is to find in its place.
        finish: given all names of the copy, functions of the notebook made anew over it, to change the last of them.
        around: makes the context that calls run in; None for none.
        each_call: every call enters ``around`` anew, within the clocks: what it keeps until it is left is of one call.
        before: sets a setting of the process; called once, outside of the clocks.
        precision: the dtype (of torch) at whose tolerance results are compared; None is that of the results.
        compiles: what is compiled at the first call, in words; empty for nothing.
        how: what to write in the cell to have it.
        changed: what was changed before the clock started, in words; empty for nothing.
    """

    names: Mapping[str, Any] = field(default_factory=dict)
    finish: Callable[[dict[str, Any]], None] | None = None
    around: Callable[[], Any] | None = None
    each_call: bool = False
    before: Callable[[], object] | None = None
    precision: Any = None
    compiles: str = ""
    how: str = ""
    changed: str = ""


Lever = Callable[[Site], Change]
"""What it does to a cell; raises `DoesNotApply` where it does nothing there, and says why."""


# ---- copied_names ----------------------------------------------------------------------------------------------------

_DEEPEST = 3


def with_functions(site: Site, changed: Mapping[str, Any]) -> dict[str, Any]:
    """All names of the cell, with those that are ``changed``; functions of the notebook read them too.

    A function finds its globals in the dict that it was defined in: it is made anew over the copy. Its code is a copy
    too, so that what is compiled for it is not kept with the user's.

    Raises:
        DoesNotApply: a method reads one of the names as a global: it would go on reading the old one.
    """
    names = {**site.names, **changed}
    homes = (id(site.home), id(site.names))
    made = {}
    for name, value in names.items():
        if type(value) is FunctionType and id(value.__globals__) in homes:
            made[name] = _over(value, names)
    anew = {id(site.names[name]) for name in made if name in site.names}
    for function in site.functions:
        shared = sorted(globals_read(function.__code__) & changed.keys())
        if id(function) not in anew and shared:
            raise DoesNotApply(
                f"`{function.__qualname__}` reads `{shared[0]}` from the notebook and cannot be made to read a copy"
            )
    names.update((name, function) for name, function in made.items() if name not in changed)
    return names


def _over(function: FunctionType, names: dict[str, Any]) -> FunctionType:
    made = FunctionType(
        function.__code__.replace(), names, function.__name__, function.__defaults__, function.__closure__
    )
    made.__kwdefaults__ = function.__kwdefaults__
    made.__dict__.update(function.__dict__)
    made.__qualname__, made.__doc__, made.__module__ = function.__qualname__, function.__doc__, function.__module__
    return made


def copied_training_state(site: Site) -> dict[str, Any]:
    """Copies of the modules, optimizers and schedules that the cell reads, which belong together as the originals do.

    Raises:
        DoesNotApply: another object holds one of them, and would go on with the original.
    """
    from torch.nn import Module
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    kinds = (Module, Optimizer, LRScheduler)
    found = {name: value for name, value in site.reads.items() if is_a(value, kinds)}
    for name, value in site.reads.items():
        if name not in found and is_training_state(value):
            raise DoesNotApply(
                f"`{name}` holds a model or an optimizer and would go on using the original, not the copy"
            )
    made: dict[str, Any] = copy.deepcopy(found)  # at once: an optimizer's parameters are those of the copied modules
    for name, value in found.items():
        if isinstance(value, Optimizer):
            have_own_parts(made[name], value)
    return made


def have_own_parts(made: Any, optimizer: Any) -> None:
    """Give a copy of an optimizer what copying leaves behind: its hooks, and the count of steps that a schedule looks
    at, without which it warns that ``step`` is another."""
    left = {key: value for key, value in vars(optimizer).items() if key not in vars(made) or "_hooks" in key}
    step = left.pop("step", None)
    made.__dict__.update((key, copy.copy(value) if "_hooks" in key else value) for key, value in left.items())
    if hasattr(step, "_wrapped_by_lr_sched"):
        function = type(made).step

        @functools.wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            made._opt_called = True
            return function(made, *args, **kwargs)

        counted._wrapped_by_lr_sched = True  # type: ignore[attr-defined]  # as torch's own schedules do
        made.step = counted


def converted(value: Any, convert: Callable[[Any], Any], depth: int = 0) -> Any:
    """A tensor converted, or a list, tuple or dict with its tensors converted; the value itself where none was."""
    if is_tensor(value):
        return convert(value)
    if depth >= _DEEPEST or type(value) not in (list, tuple, dict) or len(value) > 1000:
        return value
    if isinstance(value, dict):
        items = {key: converted(item, convert, depth + 1) for key, item in value.items()}
        return items if any(items[key] is not item for key, item in value.items()) else value
    made = [converted(item, convert, depth + 1) for item in value]
    return type(value)(made) if any(a is not b for a, b in zip(made, value, strict=True)) else value


def copied_with(site: Site, convert: Callable[[Any], Any]) -> dict[str, Any]:
    """Variable -> its tensors converted, of those variables of the cell that have any such."""
    made = {name: converted(value, convert) for name, value in site.reads.items()}
    return {name: value for name, value in made.items() if value is not site.reads[name]}


# ---- entered_modes ---------------------------------------------------------------------------------------------------
# Levers that are a mode which the body runs in: a ``with`` around it. Grad modes are entered outside of the clocks, as
# around a loop: entering one takes some microseconds, which would be a difference where the mode itself makes none.

_NO_GRAPH = "its result has no graph for a backward pass; the time to enter the mode is not included"


def inference_mode(site: Site) -> Change:
    """``torch.inference_mode()``: no graph, no counts of changes in place. Values stay; gradients cannot be had."""
    import torch

    if torch.is_inference_mode_enabled():
        raise DoesNotApply("inference mode is already on")
    _without_gradients(site)
    return Change(around=torch.inference_mode, how="with torch.inference_mode():", changed=_NO_GRAPH)


def no_grad(site: Site) -> Change:
    """``torch.no_grad()``: no graph. Values stay; gradients cannot be had."""
    import torch

    if not torch.is_grad_enabled():
        raise DoesNotApply("grad mode is already off")
    _without_gradients(site)
    if not any(tensor.requires_grad for tensor in site.tensors.values()):
        raise DoesNotApply("nothing that the cell reads requires a gradient")
    return Change(around=torch.no_grad, how="with torch.no_grad():", changed=_NO_GRAPH)


def _without_gradients(site: Site) -> None:
    if site.trains:
        raise DoesNotApply("the cell computes gradients")


def autocast(name: str, site: Site) -> Change:
    """``torch.autocast``: matrix products and convolutions in a shorter dtype. Their results have its precision: three
    digits in bfloat16, four in float16, which also ends at 65 504. Each call enters it: until it is left it keeps the
    weights that were cast, and a step of training casts them anew.
    """
    import torch

    device, dtype = site.device, getattr(torch, name)
    if torch.is_autocast_enabled(device):
        raise DoesNotApply("autocast is already on")
    if not site.has_dtype(*{torch.float32, torch.float16, torch.bfloat16} - {dtype}):
        raise DoesNotApply("the cell reads no float32 tensor")
    if name == "float16" and site.trains:
        raise DoesNotApply("training in float16 needs a GradScaler: write that as an alternative in a %%timer cell")
    how = f'with torch.autocast("{device}", dtype={dtype}):'
    return Change(around=partial(torch.autocast, device, dtype=dtype), each_call=True, precision=dtype, how=how)


# ---- layouts ---------------------------------------------------------------------------------------------------------


def channels_last(site: Site) -> Change:
    """Images with their channels innermost, which convolutions like. Sums may be taken in another order.

    The modules and the inputs are copies, laid out anew before the clock starts; what the body makes itself comes in
    whatever layout its operations give it.
    """
    import torch

    convolving = [
        name
        for name, model in site.of_kind(torch.nn.Module).items()
        if any(isinstance(part, (torch.nn.Conv2d, torch.nn.ConvTranspose2d)) for part in model.modules())
    ]
    if not convolving:
        raise DoesNotApply("the cell reads no module with a 2-d convolution")
    images = copied_with(site, _channels_last)
    copies = copied_training_state(site)
    for name, value in copies.items():
        if isinstance(value, torch.nn.Module):
            copies[name] = value.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs
    names = ", ".join(f"`{name}`" for name in sorted({*convolving, *images}))
    first = convolving[0]
    how = f"{first} = {first}.to(memory_format=torch.channels_last)"
    how += "".join(f"; {name} = {name}.to(memory_format=torch.channels_last)" for name in sorted(images)[:1])
    changed = f"{names} converted once, before the timing"
    if not images:
        changed += "; the images that the body makes are converted in it, by the first convolution"
    return Change(names={**images, **copies}, how=how, changed=changed)


def _channels_last(tensor: Any) -> Any:
    import torch

    if tensor.dim() != 4 or tensor.is_contiguous(memory_format=torch.channels_last) or not _is_plain(tensor):
        return tensor
    return tensor.detach().contiguous(memory_format=torch.channels_last).requires_grad_(tensor.requires_grad)


def contiguous(site: Site) -> Change:
    """Inputs whose elements lie scattered in memory, laid out row by row before the clock starts. Values stay; sums
    may be taken in another order."""
    made = copied_with(site, _contiguous)
    if not made:
        raise DoesNotApply("every tensor that the cell reads by a name is contiguous")
    first = min(made)
    names = ", ".join(f"`{name}`" for name in sorted(made))
    return Change(
        names=made, how=f"{first} = {first}.contiguous()", changed=f"{names} laid out once, before the timing"
    )


def _contiguous(tensor: Any) -> Any:
    import torch

    if not _is_plain(tensor) or tensor.is_contiguous() or tensor.layout is not torch.strided:
        return tensor
    return tensor.detach().contiguous().requires_grad_(tensor.requires_grad)


def _is_plain(tensor: Any) -> bool:
    """Of no subclass, and an input rather than a step of a graph or a module's parameter."""
    import torch

    return type(tensor) is torch.Tensor and tensor.is_leaf


# ---- optimizers ------------------------------------------------------------------------------------------------------


def optimizer_form(word: str, site: Site) -> Change:
    """``fused=True`` or ``foreach=True`` of the optimizers that the cell reads: one call for all parameters, or one
    operation for each step of the formula. The formula stays; its last bits may not.

    The parameters are the same; a copy of the optimizer updates them, with copies of its state.
    """
    import torch

    found = site.of_kind(torch.optim.Optimizer)
    if not found:
        raise DoesNotApply("the cell reads no optimizer by a name")
    made = {name: _in_form(word, name, optimizer) for name, optimizer in found.items()}
    for name, schedule in site.of_kind(torch.optim.lr_scheduler.LRScheduler).items():
        twin = next((made[n] for n, o in found.items() if o is schedule.optimizer), None)
        if twin is not None:
            made[name] = copy.copy(schedule)
            made[name].optimizer = twin
    first = next(iter(found))
    how = f"{type(found[first]).__name__}(..., {word}=True)"
    return Change(names=made, how=how, changed=f"a copy of `{first}`, with {word}=True")


def _in_form(word: str, name: str, optimizer: Any) -> Any:
    import torch

    groups = optimizer.param_groups
    kind = type(optimizer).__name__
    inner = [key for key, one in vars(optimizer).items() if isinstance(one, torch.optim.Optimizer)]
    if inner:
        raise DoesNotApply(f"`{name}` wraps the optimizer that steps: try it on `{name}.{inner[0]}`, by a name")
    if any(word not in group for group in groups):
        raise DoesNotApply(f"{kind} has no {word}=True")
    if all(group[word] for group in groups):
        raise DoesNotApply(f"`{name}` has {word}=True already")
    on_cpu = any(parameter.device.type == "cpu" for group in groups for parameter in group["params"])
    if word == "foreach" and not on_cpu and all(group["foreach"] is None for group in groups):
        raise DoesNotApply(f"`{name}` already uses foreach by default on this device")
    if word == "fused" and any(group.get("differentiable") for group in groups):
        raise DoesNotApply(f"`{name}` has differentiable=True, which fused=True does not support")
    forms = {"fused": word == "fused", "foreach": word == "foreach"}
    made = copy.copy(optimizer)
    made.defaults = {**optimizer.defaults, **{key: on for key, on in forms.items() if key in optimizer.defaults}}
    made.state = defaultdict(dict, {p: _copied(held) for p, held in optimizer.state.items()})
    # ``add_param_group`` of a new one would check what fused=True needs; the constructor does so too
    made.param_groups = [
        {**group, **{key: on for key, on in forms.items() if key in group}, "params": list(group["params"])}
        for group in groups
    ]
    have_own_parts(made, optimizer)
    return made


def _copied(held: Any) -> Any:
    import torch

    return {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in held.items()}


# ---- process_levers --------------------------------------------------------------------------------------------------
# Levers that are a setting of the process: it is exchanged between blocks, outside of the clocks.

SHORT_S = 2e-3
"""A call below which handing work to threads may cost more than it saves: then one thread is tried."""


def threads(count: int, site: Site) -> Change:
    """Another number of torch's threads. Sums may be taken in another order, which changes the last bits."""
    if count == site.threads:
        raise DoesNotApply(f"the cell runs with {count} thread{'' if count == 1 else 's'} as it is")
    return Change(before=partial(set_threads, count), how=f"torch.set_num_threads({count})")


def threads_to_try(site: Site) -> int:
    """One for short calls and where two run now, half as many for long ones, and all cores where one runs now."""
    if site.threads == 1:
        return read_environment().usable_cores
    return 1 if site.call_seconds < SHORT_S else site.threads // 2


def matmul_medium(site: Site) -> Change:
    """float32 matrix products may be computed in bfloat16, where the processor can: three digits of the result stay."""
    import torch

    if torch.get_float32_matmul_precision() == "medium":
        raise DoesNotApply("the precision of float32 matrix products is already medium")
    if not site.has_dtype(torch.float32):
        raise DoesNotApply("the cell reads no float32 tensor")
    how = 'torch.set_float32_matmul_precision("medium")'
    return Change(before=partial(torch.set_float32_matmul_precision, "medium"), precision=torch.bfloat16, how=how)


def flush_denormal(site: Site) -> Change:
    """Numbers too small for full precision (below 1.2e-38 in float32) become zero: arithmetic on them is slow."""
    import torch

    smallest = torch.tensor([1e-39])
    if float(smallest * 1) == 0:
        raise DoesNotApply("denormal numbers are already flushed to zero")
    if not torch.set_flush_denormal(True):
        raise DoesNotApply("this processor cannot flush denormal numbers")
    torch.set_flush_denormal(False)
    return Change(before=partial(torch.set_flush_denormal, True), how="torch.set_flush_denormal(True)")


# ---- compile_lever ---------------------------------------------------------------------------------------------------

_TRAINING = {"backward", "step", "zero_grad"}
"""Names by which a function is known to train: then the modules that it calls are compiled, and not itself."""


def compile_callees(site: Site) -> Change:
    """``torch.compile`` of the modules and functions that the cell calls by a name. Sums may be taken in another order,
    and several operations may be one with other roundings in between.

    A module shares its parameters with what is compiled of it. A function of the notebook is compiled as a copy of its
    own, a module within a function that calls it: the compiler keeps what it compiled with the code object, so that the
    user's has no compiled code of ours with it, and a second trial compiles anew.
    """
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
    import torch

    limit = recompile_limit()
    models = site.of_kind(torch.nn.Module).values()
    codes = {function.__code__ for model in models for module in model.modules() if (function := _forward_of(module))}
    numbers = [len(compiled_of(code)) for code in codes]
    return any(numbers) and limit is not None and max(numbers) < limit


def _forward_of(module: Any) -> FunctionType | None:
    forward = getattr(type(module), "forward", None)
    return forward if isinstance(forward, FunctionType) else None


def _targets(site: Site) -> tuple[list[str], list[str]]:
    """Names of the modules and of the functions to compile: the outermost that do not train."""
    import torch

    modules: dict[str, Any] = {}
    functions: list[str] = []
    todo, seen = sorted(site.used & site.reads.keys()), set[str]()
    while todo:
        name = todo.pop()
        value: Any = site.reads.get(name)
        if name in seen:
            continue
        seen.add(name)
        if is_a(value, torch.nn.Module) and not _is_compiled(value):
            modules[name] = value
        elif is_a(value, FunctionType) and (value.__globals__ is site.home or value.__globals__ is site.names):
            inner = notebook_functions([name], site.names, site.home)
            called = {word for each in [value, *inner] for word in names_used(each.__code__)}
            suspends = inspect.isgeneratorfunction(value) or inspect.iscoroutinefunction(value)
            if suspends or called & _TRAINING:
                todo += sorted(variables_read([], site.names, [value]))
            else:
                functions.append(name)
    with_parameters = [name for name, model in modules.items() if any(True for _ in model.parameters())]
    return sorted(with_parameters or modules), sorted(functions)


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


# ---- levers ----------------------------------------------------------------------------------------------------------

LEVERS: dict[str, Lever] = {
    "inference_mode": inference_mode,
    "no_grad": no_grad,
    "compile": compile_callees,
    "bf16": partial(autocast, "bfloat16"),
    "fp16": partial(autocast, "float16"),
    "channels_last": channels_last,
    "matmul-medium": matmul_medium,
    "threads": lambda site: threads(threads_to_try(site), site),
    "fused-optimizer": partial(optimizer_form, "fused"),
    "foreach": partial(optimizer_form, "foreach"),
    "flush-denormal": flush_denormal,
    "contiguous": contiguous,
}
"""Name -> lever. ``threads:N`` has a number besides."""

ADVICE = {
    "sdpa": "no lever rewrites code: write torch.nn.functional.scaled_dot_product_attention(q, k, v) as an alternative"
    " and compare both with %%timer --check",
}
"""What looks like a lever, and is advice: name -> what to do."""
