"""Variables on their way to another process: pickled by value, tensors through shared memory."""

from __future__ import annotations

import contextlib
import copyreg
import functools
import io
import mmap
import os
import pickle
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

import torch

from torchbench_magic.errors import CountError

from . import send_modules
from .code import codes_within
from .machine import memory_facts
from .send_modules import ALL_NAMES, Loaded, contents, description, looked_up_names
from .settings import modes


@dataclass(frozen=True)
class Purpose:
    """What variables travel for: how many bytes may, and the words of an error.

    Attributes:
        limit: bytes of tensors that may travel: they are copied twice.
        process: where they are sent to.
        on_device: the way out for a tensor that is not on the CPU, ``smaller`` for tensors that are too large, ``made``
            for whatever else cannot travel, with the name in braces, ``elsewhere`` for what is not a variable.
        is_ours: the process is one of this host that does nothing else: memory is shared with it, and its modules are
            changed as they are here. Else the bytes of tensors, of whatever device, travel with the rest.
    """

    limit: int
    process: str
    on_device: str
    smaller: str
    made: str
    elsewhere: str
    is_ours: bool = True


FOR_COUNTING = Purpose(
    1 << 30,
    "the counting process",
    "only code on the CPU can be counted: use .cpu()",
    "count on smaller ones: instructions per element are the same",
    "make `{}` inside the statement",
    "do it inside the statement",
)
FOR_TIMING = Purpose(
    1 << 30,
    "another process",
    "only what is on the CPU can be sent to another process: make it in the setup",
    "make them in the setup, which runs in each process",
    "make `{}` in the setup",
    "do it in the setup, which runs in each process",
)


# ---- refused_objects -------------------------------------------------------------------------------------------------
# What no other process can have. Most of it pickling refuses by itself: locks, sockets, processes, generators. The
# rest is refused here, where pickling would make something that only looks like it.

_IN_MEMORY = (io.BytesIO, io.StringIO)
_STREAMS = ("stdout", "stderr", "stdin", "__stdout__", "__stderr__", "__stdin__")


def what_stays(obj: Any) -> str | None:
    """In words, what ``obj`` is if cloudpickle would send a look-alike of it; None for whatever else."""
    kind = type(obj)  # isinstance would wake objects that warn when they are looked at
    if issubclass(kind, io.IOBase) and not issubclass(kind, _IN_MEMORY):
        return "an open file"
    return "a memoryview" if kind is memoryview else None


# ---- pickled_objects -------------------------------------------------------------------------------------------------
# What pickling of a notebook's variables comes across: modules, the names that code uses, and what cannot travel.


class CannotTravel(Exception):
    """Why one object cannot be sent, and the way out."""


class Stays(CannotTravel):
    """It belongs to this process; the way out is that of the variable which holds it."""


