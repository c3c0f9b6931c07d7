"""Alternatives kept apart: each has the process's settings to itself, as if it ran in a process of its own.

Before a block of another alternative the settings that code was seen to change are exchanged, as a scheduler exchanges
registers: those of the last one are read and kept, those of the next one are put. So a body that switches grad mode
off goes on without grad, and the others never notice. Random generators are exchanged likewise: every alternative draws
a stream of its own, and all streams begin with the same numbers.

Grad and inference mode, dtype and threads, which are read in a quarter of a microsecond, are exchanged always, the
others once they were seen to change: all are read after the first call of each alternative, after its warm-up, and
every 50 ms from then on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from torchbench_magic.core.process.process_state import ProcessState, in_words
from torchbench_magic.results.doubts import Doubt

__all__ = ["Isolation"]

_ALWAYS = ("inference mode", "grad mode", "default dtype", "threads")


class Isolation:
    """The settings of the alternatives of one run. They are told apart by numbers: of their rows in the result.

    Args:
        notebook: the settings that the run found, before its setup.
        threads: torch's threads of the first call.
    """

    def __init__(self, notebook: ProcessState, threads: int) -> None:
        self._notebook, self._kinds = notebook, notebook.kinds
        self._base = ProcessState(self._kinds)
        self._threads, self._collector = notebook.index("threads"), notebook.index("gc")
        self._base.values[self._threads] = threads
        self._first: list[list[Any]] = []
        self._bases: dict[int, list[Any]] = {}
        self._own: dict[int, list[Any]] = {}
        self._names: dict[int, str] = {}
        self._watched = {notebook.index(name) for name in _ALWAYS}
        self._current: int | None = None
        self._modules = len(sys.modules)
        self._changed: dict[tuple[str, int], Any] = {}  # (alternative, kind) -> the value it sets
        self._late: set[int] = set()  # kinds that changed after the warm-up
        self._is_new = False
        self._of_setup = self._differing(self._base.values, notebook.values)
        if self._base.modules - notebook.modules:  # they may be of the modules that it imports
            self._of_setup -= {i for i, kind in enumerate(self._kinds) if kind.role == "incidental"}

    def _differing(self, values: Sequence[Any], than: Sequence[Any]) -> set[int]:
        return {i for i, kind in enumerate(self._kinds) if not kind.same(values[i], than[i])}

    # ---- before the rounds --------------------------------------------------------------------------------

    def put_back(self) -> None:
        """Have all settings as the setup left them."""
        self._base.put_back()
        self._current = None
        self._modules = len(sys.modules)

    def note_first_call(self, name: str) -> None:
        """Note what the first call of the next alternative left changed; call it after `put_back` and that call."""
        self._first.append(self._read(name, self._base.values))

    def collector_is(self, is_on: bool) -> None:
        """The garbage collector is on or off from now on, for all that do not switch it themselves."""
        base, i = self._base.values, self._collector
        before, base[i] = base[i], (is_on, base[i][1])
        for values in self._first:
            if values[i] == before:
                values[i] = base[i]
        for key in [key for key, value in self._changed.items() if key[1] == i and value == base[i]]:
            del self._changed[key]  # it switches to what is there anyway

    def begin(self, key: int, nth: int, name: str, threads: int) -> None:
        """Put the settings of alternative ``key`` for the first time: those that the first call of the ``nth`` body
        left, with this thread count unless it chose one itself."""
        base = list(self._base.values)
        base[self._threads] = threads
        own = list(self._first[nth])
        if own[self._threads] == self._base.values[self._threads]:
            own[self._threads] = threads
        self._bases[key], self._own[key], self._names[key] = base, own, name
        for kind, value in zip(self._kinds, own, strict=True):
            if not kind.same(kind.read(), value):
                kind.put(value)
        self._current, self._modules = key, len(sys.modules)

    def note_warm_up(self, key: int) -> None:
        """Note what the warm-up of ``key`` left changed."""
        self._own[key] = self._read(self._names[key], self._bases[key])

    def rewind(self, keys: Iterable[int]) -> None:
        """Have the random streams of these begin anew, all with the same numbers."""
        if self._current is not None:
            self._save(self._current)
            self._current = None
        for key in keys:
            for i, kind in enumerate(self._kinds):
                if kind.role == "generator":
                    self._own[key][i] = self._base.values[i]

    def _read(self, name: str, base: Sequence[Any]) -> list[Any]:
        """All values now; what is not as in ``base`` is watched from now on, and told as the doing of ``name``."""
        values = [kind.read() for kind in self._kinds]
        for i in self._differing(values, base):
            if self._is_of_an_import(i):
                self._adopt(i, values[i])
                continue
            self._watched.add(i)
            if self._kinds[i].role != "generator":
                self._changed[name, i] = values[i]
        return values

    def _is_of_an_import(self, i: int) -> bool:
        """Whether a change of this kind may be the doing of a module that was loaded just now."""
        return self._kinds[i].role == "incidental" and len(sys.modules) > self._modules

    def _adopt(self, i: int, value: Any) -> None:
        """Have for all what an import set."""
        before = self._base.values[i]
        for values in (self._base.values, *self._bases.values(), *self._own.values(), *self._first):
            if self._kinds[i].same(values[i], before):
                values[i] = value

    # ---- between the blocks -------------------------------------------------------------------------------

    def enter(self, key: int) -> bool:
        """Exchange the settings for those of ``key``; whether torch's threads had to be set, which rebuilds a team."""
        if key == self._current:
            return False
        if self._current is not None:
            self._save(self._current)
        own, rebuilt = self._own[key], False
        for i in sorted(self._watched):
            kind = self._kinds[i]
            now = kind.read() if self._current is None else self._own[self._current][i]
            if not kind.same(now, own[i]):
                kind.put(own[i])
                rebuilt |= i == self._threads
        self._current = key
        return rebuilt

    def _save(self, key: int) -> None:
        """Keep what this alternative left."""
        own, base = self._own[key], self._bases[key]
        for i in self._watched:
            kind, value = self._kinds[i], self._kinds[i].read()
            if kind.same(value, own[i]):
                continue
            own[i] = value
            if kind.role != "generator" and not kind.same(value, base[i]):
                self._note_late(i, key)

    def _note_late(self, i: int, key: int) -> None:
        """A setting that this alternative had left alone until now: what was sampled before is of other settings."""
        if (self._names[key], i) not in self._changed:
            self._changed[self._names[key], i] = self._own[key][i]
            self._late.add(i)
            self._is_new = True

    def look(self) -> bool:
        """Read everything; whether settings have changed since the last look that were not seen to change before.

        Then the samples are void. Where it is not known which of several alternatives did it, the setting is as it was
        from now on, for all but those that change it again.
        """
        assert self._current is not None
        self._save(self._current)
        base = self._bases[self._current]
        for i, kind in enumerate(self._kinds):
            if i in self._watched or kind.same(value := kind.read(), base[i]):
                continue
            if self._is_of_an_import(i):
                self._adopt(i, value)
                continue
            self._watched.add(i)
            if kind.role == "generator":
                continue
            self._late.add(i)
            self._is_new = True
            if len(set(self._names.values())) == 1:
                self._own[self._current][i] = self._changed[self._names[self._current], i] = value
            else:
                kind.put(base[i])
        is_new, self._is_new = self._is_new, False
        self._modules = len(sys.modules)
        return is_new

    # ---- in words -----------------------------------------------------------------------------------------

    def state_of(self, key: int) -> tuple[str, ...]:
        """The settings that the row ran with, where they are not the notebook's; threads are its own only where it
        sets them, and the garbage collector is told where it is on."""
        than = list(self._notebook.values)
        than[self._threads] = self._bases[key][self._threads]
        than[self._collector] = (False, than[self._collector][1])
        values, name = self._own[key], self._names[key]
        known = {i for of, i in self._changed if of == name} | self._of_setup | {self._collector}
        return in_words(self._kinds, values, than, self._differing(values, than) & known)

    def doubts(self, names: Sequence[str]) -> Iterator[Doubt]:
        """Who changes what, in the order of ``names``."""
        by_name: dict[str, dict[int, Any]] = {name: {} for name in names}
        for (name, i), value in self._changed.items():
            by_name[name][i] = value
        for name, values in by_name.items():
            yield from self._doubts_of(name, values, is_alone=len(names) == 1)
        yield from self._unattributed(self._late - {i for _, i in self._changed})

    def _doubts_of(self, name: str, changed: Mapping[int, Any], *, is_alone: bool) -> Iterator[Doubt]:
        base = self._base.values
        values = [changed.get(i, value) for i, value in enumerate(base)]
        for which in ({self._threads} & changed.keys(), changed.keys() - {self._threads}):
            if not which:
                continue
            words = _listed(in_words(self._kinds, values, base, which))
            who, when = ("The code", "after the run") if is_alone else (f"`{name}`", "before every block of the others")
            text = f"{who} runs with {words}: its own code sets this. It is restored {when}."
            if self._late & which:
                text += " It does so only after some calls: earlier samples were dropped."
            is_threads = self._threads in which
            yield Doubt(
                "changes-threads" if is_threads else "changes-state",
                text,
                "Use `-t` to choose thread counts." if is_threads else "",
                {"name": name, **({"threads": changed[self._threads]} if is_threads else {})},
            )

    def _unattributed(self, kinds: set[int]) -> Iterator[Doubt]:
        for i in sorted(kinds):
            what = self._kinds[i].name
            yield Doubt(
                "changes-state",
                f"The code changed a setting once, after many calls ({what}): it was put back, and the samples before"
                " were dropped.",
                "",
                {"setting": what},
            )


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
