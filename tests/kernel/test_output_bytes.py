"""How many bytes an output takes in a saved notebook: alone, and where other cells hold the modules that draw it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.show.sent import brought, left_out

pytestmark = pytest.mark.kernel

SETUP = """\
import torch
torch.manual_seed(0)
x = torch.rand(256, 64)
layers = [m for _ in range(2) for m in (torch.nn.Linear(64, 64), torch.nn.ReLU())]
model = torch.nn.Sequential(*layers, torch.nn.Linear(64, 1))
opt = torch.optim.Adam(model.parameters())
"""
COMPARISON = "%%timer -n 50 -r 20 --baseline mul\n# --- mul\nx.mul(x).sum(-1)  # {}\n# --- einsum\nx.square().sum(-1)"
PROFILE = "%%tprofile\nfor _ in range({}):\n    opt.zero_grad(); loss = model(x).mean(); loss.backward(); opt.step()"
COMPARISON_GOAL, PROFILE_GOAL = 12_000, 60_000
WITH_MODULES = 1.2
"""What is measured: the outputs of a cell as JSON (text/plain, text/markdown, and text/html with the data of all views
and the modules that draw them, which the first output of a page brings)."""
TOLD = 2_000
"""Bytes beyond the goal, in text, markdown, html and data together, for each thing that happened to a run and is told
in all: a slow step, a doubt, an insight. On a busy machine there are up to five of them."""


def told(ran: Any) -> int:
    slow_steps = re.findall(r"took [\d.]+ times the median", " ".join(ran.text().split()))
    folded = sum(map(int, re.findall(r"(\d+) more(?: warnings?|:)", ran.text())))
    folded += "on average" in ran.text()  # a column of its own
    return len(re.findall(r"^[!*] ", ran.text(), re.MULTILINE)) + len(slow_steps) + folded


def stored(ran: Any) -> int:
    return len(json.dumps(ran.outputs, ensure_ascii=False).encode())


@pytest.fixture(scope="module")
def kernel(start_kernel: Callable[..., Any]) -> Any:
    return start_kernel(SETUP)


@pytest.mark.slow
def test_a_comparison_and_a_two_line_training_step_are_small(kernel: Any) -> None:
    alone = kernel.run(PROFILE.format(10))
    assert brought(alone.text("text/html")) == ["table", "flame", "timeline"]
    assert stored(alone) < WITH_MODULES * PROFILE_GOAL + TOLD * told(alone), alone.text()

    comparisons = [kernel.run(COMPARISON.format(n)) for n in range(4)]
    assert [bool(brought(ran.text("text/html"))) for ran in comparisons] == [True, True, False, False]
    for ran in comparisons[2:]:
        assert stored(ran) < 0.6 * COMPARISON_GOAL + TOLD * told(ran), ran.text()
    most = WITH_MODULES * 2.4 * COMPARISON_GOAL  # with the module that draws it, copies it, shows its samples
    assert stored(comparisons[0]) < most + TOLD * told(comparisons[0]), comparisons[0].text()

    kernel.run(PROFILE.format(11))  # the second cell that holds the pictures' modules
    third = kernel.run(PROFILE.format(12))
    assert left_out(third.text("text/html")) == {"table", "flame", "timeline"}
    assert stored(third) < 0.7 * PROFILE_GOAL + TOLD * told(third), third.text()
