"""Gradient checkpoints: what runs again in the backward pass is time backward, and only work that was done counts."""

from __future__ import annotations

from .case import Case

_NESTED = """
import time
from torch.utils.checkpoint import checkpoint
class Slow(torch.nn.Module):
    def forward(s, x):
        time.sleep(0.1)
        return x.sin() * x
class Wrapped(torch.nn.Module):
    def __init__(s, inner):
        super().__init__(); s.inner = inner
    def forward(s, x): return checkpoint(s.inner, x, use_reentrant=REENTRANT)
net, x = Wrapped(Wrapped(Slow())), torch.ones(4, requires_grad=True)
def timed():
    a = time.perf_counter(); y = net(x); b = time.perf_counter(); y.sum().backward()
    return b - a, time.perf_counter() - b
timed(); truth = timed()
"""

_PRODUCT = """
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode
big, x = torch.nn.Linear(1024, 1024), torch.randn(512, 1024, requires_grad=True)
with FlopCounterMode(display=False) as counter: checkpoint(big, x, use_reentrant=False).sum().backward()
truth = counter.get_total_flops()
"""

CASES = [
    *(
        Case(
            f"a checkpoint in a checkpoint, use_reentrant={reentrant}",
            "checkpoint",
            (_NESTED.replace("REENTRANT", str(reentrant)), "%%tprofile -o p\ny = net(x)\ny.sum().backward()"),
            """
top = p.modules.set_index("name").loc["net"]
ours = top["forward_time"], top["backward_cpu_time"]
outcome = "right" if all(abs(us - true) < 0.05 for us, true in zip(ours, truth)) else "wrong"
shows = f"forward {ours[0]:.2f} s, by clock {truth[0]:.2f} s; backward {ours[1]:.2f} s, by clock {truth[1]:.2f} s"
""",
        )
        for reentrant in (False, True)
    ),
    Case(
        "the last product of a checkpoint, which is not made a second time",
        "checkpoint",
        (_PRODUCT, "%%tprofile --flops -o p\ncheckpoint(big, x, use_reentrant=False).sum().backward()"),
        """
counted = int(p.ops["flops"].sum())
outcome = "right" if counted == truth else "wrong"
shows = f"{counted / 1e9:.2f} GFLOP, by torch's counter {truth / 1e9:.2f}"
""",
        peers={
            "torch": (
                (
                    _PRODUCT,
                    (
                        "with torch.profiler.profile(with_flops=True) as p:\n"
                        "    checkpoint(big, x, use_reentrant=False).sum().backward()"
                    ),
                ),
                """
counted = sum(each.flops for each in p.key_averages() if each.key in ("aten::addmm", "aten::mm"))
outcome = "right" if counted == truth else "wrong"
shows = f"{counted / 1e9:.2f} GFLOP"
""",
            )
        },
    ),
]
