"""``--try`` on cells of which it is known what helps: slow ones, good ones, and ones that a lever would spoil.

A slow cell is right when a lever of its cure is recommended: faster by its verdict, with the same result. Beside it
stands one lever that is of no use there. A good cell is right when nothing is recommended. A spoiled cell is one whose
result a lever changes: it is right when that lever is not recommended, whatever its time.

It runs in parts, since compilers and an idle machine are needed: ``python levers.py part NAME FILE`` appends what one
part found to a file, ``python levers.py join FILE`` writes the results of all of them. Parts: those of `PARTS`.
"""

from __future__ import annotations

import json
import linecache
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[3])]

import torch  # noqa: E402
from record import Figure, record  # noqa: E402
from tabulate import tabulate  # noqa: E402

from torchbench_magic import compare  # noqa: E402
from torchbench_magic.timing.levers_view import recommended  # noqa: E402

STEP = """
def step():
    opt.zero_grad()
    F.mse_loss(model(x), y).backward()
    opt.step()
"""
DEEP = "model = nn.Sequential(*[nn.Linear(32, 32) for _ in range(40)])\nx, y = torch.randn(2, 16, 32)\n"


@dataclass(frozen=True)
class Cell:
    """A cell after its setup.

    Attributes:
        levers: what is tried; empty for all that apply but ``compile``.
        cures: those of which one is to be recommended; of a spoiled cell the one that is not to be.
    """

    name: str
    setup: str
    body: str
    levers: str = ""
    cures: tuple[str, ...] = ()


SLOW = [
    Cell("evaluation that builds a graph", DEEP, "model(x)", "no_grad,flush-denormal", ("no_grad",)),
    Cell("small layers in inference", DEEP, "model(x)", "inference_mode,matmul-medium", ("inference_mode",)),
    Cell("a scheme of steps on a parameter", "w = torch.randn(100, requires_grad=True)",
         "v = w\nfor _ in range(60):\n    v = v + 0.1 * v.sin()\nv", "no_grad,bf16", ("no_grad",)),
    Cell("a recurrent cell by hand", "cell = nn.GRUCell(16, 16)\nxs = torch.randn(40, 4, 16)\nh0 = torch.zeros(4, 16)",
         "h = h0\nfor x in xs:\n    h = cell(x, h)\nh", "inference_mode,flush-denormal", ("inference_mode",)),
    Cell("two convolutions", "model = nn.Sequential(nn.Conv2d(3, 64, 3), nn.Conv2d(64, 64, 3)).requires_grad_(False)\n"
         "x = torch.randn(4, 3, 64, 64)", "model(x)", "channels_last,flush-denormal", ("channels_last",)),
    Cell("a convolution, a norm and a pool",
         "model = nn.Sequential(nn.Conv2d(32, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)).eval()"
         ".requires_grad_(False)\nx = torch.randn(8, 32, 48, 48)", "model(x)", "channels_last,flush-denormal",
         ("channels_last",)),
    Cell("a pool of images", "conv = nn.Conv2d(64, 64, 1).requires_grad_(False)\nx = torch.randn(8, 64, 64, 64)",
         "F.avg_pool2d(conv(x), 3, 1)", "channels_last,matmul-medium", ("channels_last",)),
    Cell("Adam over many small parameters", DEEP + "opt = torch.optim.Adam(model.parameters())" + STEP, "step()",
         "fused-optimizer,matmul-medium", ("fused-optimizer",)),
    Cell("AdamW over many small parameters", DEEP + "opt = torch.optim.AdamW(model.parameters())" + STEP, "step()",
         "fused-optimizer,flush-denormal", ("fused-optimizer",)),
    Cell("SGD with momentum", DEEP + "opt = torch.optim.SGD(model.parameters(), momentum=0.9)" + STEP, "step()",
         "fused-optimizer,flush-denormal", ("fused-optimizer",)),
    Cell("Adam of a notebook's loop", DEEP + "opt = torch.optim.Adam(model.parameters())",
         "for _ in range(3):\n    opt.zero_grad()\n    F.mse_loss(model(x), y).backward()\n    opt.step()",
         "fused-optimizer,foreach", ("fused-optimizer", "foreach")),
    Cell("a chain of small operations", "x = torch.randn(100_000)\ndef gelu(x):\n"
         "    return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))\n", "gelu(x)",
         "compile,flush-denormal", ("compile",)),
    Cell("a norm by hand", "x = torch.randn(512, 512)\nclass Norm(nn.Module):\n    def forward(self, x):\n"
         "        centred = x - x.mean(-1, keepdim=True)\n"
         "        return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()\nnorm = Norm()\n", "norm(x)",
         "compile,flush-denormal", ("compile",)),
    Cell("NAdam over many small parameters", DEEP + "opt = torch.optim.NAdam(model.parameters())" + STEP, "step()",
         "foreach,flush-denormal", ("foreach",)),
    Cell("RAdam over many small parameters", DEEP + "opt = torch.optim.RAdam(model.parameters())" + STEP, "step()",
         "foreach,fused-optimizer", ("foreach",)),
    Cell("columns of a transposed table", "table = torch.randn(700, 900).t()", "table.softmax(-1)",
         "contiguous,flush-denormal", ("contiguous",)),
    Cell("every eighth column", "samples = torch.randn(2000, 800)[:, ::8]", "torch.exp(samples) + samples",
         "contiguous,flush-denormal", ("contiguous",)),
]  # fmt: skip

