"""Engines of a running ipyparallel cluster: found, looked at, sent what code reads, asked to run it, heard."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

import torchbench_magic
from torchbench_magic.errors import BodyError, CountError, InputError, MissingTool
from torchbench_magic.process.code import names_looked_up
from torchbench_magic.process.interrupts import hear_interrupt
from torchbench_magic.process.machine import proc_text
from torchbench_magic.process.send import Parcel, Purpose, pack_variables
from torchbench_magic.process.send_modules import looked_up_names

# `Engine`: one process of a cluster, as it was found when a run began.


@dataclass(frozen=True)
class Engine:
    """An engine of an ipyparallel cluster.

    Attributes:
        id: its number in the cluster.
        state: ``ready``; ``busy`` (it runs something and did not answer), ``silent`` (it did not answer, and nobody
            knows of a task), ``died``. Of the last three the fields below are not known.
        host: its name.
        boot: what tells hosts of one name apart, and is the same for all processes of one; empty where it is not known.
        pid: of its process, on its host.
        python: version, as "3.11.7".
        torch: version; None where there is none.
        package: version of torchbench_magic there; None where there is none.
    """

    id: int
    state: str
    host: str = ""
    boot: str = ""
    pid: int = 0
    python: str = ""
    torch: str | None = None
    package: str | None = None

    @property
    def place(self) -> tuple[str, str]:
        """What is the same for all engines of one host."""
        return self.host, self.boot

    @property
    def python_minor(self) -> str:
        """``3.11``."""
        return ".".join(self.python.split(".")[:2])

    @property
    def title(self) -> str:
        """As tables and sentences call it."""
        return f"engine {self.id}" + (f" on {self.host}" if self.host else "")


# ---- this_host -------------------------------------------------------------------------------------------------------
# What tells this process's host and Python from an engine's.

THIS_PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"


@cache
def boot_id() -> str:
    """The same for all processes of a host until it starts anew; empty where the system has none."""
    return proc_text("/proc/sys/kernel/random/boot_id").strip()


# ---- cluster ---------------------------------------------------------------------------------------------------------
# ipyparallel is imported here, at the first use. Its own search for a cluster waits ten seconds for a file that is not
# there, so the files that its controller writes are looked for first.

_FILE = re.compile(r"ipcontroller-(?:(.+)-)?client\.json")
_CONTROLLER_ANSWERS_WITHIN = 5.0
"""Seconds in which a controller answers; on one host it takes a tenth of one."""


class Cluster:
    """A connection.

    Attributes:
        name: as the user wrote it.
        client: `ipyparallel.Client`.
    """

    def __init__(self, name: str, client: Any) -> None:
        self.name, self.client = name, client
        self._listens_at = _address(client)

    @property
    def ids(self) -> tuple[int, ...]:
        """Of the engines that are there now."""
        return tuple(self.client.ids)

    def has_ended(self) -> bool:
        """Whether nothing listens any more where the controller took this client.

        ipyparallel does not tell: its sockets connect again and again, and its results stay pending for ever.
        """
        if self._listens_at is None:
            return False
        try:
            socket.create_connection(self._listens_at, timeout=_CONTROLLER_ANSWERS_WITHIN).close()
        except ConnectionRefusedError:
            return True
        except OSError:  # of the network between: it may come back
            return False
        return False

    def begin(self, engine: int, text: str, asked: dict[str, Any]) -> Any:
        """Have an engine run ``text``, which defines ``answer(asked)``; its ``AsyncResult``.

        Only text and plain values travel: a function would be pickled, which an engine of another Python cannot read.
        Nothing is left among the engine's own names.
        """
        view = self.client.direct_view(engine)
        return view.apply_async(eval, "exec(text, globals()) or answer(asked)", {"text": text, "asked": asked})

    def interrupt(self, engines: Iterable[int]) -> None:
        """Send engines SIGINT, those that are still there."""
        there = set(self.ids)
        live = [each for each in engines if each in there]
        if live:
            self.client.send_signal(int(signal.SIGINT), targets=live, block=False)


def _address(client: Any) -> tuple[str, int] | None:
    """(host, port) at which the controller takes clients; None where that cannot be asked: behind a tunnel of ssh."""
    proto, _, place = str(getattr(client, "_config", {}).get("registration", "")).partition("://")
    host, _, port = place.rpartition(":")
    return (host, int(port)) if proto == "tcp" and not getattr(client, "_ssh", True) else None


@contextmanager
def connected(name: str, ipython_dir: str | os.PathLike[str] | None = None) -> Iterator[Cluster]:
    """Connect to a cluster, until the block ends.

    Args:
        name: a profile, or the id of a cluster.
        ipython_dir: where profiles are; None: as IPython has it without a configuration.

    Raises:
        MissingTool: ipyparallel is not installed.
        InputError: there is no such cluster, and how to start one; its file is broken; it does not answer.
    """
    try:
        import ipyparallel
    except ImportError:
        raise MissingTool(
            "engines need ipyparallel, which is not installed: python -m pip install 'torchbench_magic[cluster]'"
        ) from None
    folder = Path(ipython_dir or os.environ.get("IPYTHONDIR") or Path.home() / ".ipython")
    file = _connection_file(name, folder)
    try:
        client = ipyparallel.Client(str(file), ipython_dir=str(folder), timeout=_CONTROLLER_ANSWERS_WITHIN)
    except (OSError, TimeoutError, ValueError, TypeError, KeyError, ipyparallel.error.IPythonError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"the cluster of --engines {name} does not answer ({why}): it may have ended. {_start(name)}"
        ) from None
    try:
        yield Cluster(name, client)
    finally:
        client.close(linger=0)


def _start(name: str) -> str:
    profile = "" if name == "default" else f" --profile={name}"
    return f"Start one with: ipcluster start -n 2{profile}"


def _connection_file(name: str, folder: Path) -> Path:
    """
    Raises:
        InputError: as `connected`.
    """
    if not re.fullmatch(r"[\w.+-]+", name):
        raise InputError(f"--engines {name}: is neither the name of a profile nor the id of a cluster")
    of_profile = dict(_clusters(folder / f"profile_{name}"))
    if len(of_profile) == 1:
        return next(iter(of_profile.values()))
    if of_profile:
        if "" in of_profile:
            return of_profile[""]
        ids = ", ".join(sorted(of_profile))
        raise InputError(f"--engines {name}: this profile has several clusters; give the id of one: {ids}")
    profiles = sorted(folder.glob("profile_*"))
    of_id = [file for profile in profiles for found, file in _clusters(profile) if found == name]
    if of_id:
        return of_id[0]
    raise InputError(f"--engines {name}: no cluster of this profile or id runs. {_start(name)}")


def _clusters(profile: Path) -> Iterator[tuple[str, Path]]:
    """(id, what a client reads) of each; the id of a cluster that was started without one is empty."""
    for file in sorted(profile.glob("security/ipcontroller-*client.json")):
        if found := _FILE.fullmatch(file.name):
            yield found[1] or "", file


# ---- probing ---------------------------------------------------------------------------------------------------------
# Which engines are there, and whether they can serve: all are asked at once, and none is waited for long.

ANSWERS_WITHIN = 5.0
"""Seconds in which an engine answers that runs nothing: it imports what describes packages, from a slow disk too."""
BUSY_AFTER = 0.5
"""Seconds after which an engine that the controller knows to run something is taken to be busy. It is asked anew after
as long again: it hears of a task later than the engine does."""

_LOOK_AT_ENGINE = """
def answer(asked):
    import importlib.metadata, importlib.util, os, platform, socket

    def version(name):
        if importlib.util.find_spec(name) is None:
            return None
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return "unknown"

    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
    except OSError:
        boot = ""
    try:
        import torchbench_magic
        package = torchbench_magic.__version__
    except Exception:
        package = None
    return {
        "host": socket.gethostname(), "boot": boot, "pid": os.getpid(), "python": platform.python_version(),
        "torch": version("torch"), "package": package,
    }
