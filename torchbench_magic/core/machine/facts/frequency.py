"""How the clock of the processors is steered: governor, driver and turbo, from /sys (cpufreq of Linux)."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from .system_files import THIS_MACHINE, SystemFiles

__all__ = ["ClockControl", "clock_control", "governor_text"]

_CPUS = "/sys/devices/system/cpu"


@dataclass(frozen=True)
class ClockControl:
    """What steers the clock.

    Attributes:
        governors: name -> number of processors that it steers; empty where it cannot be read.
        driver: of the clock, such as ``intel_pstate``; empty where it cannot be read.
        turbo: whether the clock may exceed its nominal value; None where it is not known.
        turbo_said: the file that says so, and its text.
    """

    governors: tuple[tuple[str, int], ...] = ()
    driver: str = ""
    turbo: bool | None = None
    turbo_said: str = ""


def clock_control(files: SystemFiles = THIS_MACHINE) -> ClockControl:
    """Read it; of a guest nothing is known as a rule."""
    cpus = [name for name in files.names(_CPUS) if re.fullmatch(r"cpu\d+", name)]
    found = [files.text(f"{_CPUS}/{cpu}/cpufreq/scaling_governor") for cpu in cpus]
    governors = tuple(sorted(Counter(text for text in found if text).items()))
    driver = files.text(f"{_CPUS}/cpu0/cpufreq/scaling_driver") or ""
    for path, on in ((f"{_CPUS}/intel_pstate/no_turbo", "0"), (f"{_CPUS}/cpufreq/boost", "1")):
        text = files.text(path)
        if text in ("0", "1"):
            return ClockControl(governors, driver, text == on, f"{path}: {text}")
    return ClockControl(governors, driver)


def governor_text(control: ClockControl) -> str:
    """``powersave``, or where they differ ``performance on 2, powersave on 6 processors``; empty where not known."""
    if len(control.governors) == 1:
        return control.governors[0][0]
    said = ", ".join(f"{name} on {count}" for name, count in control.governors)
    return f"{said} processors" if said else ""
