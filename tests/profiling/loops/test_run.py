"""Loops that run, also those of libraries that train: their steps and phases are where they are."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, TensorDataset

from torchbench_magic import load, profile, step
from torchbench_magic.cell_body import Body
from torchbench_magic.process.code import compile_body
from torchbench_magic.profiling.loops import marks as marks_module
from torchbench_magic.profiling.loops import run as phases_run
from torchbench_magic.profiling.loops.phases import shares_of
from torchbench_magic.profiling.options import ProfileOptions
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.run import Asked, profile_body

# ==== loops ===========================================================================================================
# Loops that run, with lines and without: their steps and phases are where they are. No time is asserted.


Runs = Callable[[Callable[[], object]], Profile]
DATA = TensorDataset(torch.ones(24, 4), torch.zeros(24, dtype=torch.int64))


@pytest.fixture(params=[True, False], ids=["phases", "lines"])
def run(request: pytest.FixtureRequest) -> Runs:
    return lambda target: profile(target, phases=request.param)


def steps_of(made: Profile) -> int:
    return int(made.phases["step"].nunique())


def calls(made: Profile) -> pd.DataFrame:
    """How often each step entered each phase: rows steps, columns phases."""
    parts = made.phases_by_line
    inside = parts[parts["step"].notna()]
    return inside.pivot_table("calls", "step", "phase", aggfunc="sum", fill_value=0)


def adds_up(made: Profile) -> None:
    """Phases of a step add up to it, and steps to no more than the run."""
    assert made.phases["seconds"].ge(0).all()
    assert made.phases["seconds"].sum() <= made.wall_time * 1.001
    added = made.phases_by_line["recording_seconds"]
    assert added.isna().all() if made.options.phases else added.sum() <= made.lines["recording_time"].sum() * 1.001


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


def training(steps: int, after: Callable[[int], object] = lambda at: None) -> Callable[[], None]:
    """A plain loop, which after each step calls what is given with the step's number."""
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def train() -> None:
        for at in range(steps):
            optimizer.zero_grad()
            net(torch.ones(2, 4)).sum().backward()
            optimizer.step()
            after(at)

    return train


def stepped(optimizer: torch.optim.Optimizer, closure: Callable[[], torch.Tensor]) -> Callable[[], None]:
    """A loop of three steps that are given a closure."""

    def train() -> None:
        for _ in range(3):
            optimizer.step(closure)

    return train


def test_a_loop_that_makes_its_optimizer_in_each_step_has_none(run: Runs) -> None:
    net = nn.Linear(4, 4)

    def train() -> None:
        for _ in range(10):
            optimizer = torch.optim.SGD(net.parameters(), 0.1)
            optimizer.zero_grad()
            net(torch.ones(2, 4)).sum().backward()
            optimizer.step()

    assert steps_of(run(train)) == 0


def test_optimizers_that_one_line_steps_after_one_backward_pass_are_one_step(run: Runs) -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))

    def once() -> None:
        net(torch.ones(2, 4)).sum().backward()
        for layer in net:
            torch.optim.SGD(layer.parameters(), 0.1).step()

    assert steps_of(run(once)) == 0


@pytest.mark.parametrize("how", ["says", "trains", "both"])
def test_of_a_loop_on_another_thread_the_doubt_says_that(how: str) -> None:
    both = training(8, lambda at: step())
    loops = {"says": lambda: [step() for _ in range(8)], "trains": training(8), "both": both}

    def on_another_thread() -> None:
        thread = threading.Thread(target=loops[how])
        thread.start()
        thread.join()

    (doubt,) = [each for each in profile(on_another_thread, phases=True).warnings if each.kind == "no-steps"]
    assert doubt.text.startswith("No steps were seen: they run on another thread")
    assert doubt.facts["steps_elsewhere"] == 8


def test_a_loop_with_a_loader_has_all_of_its_phases(run: Runs) -> None:
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters())

    def train() -> None:
        for _ in range(2):
            for x, y in DataLoader(DATA, batch_size=4):
                optimizer.zero_grad()
                loss = functional.cross_entropy(net(x), y)
                loss.backward()
                optimizer.step()

    made = run(train)
    assert steps_of(made) == 12
    found = calls(made)
    for phase in ("forward", "backward", "optimizer", "zero_grad"):
        assert (found[phase] == 1).all(), phase
    assert (found["input"] >= 1).all()
    seconds = made.phases.groupby("phase")["seconds"].sum()
    assert seconds[["input", "forward", "loss", "backward", "optimizer", "zero_grad"]].gt(0).all()
    assert seconds["transfer"] == 0
    adds_up(made)


