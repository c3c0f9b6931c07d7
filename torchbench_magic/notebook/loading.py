"""Loading and unloading: the magics' names in the shell, and the session behind them."""

from __future__ import annotations

from typing import Any

from torchbench_magic.process.interrupts import interrupts_held

from .session import Session

LAZY_EXTENSION = "torchbench_magic.notebook.startup"
_KINDS = ("line", "cell")
_loaded: dict[int, _Loaded] = {}


class _Loaded:
    """The extension in one shell: its session, and what stood where its magics stand now."""

    def __init__(self, shell: Any, *, only_free_names: bool) -> None:
        from .tcompare import CompareMagics
        from .tdoctor import DoctorMagics
        from .timer import TimerMagics
        from .tprofile import ProfilerMagics

        self.session = Session(shell)
        self._shell = shell
        kinds = (TimerMagics, ProfilerMagics, CompareMagics, DoctorMagics)
        self._magics = tuple(kind(self.session) for kind in kinds)
        self._before: list[tuple[str, str, Any, Any]] = []
        table = shell.magics_manager
        for magics in self._magics:
            for kind in _KINDS:
                for name, function in magics.magics[kind].items():
                    there = table.magics[kind].get(name)
                    if only_free_names and there is not None and not _is_placeholder(there):
                        continue
                    self._before.append((kind, name, function, there))
                    table.magics[kind][name] = function
            table.registry[type(magics).__name__] = magics
        for kind in _KINDS:  # a line magic was declared as a cell magic too
            for name in [name for name, function in table.magics[kind].items() if _is_placeholder(function)]:
                del table.magics[kind][name]

    def take_back(self) -> None:
        table = self._shell.magics_manager
        for kind, name, function, before in self._before:
            if table.magics[kind].get(name) is not function:
                continue  # somebody else's by now
            if before is None or _is_placeholder(before):
                del table.magics[kind][name]
            else:
                table.magics[kind][name] = before
        for name in [name for name, home in table.lazy_magics.items() if home == LAZY_EXTENSION]:
            del table.lazy_magics[name]
        for magics in self._magics:
            table.registry.pop(type(magics).__name__, None)
            self._shell.configurables.remove(magics)  # where every Magics enters itself


def load_magics(shell: Any, *, only_free_names: bool = False) -> None:
    """Load into ``shell``; a second time takes the names that were left alone the first time."""
    with interrupts_held():
        if id(shell) in _loaded:
            unload(shell)
        loaded = _Loaded(shell, only_free_names=only_free_names)
        loaded.session.open()
        _loaded[id(shell)] = loaded


def unload(shell: Any) -> None:
    """Put back what `load_magics` changed; results stay in their variables."""
    with interrupts_held():
        loaded = _loaded.pop(id(shell), None)
        if loaded is not None:
            loaded.take_back()
            loaded.session.close()


def _is_placeholder(function: Any) -> bool:
    """Whether this is IPython's stand-in for the magic that the startup file declared."""
    return getattr(function, "spec", None) == LAZY_EXTENSION
