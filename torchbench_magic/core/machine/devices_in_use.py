"""Which devices this process has put to work, told without waking one, and waiting until they are done."""

from __future__ import annotations

import os
import sys
from typing import Any

from torchbench_magic.results.doubts import Doubt

__all__ = ["devices_in_use", "note_tracer", "traced_launches", "wait_for_devices"]

_traced: set[str] = set()
"""``"CUPTI"``, once a profiler that records kernels has run in this process."""


def note_tracer() -> None:
    """A profiler that traces kernels begins. NVIDIA's tracing library stays attached after it (pytorch/kineto#1264).

    torch takes it away where the environment has ``TEARDOWN_CUPTI=1``. That is not done here: it happens in whatever
    call of CUDA comes next, sessions that follow soon after crashed (kineto#1169, #1554), and so did CUDA graphs.
    """
    if os.environ.get("TEARDOWN_CUPTI") != "1":
        _traced.add("CUPTI")


def traced_launches(device: str) -> list[Doubt]:
    """What is said of times on ``device`` where a profiler ran before in this process."""
    if not _traced or not device.startswith("cuda"):
        return []
    text = (
        "A profiler ran in this process, and NVIDIA's tracing library (CUPTI) stays attached after it: each launch of "
        "a kernel takes some microseconds longer, so that code of many short kernels is timed as too slow."
    )
    return [Doubt("after-profile", text, "Restart the kernel to time such code.")]


def devices_in_use() -> list[int]:
    """Numbers of the accelerator's devices that may have work of this process; none where it has not been used.

    A device besides the current one is asked only where it has a context: asking would make one, of half a gigabyte.
    """
    torch: Any = sys.modules.get("torch")
    accelerator: Any = getattr(torch, "accelerator", None)
    kind = accelerator.current_accelerator() if accelerator is not None else None
    if kind is None:
        return []
    has_begun = getattr(getattr(torch, kind.type, None), "is_initialized", accelerator.is_available)
    if not has_begun():
        return []
    has_context = getattr(torch._C, "_cuda_hasPrimaryContext", None) if kind.type == "cuda" else None
    current = int(accelerator.current_device_index())
    others = (each for each in range(accelerator.device_count()) if each != current)
    return [current, *(each for each in others if has_context is None or has_context(each))]


def wait_for_devices() -> bool:
    """Wait for all that was launched, on every stream. Whether there was a device to wait for.

    What a device raises is not raised here: the code's next call of it does. While a graph is being captured nothing
    runs, and to wait would end the capture.
    """
    devices = devices_in_use()
    if not devices:
        return False
    torch: Any = sys.modules["torch"]
    try:
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            return False
        for each in devices:
            torch.accelerator.synchronize(each)
    except Exception:  # noqa: BLE001  # whatever a device that failed raises
        return False
    return True
