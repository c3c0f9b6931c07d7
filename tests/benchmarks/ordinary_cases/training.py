"""Whole training steps: what they leave behind, comparisons of them, and the workers that feed them."""

from __future__ import annotations

from .case import Case

_TRAINING = """net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
x = torch.randn(16, 8); opt = torch.optim.{optimizer}
schedule = torch.optim.lr_scheduler.StepLR(opt, 2)
for _ in range({steps}): net(x).square().sum().backward(); opt.step(); schedule.step()
def state():
    grads = [None if p.grad is None else p.grad.clone() for p in net.parameters()]
    return copy.deepcopy([dict(net.state_dict()), opt.state_dict(), schedule.state_dict(), grads])
def same(a, b):
    if isinstance(a, torch.Tensor): return isinstance(b, torch.Tensor) and torch.equal(a, b)
    if isinstance(a, dict): return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)): return len(a) == len(b) and all(map(same, a, b))
    return a == b
import copy; before = state()"""
_STEP = "net(x).square().sum().backward()\nopt.step(); schedule.step(); opt.zero_grad()"


def _restored(name: str, optimizer: str, steps: int) -> Case:
    return Case(
        name,
        "training",
        (_TRAINING.format(optimizer=optimizer, steps=steps), f"%%timer --restore -t 1 -n 1 -r 5\n{_STEP}"),
        """
parts = [same(a, b) for a, b in zip(before, state())]
outcome = "right" if all(parts) else "said" if "does not put" in " ".join(outputs[1].split()) else "wrong"
shows = f"as before: weights and buffers {parts[0]}, optimizer {parts[1]}, schedule {parts[2]}, gradients {parts[3]}"
""",
    )


CASES = [
    _restored("a restored step of AdamW", "AdamW(net.parameters())", 2),
    _restored("a restored step of fused AdamW", "AdamW(net.parameters(), fused=True)", 2),
    _restored("a restored first step of SGD", "SGD(net.parameters(), 0.1, momentum=0.9)", 0),
    Case(
        "a step that is not restored",
        "training",
        (_TRAINING.format(optimizer="AdamW(net.parameters(), fused=True)", steps=2), f"%%timer -t 1 -o r\n{_STEP}"),
        """
said = {label for d in r.warnings if d.kind == "in-place" for label in d.facts["changes"]}
wanted = {"net.1.running_mean", "net.1.running_var", "opt.state[0]['exp_avg']", "net.0.weight"}
outcome = "said" if wanted <= said else "wrong"
shows = f"{len(wanted & said)} of {len(wanted)} kinds of state that changed are counted"
""",
    ),
    Case(
        "a restored step of a model that counts its calls",
        "training",
        (
            "class M:\n    calls = 0\n    def __call__(s): s.calls += 1\nm = M(); m.calls = 0",
            "%%timer --restore -t 1 -n 1 -r 5\nm()",
        ),
        """
said = "m.calls changed, and --restore does not" in " ".join(outputs[1].split())
outcome = "right" if m.calls == 0 else "said" if said else "wrong"
shows = f"calls: {m.calls}"
""",
    ),
    Case(
        "a worker whose time is in sum and sorted",
        "workers",
        (
            (
                "import torch\nfrom torch.utils.data import DataLoader, Dataset\nclass D(Dataset):\n"
                "    def __len__(s): return 64\n    def __getitem__(s, i):\n"
                "        a = sum(j * j for j in range(30000))\n        b = sorted(range(60000), key=lambda v: -v)\n"
                "        return torch.tensor(float(a))\ndl = DataLoader(D(), batch_size=8, num_workers=1)"
            ),
            "%%tprofile -l 1 -o p\nfor xb in dl: pass",
        ),
        """
w = p.workers[p.workers["line"].notna()].groupby("line")["seconds"].sum()
outcome = "right" if w.idxmax() == 7 and w.get(6, 0) > w.get(8, 0) else "wrong"
shows = ", ".join(f"line {n}: {t / w.sum():.0%}" for n, t in w.items())
""",
    ),
]