def test_each_phase_stands_on_its_line(run: Runs) -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def train() -> None:
        for x, y in DataLoader(DATA, batch_size=4):
            optimizer.zero_grad()
            out = net(x)
            loss = functional.cross_entropy(out, y)
            loss.backward()
            optimizer.step()

    made = run(train)
    first = train.__code__.co_firstlineno
    parts = made.phases_by_line
    entered = parts[parts["step"].notna() & (parts["calls"] > 0)]
    lines = {phase: sorted(set(mine["line"] - first)) for phase, mine in entered.groupby("phase")}
    assert lines == {"input": [1], "zero_grad": [2], "forward": [3], "backward": [5], "optimizer": [6]}


def test_what_a_generator_does_around_a_loader_is_not_within_it() -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    loader = DataLoader(DATA, batch_size=4)

    def batches() -> Iterator[list[torch.Tensor]]:
        for batch in loader:
            time.sleep(0.005)
            yield batch

    def train() -> None:
        for x, y in batches():
            optimizer.zero_grad()
            functional.cross_entropy(net(x), y).backward()
            optimizer.step()

    made = profile(train)
    asked = made.phases_by_line.loc[lambda parts: parts["phase"] == "input"]
    assert 0 < asked["loader_seconds"].sum() <= asked["seconds"].sum() - 6 * 0.005
    parts = made.phases_by_line.assign(loader_seconds=made.phases_by_line["loader_seconds"] / 10)  # a stop within it
    insights = replace(made, phases_by_line=parts).insights
    assert not any("num_workers" in str(cure.code) for each in insights for cure in each.cures)


def test_accumulated_gradients_are_one_step(run: Runs) -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def train() -> None:
        for at, (x, y) in enumerate(DataLoader(DATA, batch_size=2)):
            functional.cross_entropy(net(x), y).backward()
            if at % 3 == 2:
                optimizer.step()
                optimizer.zero_grad()

    made = run(train)
    assert steps_of(made) == 4
    assert (calls(made)[["forward", "backward"]] == 3).all().all()


def test_a_gan_makes_one_step_of_two_optimizers(run: Runs) -> None:
    maker, judge = nn.Linear(4, 4), nn.Linear(4, 1)
    of_maker, of_judge = (torch.optim.Adam(net.parameters()) for net in (maker, judge))

    def train() -> None:
        for _ in range(5):
            fake = maker(torch.randn(8, 4))
            of_judge.zero_grad()
            (judge(fake.detach()).mean() - judge(torch.randn(8, 4)).mean()).backward()
            of_judge.step()
            of_maker.zero_grad()
            judge(fake).mean().neg().backward()
            of_maker.step()

    made = run(train)
    assert steps_of(made) == 5
    assert (calls(made)["optimizer"] == 2).all()
    assert (calls(made)["forward"] == 4).all()


def test_an_optimizer_that_calls_the_model_leaves_it_its_time(run: Runs) -> None:
    net = nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = net(torch.ones(4, 4)).square().mean()
        loss.backward()
        return loss

    made = run(stepped(optimizer, closure))
    assert steps_of(made) == 3
    found = calls(made)
    assert (found["optimizer"] == 1).all()
    assert (found["forward"] == found["backward"]).all()
    adds_up(made)


def test_an_evaluation_between_the_steps_is_other_code_and_not_the_loss(run: Runs) -> None:
    """Without a loader nothing tells it from the training but that another forward pass comes before the backward."""
    net, x = nn.Linear(4, 1), torch.ones(4, 4)

    def evaluate(_: int) -> None:
        with torch.no_grad():
            for _ in range(3):
                net(x)
                time.sleep(0.02)

    made = run(training(3, evaluate))
    seconds = made.phases.groupby("phase")["seconds"].sum()
    assert seconds["other"] >= 2 * 3 * 0.02, "of the last one it is not known whether it is in a step"
    adds_up(made)


def test_what_a_closure_runs_between_its_passes_is_the_loss(run: Runs) -> None:
    net = nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=1)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        out = net(torch.ones(4, 4))
        time.sleep(0.02)
        loss = out.square().mean()
        loss.backward()
        return loss

    made = run(stepped(optimizer, closure))
    seconds = made.phases.groupby("phase")["seconds"].sum()
    assert seconds["loss"] >= 3 * 0.02
    first = closure.__code__.co_firstlineno
    (loss,) = (each for each in shares_of(made.phases_by_line) if each.phase == "loss")
    assert loss.line in (None, *range(first + 2, first + 6)), "where it was looked at, or nowhere"
    parts = made.phases_by_line
    slept = parts.loc[(parts["phase"] == "loss") & (parts["line"] == first + 3), "seconds"].sum()
    assert made.options.phases or slept >= 3 * 0.02
    adds_up(made)


