"""What runs inside a backward pass: checkpoints, functions with a backward in Python."""

from __future__ import annotations

from .case import Case

_CHECKPOINT = """
import time
from torch import nn
from torch.utils.checkpoint import checkpoint
torch.set_num_threads(1)
class CS(nn.Module):
    def __init__(s):
        super().__init__(); s.l = nn.Linear(64, 64)
    def forward(s, x):
        time.sleep(0.1)
        h = s.l(x)
        return h.sin()
class Net(nn.Module):
    def __init__(s):
        super().__init__(); s.b = CS()
    def forward(s, x):
        return checkpoint(s.b, x, use_reentrant=REENTRANT)
net, x = Net(), torch.randn(4, 64, requires_grad=True)
net(x).sum().backward()
"""
_ONCE = """
TIMES = ["forward_time", "backward_cpu_time"]
lines = p.lines[p.lines["line"].notna()]
ends = lines[lines["source"].str.contains("return h.sin")].iloc[0]
slept = lines[lines["source"].str.contains("sleep")].iloc[0]
both = slept["calls"] == 2 and slept["python_time"] >= 0.2
m = p.modules.set_index("name")
one = m.index.tolist() == ["net", "net.b", "net.b.l"] and m.loc["net.b", "calls"] == 2
once = all(0.1 <= m.loc[name, column] < 0.15 for name in ("net", "net.b") for column in TIMES)
caused = lines["backward_cpu_time"].sum()
outcome = "right" if both and one and once and caused < 0.05 else "wrong"
shows = f"backward of the line {1e3 * ends['backward_cpu_time']:.2f} ms; {m.loc['net.b', TIMES].round(3).to_dict()}"
"""
_HF = """
import transformers
from transformers import GPT2Config, GPT2LMHeadModel
torch.set_num_threads(1)
gpt = GPT2LMHeadModel(GPT2Config(n_embd=128, n_layer=2, n_head=4, vocab_size=1000)).train()
ids = torch.randint(2, 900, (4, 64))
gpt.gradient_checkpointing_enable()
gpt(input_ids=ids, labels=ids).loss.backward()
"""
_PYTHON_BACKWARD = """
import time
class MyF(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.exp()
    @staticmethod
    def backward(ctx, g):
        time.sleep(0.1)
        return g * 2
class M(torch.nn.Module):
    def forward(s, x):
        return MyF.apply(x)
m, x = M(), torch.ones(8, requires_grad=True)
"""

CASES = [
    *(
        Case(
            f"a module is checkpointed, use_reentrant={reentrant}",
            "backward",
            (
                _CHECKPOINT.replace("REENTRANT", str(reentrant)),
                "%%tprofile -o p\ny = net(x)\ny.sum().backward()",
            ),
            _ONCE,
        )
        for reentrant in (False, True)
    ),
    Case(
        "gradient checkpointing of a transformer",
        "backward",
        (_HF, "%%tprofile -o p\nout = gpt(input_ids=ids, labels=ids)\nout.loss.backward()"),
        """
m = p.modules.set_index("name")
again = m.loc[[f"gpt.transformer.h.{n}.mlp" for n in (0, 1)], "calls"].tolist()  # their block's forward is wrapped
dropout, block = (m.loc["gpt.transformer.h.0" + rest, "backward_cpu_time"] for rest in (".mlp.dropout", ""))
outcome = "right" if again == [2, 2] and m.index.is_unique and dropout < 0.5 * block else "wrong"
shows = f"dropout backward {1e3 * dropout:.2f} of {1e3 * block:.2f} ms, calls {again}"
""",
        needs="transformers",
    ),
    Case(
        "a backward in Python that sleeps",
        "backward",
        (_PYTHON_BACKWARD, "%%tprofile -o p\ny = m(x)\ny.sum().backward()"),
        """
lines = p.lines[p.lines["line"].notna()]
slept = lines[lines["source"].str.contains("sleep")].iloc[0]
alone = slept["python_time"] >= 0.1 and lines["backward_cpu_time"].sum() < 0.05
module = p.modules.iloc[0]["backward_cpu_time"] >= 0.1
outcome = "right" if alone and module else "wrong"
shows = f"line {slept['python_time']:.2f} s, module {p.modules.iloc[0]['backward_cpu_time']:.2f} s"
""",
    ),
    Case(
        "attention at two threads calls an op on a thread of OpenMP's",
        "backward",
        (
            "torch.set_num_threads(2); q = torch.randn(2, 4, 64, 32, requires_grad=True)",
            "torch.nn.functional.scaled_dot_product_attention(q, q, q).sum().backward()",
            "%%tprofile -o p\no = torch.nn.functional.scaled_dot_product_attention(q, q, q)\no.sum().backward()",
        ),
        """
none = int(p.ops["line"].isna().sum())
outcome = "right" if not none and "orked" not in outputs[2] else "wrong"
shows = f"{none} operations on no line"
""",
    ),
]
