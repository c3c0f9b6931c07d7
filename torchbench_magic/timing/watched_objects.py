"""The objects that the code of a run reads: what is noted of them, and what is put back before a block."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import FunctionType
from typing import Any

from torchbench_magic.process.machine import cache_flusher
from torchbench_magic.process.reach import Found, own_attributes, search, texts_within
from torchbench_magic.process.static_introspection import is_module
from torchbench_magic.result_base import Doubt

from .blocks import Block
from .changes import Supplies, TensorVersions
from .isolation import SharedState, scopes_of
from .iterators import TakenItems, is_cursor, is_used_up
from .plan import Plan
from .restore import StateCopies, not_restored
from .written_objects import WrittenObjects


def reached_by(block: Block, namespace: dict[str, Any]) -> Found:
    return search(block.inputs, {*block.names, *texts_within(block.replicas[0].__code__)}, namespace)


class WatchedObjects:
    """Notes the state of what the code reads, as setup left it.

    Args:
        plan: whether tensors are put back, and caches emptied, before a block.
        used: names that the code uses, of ``names``.
        functions: of the notebook, that it may call.

    Attributes:
        versions: in-place versions of the tensors.
        supplies: what calls may use up.
        inputs: what is put back with ``plan.restore``; None without.
        shared: what alternatives change for each other, as `watch` has it.
        used_up: alternative -> labels of the iterators that it reads by name and that were used up before, likewise.
        readers: variable -> the alternatives that may read it, likewise; of one that is not there nobody knows.
            Set by whoever knows the blocks.
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
        found = search(used, used, names)
        held = [(one.label, one.value) for one in found.items.values()]
        self.versions = TensorVersions(used, names, functions, held)
        self._taken = TakenItems(found.items.values())
        self.supplies = Supplies(held)
        self.inputs = StateCopies(self.versions.held) if plan.restore else None
        self._written: WrittenObjects | None = None
        if plan.restore:  # what the modules of libraries note for themselves is theirs
            own = lambda value: not is_module(value) or own_attributes(value) is not None
            items = {at: one for at, one in found.items.items() if own(one.value)}
            self._written = WrittenObjects(replace(found, items=items), self.versions.held.holders.keys())
        self.shared = SharedState({})
        self.used_up: Mapping[str, Collection[str]] = {}
        self.readers: Mapping[str, Collection[str]] = {}
        self.rebound: Mapping[str, tuple[tuple[str, str], ...]] = {}
        self._flush = cache_flusher() if plan.cold else None

    def watch(
        self,
        found: Mapping[str, Found],
        blocks: Sequence[Block],
        namespace: dict[str, Any],
        others: Iterable[dict[str, Any]] = (),
    ) -> None:
        """Watch what these blocks over ``namespace`` change for each other; iterators, files and containers that they
        read join what is put back, in ``others`` too: the names of blocks that have their own.

        Args:
            found: alternative -> as `reached_by` has it.
        """
        if self.inputs is not None:
            read = {name for block in blocks for name in block.inputs}
            self.inputs.keep_items(read - {name for block in blocks for name in block.kept}, namespace, *others)
        self.shared = SharedState(scopes_of(found, blocks, namespace) if len(found) > 1 else {})
        direct = {name: [one for one in each.items.values() if one.direct] for name, each in found.items()}
        made = {name: block.going_on for name, block in zip(found, blocks, strict=True)}  # anew, by the code
        is_spent = lambda name, one: one.label not in made[name] and is_used_up(one.value) and not is_cursor(one.value)
        self.used_up = {
            name: [one.label for one in read_by if is_spent(name, one)]
            for name, read_by in direct.items()
        }

    def changed_for(self, name: str) -> tuple[tuple[str, str], ...]:
        """(how, label) as `Subject.used_up` has it: an iterator used up "before", a switch, "shared" or "global", as
        another alternative had set it."""
        before = [("before", label) for label in self.used_up.get(name, ())]
        return (*before, *self.shared.inherited(name))

    @property
    def before_block(self) -> Callable[[], None] | None:
        """What must run before each block; None where nothing must."""
        return self._before_block if self.inputs is not None or self._flush is not None else None

    def restore(self, *, is_last: bool = False) -> None:
        """Put back whatever was changed, with ``plan.restore``."""
        if self.inputs is not None:
            self.inputs.restore_all(is_last=is_last)

    def not_restored(self, told: Collection[str] = ()) -> list[Doubt]:
        """Say what changed and was not put back, without what is ``told`` otherwise. After the last block."""
        taken = self._taken.doubts(told, restore=self.inputs is not None)
        if self.inputs is None or self._written is None:
            return taken
        state = self.inputs
        labels = [*state.unrestored, *self._written.names_changed()]
        return taken + not_restored([label for label in labels if label not in told], state.late, state.shapeless)

    def _before_block(self) -> None:
        if self.inputs is not None:
            self.inputs.restore()
        if self._flush is not None:
            self._flush()