"""


def probe(
    cluster: Cluster, *, deadline: float = ANSWERS_WITHIN, clock: Callable[[], float] = time.perf_counter
) -> tuple[Engine, ...]:
    """Every engine of the cluster, in the order of their ids; a Ctrl-C that waits is heard.

    Args:
        deadline: seconds after which one that did not answer is ``silent``.
    """
    found: dict[int, Engine] = {}
    ids = cluster.ids
    occupied = frozenset[int]()
    looks = 1
    asked = {each: cluster.begin(each, _LOOK_AT_ENGINE, {}) for each in ids}
    began = clock()
    while len(found) < len(ids):
        hear_interrupt()
        passed = clock() - began
        if passed > looks * BUSY_AFTER:
            occupied = _occupied(cluster)
            looks += 1
        for each in [each for each in ids if each not in found]:
            if asked[each].ready():
                found[each] = _looked_at(each, asked[each])
            elif passed > deadline or each in occupied:
                found[each] = Engine(each, "busy" if each in occupied else "silent")
                cluster.client.abort(asked[each], targets=each, block=False)
        if len(found) < len(ids):
            time.sleep(0.005)
    return tuple(found[each] for each in ids)


def _occupied(cluster: Cluster) -> frozenset[int]:
    """Ids of engines that the controller knows to have a task besides the question that they did not answer."""
    told: Mapping[Any, Any] = cluster.client.queue_status()
    rows = {each: row for each, row in told.items() if isinstance(row, Mapping)}
    return frozenset(each for each, row in rows.items() if int(row.get("queue", 0)) + int(row.get("tasks", 0)) > 1)


def _looked_at(engine: int, result: Any) -> Engine:
    try:
        return Engine(engine, "ready", **result.get(timeout=0))
    except Exception:  # noqa: BLE001  # it died, or its Python cannot even do this
        return Engine(engine, "died")


def is_here(engine: Engine) -> bool:
    """Whether it runs on this host with this Python, so that modules beside the notebook serve it too."""
    return bool(engine.boot) and engine.boot == boot_id() and engine.python_minor == THIS_PYTHON


def why_not(engine: Engine, *, has_code: bool = False) -> str:
    """Why an engine cannot serve, in a few words for a row or a line; empty where it can.

    Args:
        has_code: functions or classes of the notebook are to travel there.
    """
    if engine.state != "ready":
        told = {"busy": "is busy with another task", "silent": "does not answer", "died": "died"}
        return told[engine.state]
    if engine.torch is None:
        return "has no torch"
    if has_code and engine.python_minor != THIS_PYTHON:
        return f"has Python {engine.python_minor}, to which functions cannot be sent from Python {THIS_PYTHON}"
    own = torchbench_magic.__version__
    if engine.package is None:
        return f"has no torchbench_magic: install {own} there"
    if engine.package != own:
        return f"has torchbench_magic {engine.package}, not {own}: install the same there"
    return ""


# ---- what code reads -------------------------------------------------------------------------------------------------

LIMIT = 64 << 20
"""Bytes of all names: they go to each engine, over the network as the case may be."""
_OF_THE_SHELL = frozenset({"In", "Out", "get_ipython", "exit", "quit", "open"})
"""Names that IPython gives to a notebook, and to an engine of its own accord."""


def for_engines(where: str, limit: int = LIMIT) -> Purpose:
    """``where``: what runs on each engine, so that what cannot travel may be made there."""
    return Purpose(
        limit,
        process="an engine",
        on_device="",
        smaller=f"make them in the {where}, which runs on each engine",
        made=f"make `{{}}` in the {where}",
        elsewhere=f"do it in the {where}",
        is_ours=False,
    )


def pack_names(
    codes: Sequence[CodeType], namespace: Mapping[str, Any], *, given: Collection[str] = (), limit: int = LIMIT
) -> Parcel:
    """The names of ``namespace`` that the code of a cell, or what it calls, looks up.

    Args:
        namespace: globals of the notebook's functions.
        given: names that the engine has of its own, such as ``rank``.
        limit: bytes of all together.

    Raises:
        BodyError: in one line: which name cannot travel, why, and the way out.
    """
    used = {name for code in codes for name in names_looked_up(code)} - _OF_THE_SHELL - frozenset(given)
    words = {word for code in codes for word in looked_up_names(code)}
    try:
        return pack_variables(used, namespace, words=words, purpose=for_engines("cell", limit))
    except CountError as error:
        raise BodyError(str(error)) from None


def own_folders() -> list[str]:
    """Where modules of this process are found besides the installed ones: they serve engines of this host."""
    found = dict.fromkeys(os.path.abspath(each or os.getcwd()) for each in [os.getcwd(), *sys.path])
    installed = (sys.prefix, sys.base_prefix, sys.exec_prefix)
    return [each for each in found if not each.startswith(installed) and "site-packages" not in each]


# ---- asking ----------------------------------------------------------------------------------------------------------
# Questions to engines, one at a time each, and their answers as they come.
#
# One result is looked at for each engine: asked together, the slowest would be waited for although another died.

_OUTPUT_WITHIN = 0.5
"""Seconds in which what an engine printed comes after its answer: on one host a millisecond."""
_PATIENCE = 5.0
"""Seconds in which an engine that was interrupted answers."""
_POLL = 0.005
_LOOK = 1.0
"""Seconds between two looks at whether the controller is there while no answer comes."""
_UNREACHABLE = "died, or can no longer be reached: the cluster's controller has ended"

_RUN = """
def answer(asked):
    import importlib

    try:
        package = importlib.import_module("torchbench_magic")
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
"""


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
    """Questions under way."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float] = time.perf_counter) -> None:
        self._cluster, self._clock = cluster, clock
        self._under_way: dict[int, tuple[Engine, Any]] = {}
        self._looked = clock()

    def ask(self, engine: Engine, entry: str, arguments: Mapping[str, Any] | None = None) -> None:
        """Begin. One question at a time each: the next waits for the answer to this one.

        Args:
            entry: a function of this package, ``torchbench_magic.cluster.on_engine:environment``.
            arguments: plain values and bytes, by name; so must be what it returns.
        """
        assert engine.id not in self._under_way
        asked = {
            "version": torchbench_magic.__version__,
            "entry": entry,
            "arguments": dict(arguments or {}),
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

    def answers(self) -> list[Answer]:
        """Those of all that are pending; a Ctrl-C interrupts them."""
        found: list[Answer] = []
        try:
            while self.pending:
                hear_interrupt()
                found += self.poll()
                self.wait()
        except KeyboardInterrupt:
            self.interrupt()
            raise
        return found

    def interrupt(self, patience: float = _PATIENCE) -> list[Answer]:
        """Send SIGINT to all that are pending and take what they answer; who does not in ``patience`` s is ``lost``."""
        self._cluster.interrupt(engine.id for engine in self.pending)  # one in C++ code does not hear it by itself
        found: list[Answer] = []
        until = self._clock() + patience
        while self._under_way and self._clock() < until:
            found += self.poll()
            self.wait()
        found += [Answer(engine, "lost", said="did not come back") for engine, _ in self._under_way.values()]
        self._under_way.clear()
        return found

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
