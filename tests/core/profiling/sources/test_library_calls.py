"""Which library's lines could be opened below the line that has most of the time."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")

from torchbench_magic import profile  # noqa: E402

LIBRARY = """
import time


class Trainer:
    def train(self):
        time.sleep(0.02)

    def __call__(self):
        time.sleep(0.02)

    @property
    def trap(self):
        raise AssertionError("a property was asked")


def run():
    time.sleep(0.02)
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "trainlib_for_callees.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(folder))
    yield importlib.import_module("trainlib_for_callees")
    sys.modules.pop("trainlib_for_callees", None)


@pytest.mark.parametrize("call", ["trainer.train()", "trainer()", "lib.run()", "run()"])
def test_the_line_that_has_most_of_the_time_names_the_library_that_it_calls(library: ModuleType, call: str) -> None:
    names = {"trainer": library.Trainer(), "lib": library, "run": library.run}
    made = profile(f"# the only line that runs is the second\n{call}\n", globals=names)
    assert [(line, module) for _, line, module in made.libraries] == [(2, "trainlib_for_callees")]


def test_a_library_whose_lines_were_recorded_is_not_named(library: ModuleType) -> None:
    names = {"trainer": library.Trainer()}
    made = profile("trainer.train()\n", globals=names, lines_of=("trainlib_for_callees",))
    assert made.libraries == ()


def test_a_property_is_never_asked(library: ModuleType) -> None:
    made = profile("time.sleep(0.02) or len(str(lambda: trainer.trap.go()))", globals={"trainer": library.Trainer(),
                   "time": __import__("time")})  # fmt: skip
    assert made.libraries == ()