def test_what_a_closure_runs_before_its_passes_is_not_the_optimizer_s(run: Runs) -> None:
    net = nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)

    def closure() -> torch.Tensor:
        time.sleep(0.02)
        optimizer.zero_grad()
        loss = net(torch.ones(4, 4)).square().mean()
        loss.backward()
        return loss

    made = run(stepped(optimizer, closure))
    parts = made.phases_by_line
    found = parts[parts["line"] == closure.__code__.co_firstlineno + 1]
    assert set(found["phase"]) <= {"other"}
    passes = int(parts.loc[parts["phase"] == "backward", "calls"].sum())
    assert made.options.phases or found["seconds"].sum() >= passes * 0.02
    assert parts.loc[parts["phase"] == "other", "seconds"].sum() >= passes * 0.02
    adds_up(made)


@pytest.mark.parametrize("kind", [torch.optim.LBFGS, torch.optim.SGD])
def test_a_closure_without_modules_is_other_code_and_backward(run: Runs, kind: type[torch.optim.Optimizer]) -> None:
    weight = torch.ones(4, 1, requires_grad=True)
    optimizer = kind([weight], lr=0.1)  # type: ignore[call-arg]

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        time.sleep(0.02)
        loss = (torch.ones(4, 4) @ weight).square().mean()
        loss.backward()
        return loss

    made = run(stepped(optimizer, closure))
    parts = made.phases_by_line
    passes = int(parts.loc[parts["phase"] == "backward", "calls"].sum())
    assert passes >= steps_of(made) == 3
    assert parts.loc[parts["phase"] == "other", "seconds"].sum() >= passes * 0.02
    assert calls(made)["optimizer"].tolist() == [1, 1, 1]
    adds_up(made)


def test_mixed_precision_with_a_scaler_is_steps_that_were_left_out_too(run: Runs) -> None:
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu")

    def train() -> None:
        for at in range(5):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = net(torch.full((2, 4), float("inf") if at == 2 else 1.0)).sum()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    made = run(train)
    assert steps_of(made) == 5


def test_an_evaluation_within_the_loop_is_no_step(run: Runs) -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    held_out = DataLoader(DATA, batch_size=8)

    def train() -> None:
        for at, (x, y) in enumerate(DataLoader(DATA, batch_size=2)):
            optimizer.zero_grad()
            functional.cross_entropy(net(x), y).backward()
            optimizer.step()
            if at == 5:
                net.eval()
                with torch.no_grad():
                    for x_, _ in held_out:
                        net(x_)
                net.train()

    made = run(train)
    assert steps_of(made) == 12
    assert calls(made)["forward"].tolist() == [1] * 5 + [4] + [1] * 6
    parts = made.phases_by_line
    modes = set(parts["mode"].dropna())
    assert modes == {"train graph varies trained", "varies evaluation"}


@pytest.mark.parametrize("second", ["next", "loop", "evaluation"])
def test_passes_with_another_batch_before_their_backward_pass_are_no_evaluation(run: Runs, second: str) -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    other = DataLoader(DATA, batch_size=8)

    def train() -> None:
        batches = iter(DataLoader(DATA, batch_size=4))
        for x, y in DataLoader(DATA, batch_size=4):
            optimizer.zero_grad()
            out = [net(x)]
            if second == "next":
                u, _ = next(batches)
                out.append(net(u))
            elif second == "loop":
                for u, _ in other:
                    out.append(net(u))
                    break
            functional.cross_entropy(out[0], y).add(sum(each.mean() for each in out[1:])).backward()
            optimizer.step()
            if second == "evaluation":
                for u, _ in other:
                    net(u)

    made = run(train)
    assert steps_of(made) == 6
    evaluated = made.phases_by_line[made.phases_by_line["mode"].fillna("").str.contains("evaluation")]
    first = train.__code__.co_firstlineno
    assert {line - first for line in evaluated["line"]} == ({16} if second == "evaluation" else set())
    assert evaluated["calls"].sum() == (18 if second == "evaluation" else 0)


def test_a_loop_without_an_optimizer_has_no_steps(run: Runs) -> None:
    net = Net()

    def evaluate() -> None:
        for x, _ in DataLoader(DATA, batch_size=2):
            net(x)

    made = run(evaluate)
    assert made.phases.empty
    assert list(made.phases.columns) == ["step", "phase", "seconds"]
    assert set(made.phases_by_line["mode"].dropna()) == {"train graph varies evaluation"}


