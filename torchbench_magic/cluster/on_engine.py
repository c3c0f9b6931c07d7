"""What an engine does: time one point, and leave its own process as it was."""

from __future__ import annotations

import contextlib
import linecache
import os
import pickle
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torchbench_magic.errors import BodyError, Interrupted

_TELLING = 0.25
"""Seconds between two words on what is under way; each takes the engine some milliseconds."""


def environment() -> dict[str, Any]:
    """`Environment` of this process, as plain values."""
    from torchbench_magic.process.environment import read_environment

    found = vars(read_environment())
    return {**found, "variables": dict(found["variables"])}


def made_names(data: bytes) -> dict[str, Any]:
    """What `pack_names` has sent, in the dict that the notebook's functions among it have as globals. Modules of the
    notebook are none of this process.

    Raises:
        BodyError: in one line: it cannot be made here, and why.
    """
    from torchbench_magic.process.send import first_line, unpack_variables

    before = sys.modules.copy()
    try:
        return unpack_variables(data, None, {})
    except Exception as error:
        why = f"{type(error).__name__}: {first_line(error)}"
        raise BodyError(f"the variables cannot be made on the engine ({why})") from error
    finally:
        for name, module in sys.modules.copy().items():
            if module is not before.get(name) and getattr(module, "__spec__", module) is None:  # made of what was sent
                del sys.modules[name]
                sys.modules.update({name: before[name]} if name in before else {})


@contextlib.contextmanager
def folders_known(folders: Iterable[str]) -> Iterator[None]:
    """On an engine of the notebook's host: modules of the notebook's folders are found in the block."""
    more = [each for each in folders if each not in sys.path and os.path.isdir(each)]
    sys.path.extend(more)
    try:
        yield
    finally:
        for each in more:
            if each in sys.path:
                sys.path.remove(each)


@contextlib.contextmanager
def known_lines(lines: Mapping[str, list[str]]) -> Iterator[None]:
    """On the engine: `linecache` has the lines of these files in the block."""
    before = {file: linecache.cache.get(file) for file in lines}
    for file, text in lines.items():
        linecache.cache[file] = (sum(map(len, text)), None, text, file)
    try:
        yield
    finally:
        for file, entry in before.items():
            if entry is None:
                linecache.cache.pop(file, None)
            else:
                linecache.cache[file] = entry


class _Unsuitable(Exception):
    """What the code needs is not to be had here."""


def time_point(sent: bytes, texts: Mapping[str, str], folders: Sequence[str]) -> dict[str, Any]:
    """Time one point.

    Args:
        sent: a `SentTask`, pickled.
        texts: file -> its text, of cells that the functions among them are of; `inspect.getsource` finds it.
        folders: where modules beside the notebook are.

    Returns:
        plain values: ``kind`` ``measured`` with ``result`` (a `Comparison`, pickled), ``raised`` with ``error``
        (`sent_error`), ``interrupted`` with ``result`` where there is something, ``unsuitable`` (a variable cannot be
        made here) with ``said``.
    """
    from torchbench_magic.process.sent_errors import sent_error

    lines = {file: text.splitlines(keepends=True) for file, text in texts.items()}
    try:
        with folders_known(folders), known_lines(lines), _put_back():
            return {"kind": "measured", "result": pickle.dumps(_timed(_task(sent)), protocol=5)}
    except _Unsuitable as unsuitable:
        return {"kind": "unsuitable", "said": str(unsuitable)}
    except Interrupted as stopped:
        result = pickle.dumps(stopped.partial, protocol=5) if stopped.partial is not None else b""
        return {"kind": "interrupted", "result": result}
    except KeyboardInterrupt:
        return {"kind": "interrupted", "result": b""}
    except BaseException as error:  # noqa: BLE001  (whatever the user's code raises is reported)
        return {"kind": "raised", "error": pickle.dumps(sent_error(error), protocol=5)}


@contextlib.contextmanager
def _put_back() -> Iterator[None]:
    """The engine's process as it was: settings, generators, threads, directory, depth of calls."""
    from torchbench_magic.process.settings import preserved_state

    depth = sys.getrecursionlimit()
    with preserved_state():
        try:
            yield
        finally:
            sys.setrecursionlimit(depth)


def _task(sent: bytes) -> Any:
    from torchbench_magic.timing.sent_task import put_settings_of, task_from

    asked = pickle.loads(sent)
    with contextlib.suppress(OSError):  # of another host, which need not have the folder
        os.chdir(asked.directory)
    _tell("making the variables")
    try:
        found = made_names(asked.variables)
    except BodyError as error:
        raise _Unsuitable(str(error)) from None
    found.setdefault("__name__", "__main__")
    put_settings_of(asked)
    return task_from(asked, found)


def _timed(task: Any) -> Any:
    """The comparison of the one point, as the run makes it: what its numbers say is found where they are joined."""
    from torchbench_magic.timing.run import compare_bodies

    parts: list[Any] = []
    compare_bodies(replace(task, keep=parts.append, progress=_Told()))
    return parts[0]


class _Told:
    """A progress that the notebook hears."""

    def __init__(self) -> None:
        self._last = 0.0

    def update(self, done: float, total: float | None, what: str) -> None:
        now = time.monotonic()
        if now - self._last >= _TELLING:
            self._last = now
            _tell(what)


def _tell(what: str) -> None:
    told: Mapping[str, Any] = {"what": what}
    with contextlib.suppress(ImportError):
        from ipyparallel.datapub import publish_data

        publish_data(told)
