"""Installs the package into the environment of the Python that runs this, in words: what ``make`` calls.

    .venv/bin/python install.py ".[lab]"

pip alone says either nothing for minutes or a page of names. Here a line says what it is at, with the seconds so far:
in a terminal it is written over, in a log there is one every ten seconds.
"""

from __future__ import annotations

import queue
import re
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path

_STEPS = (
    (re.compile(r"\s*Collecting ([\w.-]+)"), "looking for"),
    (re.compile(r"\s*Downloading ([\w.-]+?)-\d.*(\([\d.]+ .?B\))"), "downloading"),
    (re.compile(r"\s*Using cached ([\w.-]+?)-\d"), "already has"),
)
_UNPACKING = re.compile(r"Installing collected packages: (.*)")
_PLACE = Path(sysconfig.get_paths()["purelib"])


class Told:
    """The line that says how far it is."""

    def __init__(self) -> None:
        self._began, self._told, self._is_seen = time.monotonic(), 0.0, sys.stdout.isatty()

    def __call__(self, what: str, *, last: bool = False) -> None:
        now = time.monotonic()
        if not last and now - self._told < (0.2 if self._is_seen else 10.0):
            return
        self._told = now
        line = f"{now - self._began:4.0f} s  {what}"[:99]
        over = "\r\x1b[K" if self._is_seen else ""
        print(f"{over}{line}", end="" if self._is_seen and not last else "\n", flush=True)


def main(target: str) -> int:
    """pip's exit status."""
    print(f"Installing {target} and what it needs, with the versions of constraints.txt.")
    print("The first time that takes 2 to 5 minutes: torch alone is some hundred MB.", flush=True)
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar=off"]
    command += ["--no-compile"]  # of 11,000 files few are ever imported, and those are compiled then
    pip = subprocess.Popen([*command, "-c", "constraints.txt", "-e", target], stdout=subprocess.PIPE, text=True)
    lines: queue.Queue[str] = queue.Queue()
    reader = threading.Thread(target=_read, args=(pip, lines), daemon=True)
    reader.start()
    told, what, unpacked, before = Told(), "asking which packages are needed", 0, _installed()
    while reader.is_alive() or not lines.empty():
        try:
            line = lines.get(timeout=0.5)
        except queue.Empty:
            line = ""
        what = _said(line) or what
        if found := _UNPACKING.match(line):
            unpacked = found[1].count(",") + 1
        told(f"unpacking package {_installed() - before + 1} of {unpacked}" if unpacked else what)
    status = pip.wait()
    told("installed" if status == 0 else "not installed: the lines above say why", last=True)
    return status


def _read(pip: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
    assert pip.stdout is not None
    for line in pip.stdout:
        lines.put(line)


def _said(line: str) -> str:
    """What pip is at, in words; empty for what is not worth them."""
    for pattern, word in _STEPS:
        if found := pattern.match(line):
            return " ".join((word, *found.groups()))
    return ""


def _installed() -> int:
    """How many packages are there."""
    return sum(1 for _ in _PLACE.glob("*.dist-info"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