def test_a_plain_loop_without_a_module_or_a_loader_has_no_phases() -> None:
    made = profile("for i in range(9):\n    i + 1", globals={})
    assert made.phases_by_line.empty
    loaded = profile("for x in loader:\n    x + 1", globals={"loader": torch.utils.data.DataLoader([1, 2, 3])})
    assert set(loaded.phases_by_line["phase"]) == {"input"}


def test_an_update_by_hand_is_no_step_and_step_says_where_one_is() -> None:
    weight = torch.ones(4, requires_grad=True)

    def train() -> None:
        for _ in range(3):
            weight.sum().backward()
            with torch.no_grad():
                weight.sub_(0.1 * weight.grad)
            weight.grad = None
            step()

    made = profile(train, phases=True)
    assert steps_of(made) == 3
    assert (calls(made)["backward"] == 1).all()


def test_steps_of_a_schedule_have_their_numbers() -> None:
    made = profile(training(8, lambda _: step()), schedule="wait=1,warmup=1,active=2,repeat=2")
    assert sorted(set(made.phases["step"])) == [2, 3, 6, 7]
    assert [sorted(set(each.phases["step"])) for each in made.cycles] == [[2, 3], [6, 7]]
    assert (calls(made)[["forward", "backward", "optimizer", "zero_grad"]] == 1).all().all()


def test_a_checkpoint_that_runs_its_module_again_is_backward(run: Runs) -> None:
    from torch.utils.checkpoint import checkpoint

    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def train() -> None:
        for _ in range(3):
            optimizer.zero_grad()
            checkpoint(net, torch.ones(4, requires_grad=True), use_reentrant=False).sum().backward()
            optimizer.step()

    assert (calls(run(train))["forward"] == 1).all()


def test_an_error_in_a_step_gives_the_steps_until_then() -> None:
    body = compile_body(Body("train()", "<cell>"))
    train = training(5, lambda at: 1 / (at - 3))
    outcome = profile_body(body, Asked(options=ProfileOptions(phases=True), namespace={"train": train}))
    assert isinstance(outcome.error, ZeroDivisionError)
    assert steps_of(outcome.profile) == 4
    assert outcome.profile.partial


def test_a_profile_of_phases_is_stored_and_shown_as_it_was(tmp_path: Path) -> None:
    made = profile(training(6), phases=True)
    made.save(tmp_path / "runs.sqlite")
    (read,) = load(tmp_path / "runs.sqlite")
    pd.testing.assert_frame_equal(read.phases, made.phases)
    pd.testing.assert_frame_equal(read.phases_by_line, made.phases_by_line)
    text = str(made)
    assert str(read) == text
    assert "a step takes " in text


def test_of_short_steps_is_said_about_what_noting_them_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases_run, "_DEAR", 0.0)  # however long the steps take here
    made = profile(training(60), phases=True)
    (said,) = (doubt for doubt in made.warnings if doubt.kind == "phases-cost")
    assert re.search(r"up to about [\d.]+ % of this time \(480 marks, each at about 6 µs\)", said.text)
    assert said.facts["marks"] == 60 * 8
    assert said.facts["share"] == pytest.approx(60 * 8 * 6e-6 / made.wall_time)


def test_what_noting_takes_is_said_from_two_per_cent_on_and_of_ten_steps_at_least() -> None:
    def said(marks: int, seconds: float) -> str:
        run: Any = SimpleNamespace(marks=SimpleNamespace(record=[0] * marks * marks_module.WIDTH), wall_time=seconds)
        doubt = phases_run._dear(run)
        return "" if doubt is None else doubt.text

    assert said(1000, 0.28).startswith("Recording the phases took up to about 2.1 % of this time (1\u202f000 marks")
    assert said(1000, 0.31) == ""
    assert said(99, 0.001) == ""
    assert said(1000, 0.0) == ""


# ==== libraries that train ============================================================================================
# Lightning, transformers' Trainer and accelerate: their loops have the steps and phases that they make.


WITH_PHASES_AND_WITHOUT = pytest.mark.parametrize("phases", [True, False], ids=["phases", "lines"])
STEPS = 6


def has_steps(made: Profile, count: int) -> None:
    assert steps_of(made) == count
    assert (calls(made)[["forward", "backward", "optimizer"]] >= 1).all().all()
    seconds = made.phases.groupby("phase")["seconds"].sum()
    assert seconds[["input", "forward", "backward", "optimizer"]].gt(0).all()
    assert made.phases["seconds"].sum() <= made.wall_time * 1.001


@pytest.mark.slow
@WITH_PHASES_AND_WITHOUT
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


@pytest.mark.slow
@WITH_PHASES_AND_WITHOUT
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


@pytest.mark.slow
@WITH_PHASES_AND_WITHOUT
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
