"""What tests of several rooms of the core need."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture
def compiled_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is compiled before the test, and nothing of it stays; what the compiler warns of is not shown."""
    import torch

    tqdm = pytest.importorskip("tqdm")
    monkeypatch.setattr(tqdm.tqdm, "monitor_interval", 0)  # the compiler's progress bar would leave a thread
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch.compiler.set_stance("default")
    torch._dynamo.reset()


@pytest.fixture
def compiled_eagerly(compiled_anew: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the compiler's own code for graphs, but not the minutes of C++."""
    import torch

    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda code, **_: real(code, backend="eager", dynamic=False))
