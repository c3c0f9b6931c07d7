"""Attention written by hand, in the forms that people write it in; each becomes the same numbers in one call."""

from __future__ import annotations

import ast
import math
import textwrap
from typing import Any

import pytest
import torch

from torchbench_magic.levers.fused_attention import with_fused_attention

FORMS = {
    "one expression": "out = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(16), dim=-1) @ v",
    "matmul and functional": "out = torch.matmul(F.softmax(torch.matmul(q, k.mT) * 0.25, dim=-1), v)",
    "assignments": """
        scores = q @ k.transpose(-2, -1)
        scores = scores / 4
        weights = scores.softmax(dim=-1)
        out = weights @ v""",
    "no scale": "out = (q @ k.transpose(-1, -2)).softmax(-1) @ v",
    "scaled twice": "out = ((q @ k.mT) * 0.5 / 2).softmax(-1) @ v",
    "an additive mask": "out = torch.softmax(q @ k.mT / 4 + bias, dim=-1) @ v",
    "a filled mask": """
        scores = (q @ k.mT) / 4
        scores = scores.masked_fill(mask == 0, float("-inf"))
        out = F.softmax(scores, dim=-1) @ v""",
    "a scaled query": "out = torch.softmax((q * 0.25) @ k.mT, dim=-1) @ v",
    "in a loop": """
        for _ in range(2):
            w = torch.softmax(q @ k.mT * 0.25, dim=-1)
            out = w @ v""",
}

OTHERS = {
    "another dimension": "out = torch.softmax(q @ k.mT, dim=-2) @ v",
    "weights used twice": "w = torch.softmax(q @ k.mT, dim=-1)\nout = w @ v\nkept = w",
    "weights of another dtype": "out = torch.softmax(q @ k.mT, dim=-1, dtype=torch.float64).float() @ v",
    "dropout between": "out = F.dropout(torch.softmax(q @ k.mT, dim=-1)) @ v",
    "a key that is not transposed": "out = torch.softmax(q @ k[..., :16, :], dim=-1) @ v[..., :16, :]",
    "a mask before the scale": "out = torch.softmax((q @ k.mT + bias) / 4, dim=-1) @ v",
    "an operand bound anew in between": "w = torch.softmax(q @ k.mT, dim=-1)\nq = q + 1\nout = w @ v",
    "linear attention": "out = q @ (k.mT @ v)",
}


def names() -> dict[str, Any]:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 4, 32, 16)
    mask = torch.tril(torch.ones(32, 32))
    functional = torch.nn.functional
    return {"torch": torch, "F": functional, "math": math, "q": q, "k": k, "v": v, "mask": mask, "bias": mask * -3.0}


@pytest.mark.parametrize("form", FORMS)
def test_attention_is_recognised_and_gives_the_same(form: str) -> None:
    text = textwrap.dedent(FORMS[form]).strip()
    expected, found = names(), names()
    exec(text, expected)
    fused = with_fused_attention(ast.parse(text))
    assert fused is not None
    assert "softmax" not in ast.unparse(fused)
    exec(compile(fused, "<fused>", "exec"), found)
    torch.testing.assert_close(found["out"], expected["out"])


@pytest.mark.parametrize("form", OTHERS)
def test_what_is_no_plain_attention_is_left_alone(form: str) -> None:
    exec(OTHERS[form], names())  # the code runs
    assert with_fused_attention(ast.parse(OTHERS[form])) is None
