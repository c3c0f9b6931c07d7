"""A training job of torch.distributed over gloo, recorded by torch's own profiler, with a rank that is late or none.

``torchrun --nproc-per-node 3 job.py OUT HOW LATE RUNS STEPS``: ``RUNS`` recordings of ``STEPS`` steps, the k-th in
``OUT/k/rankN.json``. HOW is ``none``, ``sleep`` (20 ms a step in `augment`) or ``batch`` (three times as many
samples).
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import profile


def augment(batch: torch.Tensor) -> torch.Tensor:
    time.sleep(0.02)
    return batch


def train(model: torch.nn.Module, how: str, steps: int, *, is_late: bool) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(steps):
        batch = torch.rand(768 if is_late and how == "batch" else 256, 256)
        if is_late and how == "sleep":
            batch = augment(batch)
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()


def main(out: str, how: str, late: str, runs: str, steps: str) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = [torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.Linear(512, 16)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    train(model, "none", 3, is_late=False)
    for run in range(int(runs)):
        dist.barrier()
        with profile(record_shapes=True, with_stack=True) as recorded:
            train(model, how, int(steps), is_late=rank == int(late))
        folder = Path(out) / str(run)
        folder.mkdir(parents=True, exist_ok=True)
        recorded.export_chrome_trace(str(folder / f"rank{rank}.json"))
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
