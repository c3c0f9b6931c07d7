"""What some options need besides Python: valgrind, a C++ compiler, the driver of a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torchbench_magic.errors import MissingTool
from torchbench_magic.results.machine.diagnosis import Finding

from ..counting.valgrind.launch import program
from ..cpp.toolchain import find_toolchain
from ..machine.facts.system_files import THIS_MACHINE, SystemFiles

__all__ = ["Accelerators", "accelerator_finding", "read_accelerators", "tool_findings"]


def tool_findings() -> Iterator[Finding]:
    """Of valgrind and the compiler: what is missing says the command that installs it."""
    yield _of_tool("valgrind", "Instruction counts (`--callgrind`)", program)
    yield _of_tool("compiler", "C++ snippets (`--cpp`)", lambda: find_toolchain().command[0])


def _of_tool(kind: str, what: str, find: Callable[[], str]) -> Finding:
    try:
        where = find()
    except MissingTool as missing:
        reason, _, fix = str(missing).partition(": ")
        return Finding(kind, "not available", f"{what} are not available.", reason, fix)
    return Finding(kind, "ok", f"{what} are available.", where)


@dataclass(frozen=True)
class Accelerators:
    """What is known of accelerators.

    Attributes:
        name: of the one that torch uses; None where it uses none.
        backend: what torch was built for, such as ``CUDA 13.0``; empty for a build of the CPU alone.
        driver: the file that shows NVIDIA's driver; empty where there is none.
    """

    name: str | None
    backend: str
    driver: str


def read_accelerators(name: str | None, files: SystemFiles = THIS_MACHINE) -> Accelerators:
    """``name``: as the environment record has it."""
    import torch

    versions = (("CUDA", torch.version.cuda), ("ROCm", torch.version.hip), ("XPU", getattr(torch.version, "xpu", None)))
    backend = next((f"{word} {version}" for word, version in versions if version), "")
    shown = next((path for path in ("/proc/driver/nvidia/version", "/dev/nvidia0") if files.has(path)), "")
    return Accelerators(name, backend, shown)


def accelerator_finding(seen: Accelerators) -> Finding:
    """Whether what torch was built for and what the machine has go together."""
    built = f"torch is built for {seen.backend or 'the CPU alone'}"
    if seen.name is not None:
        return Finding("accelerator", "ok", f"torch uses {seen.name}.", built)
    if seen.driver and not seen.backend:
        text = "There is an NVIDIA driver, but this torch cannot use it."
        fix = "Install a build of torch for CUDA (https://pytorch.org/get-started/locally)."
        return Finding("accelerator", "not available", text, f"{seen.driver} is there; {built}", fix)
    if seen.driver:
        text = "There is an NVIDIA driver, but torch finds no usable GPU."
        fix = "Check whether `nvidia-smi` runs, whether CUDA_VISIBLE_DEVICES hides the GPU, and how old the driver is."
        return Finding("accelerator", "not available", text, f"{seen.driver} is there; {built}", fix)
    if seen.backend:
        text = f"torch is built for {seen.backend.split()[0]}, but no driver is found: it runs on the CPU."
        return Finding("accelerator", "not available", text, f"{built}; no /proc/driver/nvidia, no /dev/nvidia0")
    return Finding("accelerator", "ok", "No accelerator: torch runs on the CPU.", built)
