"""The peaks of this machine: those that were kept, or measured now and kept.

They are kept as numbers in a JSON file in the user's cache, one for each processor, torch, number of threads and
setting of torch that decides how fast a product is. What was measured while others used the machine is used once and
not kept; so is what cannot be known to be undisturbed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import tempfile
from dataclasses import replace
from pathlib import Path

from torchbench_magic.core.progress import NO_PROGRESS, Progress
from torchbench_magic.results.machine.environment import Environment
from torchbench_magic.results.machine.peaks import Peaks

from ..cache_folder import user_cache_folder
from ..caches import data_caches
from ..environment import read_environment
from .measured_peaks import BUSY, measure_peaks

__all__ = ["peaks_here"]

_LAYOUT = 2
"""Of the file; a changed meaning, or a changed way to measure, needs a new one."""
_in_this_process: dict[str, Peaks] = {}
"""Peaks of which it is not known whether others were in the way: for this process only."""


def peaks_here(threads: int, progress: Progress = NO_PROGRESS) -> Peaks:
    """Peaks for runs with so many threads; measured only where none are kept."""
    environment = read_environment()
    key = _key(environment, threads)
    found = _in_this_process.get(key) or _read(key)
    if found is not None:
        return found
    caches = data_caches()
    notes = () if caches else ("Cache sizes: unknown here; typical sizes were used.",)
    made = replace(measure_peaks(threads, caches, progress), notes=notes)
    if math.isnan(made.contended):
        said = "Whether other processes used the CPU while peaks were measured is unknown here: the peaks are not kept."
        made = replace(made, notes=(*notes, said))
        _in_this_process[key] = made
    elif made.contended > BUSY:
        several = " Peaks of several threads are unknown." if threads > 1 else ""
        said = (
            f"Other processes used {made.contended:.1f} cores while peaks were measured: the peaks may be too low"
            f" and are"
            f" not kept.{several}"
        )
        made = replace(_of_one_thread(made), notes=(*notes, said))
    else:
        why = _write(key, made)
        made = replace(made, notes=(*notes, f"Peaks could not be kept: {why}.")) if why else made
        if why:
            _in_this_process[key] = made
    return made


def _of_one_thread(peaks: Peaks) -> Peaks:
    """Without what several threads reach: they wait for each other, and one that others hold up holds up all, for
    whole time slices, so even two rounds that agree may be a thousandth of the peak."""
    return replace(
        peaks,
        flops=tuple((name, count, rate if count == 1 else math.nan) for name, count, rate in peaks.flops),
        bandwidth=tuple((size, count, rate if count == 1 else math.nan) for size, count, rate in peaks.bandwidth),
    )


def _key(environment: Environment, threads: int) -> str:
    import torch

    switches = (torch.get_float32_matmul_precision(), torch.backends.mkldnn.enabled)
    return json.dumps(
        [environment.cpu, environment.torch, environment.usable_cores, threads, *switches, _LAYOUT]
    )


def _file(key: str) -> Path:
    """Raises RuntimeError without a home folder."""
    name = hashlib.sha256(key.encode()).hexdigest()[:20]
    return user_cache_folder() / "torchbench_magic" / f"peaks-{name}.json"


def _read(key: str) -> Peaks | None:
    """Those that are kept; None where there are none, or no numbers stand there."""
    try:
        held = json.loads(_file(key).read_text(encoding="utf-8"))
        if held["key"] != key:
            return None
        made = Peaks(
            threads=int(held["threads"]),
            flops=tuple((str(name), int(count), _rate(rate)) for name, count, rate in held["flops"]),
            bandwidth=tuple((int(size), int(count), _rate(rate)) for size, count, rate in held["bandwidth"]),
            dispatch=_rate(held["dispatch"]),
            caches=tuple((str(name), int(size)) for name, size in held["caches"]),
            contended=_rate(held["contended"]),
            is_kept=True,
            notes=tuple(map(str, held["notes"])),
        )
    except (OSError, RuntimeError, ValueError, KeyError, TypeError):
        return None
    return made if made.dispatch > 0 and made.flops and made.bandwidth else None


def _rate(value: object) -> float:
    """A number at least 0, NaN for null; ValueError for anything else."""
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"no rate: {value!r}")
    return float(value)


def _write(key: str, peaks: Peaks) -> str:
    """Keep them; the reason where that cannot be done, else empty."""
    plain = {
        "key": key,
        "threads": peaks.threads,
        "flops": [[name, count, _plain(rate)] for name, count, rate in peaks.flops],
        "bandwidth": [[size, count, _plain(rate)] for size, count, rate in peaks.bandwidth],
        "dispatch": _plain(peaks.dispatch),
        "caches": peaks.caches,
        "contended": _plain(peaks.contended),
        "notes": peaks.notes,
    }
    if any(math.isnan(rate) for *_, rate in (*peaks.flops, *peaks.bandwidth)):
        return "not all of them could be measured"
    try:
        path = _file(key)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=path.stem, suffix=".tmp", dir=path.parent)
        try:
            with open(handle, "w", encoding="utf-8") as file:
                json.dump(plain, file)
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
    except RuntimeError:
        return "this user has no home folder"
    except OSError as error:
        return error.strerror or type(error).__name__
    return ""


def _plain(rate: float) -> float | None:
    return None if math.isnan(rate) else rate
