"""Steps of a reader through counts, and a pattern's search with a bound on its time."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from torchbench_magic.errors import InputError
from torchbench_magic.show.document import clipped

from .diff import CountsDiff

# ---- patterns --------------------------------------------------------------------------------------------------------
# Regular expressions of the reader, within a time limit.
#
# A pattern such as ``(a+)+$`` can take longer than the universe has, and while Python's ``re`` matches, the process can
# do nothing else: no thread runs, and a signal reaches the main thread only. So what the reader types is tried in a
# process of its own, which the system ends when it has used its time. It costs about 20 ms.

LIMIT = 1.0
"""Seconds of processor time that a pattern may take: what else runs on the machine does not count."""

_WORK = """\
import json, re, signal, sys
signal.setitimer(signal.ITIMER_PROF, float(sys.argv[1]))  # its signal ends the process
asked = json.loads(sys.stdin.read())
pattern = re.compile(asked["pattern"], re.IGNORECASE if asked["to"] is None else 0)
texts = asked["texts"]
if asked["to"] is None:
    found = [pattern.search(text) is not None for text in texts]
else:
    found = [pattern.sub(asked["to"], text) for text in texts]
sys.stdout.write(json.dumps(found))
"""


def matching(pattern: str, texts: Sequence[str], limit: float = LIMIT) -> list[bool]:
    """Which texts the pattern is found in, without regard to case.

    Raises:
        InputError: it is no pattern, or takes longer than ``limit`` seconds of processor time.
    """
    _check(pattern)
    return [bool(one) for one in _worked(pattern, None, texts, limit)]


def replaced(pattern: str, to: str, texts: Sequence[str], limit: float = LIMIT) -> list[str]:
    r"""The texts with ``to`` in place of what the pattern matches; ``\1`` is its first group, as in ``re.sub``.

    Raises:
        InputError: it is no pattern, ``to`` names a group that is not there, or it takes longer than ``limit`` seconds.
    """
    _check(pattern)
    return [str(one) for one in _worked(pattern, to, texts, limit)]


def _check(pattern: str) -> None:
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise InputError(f"not a usable pattern: {error}") from None


def _worked(pattern: str, to: str | None, texts: Sequence[str], limit: float) -> list[object]:
    asked = json.dumps({"pattern": pattern, "to": to, "texts": list(texts)})
    work = [sys.executable, "-I", "-S", "-c", _WORK, str(limit)]
    done = subprocess.run(work, input=asked, capture_output=True, text=True)
    if done.returncode == -signal.SIGPROF:
        raise InputError(f"not a usable pattern: it takes longer than {limit:g} s on these names")
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it ended"])[-1]  # "re.error: missing )"
        said = re.sub(r"^[\w.]+: ", "", said)
        raise InputError(f"not a usable {'pattern' if to is None else 'replacement'}: {said}")
    found: list[object] = json.loads(done.stdout)
    return found


# ---- exploration -----------------------------------------------------------------------------------------------------
# The steps a reader applies to a difference of counts (filter, denoise, ...); each can be undone by itself.

StepKind = Literal["standardize", "denoise", "transform", "filter"]

_LONGEST = 40


@dataclass(frozen=True)
class Step:
    """One change. ``pattern`` and ``to`` are a regular expression and its replacement, where the kind has them."""

    kind: StepKind
    pattern: str = ""
    to: str = ""

    @property
    def words(self) -> str:
        """What its chip says."""
        if self.kind == "transform":
            return f"{clipped(self.pattern, _LONGEST)} to {clipped(self.to, _LONGEST) or 'nothing'}"
        return f"only {clipped(self.pattern, _LONGEST)}" if self.kind == "filter" else self.kind

    def applied(self, diff: CountsDiff) -> CountsDiff:
        """The difference after this step.

        Raises:
            InputError: the pattern is none, or takes too long on these names.
        """
        if self.kind == "standardize":
            return diff.standardize()
        if self.kind == "denoise":
            return diff.denoise()
        names = list(dict.fromkeys(diff.functions))
        if self.kind == "filter":
            kept = dict(zip(names, matching(self.pattern, names), strict=True))
            return diff.filter(lambda name: kept[name])
        new = dict(zip(names, replaced(self.pattern, self.to, names), strict=True))
        return diff.transform(lambda name: new[name])


def after(diff: CountsDiff, steps: Iterable[Step]) -> CountsDiff:
    """The difference after all steps, in order; errors as of `Step.applied`."""
    for step in steps:
        diff = step.applied(diff)
    return diff
