"""The samples of a run while it lasts: blocks as flat columns."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field, fields

import numpy as np
import pandas as pd

__all__ = ["Samples"]


def _integers() -> array[int]:
    return array("q")


def _floats() -> array[float]:
    return array("d")


@dataclass
class Samples:
    """Blocks as flat columns, nanoseconds.

    Arrays and not lists: numbers kept as objects would move the free lists of Python's allocator from block to block,
    and a body that makes small objects (a loop over a range) runs up to a quarter slower on other free blocks.
    """

    round: array[int] = field(default_factory=_integers)
    measurement: array[int] = field(default_factory=_integers)
    wall: array[float] = field(default_factory=_floats)
    cpu: array[float] = field(default_factory=_floats)
    number: array[int] = field(default_factory=_integers)
    position: array[int] = field(default_factory=_integers)
    device: array[float] = field(default_factory=_floats)

    def frame(self, with_device: bool) -> pd.DataFrame:
        """``Comparison.samples``, times in seconds."""
        columns = {
            "round": np.array(self.round),
            "measurement": np.array(self.measurement),
            "wall": np.array(self.wall) / 1e9,
            "cpu": np.array(self.cpu) / 1e9,
            "number": np.array(self.number),
            "position": np.array(self.position),
        }
        if with_device:
            columns["device"] = np.array(self.device) / 1e9
        return pd.DataFrame(columns)

    def drop(self, measurements: set[int]) -> None:
        """Forget the blocks of these measurements."""
        kept = [i for i, measurement in enumerate(self.measurement) if measurement not in measurements]
        for item in fields(self):
            column = getattr(self, item.name)
            if column:  # that of the device is empty where it is not measured
                setattr(self, item.name, type(column)(column.typecode, [column[i] for i in kept]))
