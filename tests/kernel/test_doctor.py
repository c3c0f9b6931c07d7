"""``%tdoctor`` in a real kernel: loaded by its first use, shown once, with the process that computes beside it."""

from __future__ import annotations

import subprocess
import sys
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


@pytest.mark.timed
def test_a_process_that_computes_is_named(kernel: Kernel) -> None:
    # of eight threads, so that it is among those with the most time whatever else is on the machine
    code = (
        "import hashlib, threading\nfor _ in range(8):\n"
        "    threading.Thread(target=hashlib.pbkdf2_hmac, args=('sha1', b'', b'', 2**31 - 1)).start()"
    )
    busy = subprocess.Popen([sys.executable, "-c", code])
    try:
        ran = kernel.run("%tdoctor -q\n[one.evidence for one in _tdoctor.findings if one.kind == 'outside load'][0]")
        assert f"(pid {busy.pid})" in ran.text()
    finally:
        busy.kill()
        busy.wait()


@pytest.mark.slow
def test_the_self_test_takes_the_place_of_its_progress(kernel: Kernel) -> None:
    ran = kernel.run("%tdoctor --self-test")
    assert not ran.error
    assert "resolves from" in ran.text()
    assert "interrupt the kernel" not in ran.text()
