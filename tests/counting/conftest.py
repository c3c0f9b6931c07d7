"""One server under valgrind for all tests of a session: starting it takes ten seconds and more."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from torchbench_magic.counting.client import Server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")
    made = Server()
    made.start()
    yield made
    made.close()
