"""Watches the inputs around each block (tensors, sizes of containers, memory) and restores them where asked."""

from __future__ import annotations

import copy
import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from torchbench_magic.results.doubts import Doubt

from .iterators import at_end, rewinder, second_copy
from .restoring.held_state import HeldState
from .restoring.state_copies import StateCopies
from .restoring.written_objects import WrittenObjects

__all__ = ["InputCopies", "MemoryGuard", "Sizes", "Streams", "prints"]


class InputCopies:
    """Copies of the state that timed code reaches; `restore` has it as it was, in place. ``streams`` go with it.

    Attributes:
        written: what the code writes into objects; of it ``rewritten`` is put back before each block, the rest at the
            end: what only the first call writes is a memo, as a rule.
    """

    def __init__(self, held: HeldState) -> None:
        self.state = StateCopies(held)
        self.streams: Streams | None = None
        self.written: Sequence[WrittenObjects] = ()
        self.rewritten: Collection[str] = ()

    def restore(self) -> None:
        """Before each block: what is known to change."""
        self.state.restore()
        self._restore_written(is_last=False)
        if self.streams is not None:
            self.streams.restore()

    def restore_all(self, *, is_last: bool = False) -> None:
        """After the first calls and the last block: whatever changed. An interrupt does not leave half of it."""
        try:
            self.state.restore_all(is_last=is_last)
        except KeyboardInterrupt:
            self.state.restore_all(is_last=is_last)
            raise
        finally:
            self._restore_written(is_last=is_last)
            if self.streams is not None:
                self.streams.restore()

    def _restore_written(self, *, is_last: bool) -> None:
        for written in self.written:
            if is_last or self.rewritten:
                written.put_back(None if is_last else self.rewritten)


class Streams:
    """Iterators that can be copied, files that are only read, and containers: `restore` lets code find them as they
    were.

    An iterator is not put back, it is replaced in the ``namespaces`` (the run's own names, and those of alternatives
    that have others), from the start: the user's stays as it is. A container that got shorter, or is in another order,
    gets the items that it held, which themselves are not copied; one that only grew, or holds new results, may be a log
    and is left alone.
    """

    def __init__(self, names: Iterable[str], *namespaces: dict[str, Any]) -> None:
        read = [(namespace, n, namespace[n]) for namespace in namespaces for n in names if n in namespace]
        self._copies = [(space, n, make) for space, n, v in read if (make := second_copy(v)) is not None]
        files = {id(v): rewinder(v) for _, _, v in read if at_end(v) is not None}
        self._backs = {at: back for at, back in files.items() if back is not None}
        held = {id(v): _container_of(v) for _, _, v in read}
        self._containers = {id(c): (c, copy.copy(c)) for c in held.values() if c is not None}
        self._is_taken_from = False
        self._replace_iterators()

    @property
    def put_back(self) -> frozenset[int]:
        """Ids of the files and the containers."""
        return frozenset((*self._backs, *self._containers))

    @property
    def copied(self) -> frozenset[str]:
        """Names of the iterators that are put back."""
        return frozenset(name for _, name, _ in self._copies)

    def __bool__(self) -> bool:
        """Whether there is any: then a block is one call, since a second one would find them used up."""
        return bool(self._copies or self._backs or self._is_taken_from)

    def restore(self) -> None:
        for held, kept in self._containers.values():
            if _is_taken_from(held, kept):
                self._is_taken_from = True
                held.clear()
                (held.update if isinstance(held, (dict, set)) else held.extend)(kept)
        self._replace_iterators()
        for back in self._backs.values():
            back()

    def _replace_iterators(self) -> None:
        for namespace, name, make in self._copies:
            namespace[name] = make()


def _container_of(value: Any) -> Any:
    """A container that can be filled again: itself, or the one within a queue of the standard library."""
    if type(value).__module__ == "queue" and type(value).__name__ in ("Queue", "LifoQueue", "PriorityQueue"):
        return value.queue
    return value if type(value) in (list, dict, set, deque, bytearray) else None


