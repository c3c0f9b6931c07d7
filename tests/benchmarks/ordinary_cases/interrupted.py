"""Ctrl-C at a bad moment, and modules that are too small for the table."""

from __future__ import annotations

from .case import Case

_INTERRUPTS = """
import os, random, signal, threading, time
from IPython import get_ipython
drawn, kept = random.Random(3), []
def interrupted(options, body, seconds, times):
    'Run a cell so often, each time with a SIGINT at another moment while it runs.'
    shell = get_ipython()
    for _ in range(times):
        shell.user_ns['_tprofile'] = None
        shell.user_ns['began'] = 0
        alarm = threading.Timer(drawn.uniform(*seconds), os.kill, (os.getpid(), signal.SIGINT))
        alarm.start()
        try:
            shell.run_cell_magic('tprofile', options, body)
            alarm.join(); time.sleep(0.05)
        except KeyboardInterrupt:
            pass
        kept.append((shell.user_ns['began'], shell.user_ns['_tprofile'] is not None))
"""
_LINES = "began = 1\nfor i in range(10**7):\n    a = [i]\n    b = a + a\n"
_JUDGE = """
lost = sum(began and not shown for began, shown in kept)
still = torch._C._autograd._profiler_enabled()
outcome = "wrong" if lost or still or len(kept) != 8 else "right"
shows = f"{lost} of {len(kept)} profiles lost"
"""
_MANY = """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.big = torch.nn.Linear(1500, 1500)
        self.small = torch.nn.ModuleList(torch.nn.Identity() for _ in range(5))
    def forward(self, x):
        for _ in range(20):
            x = self.big(x)
        for one in self.small:
            x = one(x)
        return x
model, x = Model(), torch.ones(1500, 1500)
_ = model(x)
"""

CASES = [
    Case(
        "a profile with --host-memory is interrupted at a moment that nobody chose",
        "interrupts",
        (_INTERRUPTS, f"interrupted('--host-memory', {_LINES!r}, (0.3, 1.2), 8)"),
        _JUDGE,
    ),
    Case(
        "a profile is interrupted while it is made, its code having run",
        "interrupts",
        (
            _INTERRUPTS,
            "y = torch.ones(4)\ninterrupted('', 'began = 1\\nfor i in range(20000):\\n    y + 1\\n', (0.02, 1.0), 8)",
        ),
        _JUDGE,
    ),
    Case(
        "modules too small for the table of modules",
        "modules",
        (_MANY, "%%tprofile\nmodel(x)", "from torchbench_magic.profiling.ops_view import modules_table"),
        """
table = modules_table(_tprofile)
shown = [row.cells[0].text.strip() for row in table.rows()]
hidden = len(_tprofile.modules) - len(shown)
said = f"{len(shown)} of {len(_tprofile.modules)} modules" in " ".join(str(_tprofile).split())
outcome = "right" if not hidden else "said" if said else "wrong"
shows = f"{hidden} not shown, {'marked' if said else 'no mark'}"
""",
    ),
]
