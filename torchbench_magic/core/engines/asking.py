"""Questions to engines, one at a time each, and their answers as they come.

One result is looked at for each engine: asked together, the slowest would be waited for although another died.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torchbench_magic
from torchbench_magic.results.machine.engines import Engine

from .cluster import Cluster
from .probing import is_here
from .this_host import package_folder

__all__ = ["Answer", "Asking", "Question"]

_OUTPUT_WITHIN = 0.5
"""Seconds in which what an engine printed comes after its answer: on one host a millisecond."""
_PATIENCE = 5.0
"""Seconds in which an engine that was interrupted answers."""
_POLL = 0.005
_LOOK = 1.0
"""Seconds between two looks at whether the controller is there while no answer comes."""
_UNREACHABLE = "died, or can no longer be reached: the cluster's controller has ended"

_RUN = '''
def answer(asked):
    import importlib, importlib.util, os, sys

    def own(name, folder):
        if name in sys.modules or importlib.util.find_spec(name) is not None:
            return importlib.import_module(name)
        if not folder:
            raise ModuleNotFoundError("there is no " + name)
        spec = importlib.util.spec_from_file_location(
            name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        return module

    try:
        package = own("torchbench_magic", asked["folder"])
        if package.__version__ != asked["version"]:
            said = "has torchbench_magic %s, not %s: install the same there" % (package.__version__, asked["version"])
            return {"kind": "unsuitable", "said": said}
        module, _, name = asked["entry"].partition(":")
        return {"kind": "value", "value": getattr(importlib.import_module(module), name)(**asked["arguments"])}
    except KeyboardInterrupt:
        return {"kind": "interrupted", "said": "was interrupted"}
    except BaseException as error:
        line = (str(error).splitlines() or [""])[0]
        kind = type(error).__name__
        return {"kind": "raised", "said": "ended with " + kind + (": " + line if line else "")}
'''


@dataclass(frozen=True)
class Question:
    """What an engine is to run.

    Attributes:
        entry: a function of this package, ``torchbench_magic.core.somewhere:function``.
        arguments: plain values and bytes, by name; so must be what it returns.
    """

    entry: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What came of a question.

    Attributes:
        engine: that was asked.
        kind: ``value``; ``raised`` (by the function itself: what it runs for the user it must catch), ``interrupted``,
            ``died`` (the engine's process is gone, or the controller that would tell of it), ``lost`` (it did not come
            back after an interrupt), ``unsuitable``.
        value: what the function returned; None with another kind.
        said: with another kind, what happened, in a few words that follow the engine's name.
        stdout, stderr: what it printed.
    """

    engine: Engine
    kind: str
    value: Any = None
    said: str = ""
    stdout: str = ""
    stderr: str = ""


class Asking:
    """Questions under way.

    Args:
        cluster: connected.
        clock: seconds, for the time that is waited.
    """

    def __init__(self, cluster: Cluster, clock: Callable[[], float] = time.perf_counter) -> None:
        self._cluster, self._clock = cluster, clock
        self._under_way: dict[int, tuple[Engine, Any]] = {}
        self._looked = clock()

    def ask(self, engine: Engine, question: Question) -> None:
        """Begin. One question at a time each: the next waits for the answer to this one."""
        assert engine.id not in self._under_way
        asked = {
            "version": torchbench_magic.__version__,
            "folder": package_folder() if is_here(engine) else "",
            "entry": question.entry,
            "arguments": dict(question.arguments),
        }
        self._under_way[engine.id] = engine, self._cluster.begin(engine.id, _RUN, asked)

    @property
    def pending(self) -> tuple[Engine, ...]:
        """Engines that have not answered yet."""
        return tuple(engine for engine, _ in self._under_way.values())

    def told(self, engine: Engine) -> Mapping[str, Any]:
        """What an engine that is pending has told meanwhile, by `ipyparallel.datapub.publish_data` of a dict."""
        told = self._under_way[engine.id][1].data
        return told if isinstance(told, Mapping) else {}

    def poll(self) -> list[Answer]:
        """Answers that came since; returns at once but for what they printed.

        An engine that dies answers, too, and so do all when the controller has ended: ``ipcluster`` ends it with its
        last engine, often before it has told of that one.
        """
        has_ended = self._is_time_to_look() and self._cluster.has_ended()
        ready = [each for each, (_, result) in self._under_way.items() if result.ready()]
        found = [self._answered(*self._under_way.pop(each)) for each in ready]
        if has_ended:
            found += [Answer(engine, "died", said=_UNREACHABLE) for engine, _ in self._under_way.values()]
            self._under_way.clear()
        return found

    def _is_time_to_look(self) -> bool:
        if not self._under_way or self._clock() - self._looked < _LOOK:
            return False
        self._looked = self._clock()
        return True

    def wait(self, seconds: float = _POLL) -> None:
        """Until an answer may have come."""
        time.sleep(seconds)

    def interrupt(self, patience: float = _PATIENCE) -> list[Answer]:
        """Send SIGINT to all that are pending and take what they answer; who does not in ``patience`` s is ``lost``."""
        self.signal(self.pending)
        found: list[Answer] = []
        until = self._clock() + patience
        while self._under_way and self._clock() < until:
            found += self.poll()
            self.wait()
        found += [Answer(engine, "lost", said="did not come back") for engine, _ in self._under_way.values()]
        self._under_way.clear()
        return found

    def signal(self, engines: tuple[Engine, ...]) -> None:
        """SIGINT to these; one that waits in C++ code does not hear it by itself."""
        self._cluster.interrupt(engine.id for engine in engines)

    def _answered(self, engine: Engine, result: Any) -> Answer:
        try:
            got = result.get(timeout=0)
        except Exception as error:  # noqa: BLE001  # whatever ipyparallel raises for an engine
            line = (str(error).splitlines() or [""])[0]
            died = "died" in line or type(error).__name__ == "EngineError"
            if "KeyboardInterrupt" in f"{type(error).__name__} {line}":
                return Answer(engine, "interrupted", said="was interrupted")
            return Answer(engine, "died" if died else "raised", said="died" if died else f"ended with {line}")
        result.wait_for_output(_OUTPUT_WITHIN)
        printed = {"stdout": str(result.stdout or ""), "stderr": str(result.stderr or "")}
        return Answer(engine, got["kind"], got.get("value"), got.get("said", ""), **printed)
