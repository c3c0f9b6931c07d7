"""What ``%%tprofile --python`` costs beside ``%%tprofile``, and whether it says where planted time went.

Each body runs in turns: alone, profiled, and profiled with ``--python``, in random order within a round, with one torch
thread; a ratio is taken within its round, of processor time of the thread, in which others on the machine do not count.
One body is ``generate()`` of a small transformers model with random weights, left out (and
said) where transformers is not installed: no environment of this project needs it. The other is ``train()`` of a
trainer that is installed beside it as a library, over torch's own ``nn.Transformer``. In the planted cases it is known
from the line events of the same run how long each function took.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2])]

import torch  # noqa: E402
from record import Figure, record  # noqa: E402
from tabulate import tabulate  # noqa: E402

from tests.profiling.profiling_text import profiled  # noqa: E402
from torchbench_magic import profile  # noqa: E402

ROUNDS = 15
MOST = 1.2  # times as long as without the option

TRAINER = '''
"""A trainer as libraries have them: callbacks, a state, a collator, a step of its own."""
import torch
class Callback:
    def on_step_begin(self, state): pass
    def on_step_end(self, state): state.log.append(state.step)
class State:
    def __init__(self): self.step, self.log = 0, []
class Trainer:
    def __init__(self, model, data, steps):
        self.model, self.data, self.steps = model, data, steps
        self.callbacks, self.state = [Callback() for _ in range(4)], State()
        self.optimizer = torch.optim.AdamW(model.parameters())
    def call(self, event):
        for callback in self.callbacks: getattr(callback, event)(self.state)
    def collate(self, rows): return torch.stack([row * 1.0 for row in rows])
    def compute_loss(self, batch): return self.model(batch, batch).square().mean()
    def training_step(self, batch):
        loss = self.compute_loss(batch)
        loss.backward()
        return loss.detach()
    def train(self):
        for step in range(self.steps):
            self.call("on_step_begin")
            batch = self.collate(self.data)
            self.training_step(batch)
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.state.step = step
            self.call("on_step_end")
'''

PLANTED = """import time
def burn(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sum(range(50))
def nap(seconds):
    time.sleep(seconds)
def multiply(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        torch.mm(a, a)
a = torch.ones(250, 250)
for _ in range(10):
    burn(0.03)
    nap(0.02)
    multiply(0.05)
"""


def main() -> int:
    figures, rows, conditions = [], [], {}
    torch.set_num_threads(1)  # where cores are scarce, threads that wait for each other are all that is measured
    with bodies() as found:
        for name, body in found.items():
            if isinstance(body, str):
                print(f"{name}: left out, {body}")
                conditions[name] = f"left out, {body}"
                continue
            times = in_turns(body)
            beside = [c / b for _, b, c in times]
            alone = [c / a for a, _, c in times]
            tree = profile(body, python=True).python
            assert tree is not None
            libraries = sorted(set(tree["library"]) - {"", "python"})
            rows.append(
                (name, *(f"{statistics.median(column) * 1e3:.1f}" for column in zip(*times, strict=True)),
                 f"{statistics.median(beside):.3f}", f"{statistics.median(alone):.2f}", len(tree), " ".join(libraries))
            )  # fmt: skip
            figures.append(
                Figure(f"{name}: with --python / without", statistics.median(beside), "times", at_most=MOST,
                       spread=(min(beside), max(beside)))
            )  # fmt: skip
            figures.append(
                Figure(f"{name}: with --python / not profiled", statistics.median(alone), "times",
                       spread=(min(alone), max(alone)))
            )  # fmt: skip
    print("\npython_tree")
    header = ("body", "alone, ms", "profiled, ms", "--python, ms", "/ profiled", "/ alone", "rows", "libraries")
    print(tabulate(rows, header, "plain", disable_numparse=True))
    figures += planted()
    return record("python_tree", figures, rounds=ROUNDS, **conditions)


def in_turns(body: Callable[[], object]) -> list[tuple[float, float, float]]:
    """Seconds alone, profiled, and profiled with the tree, of each round."""
    took = 0.0

    def timed() -> None:
        nonlocal took
        started = time.thread_time()
        body()
        took = time.thread_time() - started

    kinds: list[Callable[[], object]] = [timed, lambda: profile(timed), lambda: profile(timed, python=True)]
    for kind in kinds:
        kind()
    order, found = random.Random(1), []
    for _ in range(ROUNDS):
        taken = dict.fromkeys(range(3), 0.0)
        for at in order.sample(range(3), 3):
            kinds[at]()
            taken[at] = took
        found.append((taken[0], taken[1], taken[2]))
    return found


@contextmanager
def bodies() -> Iterator[dict[str, Callable[[], object] | str]]:
    """Name -> what is run, or why it is left out."""
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "site-packages"
        site.mkdir()
        (site / "small_trainer.py").write_text(TRAINER)
        sys.path.append(str(site))
        try:
            yield {"generate()": generate(), "trainer.train()": train()}
        finally:
            sys.path.remove(str(site))


def train() -> Callable[[], object]:
    import small_trainer  # type: ignore[import-not-found]  # just written

    torch.manual_seed(0)
    layers: dict[str, Any] = {"num_encoder_layers": 2, "num_decoder_layers": 2, "dim_feedforward": 128}
    model = torch.nn.Transformer(64, 4, batch_first=True, **layers)
    body: Callable[[], object] = small_trainer.Trainer(model, [torch.randn(16, 64) for _ in range(8)], 15).train
    return lambda: body()


def generate() -> Callable[[], object] | str:
    try:
        from transformers import LlamaConfig, LlamaForCausalLM  # type: ignore[import-not-found]
    except ImportError as error:
        return f"transformers cannot be imported here ({error})"
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=512, hidden_size=128, intermediate_size=256, num_hidden_layers=4, num_attention_heads=4
    )
    model, prompt = LlamaForCausalLM(config).eval(), torch.ones(1, 8, dtype=torch.int64)
    asked: dict[str, Any] = {"max_new_tokens": 24, "min_new_tokens": 24, "do_sample": False, "pad_token_id": 0}
    return lambda: model.generate(prompt, attention_mask=torch.ones_like(prompt), **asked)


def planted() -> list[Figure]:
    """How far the tree is from what the line events of the same runs say."""
    off: dict[str, list[float]] = {"burn": [], "nap": [], "multiply": []}
    wrong_torch, missed_torch, sums = [], [], []
    for _ in range(5):
        made = profiled(PLANTED, {"torch": torch, "__name__": "__main__"}, python=True).profile
        tree, lines = made.python, made.lines
        assert tree is not None
        functions = tree[tree["parent"] == 0].set_index("function")
        for name, found in off.items():
            (line,) = lines[lines["source"].str.startswith(f"    {name}(")].to_dict("records")
            found.append(abs(functions["total_time"][name] - line["wall_time"]) / made.wall_time)
            if name == "multiply":
                missed_torch.append(abs(functions["torch_time"][name] - line["cpu_time"]) / made.wall_time)
            else:
                wrong_torch.append(functions["torch_time"][name] / made.wall_time)
        sums.append(abs(tree["self_time"].sum() / made.wall_time - 1))
    return [
        *(
            Figure(f"planted {name}: off the lines' time", 100 * max(found), "% of the run", limit=3)
            for name, found in off.items()
        ),
        Figure("planted: time called torch in functions without it", 100 * max(wrong_torch), "% of the run", limit=1),
        Figure("planted multiply: torch's time off the lines'", 100 * max(missed_torch), "% of the run", limit=5),
        Figure("self times / wall time - 1", 100 * max(sums), "%", limit=0.1),
    ]


if __name__ == "__main__":
    warnings.filterwarnings("ignore", module="torch.nn.modules.transformer")
    sys.exit(main())
