"""Lightning, transformers' Trainer and accelerate: their loops have the steps and phases that they make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, TensorDataset

from torchbench_magic import profile
from torchbench_magic.profiling.profile import Profile

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("phases", [True, False], ids=["phases", "lines"])]
STEPS = 6
TRAINING = ("input", "forward", "backward", "optimizer")


def has_steps(made: Profile, count: int) -> None:
    assert made.phases["step"].nunique() == count
    parts = made.phases_by_line
    calls = parts[parts["step"].notna()].pivot_table("calls", "step", "phase", aggfunc="sum", fill_value=0)
    assert (calls[["forward", "backward", "optimizer"]] >= 1).all().all()
    seconds = made.phases.groupby("phase")["seconds"].sum()
    assert seconds[list(TRAINING)].gt(0).all()
    assert made.phases["seconds"].sum() <= made.wall_time * 1.001


def test_lightning(phases: bool, tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning")

    class Net(lightning.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(4, 3)

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            return functional.cross_entropy(self.net(batch[0]), batch[1])

        def validation_step(self, batch: Any, _: int) -> None:
            self.net(batch[0])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters())

    data = TensorDataset(torch.ones(4 * STEPS, 4), torch.zeros(4 * STEPS, dtype=torch.int64))
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    loaders = [DataLoader(data, batch_size=4), DataLoader(data, batch_size=8)]
    has_steps(profile(lambda: trainer.fit(Net(), *loaders), phases=phases), STEPS)


class Words(Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 4 * STEPS

    def __getitem__(self, at: int) -> dict[str, torch.Tensor]:
        return {"input_ids": torch.full((8,), at), "labels": torch.full((8,), at)}


def test_trainer_of_transformers(phases: bool, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=64, n_positions=16)
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        per_device_train_batch_size=4,
        max_steps=STEPS,
        report_to=[],
        save_strategy="no",
        eval_strategy="steps",
        eval_steps=3,
        use_cpu=True,
        disable_tqdm=True,
        logging_strategy="no",
    )
    trainer = transformers.Trainer(
        transformers.GPT2LMHeadModel(config), arguments, train_dataset=Words(), eval_dataset=Words()
    )
    has_steps(profile(trainer.train, phases=phases), STEPS)


def test_accelerate(phases: bool) -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    net = nn.Linear(4, 3)
    data = TensorDataset(torch.ones(8 * STEPS, 4), torch.zeros(8 * STEPS, dtype=torch.int64))
    model, optimizer, loader = accelerator.prepare(
        net, torch.optim.AdamW(net.parameters()), DataLoader(data, batch_size=4)
    )

    def train() -> None:
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = functional.cross_entropy(model(x), y)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()

    has_steps(profile(train, phases=phases), STEPS)
