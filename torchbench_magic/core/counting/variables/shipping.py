"""The notebook's variables on their way to the counting process.

Only the names that the code uses travel, by cloudpickle; tensors by their storage, in one piece of anonymous memory
that both processes hold, so that views stay views of one storage and no file is left behind. Of a module beside the
notebook what the code may use of it travels, as it is in this process, and installed modules are imported there; see
`notebook_modules`. What cannot travel is named, with the way out, before valgrind does anything.
"""

from __future__ import annotations

import contextlib
import io
import mmap
import pickle
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

import torch

from torchbench_magic.errors import CountError

from . import extensions, made_modules
from .notebook_modules import Loaded, description, looked_up_names
from .pickled_objects import CannotTravel, Globals, PicklingFinds, reduced_object
from .purpose import FOR_COUNTING, Purpose
from .sent_tensors import check_process_state, reduced_optimizer, reduced_tensor
from .tensor_bytes import Parcel, Storages

__all__ = ["by_value", "pack_variables", "unpack_variables"]

def _pickler(file: io.BytesIO, storages: Storages, reached: PicklingFinds) -> Any:
    import cloudpickle

    loaded = reached.loaded

    class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # untyped
        def persistent_id(self, obj: Any) -> Any:
            if isinstance(obj, torch.UntypedStorage):
                return ("storage", *storages.place(obj))
            return None

        def reducer_override(self, obj: Any) -> Any:
            kind = type(obj)
            if isinstance(obj, torch.Tensor):
                if obj.device.type != "cpu":
                    raise CannotTravel(f"it is on {obj.device}, and {storages.purpose.on_device}")
                if kind is torch.Tensor and not obj.is_leaf:
                    raise CannotTravel("it is a result of autograd (it has a grad_fn): use .detach()")
            if kind in (torch.Tensor, torch.nn.Parameter) and obj.layout is torch.strided and not obj.is_quantized:
                return reduced_tensor(obj)
            if isinstance(obj, torch.jit.ScriptFunction | torch.jit.ScriptModule):
                return _scripted(obj)
            travels = extensions.reduced_extension(obj) or reduced_optimizer(obj) or reduced_object(obj, reached)
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
            return travels

    made = _Pickler(file, protocol=5)
    made.globals_ref.update({home: Globals(module) for home, module in loaded.homes.items()})
    return made


def _scripted(obj: Any) -> tuple[Any, ...]:
    """TorchScript travels as torch saves it; a function arrives as a module, which is called alike."""
    file = io.BytesIO()
    torch.jit.save(obj, file)
    return torch.jit.load, (io.BytesIO(file.getvalue()),)


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
    loaded = Loaded.now(home) if loaded is None else loaded
    used = sorted(name for name in names if name in namespace and not name.startswith("__"))
    try:
        if used:  # a C++ snippet has nothing of Python's
            check_process_state()
    except CannotTravel as error:
        raise CountError(f"{error} to {purpose.process}: {purpose.elsewhere}") from None
    dumped = partial(_dumped, namespace, id(home), names | set(words), loaded)
    with by_value(loaded.local):
        try:
            return Parcel(*dumped(used, Storages(purpose)))
        except CountError:
            raise
        except Exception as error:  # whatever the pickling of a user's object raises
            for name in used:
                try:
                    dumped([name], Storages(purpose))
                except Exception as own:  # noqa: BLE001
                    why, out = _first_line(own), f"; {purpose.made.format(name)}"
                    if type(own) is CannotTravel:
                        out = ""
                        if not isinstance(namespace[name], torch.Tensor):  # a tensor that a function or a module holds
                            why = why.replace("it is ", "a tensor that it holds is ", 1)
                    raise CountError(
                        f"`{name}` ({_kind(namespace[name])}) cannot be sent to {purpose.process}: {why}{out}"
                    ) from error
            raise CountError(f"the variables cannot be sent to {purpose.process}: {_first_line(error)}") from error


def _kind(value: Any) -> str:
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.").removeprefix("__main__.")


def _first_line(error: Exception) -> str:
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


def _dumped(
    namespace: Mapping[str, Any],
    home: int,
    words: set[str],
    loaded: Loaded,
    names: list[str],
    storages: Storages,
) -> tuple[bytes, Storages]:
    """One after the other: which modules are local; the variables; names of modules, one by one; what is replaced."""
    file = io.BytesIO()
    reached = PicklingFinds(loaded, words)
    pickler = _pickler(file, storages, reached)
    shared: dict[str, Any] = {}
    pickler.globals_ref[home] = shared
    pickler.dump(sorted(loaded.local))
    pickler.dump((shared, {name: namespace[name] for name in names}))
    _dump_modules(pickler, reached)
    for one in loaded.replaced:
        _dump_part(pickler, one.place, ("replaced", one.owner, one.name, one.value))
        _dump_modules(pickler, reached)
    pickler.dump(None)
    pickler.dump(reached.named())
    return file.getvalue(), storages


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
    except CountError:
        raise
    except Exception as error:  # whatever the pickling of a user's object raises
        raise CannotTravel(f"the code may use `{place}` ({_kind(part[-1])}), and {_first_line(error)}") from error


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
    data: bytes, storages: int | None, implied: Mapping[str, Any], *, is_guarded: bool = False
) -> dict[str, Any]:
    """The variables as globals for the code, with what is ``implied`` where they do not have it.

    Args:
        is_guarded: no local module is imported from its file from here on: this process is for this job alone.
    """
    memory = None
    if storages is not None:
        memory = mmap.mmap(storages, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    loader = _Unpickler(io.BytesIO(data), memory)
    local = frozenset(loader.load())
    if is_guarded and local:
        loader.local = local
        sys.meta_path.insert(0, made_modules.Guard(local))
    shared: dict[str, Any]
    shared, values = loader.load()
    replaced = []
    while (part := loader.load()) is not None:
        kind, owner, name, value = part
        if kind == "local":
            vars(owner)[name] = value
        else:
            replaced.append((owner, name, value))
    made_modules.put_in_place(replaced)
    made_modules.check_same_in_notebook(loader.load(), description)
    for name, value in implied.items():
        shared.setdefault(name, value)
    shared.update(values)
    return shared
