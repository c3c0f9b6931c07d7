"""How Python and torch were built and started, and what hooks into every call: any of it costs a factor."""

from __future__ import annotations

import gc
import os
import re
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from torchbench_magic.core.machine.facts.hooks import active_hooks
from torchbench_magic.results.machine.diagnosis import Finding

__all__ = ["Builds", "build_findings", "read_builds"]

_DEBUG_ALLOCATORS = ("debug", "malloc_debug", "pymalloc_debug", "mimalloc_debug")


@dataclass(frozen=True)
class Builds:
    """What is known of Python and torch.

    Attributes:
        debug_python: Python was built with ``--with-pydebug``.
        dev_mode: ``python -X dev`` or PYTHONDEVMODE.
        malloc: value of PYTHONMALLOC; empty where it is not set.
        hooks: what is called for every line, call or allocation: ``sys.settrace: coverage.tracer.CTracer``.
        gc_debug: flags of ``gc.set_debug``.
        debug_torch: torch was built for debugging.
        built_as: torch's BUILD_TYPE; empty where it does not say.
        checks: switches of torch that check every operation.
        variables: of the environment, that check or wait after every operation.
    """

    debug_python: bool = False
    dev_mode: bool = False
    malloc: str = ""
    hooks: tuple[str, ...] = ()
    gc_debug: int = 0
    debug_torch: bool = False
    built_as: str = ""
    checks: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


def read_builds() -> Builds:
    """Read them; torch is imported."""
    import torch

    kind = re.search(r"\bBUILD_TYPE=(\w*)", torch.__config__.show())
    waiting = ("CUDA_LAUNCH_BLOCKING", "TORCH_CPP_LOG_LEVEL", "TORCH_DISTRIBUTED_DEBUG")
    checks = {
        "torch.autograd.set_detect_anomaly(True)": torch.is_anomaly_enabled(),
        "torch.use_deterministic_algorithms(True)": torch.are_deterministic_algorithms_enabled(),
    }
    return Builds(
        debug_python=bool(sysconfig.get_config_var("Py_DEBUG")) or hasattr(sys, "gettotalrefcount"),
        dev_mode=sys.flags.dev_mode,
        malloc=os.environ.get("PYTHONMALLOC", "") if not sys.flags.ignore_environment else "",
        hooks=tuple(active_hooks()),
        gc_debug=gc.get_debug(),
        debug_torch=bool(torch.version.debug),
        built_as=kind[1] if kind else "",
        checks=tuple(name for name, is_on in checks.items() if is_on),
        variables={name: os.environ[name] for name in waiting if os.environ.get(name) in ("1", "INFO", "DETAIL")},
    )


def build_findings(builds: Builds) -> Iterator[Finding]:
    """What slows every operation down."""
    yield _of_torch(builds)
    yield _of_python(builds)
    if builds.hooks:
        text = "A hook is called for every line, call or allocation: Python code takes several times as long."
        fix = "Stop the debugger, coverage tool or tracer."
        yield Finding("hooks", "warn", text, "; ".join(builds.hooks), fix)
    else:
        yield Finding("hooks", "ok", "No trace or profile hook is set.", "sys.gettrace, sys.getprofile, tracemalloc")
    asked = (("python -X dev", builds.dev_mode), (f"PYTHONMALLOC={builds.malloc}", builds.malloc))
    said = [name for name, is_on in asked if is_on]
    if builds.dev_mode or builds.malloc in _DEBUG_ALLOCATORS:
        text = "Python's allocator checks every block: Python code is slower."
        yield Finding("debug allocator", "warn", text, ", ".join(said), "Start Python without it.")
    elif builds.malloc:
        yield Finding("debug allocator", "ok", "Python does not use its default allocator.", said[0])
    if builds.gc_debug:
        text = "The garbage collector has debug flags set: each collection is slower."
        yield Finding("gc", "warn", text, f"gc.get_debug() {builds.gc_debug}", "`gc.set_debug(0)`")
    on = [*builds.checks, *(f"{name}={value}" for name, value in builds.variables.items())]
    if on:
        text = "torch runs extra checks, waits or uses other kernels in every operation: times differ from normal ones."
        fix = "Switch it off, unless you want to measure it."
        yield Finding("torch checks", "warn", text, ", ".join(on), fix)


def _of_torch(builds: Builds) -> Finding:
    said = f"torch.version.debug {builds.debug_torch}" + (f", BUILD_TYPE={builds.built_as}" if builds.built_as else "")
    if builds.debug_torch or builds.built_as == "Debug":
        text = "torch is a debug build: its operations take several times as long."
        return Finding("debug torch", "warn", text, said, "Install a release build.")
    return Finding("debug torch", "ok", "torch is a release build.", said)


def _of_python(builds: Builds) -> Finding:
    if builds.debug_python:
        text = "Python is a debug build: its code takes several times as long."
        return Finding("debug Python", "warn", text, "Py_DEBUG is set", "Use a release build of Python.")
    return Finding("debug Python", "ok", "Python is a release build.", "Py_DEBUG is not set")
