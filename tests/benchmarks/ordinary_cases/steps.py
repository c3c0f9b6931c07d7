"""Profiles of some steps of a loop: what is the loop's own time, and what is known of its workers."""

from __future__ import annotations

from .case import Case

_WORKERS = """
import time
from torch.utils.data import DataLoader, Dataset
class D(Dataset):
    def __len__(s): return 40
    def __getitem__(s, i): time.sleep(0.01); return torch.ones(4)
"""

CASES = [
    Case(
        "steps that do nothing",
        "steps",
        (
            "def zz(): return 1",
            "%%tprofile --steps 2 -o p\nfor i in range(6): zz()",
        ),
        """
text = " ".join(outputs[1].split())
outcome = "right" if p.steps and p.wall_time < 0.5e-3 and "ProfilerStep" not in text else "wrong"
shows = f"{1e6 * p.wall_time:.0f} us"
""",
    ),
    Case(
        "steps of a loop whose workers start before them",
        "steps",
        (_WORKERS, "%%tprofile --steps 3 --warmup 1 -o p\nfor b in DataLoader(D(), 8, num_workers=1): b.sum()"),
        """
text = " ".join(outputs[1].split())
known = len(p.workers) > 0
said = "started before the recorded steps" in text and "before this cell" not in text
outcome = "right" if known else "said" if said else "wrong"
shows = f"{len(p.workers)} rows of workers"
""",
    ),
    Case(
        "a loop that waits for workers",
        "steps",
        (_WORKERS, "%%tprofile\nfor b in DataLoader(D(), 8, num_workers=1): b.sum()"),
        """
sentence = " ".join(outputs[1].split("!")[0].split("self time")[0].split())
outcome = "right" if "inside it waiting for the DataLoader's workers" in sentence else "wrong"
shows = sentence[:110]
""",
    ),
]