_PLAIN = "a, b = torch.randn(2, 384, 384)"
_DOUBLE = ", dtype=torch.float64)"
# products in double: in float32 `matmul-medium` takes another library, 1.1 times as fast here with the same result
GOOD = [
    Cell("a product in double", f"a, b = torch.randn(2, 256, 256{_DOUBLE}", "a @ b"),
    Cell("a larger product in double", f"a, b = torch.randn(2, 512, 512{_DOUBLE}", "a @ b"),
    Cell("products of a batch in double", f"a, b = torch.randn(2, 16, 96, 96{_DOUBLE}", "torch.bmm(a, b)"),
    Cell("a sum", "a = torch.randn(1_000_000)", "a.sum()"),
    Cell("an exponential", "a = torch.randn(400_000)", "a.exp()"),
    Cell("a softmax", "a = torch.randn(512, 1024)", "a.softmax(-1)"),
    Cell("a sort", "a = torch.randn(60_000)", "a.sort().values"),
    Cell("sums so far", "a = torch.randn(1024, 512)", "a.cumsum(-1)"),
    Cell("a norm of layers", "a = torch.randn(1024, 512)", "F.layer_norm(a, (512,))"),
    Cell("attention as torch has it", "q, k, v = torch.randn(3, 4, 8, 128, 32)",
         "F.scaled_dot_product_attention(q, k, v)"),
    Cell("a transform", "a = torch.randn(256, 1024)", "torch.fft.rfft(a).abs()"),
    Cell("rows by their numbers", "table = torch.randn(20_000, 64)\nrows = torch.randint(20_000, (8000,))",
         "table[rows]"),
    Cell("a factorisation", "a = torch.randn(200, 200)\ns = a @ a.T + torch.eye(200)", "torch.linalg.cholesky(s)"),
    Cell("all pairs in double", f"a, b = torch.randn(2, 400, 32{_DOUBLE}", "torch.cdist(a, b)"),
    Cell("numbers of classes", "a = torch.randint(100, (300_000,))", "torch.bincount(a, minlength=100)"),
    Cell("the largest ones", "a = torch.randn(256, 2000)", "a.topk(10).values"),
    Cell("a convolution in its best layout",
         "conv = nn.Conv2d(32, 32, 3).requires_grad_(False).to(memory_format=torch.channels_last)\n"
         "x = torch.randn(4, 32, 64, 64).to(memory_format=torch.channels_last)", "conv(x)",
         "inference_mode,channels_last,contiguous,flush-denormal,matmul-medium"),
    Cell("a layer", "layer = nn.Linear(512, 512).requires_grad_(False)\nx = torch.randn(256, 512)", "layer(x)",
         "inference_mode,no_grad,flush-denormal,threads:1,channels_last"),
    Cell("a step with the fused optimizer", "model = nn.Linear(600, 600)\nx, y = torch.randn(2, 128, 600)\n"
         "opt = torch.optim.SGD(model.parameters(), fused=True)" + STEP, "step()",
         "no_grad,fused-optimizer,flush-denormal"),
    Cell("a product in a function, compiled or not", _PLAIN + "\ndef product(a, b):\n    return a @ b\n",
         "product(a, b)", "compile,inference_mode,flush-denormal"),
]  # fmt: skip

SPOILED = [
    Cell("small numbers that come back", "a = torch.full((20_000,), 1e-39)", "a * 0.5 * 1e38", "flush-denormal",
         ("flush-denormal",)),
    Cell("a graph that is looked for", DEEP, "float(model(x).requires_grad)", "no_grad,inference_mode",
         ("no_grad", "inference_mode")),
    Cell("strides that are read", "table = torch.randn(700, 900).t()", "table.softmax(-1).sum() * 0 + table.stride(0)",
         "contiguous", ("contiguous",)),
]  # fmt: skip

SIX = Cell(
    "six levers on two convolutions",
    "model = nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3))\nx = torch.randn(4, 3, 64, 64)",
    "model(x)",
    "inference_mode,no_grad,compile,bf16,channels_last,matmul-medium",
)
SIX_TRAINING = Cell(
    "six levers on a training step",
    "model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(10)])\nx, y = torch.randn(2, 32, 64)\n"
    "opt = torch.optim.Adam(model.parameters())" + STEP,
    "step()",
    "compile,bf16,matmul-medium,threads:1,fused-optimizer,foreach",
)
ALL_BUT_COMPILE = ("inference_mode", "bf16", "matmul-medium", "threads:1", "flush-denormal", "contiguous", "no_grad")

