"""What ``--restore`` must leave as it was, besides dense tensors; and a first step, whose state it takes away again."""

from __future__ import annotations

from .case import Case

_FIRST_STEPS = """net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Linear(128, 10)); x = torch.randn(32, 64)
opt = torch.optim.AdamW(net.parameters())
def st(k=1):
    for _ in range(k):
        opt.zero_grad(); net(x).square().mean().backward(); opt.step()"""


def _as_before(name: str, setup: str, body: str, state: str) -> Case:
    """``state`` is an expression of what is compared."""
    return Case(
        f"--restore of {name}",
        "training",
        (f"{setup}\nbefore = {state}", f"%%timer --restore -t 1 -n 1 -r 5\n{body}"),
        f"""
outcome = "right" if {state} == before else "said" if "does not put" in " ".join(outputs[1].split()) else "wrong"
shows = "as before" if outcome == "right" else str({state})[:60]
""",
    )


CASES = [
    Case(
        "--restore of two first steps with a fresh AdamW against one",
        "training",
        (_FIRST_STEPS, "%%timer --restore -t 1 -o r\n# --- one\nst()\n# --- two\nst(2)"),
        """
ratio = r.frame["ratio"][1]
text = " ".join(outputs[1].split())
outcome = "right" if 1.6 < ratio < 2.4 and "grows" not in text and "deepcopy" not in text else "wrong"
shows = f"two steps {ratio:.3g} times one (true: about 2)" + (", said to grow" if "grows" in text else "")
""",
    ),
    _as_before(
        "a sparse COO tensor",
        "sp = torch.eye(3).to_sparse()",
        "sp.mul_(2)",
        "(sp.to_dense().tolist(), sp.is_coalesced())",
    ),
    _as_before(
        "a tensor in a dataclass with slots",
        "import dataclasses\n@dataclasses.dataclass(slots=True)\nclass Held:\n    w: object\n"
        "    def step(self): self.w.mul_(2)\nheld = Held(torch.ones(3))",
        "held.step()",
        "held.w.tolist()",
    ),
    _as_before("a numpy array", "import numpy as np\narr = np.zeros(5)", "arr[1] += 1", "arr.tolist()"),
    _as_before(
        "a module that the body turns to evaluation",
        "m = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout()); x = torch.ones(2, 8)",
        "m.eval()\nm(x)",
        "[one.training for one in m.modules()]",
    ),
    _as_before(
        "a module on which the body registers hooks",
        "m = torch.nn.Linear(8, 8); x = torch.ones(2, 8)",
        "m.register_forward_hook(lambda *a: None)\nm(x)",
        "len(m._forward_hooks)",
    ),
    _as_before(
        "a count in a slot",
        "class Count:\n    __slots__ = ('n',)\n    def step(self): self.n += 1\nc = Count(); c.n = 0",
        "c.step()",
        "c.n",
    ),
]
