"""What a profile must leave as it is, and the time that stands in other processes."""

from __future__ import annotations

from .case import Case

_COMPILED = "import torch._dynamo.utils as utils\nm = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())\n"
_COMPILED += "cm = torch.compile(m, backend='aot_eager'); x = torch.ones(2, 8); _ = cm(x)\n"
_COMPILED += "before = len(utils.get_compilation_metrics())"
_FRAMES = """
more = len(utils.get_compilation_metrics()) - before
outcome = "right" if more == 0 else "wrong"
shows = f"{more} frames compiled by profiling"
"""
_SLOW_SET = """import time
from torch.utils.data import Dataset

class Images(Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, index):
        time.sleep(0.05)
        return index
"""
_LOADER = "from images import Images\ndl = torch.utils.data.DataLoader(Images(), num_workers=1)"

CASES = [
    Case(
        "a warm compiled module is profiled twice",
        "observer",
        (_COMPILED, "%%tprofile\ny = cm(x)", "%%tprofile --memory\ny = cm(x)"),
        _FRAMES,
        peers={
            "torch": ((_COMPILED, "with torch.profiler.profile() as p:\n    y = cm(x)"), _FRAMES),
        },
    ),
    Case(
        "a cell is profiled between two draws of random numbers",
        "observer",
        (
            "torch.manual_seed(0); a = torch.rand(1); b = torch.rand(1)",
            "torch.manual_seed(0); c = torch.rand(1)",
            "%%tprofile\nd = 1",
            "e = torch.rand(1)",
        ),
        "outcome, shows = ('right' if b == e else 'wrong'), f'{float(b):.4f}, after a profile {float(e):.4f}'",
    ),
    Case(
        "a loop over a DataLoader waits for a slow data set",
        "observer",
        (_LOADER, "%%tprofile\nfor b in dl:\n    pass"),
        """
said = "waits" in outputs[1] and "DataLoader workers" in outputs[1] and "images.py:9" in outputs[1]
outcome, shows = ("right" if said else "wrong"), "the line of the data set" if said else "not where the workers are"
""",
        files={"images.py": _SLOW_SET},
        peers={
            "torch": (
                (
                    _LOADER,
                    "with torch.profiler.profile() as p:\n    for b in dl: pass",
                    "print(p.key_averages().table())",
                ),
                "outcome, shows = ('right' if 'images.py' in outputs[2] else 'wrong'), 'the range of the loader'",
            ),
        },
    ),
    Case(
        "profile() in a cell names the cell",
        "observer",
        (
            "import torchbench_magic as tb\ndef f():\n    return torch.ones(300, 300) @ torch.ones(300, 300)",
            "print(tb.profile(f))",
        ),
        "outcome, shows = ('right' if 'In[' in outputs[1] else 'wrong'), outputs[1][:60]",
    ),
    Case(
        "a grouping that was asked for comes first",
        "observer",
        ("x = torch.ones(50, 50)", "%%tprofile --group-by shape\ny = x @ x\nz = y + 1"),
        """
at = outputs[1].find("[50, 50]")
outcome = "right" if 0 <= at < outputs[1].find("y = x @ x") else "wrong"
shows = "shapes before lines" if outcome == "right" else "lines first"
""",
    ),
]
