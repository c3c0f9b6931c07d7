"""Large profiles in a long session: what they leave in the kernel's memory, and in `Out`."""

from __future__ import annotations

from .case import Case

_RESIDENT = """
import gc, torchbench_magic.profiling.run, torchbench_magic.profiling.view
def resident():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6
a = torch.ones(4, 4)
"""
_LOOP = "for i in range(101_000):\n    if i == 1000: began = now()\n    a + a\ntook.append(now() - began)"

CASES = [
    Case(
        "memory of the kernel after a large profile was deleted",
        "memory",
        (
            _RESIDENT,
            "%%tprofile -q\nfor i in range(100): a + a",
            "before = resident()",
            "%%tprofile -q --memory\nfor i in range(100_000): a + a",
            "held = resident() - before",
            "del _tprofile",
            "left = resident() - before",
        ),
        """
outcome = "right" if left < 40 and held < 120 else "wrong"
shows = f"{held:.0f} MB held, {left:.0f} MB left"
""",
        peers={
            "torch": (
                (
                    _RESIDENT,
                    "with torch.profiler.profile(profile_memory=True) as p: a + a",
                    "before = resident()",
                    "with torch.profiler.profile(profile_memory=True) as p:\n    for i in range(100_000): a + a",
                    "del p",
                    "left = resident() - before",
                ),
                'outcome, shows = "right" if left < 40 else "wrong", f"{left:.0f} MB left"',
            )
        },
    ),
    Case(
        "a quiet profile is held by its variable alone",
        "memory",
        (
            "import gc, weakref",
            "%%tprofile -q\nx = torch.ones(3) + 1",
            "gone = weakref.ref(_tprofile)",
            "del _tprofile",
            "gc.collect();",
        ),
        """
outcome = "right" if gone() is None and not any(type(v).__name__ == "Profile" for v in Out.values()) else "wrong"
shows = "gone" if gone() is None else "still held"
""",
    ),
    Case(
        "a long loop of which ten steps are recorded",
        "steps",
        (
            "from time import perf_counter as now\na = torch.ones(4, 4)\ntook = []",
            _LOOP,
            f"%%tprofile --steps 10 -q\n{_LOOP}",
            _LOOP,
        ),
        """
ratio = took[1] / max(took[0], took[2])
outcome = "right" if ratio < 1.5 and len(_tprofile.steps) == 10 else "wrong"
shows = f"{ratio:.2f} times the plain loop"
""",
    ),
]
