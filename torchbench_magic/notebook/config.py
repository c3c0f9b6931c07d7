"""The defaults that a user sets: ``%config TorchBench``, or ``c.TorchBench`` in ``ipython_config.py``.

Only traitlets is imported here: the startup file registers the traits before anything else is loaded.
"""

from __future__ import annotations

import math
import sys
from typing import Any

from traitlets import Enum, Float, TraitError, Unicode, validate
from traitlets.config import Configurable

from torchbench_magic.printable import printable


class TorchBench(Configurable):
    """Defaults of the magics."""

    min_run_time = Float(
        0.2, help="Minimum time of %timer in seconds, per alternative and thread count (--min-run-time)."
    ).tag(config=True)
    max_run_time = Float(
        None,
        allow_none=True,
        help="Maximum time of %timer in seconds, per alternative and thread count (--max-run-time);"
        " None: 5 x min_run_time, up to 30 s for slow code.",
    ).tag(config=True)
    display = Enum(
        ["auto", "html", "widget", "text"],
        "auto",
        help="How results are shown: auto (the static table with its inline module; text in a terminal), html,"
        " widget (live, as with -w) or text.",
    ).tag(config=True)

    store = Unicode(
        None,
        allow_none=True,
        help="File of results to which %timer appends each finished point (--save), and from which %tcompare --last"
        " reads; None: results stay in the notebook only.",
    ).tag(config=True)

    @validate("min_run_time", "max_run_time")
    def _above_zero(self, proposal: Any) -> Any:
        if proposal["value"] is not None and not 0 < proposal["value"] < math.inf:  # NaN is not
            raise TraitError(f"TorchBench.{proposal['trait'].name}: give seconds above 0")
        return proposal["value"]

    def defaults(self) -> dict[str, Any]:
        """Trait name -> value, for the options that take their default from a trait."""
        return {"min_run_time": self.min_run_time, "max_run_time": self.max_run_time, "store": self.store or None}


def settings_of(shell: Any) -> TorchBench | None:
    """The instance that ``%config`` shows, or None."""
    found = [item for item in shell.configurables if type(item).__name__ == TorchBench.__name__]
    return found[-1] if found else None


def declare(shell: Any) -> TorchBench:
    """Register the traits with ``%config``; the instance that is there already is kept."""
    present = settings_of(shell)
    if present is not None:
        return present
    try:
        settings = TorchBench(parent=shell)
    except TraitError:
        settings = _usable(shell.config["TorchBench"])
    shell.configurables.append(settings)
    return settings


def _usable(asked: Any) -> TorchBench:
    """The settings of a config file whose values can be; of each other one a line says that it is not used."""
    settings = TorchBench()
    for name, value in asked.items():
        try:
            setattr(settings, name, value)
        except TraitError as error:
            said = " ".join(str(error).encode("ascii", "backslashreplace").decode().split())
            told = f"torchbench_magic: c.TorchBench.{name} is ignored, and its default used: {said[:200]}"
            sys.stderr.write(f"{printable(told)}\n")
    return settings


def withdraw_traits(shell: Any) -> None:
    """Take the traits out of ``%config``."""
    present = settings_of(shell)
    if present is not None:
        shell.configurables.remove(present)
