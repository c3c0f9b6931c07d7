"""One point of a timing as a question to an engine: code, settings, and the names that it reads."""

from __future__ import annotations

import linecache
import os
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torchbench_magic.core.code.code_reads import names_looked_up
from torchbench_magic.core.engines.asking import Question
from torchbench_magic.core.engines.probing import is_here
from torchbench_magic.core.engines.sent_names import SentNames, pack_names
from torchbench_magic.core.interpreters.sent_task import looked_up, sent_task
from torchbench_magic.core.timing.points.sweep import LazyPoints, Point
from torchbench_magic.core.timing.timing_task import Task
from torchbench_magic.results.machine.engines import Engine

from .host_lock import PATIENCE
from .on_engine import AXIS, LOCAL, MAKE

__all__ = ["Packed", "SentPoints"]

_ENTRY = "torchbench_magic.core.cluster_timing.on_engine:time_point"


@dataclass(frozen=True)
class Packed:
    """What is sent of one point, to whichever engine."""

    names: SentNames
    point: bytes


class SentPoints:
    """The points of a task, packed when their turn comes.

    Raises:
        SyntaxError, BodyError: code that cannot be compiled.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._codes = looked_up(task)
        used = {name for code in self._codes for name in names_looked_up(code)}
        self._given = {name: task.implied[name] for name in sorted(used & task.implied.keys() - task.namespace.keys())}
        self._given |= {LOCAL + name: task.local[name] for name in sorted(used & task.local.keys())}
        self._sent = sent_task(task, awaits=False)

    @property
    def threads(self) -> int:
        """torch's thread count in this process, where the plan names none."""
        return self._sent.threads

    def packed(self, point: Point | None) -> Packed:
        """
        Raises:
            BodyError: in one line: a variable that cannot travel, or all that are too large.
        """
        more = {**self._given, **self._made_by(point)}
        names = pack_names(self._codes, self._task.namespace, besides=more, way="make `{}` in the setup")
        where = b"" if point is None else pickle.dumps((point.axes, point.sub_label, point.marks), protocol=5)
        return Packed(names, where)

    def _made_by(self, point: Point | None) -> Mapping[str, Any]:
        """The names of a point of a sweep; what draws those of a fuzzer, which are drawn on the engine."""
        if point is None:
            return {}
        if isinstance(self._task.points, LazyPoints):
            return {MAKE: point.make}
        return {AXIS + name: value for name, value in point.make().items()}

    def question(self, packed: Packed, engine: Engine, env: str | None) -> Question:
        """What one engine is asked; its rows are of the environment ``env``."""
        sent = replace(self._sent, plan=replace(self._sent.plan, env=env))
        arguments = {
            "sent": pickle.dumps(sent, protocol=5),
            "names": packed.names.data,
            "texts": {file: text for file in packed.names.files if (text := _text_of(file))},
            "point": packed.point,
            "folders": list(packed.names.folders) if is_here(engine) else [],
            "patience": PATIENCE,
        }
        return Question(_ENTRY, arguments)


def _text_of(file: str) -> str:
    """The text of a cell; empty for a file of the disk, which the engine has or has not."""
    return "" if os.path.exists(file) else "".join(linecache.getlines(file))
