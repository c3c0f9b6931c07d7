"""What steers the processor's clock: governor, turbo, battery."""

from __future__ import annotations

from collections.abc import Iterator

from torchbench_magic.results.machine.diagnosis import Finding

from ..machine.facts.frequency import clock_control, governor_text
from ..machine.facts.system_files import THIS_MACHINE, SystemFiles

__all__ = ["processor_findings"]

_OWN_STEERING = ("intel_pstate", "amd-pstate", "amd-pstate-epp")
"""Drivers under which the processor raises its clock by itself within milliseconds, `powersave` or not."""


def processor_findings(files: SystemFiles = THIS_MACHINE) -> Iterator[Finding]:
    """What is known of the clock; a guest is told nothing as a rule."""
    control = clock_control(files)
    names = {name for name, _ in control.governors}
    said = " · ".join(part for part in (control.driver, governor_text(control)) if part)
    if not names:
        guest = "hypervisor" in (files.text("/proc/cpuinfo") or "").split()
        unread = "/sys/devices/system/cpu/*/cpufreq cannot be read"
        why = "virtual machine: the host sets the clock" if guest else unread
        yield Finding("governor", "not available", "What controls the CPU clock is unknown.", why)
    elif names == {"performance"} or control.driver in _OWN_STEERING:
        yield Finding("governor", "ok", f"The governor is {governor_text(control)}.", said)
    else:
        text = f"The clock follows the load (governor {governor_text(control)}): short measurements start slowly."
        yield Finding("governor", "warn", text, said, "`sudo cpupower frequency-set -g performance`")
    if control.turbo is None:
        yield Finding("turbo", "not available", "Whether turbo is on is unknown.", "/sys does not report it")
    elif control.turbo:
        text = "Turbo is on: absolute times depend on temperature and on the number of busy cores; ratios hardly do."
        yield Finding("turbo", "ok", text, control.turbo_said)
    else:
        yield Finding("turbo", "ok", "Turbo is off: the clock is steady.", control.turbo_said)
    yield from _of_power(files)


def _of_power(files: SystemFiles) -> Iterator[Finding]:
    folder = "/sys/class/power_supply"
    for name in files.names(folder):
        if files.text(f"{folder}/{name}/type") == "Mains" and files.text(f"{folder}/{name}/online") == "0":
            text = "The machine runs on battery, which often lowers the clock."
            yield Finding("power", "warn", text, f"{folder}/{name}/online: 0", "Plug it in.")
