"""``%tdoctor`` in a real kernel: loaded by its first use, and shown once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Kernel

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    """With the startup file alone: the magic is declared, not loaded."""
    return start_kernel(startup=True)


def test_the_first_use_loads_it_and_it_shows_a_table(kernel: Kernel) -> None:
    ran = kernel.run("%tdoctor")
    assert not ran.error
    assert ran.kinds == ["display_data"]
    assert "<table" in ran.text("text/html")
    assert "outside load" in ran.text()
    assert kernel.run(f"Out[{kernel.number}] is _tdoctor").text() == "True"


@pytest.mark.slow
def test_the_self_test_takes_the_place_of_its_progress(kernel: Kernel) -> None:
    ran = kernel.run("%tdoctor --self-test")
    assert not ran.error
    assert "resolves from" in ran.text()
    assert "interrupt the kernel" not in ran.text()