def _is_taken_from(held: Any, kept: Any) -> bool:
    """Whether a container has fewer items than its copy, or the same ones in another order; no ``==`` of the items'
    own is asked."""
    if len(held) != len(kept) or not isinstance(held, (list, deque)):
        return len(held) < len(kept)
    if all(a is b for a, b in zip(held, kept, strict=True)):
        return False
    return sorted(map(id, held)) == sorted(map(id, kept))


class Sizes:
    """Lengths of the lists, dicts, sets and queues that code reads, at one moment."""

    def __init__(self, names: Iterable[str], namespace: Mapping[str, Any]) -> None:
        values = {n: namespace[n] for n in names if n in namespace}
        held = {n: v if isinstance(v, (list, dict, set, bytearray)) else _container_of(v) for n, v in values.items()}
        self._kept = {n: (v, len(v)) for n, v in held.items() if v is not None}
        self._settled: dict[str, int] = {}

    def settle(self) -> None:
        """Note the lengths after the first calls: an entry that is made once makes no later call another."""
        self._settled = {name: len(value) for name, (value, _) in self._kept.items()}

    def grown(self, calls: int) -> list[Doubt]:
        """Say which of them another length now has than then, and than after the first calls."""
        changes = {
            name: len(value) - before
            for name, (value, before) in self._kept.items()
            if len(value) not in (before, self._settled.get(name, before))
        }
        return [
            Doubt(
                "grows",
                f"`{name}` {'grew' if by > 0 else 'got shorter'} by {abs(by)} items in {calls} calls: later calls did"
                " different work from earlier ones.",
                f"Make a fresh `{name}` in the body, or {'subtract its cost' if by > 0 else 'give `--restore`'}.",
                {"name": name, "items": by, "calls": calls},
            )
            for name, by in changes.items()
        ]


def prints(characters: int) -> list[Doubt]:
    """Say that the timed code printed so much."""
    if not characters:
        return []
    text = (
        f"The code prints: {characters} characters of output were dropped after the first call, so the times"
        " do not include showing it."
    )
    return [Doubt("prints", text, "", {"characters": characters})]


def slowed_by(hooks: Iterable[str]) -> list[Doubt]:
    """Say what this process calls for every line, call or allocation, and torch's mode that checks every operation."""
    import torch

    found = [*hooks, *(["torch.autograd.set_detect_anomaly(True)"] if torch.is_anomaly_enabled() else [])]
    if not found:
        return []
    text = f"Active in this kernel, and slowing the timed code: {', '.join(found)}. Ratios change with it, too."
    way = "Switch it off and measure again, unless you want to measure with it."
    return [Doubt("hooks", text, way, {"active": found})]


class MemoryGuard:
    """Notices a body that keeps what it allocates, before the machine runs out of memory."""

    def __init__(self, read: Callable[[], tuple[int, int, int] | None] | None = None) -> None:
        self._read = read if read is not None else read_memory
        first = self._read()
        self._start = first[0] if first else 0

    def check(self) -> Doubt | None:
        """A doubt when this process has grown and less than a tenth of the machine's memory is left."""
        now = self._read()
        if now is None:
            return None
        own, available, total = now
        grown = own - self._start
        if available > total / 10 or grown < total / 10:
            return None
        return Doubt(
            "memory",
            f"Stopped early: the code keeps {grown / 2**30:.1f} GiB more than at its start, and"
            f" {available / 2**30:.1f} GiB of memory are left.",
            "",
            {"grown": grown, "available": available},
        )


def read_memory() -> tuple[int, int, int] | None:
    """(resident bytes of this process, available bytes, total bytes); None where /proc does not tell."""
    try:
        with open("/proc/self/statm") as file:
            own = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        with open("/proc/meminfo") as file:
            facts = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in file}
        return own, facts["MemAvailable"], facts["MemTotal"]
    except (OSError, ValueError, KeyError, IndexError):
        return None
