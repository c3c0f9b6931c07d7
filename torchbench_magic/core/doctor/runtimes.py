"""Which OpenMP, BLAS and allocator are loaded, and which of them twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchbench_magic.results.machine.diagnosis import Finding

from ..machine.facts.native_libraries import NativeLibrary

__all__ = ["runtime_findings"]


def runtime_findings(libraries: Sequence[NativeLibrary] | None, built_with: str = "") -> Iterator[Finding]:
    """What is loaded.

    Args:
        libraries: None where the system does not tell.
        built_with: the BLAS that is linked into torch itself, as torch names it.
    """
    if libraries is None:
        text = "Which OpenMP, BLAS and allocator are loaded is unknown."
        yield Finding("libraries", "not available", text, "/proc/self/maps cannot be read")
        return
    by_kind = {kind: [one for one in libraries if one.kind == kind] for kind in ("OpenMP", "BLAS", "allocator")}
    yield _of_openmp(by_kind["OpenMP"])
    yield _of_blas(by_kind["BLAS"], built_with)
    found = by_kind["allocator"]
    text = f"The allocator is {_names(found)}." if found else "The allocator is the C library's."
    yield Finding("allocator", "ok", text, _said(found) or "no other is loaded")


def _of_openmp(found: Sequence[NativeLibrary]) -> Finding:
    if len(found) < 2:
        text = f"One OpenMP runtime is loaded: {_names(found)}." if found else "No OpenMP runtime is loaded as a file."
        return Finding("OpenMP", "ok", text, _said(found))
    several = len({one.name for one in found}) > 1
    what = f"{len(found)} OpenMP runtimes are loaded" if several else f"lib{found[0].name} is loaded {len(found)} times"
    text = f"{what}, each with its own threads: together they may use more threads than there are cores."
    fix = "Import only one of these packages, or install them all from one source (pip or conda)."
    return Finding("OpenMP", "warn", text, _said(found), fix)


def _of_blas(found: Sequence[NativeLibrary], built_with: str) -> Finding:
    own = f"torch has {built_with} built in" if built_with else ""
    if len(found) > 1:
        text = f"{len(found)} BLAS libraries are loaded, each with its own threads, active only during its calls."
    else:
        text = f"BLAS besides torch's: {_names(found)}." if found else "The only BLAS is torch's."
    return Finding("BLAS", "ok", text, "; ".join(part for part in (own, _said(found)) if part))


def _names(found: Sequence[NativeLibrary]) -> str:
    return ", ".join(f"lib{name}" for name in dict.fromkeys(one.name for one in found))


def _said(found: Sequence[NativeLibrary]) -> str:
    return ", ".join(map(str, found))
