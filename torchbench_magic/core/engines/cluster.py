"""A running cluster of ipyparallel, by the name of its profile or by its id.

ipyparallel is imported here, at the first use. Its own search for a cluster waits ten seconds for a file that is not
there, so the files that its controller writes are looked for first.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torchbench_magic.errors import InputError, MissingTool

__all__ = ["Cluster", "connected"]

_FILE = re.compile(r"ipcontroller-(?:(.+)-)?client\.json")
_ANSWERS_WITHIN = 5.0
"""Seconds in which a controller answers; on one host it takes a tenth of one."""
_WRITTEN_WITHIN = 2.0
"""Seconds in which a controller that begins has written its file, which is there, but empty, for a moment."""


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
            socket.create_connection(self._listens_at, timeout=_ANSWERS_WITHIN).close()
        except ConnectionRefusedError:
            return True
        except OSError:  # of the network between: it may come back
            return False
        return False

    def begin(self, engine: int, text: str, asked: dict[str, Any]) -> Any:
        """Have an engine run ``text``, which defines ``answer(asked)``; its `AsyncResult`.

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
    _wait_until_written(name, file)
    try:
        client = ipyparallel.Client(str(file), ipython_dir=str(folder), timeout=_ANSWERS_WITHIN)
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


def _wait_until_written(name: str, file: Path) -> None:
    """Until a cluster that starts just now has written all of its file.

    Raises:
        InputError: it never does.
    """
    until = time.monotonic() + _WRITTEN_WITHIN
    while True:
        try:
            told = json.loads(file.read_text())
        except OSError:
            return  # it has ended meanwhile; connecting tells of it
        except ValueError:
            told = None
        if isinstance(told, dict) and told:
            return
        if time.monotonic() > until:
            short = "/".join(file.parts[-3:])
            raise InputError(f"the cluster of --engines {name} left an empty or broken file, {short}. {_start(name)}")
        time.sleep(0.02)


def _clusters(profile: Path) -> Iterator[tuple[str, Path]]:
    """(id, what a client reads) of each; the id of a cluster that was started without one is empty."""
    for file in sorted(profile.glob("security/ipcontroller-*client.json")):
        if found := _FILE.fullmatch(file.name):
            yield found[1] or "", file
