"""The objects that the code of a run reads: what is noted of them, and what is put back before a block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import FunctionType
from typing import Any

from torchbench_magic.core.machine.caches import cache_flusher

from ..plan import Plan
from .in_place import TensorVersions
from .only_first_call import Once
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
    """

    def __init__(
        self,
        plan: Plan,
        used: Iterable[str] = (),
        names: Mapping[str, Any] | None = None,
        functions: Iterable[FunctionType] = (),
    ) -> None:
        names, used = names or {}, set(used)
        self.versions = TensorVersions(used, names, functions)
        self.sizes = Sizes(used, names)
        self.inputs = InputCopies(self.versions.tensors) if plan.restore else None
        self.once = Once()
        self._flush = cache_flusher() if plan.cold else None

    @property
    def before_block(self) -> Callable[[], None] | None:
        """What must run before each block; None where nothing must."""
        return self._before_block if self.inputs is not None or self._flush is not None else None

    @property
    def has_streams(self) -> bool:
        """Iterators and the like are put back: a second call of one block would find them used up."""
        return self.inputs is not None and bool(self.inputs.streams)

    def restore(self) -> None:
        """Put back what was changed, with ``plan.restore``."""
        if self.inputs is not None:
            self.inputs.restore()

    def _before_block(self) -> None:
        self.restore()
        if self._flush is not None:
            self._flush()
