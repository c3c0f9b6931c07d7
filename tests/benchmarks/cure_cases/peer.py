"""What a peer says of a planted cell, beside what this project says of it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Beside", "CannotRun", "run_quietly", "shortened"]

_LONGEST = 220


class CannotRun(Exception):
    """The peer cannot be run; the text says why."""


@dataclass(frozen=True)
class Beside:
    """One cell, and what two tools say of it.

    Attributes:
        peer: its name and version.
        cell: the planted one.
        planted: what is the matter with it, and where; "nothing" for a healthy one.
        theirs: what the peer said, literally but for what is left out; empty where it said nothing.
        their_line: the line that it names; "no line".
        is_theirs_right: whether it names the cause, wherever it stands; of a healthy cell, whether it says nothing bad.
        ours, our_line, is_ours_right: the same of this project.
    """

    peer: str
    cell: str
    planted: str
    theirs: str
    their_line: str
    is_theirs_right: bool
    ours: str
    our_line: str
    is_ours_right: bool


def shortened(text: str, longest: int = _LONGEST) -> str:
    """On one line, and no longer than that."""
    text = " ".join(text.split())
    return text if len(text) <= longest else f"{text[: longest - 1].rstrip()}…"


def run_quietly(
    command: Sequence[str | Path], folder: Path, environment: Mapping[str, str], seconds: float
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder of its own.

    Raises:
        CannotRun: there is no such program, it takes longer than that, or it fails.
    """
    try:
        done = subprocess.run(
            [str(part) for part in command], cwd=folder, env=dict(environment), capture_output=True, text=True,
            timeout=seconds, check=False,
        )  # fmt: skip
    except OSError as error:
        raise CannotRun(f"{Path(str(command[0])).name}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise CannotRun(f"it did not end within {seconds:.0f} s") from None
    if done.returncode:
        said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise CannotRun(shortened(re.sub(r"/\S+/", "", said[-1])) if said else f"exit status {done.returncode}")
    return done
