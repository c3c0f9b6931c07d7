"""Profiling beside other busy processes: times that hold waiting for a core say so, and who had the cores."""

from __future__ import annotations

from .busy import START, STOP
from .case import Case

NET = (
    "m = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(8)]); x = torch.randn(256, 256)\n"
    "def step():\n    m.zero_grad(); m(x).square().mean().backward()\n"
    "for _ in range(5): step()"
)
_WAITED = "_waited = lambda: int(open('/proc/thread-self/schedstat').read().split()[1]) / 1e9\n_before = _waited()"
STEPS = "for _ in range(10): step()"

CASES = [
    Case(
        "a profiled step beside four busy processes",
        "busy",
        (NET, START.format(count=4), _WAITED, f"%%tprofile -o p\n{STEPS}", "_after = _waited()", STOP),
        """
text = " ".join(outputs[3].split())
waited = _after - _before
told = "for a core while this code ran for" in text
outcome = "said" if told else "right" if waited < 0.25 * p.wall_time else "wrong"
shows = f"{p.wall_time:.2f} s, of which the cell's thread waited {waited:.2f} s"
""",
        peers={
            "torch": (
                (
                    NET,
                    START.format(count=4),
                    _WAITED,
                    f"from torch.profiler import profile as tp\nwith tp() as prof:\n    {STEPS}\nprof.key_averages()",
                    "_after = _waited()",
                    STOP,
                ),
                """
outcome = "said" if "waited" in outputs[3] else "right" if _after - _before < 0.02 else "wrong"
shows = f"waited {_after - _before:.2f} s"
""",
            )
        },
    ),
    Case(
        "a profiled step on a machine with nothing else to do",
        "busy",
        (NET, _WAITED, f"%%tprofile -o p\n{STEPS}", "_after = _waited()"),
        """
told = "Busy machine" in outputs[2] or "Oversubscribed" in outputs[2]
really = _after - _before >= 0.05 * p.wall_time
outcome = ("said" if really else "wrong") if told else "right"
shows = f"{p.wall_time:.2f} s, of which the cell's thread waited {_after - _before:.2f} s"
""",
    ),
]
