"""``%tdoctor`` in a real kernel: loaded by its first use, and shown once."""

from __future__ import annotations

import pytest

from .conftest import Kernel

pytestmark = pytest.mark.kernel


def test_the_first_use_loads_it_and_it_shows_a_table(fresh_kernel: Kernel) -> None:
    ran = fresh_kernel.run("%tdoctor")
    assert not ran.error
    assert ran.kinds == ["display_data"]
    assert "<table" in ran.text("text/html")
    assert "outside load" in ran.text()
    assert fresh_kernel.run(f"Out[{fresh_kernel.number}] is _tdoctor").text() == "True"


@pytest.mark.slow
def test_the_self_test_takes_the_place_of_its_progress(fresh_kernel: Kernel) -> None:
    ran = fresh_kernel.run("%tdoctor --self-test")
    assert not ran.error
    assert "resolves from" in ran.text()
    assert "interrupt the kernel" not in ran.text()
