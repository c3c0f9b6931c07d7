"""Devices are waited for where they are in use, and never woken: on a fake of ``torch``, whose every call is noted."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from torchbench_magic.process import device as module
from torchbench_magic.process.device import devices_in_use, note_tracer, traced_launches, wait_for_devices


class FakeTorch(SimpleNamespace):
    """Two devices of a kind; ``contexts`` are those that were used. Any wait is kept in ``waited``."""

    def __init__(
        self, kind: str | None, *, begun: bool = True, contexts: tuple[int, ...] = (0, 1), **more: Any
    ) -> None:
        super().__init__()
        self.waited: list[int] = []
        self.asked: list[str] = []
        device = None if kind is None else SimpleNamespace(type=kind)
        self.accelerator = SimpleNamespace(
            current_accelerator=lambda: device,
            is_available=lambda: bool(self.asked.append("available")) or begun,
            current_device_index=lambda: bool(self.asked.append("current")) or 1,
            device_count=lambda: 2,
            synchronize=self.waited.append,
        )
        self.cuda = SimpleNamespace(is_initialized=lambda: begun, is_current_stream_capturing=lambda: False)
        self._C = SimpleNamespace(_cuda_hasPrimaryContext=contexts.__contains__)
        self.xpu = SimpleNamespace(is_initialized=lambda: begun)
        self.mps = SimpleNamespace()
        vars(self).update(more)


def use(monkeypatch: pytest.MonkeyPatch, fake: FakeTorch) -> FakeTorch:
    monkeypatch.setitem(sys.modules, "torch", fake)  # type: ignore[arg-type]
    return fake


@pytest.mark.parametrize(
    ("fake", "waited"),
    [
        (FakeTorch("cuda"), [1, 0]),
        (FakeTorch("cuda", contexts=(1,)), [1]),
        (FakeTorch("xpu", cuda=SimpleNamespace(is_initialized=lambda: False)), [1, 0]),
    ],
)
def test_all_devices_that_have_a_context_are_waited_for(
    fake: FakeTorch, waited: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, fake)
    assert wait_for_devices()
    assert fake.waited == waited


@pytest.mark.parametrize("kind", ["cuda", "xpu", "mps", None])
def test_nothing_is_woken_where_the_code_has_used_none(kind: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = use(monkeypatch, FakeTorch(kind, begun=False))
    assert devices_in_use() == []
    assert not wait_for_devices()
    assert fake.waited == []
    assert "current" not in fake.asked


def test_a_capture_is_left_alone_and_a_device_that_failed_raises_in_the_codes_own_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    captures = SimpleNamespace(is_initialized=lambda: True, is_current_stream_capturing=lambda: True)
    fake = use(monkeypatch, FakeTorch("cuda", cuda=captures))
    assert not wait_for_devices()
    assert fake.waited == []
    failed = use(monkeypatch, FakeTorch("cuda"))

    def fails(device: int) -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    failed.accelerator.synchronize = fails
    assert not wait_for_devices()


def test_without_torch_there_is_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert not wait_for_devices()


def test_that_a_tracer_stays_attached_is_said_of_times_on_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_traced", set())
    assert traced_launches("cuda:0") == []
    monkeypatch.setenv("TEARDOWN_CUPTI", "1")
    note_tracer()
    assert traced_launches("cuda:0") == []
    monkeypatch.delenv("TEARDOWN_CUPTI")
    note_tracer()
    assert [each.kind for each in traced_launches("cuda:0")] == ["after-profile"]
    assert traced_launches("cpu") == []
