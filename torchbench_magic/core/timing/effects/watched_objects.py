"""The objects that the code of a run reads: what is noted of them, and what is put back before a block."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from types import FunctionType
from typing import Any

from torchbench_magic.core.machine.caches import cache_flusher
from torchbench_magic.results.doubts import Doubt

from ...code.code_reads import globals_read
from ...code.reached_objects import search
from ..plan import Plan
from .in_place import TensorVersions
from .only_first_call import Once
from .restoring.taken_items import TakenItems
from .restoring.unrestored import Unrestored, not_restored
from .watched_inputs import InputCopies, Sizes

__all__ = ["WatchedObjects"]


class WatchedObjects:
    """Notes the state of what the code reads, as setup left it.

    Args:
        plan: whether tensors are put back, and caches emptied, before a block.
        used: names that the code uses, of ``names``.
        functions: of the notebook, that it may call.

    Attributes:
        versions: in-place versions of the tensors.
        sizes: of the containers.
        inputs: what is put back with ``plan.restore``; None without.
        once: what only the first call does. Set by whoever knows the blocks.
        readers: variable -> the alternatives that may read it, likewise; of one that is not there nobody knows.
        rebound: alternative -> as `rebound_names` and `shadowed_names`, likewise.
    """

    def __init__(
        self,
        plan: Plan,
        used: Iterable[str] = (),
        names: Mapping[str, Any] | None = None,
        functions: Iterable[FunctionType] = (),
    ) -> None:
        names, used = names or {}, set(used)
        functions = list(functions)
        reached = search(used, used, names).items
        self.versions = TensorVersions(used, names, functions, [(one.label, one.value) for one in reached.values()])
        self.sizes = Sizes(used, names)
        self._taken = TakenItems(reached.values())
        self.inputs = InputCopies(self.versions.held) if plan.restore else None
        homes = [(name, f.__globals__) for f in functions for name in globals_read(f.__code__)]
        self._unrestored = Unrestored(reached, homes) if plan.restore else None
        self.once = Once()
        self.readers: Mapping[str, Collection[str]] = {}
        self.rebound: Mapping[str, tuple[tuple[str, str], ...]] = {}
        self._flush = cache_flusher() if plan.cold else None

    @property
    def before_block(self) -> Callable[[], None] | None:
        """What must run before each block; None where nothing must."""
        return self._before_block if self.inputs is not None or self._flush is not None else None

    @property
    def has_streams(self) -> bool:
        """Iterators and the like are put back: a second call of one block would find them used up."""
        return self.inputs is not None and bool(self.inputs.streams)

    def restore(self, *, is_last: bool = False) -> None:
        """Put back whatever was changed, with ``plan.restore``."""
        if self.inputs is not None:
            self.inputs.restore_all(is_last=is_last)

    def not_restored(self, told: Collection[str] = ()) -> list[Doubt]:
        """Say what changed and was not put back, without what is ``told`` otherwise. After the last block."""
        taken = self._taken.doubts(told, restore=self.inputs is not None)
        if self.inputs is None or self._unrestored is None:
            return taken
        state = self.inputs.state
        labels = [*state.unrestored, *self._unrestored.changed(state.held.holders.keys())]
        return taken + not_restored([label for label in labels if label not in told], state.late)

    def _before_block(self) -> None:
        if self.inputs is not None:
            self.inputs.restore()
        if self._flush is not None:
            self._flush()
