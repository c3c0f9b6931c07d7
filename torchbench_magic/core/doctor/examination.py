"""`doctor`: everything that is looked at, put together."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace

from torchbench_magic.errors import Interrupted
from torchbench_magic.results.machine.diagnosis import Diagnosis, Finding, SelfTest

from ..machine.environment import read_environment, usable_cores
from ..machine.facts.native_libraries import native_libraries
from ..machine.facts.system_files import THIS_MACHINE, SystemFiles
from ..progress import NO_PROGRESS, Progress
from .builds import build_findings, read_builds
from .limits import core_limits, limit_findings, memory_findings
from .outside_load import load_findings, watch_load
from .processor import processor_findings
from .runtimes import runtime_findings
from .tools import accelerator_finding, read_accelerators, tool_findings

__all__ = ["doctor", "findings_of"]


def doctor(*, self_test: bool = False, progress: Progress = NO_PROGRESS) -> Diagnosis:
    """What on this machine spoils a measurement now. It takes about a second, half of which the load is watched.

    Args:
        self_test: also compare equal code with itself, which takes some seconds, and tell the smallest difference that
            can be resolved now.
        progress: told what is under way.

    Raises:
        Interrupted: on Ctrl-C in the self-test; ``.partial`` is the `Diagnosis` as far as it was made.
    """
    __tracebackhide__ = True
    began = time.perf_counter()
    environment = read_environment()
    seen = watch_load()
    found = [*load_findings(seen, usable_cores()), *findings_of(environment.num_threads, environment.accelerator)]
    seconds = time.perf_counter() - began

    known = Diagnosis(tuple(found), (), seconds, seen.contention.wall, environment.footer())
    return _with_self_test(known, progress) if self_test else known


def _with_self_test(known: Diagnosis, progress: Progress) -> Diagnosis:
    """What is known, and the self-test.

    Raises:
        Interrupted: as `doctor`.
    """
    from .self_test import self_test_findings, self_tests  # with pandas, which the rest does without

    tests = list[SelfTest]()
    try:
        for test in self_tests(progress):
            tests.append(test)
    except KeyboardInterrupt as interrupt:
        if isinstance(unfinished := getattr(interrupt, "partial", None), SelfTest):
            tests.append(unfinished)
        findings = (*known.findings, *self_test_findings(tuple(tests)))
        raise Interrupted(replace(known, findings=findings, self_test=tuple(tests), partial=True)) from None
    return replace(known, findings=(*known.findings, *self_test_findings(tuple(tests))), self_test=tuple(tests))


def findings_of(threads: int, accelerator: str | None, files: SystemFiles = THIS_MACHINE) -> Iterator[Finding]:
    """All but the load. What cannot be read is said to be not available, and the rest goes on.

    Args:
        threads: torch's intra-op threads.
        accelerator: its name, or None.
    """
    builds = read_builds()
    yield from limit_findings(core_limits(threads, files))
    yield from memory_findings(files)
    yield from build_findings(builds)
    yield from runtime_findings(native_libraries(files), _own_blas())
    yield from processor_findings(files)
    yield from tool_findings()
    yield accelerator_finding(read_accelerators(accelerator, files))


def _own_blas() -> str:
    """What torch says of its BLAS: ``mkl``."""
    import torch

    said = re.search(r"\bBLAS_INFO=(\w+)", torch.__config__.show())
    return said[1] if said else ""
