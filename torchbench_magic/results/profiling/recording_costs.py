"""What recording adds to a run, per event: a small table, and what it comes to for a profile.

The costs depend on the processor, on what else it does and on the code around, by a factor of two to three either
way: good for words and for taking the bulk of it off an upper bound, not for a figure to show.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

__all__ = ["MICROSECONDS", "microseconds_here"]

MICROSECONDS: Mapping[str, float] = {
    "op": 0.6,
    "shapes": 0.5,
    "allocation": 0.8,
    "line": 0.5,
    "call": 0.0,
    "module": 6.0,
}
"""What recording adds, per event, in microseconds (2 shared cores, AMD EPYC, Python 3.11, torch 2.13): tiny ops, empty
tensors and a loop of assignments, each run with and without (medians of 5; they moved by a factor of two to three).
Modules, measured anew as they are seen by the interpreter: 200 layers that return their input, 20 times, 7 runs each
way on an idle machine; 5.4 a call where the layers are torch's `Identity` (2.6 ... 8.0), and 7.8 with the one line of
layers of one's own (6.3 ... 15.2), of which the line is 0.5."""
_ON_311 = {"call": 1.2}
"""On Python 3.11 a trace function sees each call of Python code that is not recorded; `sys.monitoring` does not."""


def microseconds_here() -> Mapping[str, float]:
    """The table for this Python."""
    return MICROSECONDS if sys.version_info >= (3, 12) else {**MICROSECONDS, **_ON_311}