_LATER = ("NAdam over many small parameters", "RAdam over many small parameters")
PARTS: dict[str, list[tuple[str, Cell]]] = {
    "slow-1": [("slow", cell) for cell in SLOW[:11]],
    "slow-2": [("slow", cell) for cell in SLOW[11:]],
    "slow-3": [("slow", cell) for cell in SLOW if cell.name in _LATER],
    "good-1": [("good", cell) for cell in GOOD[3:10]],
    "good-3": [("good", cell) for cell in GOOD[:3]],
    "good-2": [("good", cell) for cell in GOOD[10:]],
    "rest": [*(("spoiled", cell) for cell in SPOILED), ("six", SIX), ("six", SIX_TRAINING)],
}


def namespace_of(cell: Cell) -> dict[str, Any]:
    """The names after the setup, whose text can be looked up as a notebook's can."""
    text = f"import math\nimport torch\nfrom torch import nn\nimport torch.nn.functional as F\n{cell.setup}"
    file = f"<setup of {cell.name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    names: dict[str, Any] = {"__name__": "__main__"}
    torch.manual_seed(0)
    exec(compile(text, file, "exec"), names)
    sys.modules["__main__"].__dict__.update({k: v for k, v in names.items() if isinstance(v, type)})
    return names


def tried(kind: str, cell: Cell) -> dict[str, Any]:
    """What ``--try`` found at one cell."""
    levers = cell.levers or ",".join(name for name in ALL_BUT_COMPILE if name != f"threads:{torch.get_num_threads()}")
    names = namespace_of(cell)
    began = time.perf_counter()
    result = compare({"cell": cell.body}, globals=names, try_=levers, seed=0)
    taken = time.perf_counter() - began
    frame = result.frame
    rows = [
        {
            "lever": row.description, "ratio": row.ratio, "low": row.ratio_low, "high": row.ratio_high,
            "verdict": str(row.verdict), "result": str(row.result), "max_difference": row.max_difference,
            "compile_time": row.compile_time, "break_even": row.break_even,
        }
        for row in frame.iloc[1:].itertuples()
    ]  # fmt: skip
    left_out = [doubt.text for doubt in result.warnings if doubt.kind == "lever"]
    busy = [doubt.kind for doubt in result.warnings if doubt.kind in ("busy", "co-load", "stalled", "steal", "noisy")]
    return {
        "kind": kind, "cell": cell.name, "levers": levers, "cures": list(cell.cures),
        "recommended": recommended(result), "seconds": taken, "compiling": float(frame["compile_time"].sum()),
        "rows": rows, "left_out": left_out, "load": busy,
    }  # fmt: skip


def run_part(name: str, path: Path) -> int:
    for kind, cell in PARTS[name]:
        found = tried(kind, cell)
        ratios = ", ".join(f"{r['lever']} {r['ratio']:.3f} {r['verdict']} {r['result']}" for r in found["rows"])
        print(f"{found['seconds']:5.1f} s  {cell.name}: {ratios} -> {found['recommended']} {found['left_out']} "
              f"{found['load']}", flush=True)  # fmt: skip
        with path.open("a") as file:
            file.write(json.dumps({"part": name, **found}) + "\n")
    return 0


def join(path: Path) -> int:
    """The results of all parts; of a cell that was run again the last."""
    by_cell = {}
    for line in path.read_text().splitlines():
        found = json.loads(line, parse_constant=lambda word: None)  # NaN is no JSON of others
        found.pop("commit", None)
        by_cell[found["kind"], found["cell"]] = found
    cells = list(by_cell.values())
    of = {kind: [each for each in cells if each["kind"] == kind] for kind in ("slow", "good", "spoiled", "six")}
    cured = [each for each in of["slow"] if set(each["cures"]) & set(each["recommended"])]
    silent = [each for each in of["good"] if not each["recommended"]]
    wrong = [each for each in cells for row in each["rows"]
             if row["result"] == "differs" and row["lever"] in each["recommended"]]  # fmt: skip
    spoiled = [each for each in of["spoiled"] if set(each["cures"]) & set(each["recommended"])]
    besides = [each["seconds"] - each["compiling"] for each in of["six"]]
    print(tabulate([*_table(cells)], ("", "cell", "lever", "ratio", "verdict", "result", "recommended"), "plain"))
    figures = [
        Figure("slow cells made faster, with the same result", len(cured), f"of {len(of['slow'])}", at_least=14),
        Figure("good cells without a claim", len(silent), f"of {len(of['good'])}", at_least=19),
        Figure("levers recommended whose result differs", len(wrong) + len(spoiled), "", at_most=0),
        Figure("a cell with six levers, besides compiling", max(besides, default=math.nan), "s", limit=20),
    ]
    return record("cures_try", figures, threads=torch.get_num_threads(), cells=cells)


def _table(cells: list[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    for each in cells:
        for row in each["rows"]:
            is_said = "yes" if row["lever"] in each["recommended"] else ""
            yield (each["kind"], each["cell"], row["lever"], f"{row['ratio']:.3f}", row["verdict"], row["result"],
                   is_said)  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1:2] == ["part"]:
        sys.exit(run_part(sys.argv[2], Path(sys.argv[3])))
    sys.exit(join(Path(sys.argv[2])))
