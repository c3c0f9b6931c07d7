"""The clocks that ``Timer(timer=...)`` takes by name: "wall", "cpu" and "device"."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.benchmark.utils.timer import timer as wall_clock

from torchbench_magic.errors import OptionError

__all__ = ["DeviceClock", "clock_of"]

ReadClock = Callable[[], float]


class DeviceClock:
    """Seconds on the accelerator, from an event a reading.

    The difference of two readings is the time between two events: what the host does after the device has finished is
    not in it.

    Raises:
        OptionError: there is no accelerator here.
    """

    def __init__(self) -> None:
        device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        if device is None:
            raise OptionError("timer='device': no accelerator is available here; give 'wall' or 'cpu'")
        self._backend: Any = torch.get_device_module(device)
        self._last: Any = None
        self._seconds = 0.0

    def __call__(self) -> float:
        event = self._backend.Event(enable_timing=True)
        event.record()
        torch.accelerator.synchronize()
        if self._last is not None:  # from the last one only: an event tells milliseconds in single precision
            self._seconds += float(self._last.elapsed_time(event)) / 1e3
        self._last = event
        return self._seconds


def _cpu_clock() -> float:
    """Processor time of the process, all its threads; an accelerator's work is waited for, as by torch's timer."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    return time.process_time()


_NAMED: dict[str, Callable[[], ReadClock]] = {
    "wall": lambda: wall_clock,
    "cpu": lambda: _cpu_clock,
    "device": DeviceClock,
}


def clock_of(timer: ReadClock | str) -> ReadClock:
    """The clock of that name; a callable is one already.

    Raises:
        OptionError: no such name, or no accelerator for "device".
    """
    if callable(timer):
        return timer
    if timer not in _NAMED:
        raise OptionError(f"timer={timer!r}: give 'wall', 'cpu', 'device' or a function that returns seconds")
    return _NAMED[timer]()