class Globals:
    """The globals of a local module's functions: the names of that module."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __reduce__(self) -> tuple[Any, ...]:
        return vars, (self._module,)


class PicklingFinds:
    """What pickling came across: local modules, installed ones, the names that code uses, and its files."""

    def __init__(self, loaded: Loaded, words: Iterable[str]) -> None:
        self.loaded, self.words = loaded, set(words)
        self.local: dict[int, ModuleType] = {}
        self.installed: dict[str, ModuleType] = {}
        self.files = set[str]()
        self._sent: dict[int, set[str]] = {}

    def module(self, module: ModuleType) -> tuple[Any, ...] | None:
        """How to pickle it: a local one as an empty module, whose names follow."""
        name = module.__name__
        if id(contents(module)) not in self.loaded.homes:
            self.installed.setdefault(name, module)
            return None
        self.local.setdefault(id(module), module)
        facts = {key: contents(module).get(key) for key in ("__name__", "__package__", "__file__", "__doc__")}
        path = contents(module).get("__path__")
        if path is not None:
            facts["__path__"] = list(path)
        return send_modules.made_module, (name, facts, sys.modules.get(name) is module)

    def wanted(self) -> Iterator[tuple[ModuleType, str, Any]]:
        """Names of local modules that the code may use and that were not asked for yet, in an order of their own."""
        for name in sorted(self.loaded.local.keys() & self.words):  # imported by the code itself
            self.local.setdefault(id(self.loaded.local[name]), self.loaded.local[name])
        for key, module in list(self.local.items()):
            parent = self.loaded.local.get(module.__name__.rpartition(".")[0])
            if parent is not None:
                self.local.setdefault(id(parent), parent)
            sent, names = self._sent.setdefault(key, set()), contents(module)
            used = names.keys() if self.words & ALL_NAMES else names.keys() & (self.words | {"__getattr__"})
            for name in sorted(used - sent):
                sent.add(name)
                if name == "__getattr__" or not name.startswith("__"):
                    yield module, name, names[name]

    def named(self) -> dict[tuple[str, str], tuple[Any, ...]]:
        """(module, name) -> description, of the names of installed modules that the code uses."""
        found: dict[tuple[str, str], tuple[Any, ...]] = {}
        todo = dict(self.installed)
        done = set[str]()
        while todo:
            home, module = todo.popitem()
            done.add(home)
            names = contents(module)
            for name in sorted(names.keys() & self.words):
                value = names[name]
                if issubclass(type(value), ModuleType) and value.__name__ not in done:
                    todo[value.__name__] = value
                elif not name.startswith("__") and (told := description(value)) is not None:
                    found[home, name] = told
        own = {(one.owner.__name__, one.name) for one in self.loaded.replaced if isinstance(one.owner, ModuleType)}
        return {place: found[place] for place in sorted(found.keys() - own)}


def reduced_own(obj: Any) -> tuple[Any, ...] | None:
    """How to pickle what every process has of its own, and an optimizer with its hooks; None for anything else.

    Raises:
        Stays: it cannot be copied.
    """
    if issubclass(type(obj), io.IOBase):
        for name in _STREAMS:  # every process has its own
            if getattr(sys, name, None) is obj:
                return getattr, (sys, name)
    if (what := what_stays(obj)) is not None:
        raise Stays(f"{what} cannot be copied")
    return reduced_optimizer(obj)


def reduced_object(obj: Any, reached: PicklingFinds) -> tuple[Any, ...] | None:
    """How to pickle what belongs to this process or to its modules; None for anything else."""
    kind = type(obj)
    if issubclass(kind, ModuleType):
        return reached.module(obj)
    if kind is functools._lru_cache_wrapper and id(obj.__wrapped__.__globals__) in reached.loaded.own:
        return send_modules.cached, (obj.__wrapped__, obj.cache_parameters())
    if (kind is FunctionType or issubclass(kind, type)) and reached.loaded.is_replaced(obj):
        return send_modules.original, (obj.__module__, obj.__qualname__)
    return None


# ---- sent_tensors ----------------------------------------------------------------------------------------------------
# Tensors, and what autograd and optimizers keep beside them, on their way to another process.
#
# A pickled tensor is its values. Code also works on its gradient, its hooks and attributes that were set on it, and an
# optimizer has hooks of its own: a step on parameters without gradients does nothing. Hooks of all modules, and modes
# that were entered, belong to the process: code is not sent without them.
#
# Private to torch: ``Tensor._backward_hooks``, ``_post_accumulate_grad_hooks``, the names of the hooks of optimizers
# and of all modules, the stacks of modes. Where one is not there, none of its kind is known.

_BESIDE = ("_backward_hooks", "_post_accumulate_grad_hooks")


def reduced_tensor(obj: torch.Tensor) -> tuple[Any, ...]:
    """How to pickle a strided tensor or parameter: the place of its storage, and what it has beside its values."""
    seen = (tuple(obj.shape), obj.stride(), obj.storage_offset())
    marks = (obj.requires_grad, type(obj) is torch.nn.Parameter, obj.is_conj(), obj.is_neg())
    made = _rebuilt, (obj.untyped_storage(), obj.dtype, *seen, *marks)
    beside = {name: hooks for name in _BESIDE if (hooks := getattr(obj, name, None))}
    if obj.is_leaf and obj.grad is not None:
        beside["grad"] = obj.grad
    own = {name: value for name, value in vars(obj).items() if not name.startswith("_dynamo")}
    return (*made, (own, beside), None, None, _put_beside) if own or beside else made


def _rebuilt(
    storage: Any,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    offset: int,
    requires_grad: bool,
    is_parameter: bool,
    is_conj: bool,
    is_neg: bool,
) -> torch.Tensor:
    tensor: torch.Tensor = torch.empty(0, dtype=dtype).set_(storage, offset, shape, stride)
    if is_conj:
        tensor = tensor.conj()
    if is_neg:
        tensor = torch._neg_view(tensor)
    if is_parameter:
        return torch.nn.Parameter(tensor, requires_grad=requires_grad)
    return tensor.requires_grad_(requires_grad)


def _put_beside(tensor: torch.Tensor, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
    own, beside = state
    vars(tensor).update(own)
    for name, value in beside.items():
        setattr(tensor, name, value)


def reduced_optimizer(obj: object) -> tuple[Any, ...] | None:
    """How to pickle an optimizer whose steps have hooks, which its own pickling leaves out; None for anything else."""
    kind = getattr(sys.modules.get("torch.optim.optimizer"), "Optimizer", None)
    if kind is None or not issubclass(type(obj), kind) or type(obj).__getstate__ is not kind.__getstate__:
        return None
    hooks = {name: value for name, value in vars(obj).items() if name.endswith("_hooks") and value}
    state: Any = obj.__getstate__()
    return (copyreg.__newobj__, (type(obj),), state | hooks) if hooks else None  # type: ignore[attr-defined]


def check_process_state() -> None:
    """
    Raises:
        CannotTravel: what belongs to this process would be left out by code that runs in another.
    """
    modules = torch.nn.modules.module
    if any(value for name, value in vars(modules).items() if name.startswith("_global_") and name.endswith("_hooks")):
        raise CannotTravel("hooks of all modules (`register_module_forward_hook` and the like) are not sent")
    if active := [mode for kind in modes() for mode in kind.read()]:
        raise CannotTravel(f"the active mode {type(active[0]).__name__} is not sent")
    top = getattr(getattr(torch._C, "_autograd", None), "_top_saved_tensors_default_hooks", None)
    if top is not None and top(True) is not None:
        raise CannotTravel("active `saved_tensors_hooks` are not sent")


# ---- tensor_bytes ----------------------------------------------------------------------------------------------------
# The bytes of tensors on their way to another process: storages laid out in memory that both processes hold.

_ALIGN = 64


class Parcel:
    """Pickled variables, and a descriptor of the bytes of their tensors (None without any); close it after use.

    Attributes:
        sizes: bytes of each in ``data``; what two of them hold is counted with the first.
        files: of the code that travels.
        has_code: functions, classes or modules travel, which only the same Python can read.
    """

    def __init__(self, data: bytes, storages: Storages, sizes: Mapping[str, int], files: Iterable[str]) -> None:
        self.data, self.sizes, self.files = data, sizes, frozenset(files)
        self.has_code = b"cloudpickle" in data
        self.storages = storages.written()

    def close(self) -> None:
        if self.storages is not None:
            os.close(self.storages)
            self.storages = None

    def __enter__(self) -> Parcel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Storages:
    """Storages laid out one after the other, each once.

    Args:
        purpose: how many bytes may travel, and what an error says.
    """

    def __init__(self, purpose: Purpose) -> None:
        self._size, self.purpose = 0, purpose
        self._places: dict[int, tuple[int, int]] = {}
        self._held: list[tuple[int, int, Any]] = []

    def place(self, storage: torch.UntypedStorage) -> tuple[int, int]:
        key = storage._cdata
        if key not in self._places:
            size = storage.nbytes()
            if self._size + size > self.purpose.limit:
                raise CannotTravel(f"the tensors take more than {self.purpose.limit >> 20} MiB: {self.purpose.smaller}")
            self._places[key] = (self._size, size)
            self._held.append((self._size, size, storage))
            self._size += -(-size // _ALIGN) * _ALIGN
        return self._places[key]

    def written(self) -> int | None:
        """A descriptor of memory that holds them all; None where there is nothing to hold.

        Raises:
            CountError: there is not that much memory.
        """
        if not self._size or not self.purpose.is_ours:
            return None
        _check_memory(2 * self._size, self.purpose)  # here, and the copy that is counted on
        descriptor = _anonymous()
        try:
            os.posix_fallocate(descriptor, 0, self._size)
            self._write(descriptor)
        except OSError as error:
            os.close(descriptor)
            raise CountError(
                f"the tensors ({self._size >> 20} MiB) cannot be sent: {error.strerror}; free memory, or"
                f" {self.purpose.smaller}"
            ) from error
        return descriptor

    def _write(self, descriptor: int) -> None:
        with mmap.mmap(descriptor, self._size) as memory:
            for start, size, storage in self._held:
                if size:
                    # not by NumPy: memory that it shares cannot be resized any more
                    there = torch.frombuffer(memory, dtype=torch.uint8, count=size, offset=start)
                    there.copy_(_bytes_of(storage)[:size])


def _anonymous() -> int:
    """A descriptor of memory without a name: /dev/shm, 64 MB in containers or not there at all, is not needed."""
    try:
        return os.memfd_create("torchbench")
    except OSError:  # a kernel or a sandbox without it: a file on disk that is unlinked at once
        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno())


def _check_memory(needed: int, purpose: Purpose) -> None:
    """Refuse what would have the system kill a process; where it does not say what is free, nothing is refused."""
    free = memory_facts().get("MemAvailable")
    if free is not None and needed > free:
        raise CountError(
            f"the tensors are copied twice, which takes {needed >> 20} MiB, and {free >> 20} MiB of memory are free:"
            f" {purpose.smaller}"
        )


# ---- shipping --------------------------------------------------------------------------------------------------------
# Only the names that the code uses travel, by cloudpickle; tensors by their storage, in one piece of anonymous memory
# that both processes hold, so that views stay views of one storage and no file is left behind. Of a module beside the
# notebook what the code may use of it travels, as it is in this process, and installed modules are imported there; see
# `process.send_modules`. What cannot travel is named, with the way out, before valgrind does anything.


def _pickler(file: io.BytesIO, storages: Storages, reached: PicklingFinds) -> Any:
    import cloudpickle

    loaded, purpose = reached.loaded, storages.purpose

    class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # untyped
        def persistent_id(self, obj: Any) -> Any:
            if isinstance(obj, torch.UntypedStorage):
                place = storages.place(obj)
                return ("storage", *place) if purpose.is_ours else None
            return None

        def reducer_override(self, obj: Any) -> Any:
            kind = type(obj)
            if isinstance(obj, torch.Tensor):
                if obj.device.type != "cpu" and purpose.is_ours:
                    raise CannotTravel(f"it is on {obj.device}, and {purpose.on_device}")
                if kind is torch.Tensor and not obj.is_leaf:
                    raise CannotTravel("it is a result of autograd (it has a grad_fn): use .detach()")
                is_plain = kind in (torch.Tensor, torch.nn.Parameter) and not obj.is_quantized
                if is_plain and obj.layout is torch.strided and obj.device.type == "cpu":
                    return reduced_tensor(obj)
            if isinstance(obj, torch.UntypedStorage):
                # a copy: memory that NumPy shares cannot be resized any more
                return _storage, (_bytes_of(obj).clone().numpy().tobytes(),)
            if isinstance(obj, torch.jit.ScriptFunction | torch.jit.ScriptModule):
                file = io.BytesIO()  # as torch saves it; a function arrives as a module, which is called alike
                torch.jit.save(obj, file)
                return torch.jit.load, (io.BytesIO(file.getvalue()),)
            travels = send_modules.reduced_extension(obj) or reduced_own(obj) or reduced_object(obj, reached)
            if travels is not None:
                return travels
            if kind is not FunctionType:
                return super().reducer_override(obj)
            if id(obj.__globals__) in loaded.own:  # also one that bears the name of what it replaces
                travels = self._dynamic_function_reduce(obj)
            else:
                travels = super().reducer_override(obj)
            if travels is not NotImplemented:
                reached.words.update(looked_up_names(obj.__code__))
                reached.files.update(code.co_filename for code in codes_within(obj.__code__))
            return travels

    made = _Pickler(file, protocol=5)
    made.globals_ref.update({home: Globals(module) for home, module in loaded.homes.items()})
    return made


def _bytes_of(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8).set_(storage)


def _storage(data: bytes) -> torch.UntypedStorage:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).untyped_storage() if data else torch.UntypedStorage(0)


def pack_variables(
    names: Iterable[str],
    namespace: Mapping[str, Any],
    *,
    words: Iterable[str] = (),
    loaded: Loaded | None = None,
    home: Mapping[str, Any] | None = None,
    purpose: Purpose = FOR_COUNTING,
) -> Parcel:
    """Pickle the variables that the code uses; functions that have ``home`` as globals share one dict there too.

    Args:
        names: that the code may look for in ``namespace``.
        namespace: its globals.
        words: more names that it may look up.
        loaded: the modules of this process; None: as they are now.
        home: globals of the functions that ``namespace`` holds; None: ``namespace`` itself.
        purpose: what an error says that they travel for.

    Raises:
        CountError: in one line: which variable cannot travel, why, and the way out.
    """
    names = set(names)
    home = namespace if home is None else home
    loaded = Loaded.now(home, with_replaced=purpose.is_ours) if loaded is None else loaded
    used = sorted(name for name in names if name in namespace and not name.startswith("__"))
    try:
        if used:  # a C++ snippet has nothing of Python's
            check_process_state()
    except CannotTravel as error:
        raise CountError(f"{error} to {purpose.process}: {purpose.elsewhere}") from None
    file, storages, reached = io.BytesIO(), Storages(purpose), PicklingFinds(loaded, {*names, *words})
    pickler, shared, sizes = _pickler(file, storages, reached), dict[str, Any](), dict[str, int]()
    pickler.globals_ref[id(home)] = shared
    with by_value(loaded.local):
        pickler.dump(sorted(loaded.local))
        pickler.dump(shared)
        for name in used:
            before = file.tell()
            try:
                pickler.dump(("variable", None, name, namespace[name]))
                _dump_modules(pickler, reached)
                if file.tell() > purpose.limit:
                    raise CannotTravel(f"the variables take more than {purpose.limit >> 20} MiB: {purpose.smaller}")
            except Exception as error:  # whatever the pickling of a user's object raises
                raise CountError(_why_not(name, namespace[name], error, purpose)) from error
            sizes[name] = file.tell() - before
        try:
            for one in loaded.replaced:
                _dump_part(pickler, one.place, ("replaced", one.owner, one.name, one.value))
            _dump_modules(pickler, reached)
        except CannotTravel as error:
            raise CountError(f"the variables cannot be sent to {purpose.process}: {first_line(error)}") from error
        pickler.dump(None)
        pickler.dump(reached.named())
    return Parcel(file.getvalue(), storages, sizes, reached.files)


def _why_not(name: str, value: Any, error: Exception, purpose: Purpose) -> str:
    """Of a variable; what stands before a colon is not of its name."""
    plain = name.rpartition(":")[2]
    why, out = first_line(error), f"; {purpose.made.format(plain)}"
    if type(error) is CannotTravel:
        out = ""
        if not isinstance(value, torch.Tensor):  # a tensor that a function or a module holds
            why = why.replace("it is ", "a tensor that it holds is ", 1)
    return f"`{plain}` ({kind_text(value)}) cannot be sent to {purpose.process}: {why}{out}"


def kind_text(value: Any) -> str:
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.").removeprefix("__main__.")


def first_line(error: Exception) -> str:
    line = (str(error).splitlines() or [type(error).__name__])[0]
    return line.removesuffix(" See:").rstrip(".")


_registering = threading.RLock()


@contextlib.contextmanager
def by_value(local: Mapping[str, ModuleType]) -> Iterator[None]:
    """Have cloudpickle send classes of local modules themselves, not their names; one thread at a time."""
    import cloudpickle

    with _registering:
        known = cloudpickle.list_registry_pickle_by_value()
        mine = [m for m in local.values() if m.__name__ not in known and sys.modules.get(m.__name__) is m]
        for module in mine:
            cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            for module in mine:
                cloudpickle.unregister_pickle_by_value(module)


def _dump_modules(pickler: Any, reached: PicklingFinds) -> None:
    """Names of local modules, until the code that they hold uses no more of them."""
    while parts := list(reached.wanted()):
        for module, name, value in parts:
            _dump_part(pickler, f"{module.__name__}.{name}", ("local", module, name, value))


def _dump_part(pickler: Any, place: str, part: tuple[str, Any, str, Any]) -> None:
    """
    Raises:
        CannotTravel: with the place of what cannot.
    """
    try:
        pickler.dump(part)
    except Exception as error:  # whatever the pickling of a user's object raises
        raise CannotTravel(f"the code may use `{place}` ({kind_text(part[-1])}), and {first_line(error)}") from error


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, memory: Any) -> None:
        super().__init__(file)
        self._memory = memory
        self._made: dict[tuple[int, int], Any] = {}
        self.local: frozenset[str] = frozenset()

    def find_class(self, module: str, name: str) -> Any:
        if module in self.local and not hasattr(sys.modules.get(module), name.partition(".")[0]):
            raise pickle.UnpicklingError(
                f"{module}.{name} is known only by its name, and its file may define something else"
            )
        return super().find_class(module, name)

    def persistent_load(self, place: Any) -> Any:
        _, start, size = place
        if (start, size) not in self._made:
            held = torch.empty(size, dtype=torch.uint8)
            if size:
                held.copy_(torch.frombuffer(self._memory, dtype=torch.uint8, count=size, offset=start))
            self._made[start, size] = held.untyped_storage()
        return self._made[start, size]


def unpack_variables(
    data: bytes, storages: int | None, implied: Mapping[str, Any], *, is_ours: bool = False
) -> dict[str, Any]:
    """The variables as globals for the code, with what is ``implied`` where they do not have it.

    Args:
        is_ours: this process is for this job alone: its modules become as they are in the notebook, and no local one is
            imported from its file from here on.
    """
    memory = None
    if storages is not None:
        memory = mmap.mmap(storages, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    loader = _Unpickler(io.BytesIO(data), memory)
    local = frozenset(loader.load())
    if is_ours and local:
        loader.local = local
        sys.meta_path.insert(0, send_modules.Guard(local))
    shared: dict[str, Any] = loader.load()
    values, replaced = dict[str, Any](), []
    while (part := loader.load()) is not None:
        kind, owner, name, value = part
        if kind == "variable":
            values[name] = value
        elif kind == "local":
            vars(owner)[name] = value
        else:
            replaced.append((owner, name, value))
    if is_ours:
        for owner, name, value in replaced:
            setattr(owner, name, value)
        send_modules.check_same_in_notebook(loader.load(), description)
    for name, value in implied.items():
        shared.setdefault(name, value)
    shared.update(values)
    return shared
