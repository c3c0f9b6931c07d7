"""The device that work runs on, which devices this process has put to work, and waiting until they are done."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from torchbench_magic.errors import OptionError
from torchbench_magic.result_base import Doubt

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


# Which device a run is of, when it is waited for, and time between two events on it.
#
# Written for ``torch.accelerator``, not for CUDA alone.


def choose_device(asked: str, read: set[str]) -> str:
    """The device to name in the result.

    Args:
        asked: "auto", "cpu", or a device such as "cuda" or "cuda:1".
        read: devices of the tensors that the timed code reads.

    Raises:
        OptionError: the device that was asked for is not there.
    """
    import torch

    if asked == "cpu":
        return "cpu"
    current = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if asked == "auto":
        if current is None:
            return "cpu"
        on = sorted(d for d in read if d.startswith(current.type))
        return on[0] if on else "cpu"
    try:
        wanted = torch.device(asked)
    except RuntimeError:
        raise OptionError(f"--device: {asked!r} is not a device; use auto, cpu, or one such as cuda:0") from None
    if current is None or wanted.type != current.type:
        raise OptionError(f"--device: no {wanted.type} device is available here; give auto or cpu")
    count = torch.accelerator.device_count()
    if (wanted.index or 0) >= count:
        raise OptionError(f"--device: {asked} is not there, {wanted.type} devices go from 0 to {count - 1}")
    return f"{wanted.type}:{wanted.index or 0}"


def synchronizer(asked: str) -> Callable[[], object]:
    """What to call at the edges of a block so that the device's work is inside the clocks.

    With "auto" every device that this process has put to work is waited for, since the code may create its tensors
    there; none is woken for it: a context takes half a gigabyte and makes forks fail.
    """
    import torch

    if asked == "cpu" or not torch.accelerator.is_available():
        return no_wait

    def synchronize() -> None:
        for each in devices_in_use():
            torch.accelerator.synchronize(each)

    return synchronize


class TimedSynchronizer:
    """A synchroniser that tells how long the last wait took.

    Where the device is done before the host has launched the last call, there is nothing to wait for: the work is
    launch-bound.
    """

    def __init__(self, synchronize: Callable[[], object], wall: Callable[[], int]) -> None:
        self._synchronize, self._wall = synchronize, wall
        self.waited_ns = 0

    def __call__(self) -> None:
        start = self._wall()
        self._synchronize()
        self.waited_ns = self._wall() - start


class DeviceEvents:
    """Two events around a block's work: `synchronize` stands in for the plain synchroniser and records them.

    The loop synchronises twice, before its first clock and after its last call: the first time waits and records the
    start, the second records the end and waits.
    """

    def __init__(self, synchronize: Callable[[], object], event: Callable[[], Any]) -> None:
        self._synchronize, self._event = synchronize, event
        self._start: Any = None
        self.elapsed_ns = 0.0

    def synchronize(self) -> None:
        if self._start is None:
            self._synchronize()
            self._start = self._event()
            self._start.record()
            return
        end = self._event()
        end.record()
        self._synchronize()
        self.elapsed_ns = float(self._start.elapsed_time(end)) * 1e6
        self._start = None


def device_events(device: str, synchronize: Callable[[], object]) -> DeviceEvents:
    """Events of the accelerator that ``device`` names.

    Raises:
        OptionError: the code reads no tensor on an accelerator.
    """
    import torch

    if device == "cpu":
        raise OptionError("--clock device: the code reads no tensor on an accelerator; use --clock wall or cpu")
    backend = torch.get_device_module(device)
    return DeviceEvents(synchronize, lambda: backend.Event(enable_timing=True))


class DeviceWait:
    """How a run waits for the device that its code uses, and what it notes of that.

    Args:
        asked: as `choose_device`; "cpu" waits for nothing.
        read: devices of the tensors that the code reads.
        wall: clock in ns.
        with_events: time between two events on the device is what the figures are of.

    Attributes:
        device: the one to name in the result.
        synchronize: called at the edges of a block.
        waits: how long the last wait took; None where the code reads no tensor on a device.
        events: around the work of a block; None without ``with_events``.

    Raises:
        OptionError: a device, or a clock of one, that is not there.
    """

    def __init__(self, asked: str, read: set[str], wall: Callable[[], int], *, with_events: bool = False) -> None:
        self.device = choose_device(asked, read)
        self.synchronize = synchronizer(asked)
        self.waits: TimedSynchronizer | None = None
        self.events: DeviceEvents | None = None
        if self.device != "cpu":
            self.waits = TimedSynchronizer(self.synchronize, wall)
            self.synchronize = self.waits
        if with_events:
            self.events = device_events(self.device, self.synchronize)
            self.synchronize = self.events.synchronize


def no_wait() -> None:
    """CPU work is done when the call returns."""
