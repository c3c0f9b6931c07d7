"""The accelerator is named without waking it."""

from __future__ import annotations

import pytest
import torch

from torchbench_magic.process import environment
from torchbench_magic.process.environment import read_environment


@pytest.mark.parametrize(
    ("models", "name"), [({"NVIDIA H200"}, "NVIDIA H200"), ({"NVIDIA H200", "NVIDIA L4"}, "cuda"), (set(), "cuda")]
)
def test_a_device_that_is_not_in_use_is_named_by_its_driver(
    models: set[str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(environment, "devices_in_use", list)
    monkeypatch.setattr(environment, "_models", lambda: models)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: pytest.fail("it makes a context"))
    assert read_environment().accelerator == name
