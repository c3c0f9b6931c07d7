"""The one kernel of `make test`: the quickstart from top to bottom, and then the magics that it does not use."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest

from .conftest import ROOT, Kernel

QUICKSTART = ROOT / "examples" / "01_quickstart.ipynb"


def shorter(source: str) -> str:
    """A cell of the quickstart with a smaller mask, measured for less long."""
    source = source.replace("(200, 200, 200)", "(20, 20, 20)")
    source = re.sub(r"--min-run-time \S+", "", source)
    return re.sub(r"^%%timer", "%%timer --min-run-time 0.01", source)


@pytest.mark.kernel
@pytest.mark.one_of_each
def test_the_quickstart_and_every_magic_run_in_a_kernel(start_kernel: Callable[..., Kernel], tmp_path: Path) -> None:
    kernel = start_kernel()
    cells = [cell.source for cell in nbformat.read(QUICKSTART, as_version=4).cells if cell.cell_type == "code"]
    shown = []
    for source in map(shorter, cells):
        ran = kernel.run(source)
        assert not ran.error, f"{source}\n{ran.error}"
        assert not ran.stderr
        shown.append(ran.text())
    _, threads, sizes, _, _, in_torch, _, frame = shown
    assert [len(re.findall(rf"^400 × 64 +{count} +bmm ", threads, re.MULTILINE)) for count in (1, 2)] == [1, 1]
    assert [len(re.findall(rf"^ *{n} +\d +bmm ", sizes, re.MULTILINE)) for n in (1, 64, 256, 1024)] == [2] * 4
    assert "In[5], MaskedLinearInTorch.forward" in in_torch
    calls = "_tprofile.lines.query('cell == 5 and line in (19, 21, 22)')[['line', 'calls']].astype(int).values.tolist()"
    assert kernel.run(calls).text() == "[[19, 3], [21, 3], [22, 3]]", "forward was called three times"
    assert "with_numpy  " in frame
    store = tmp_path / "runs.sqlite"
    for source, kinds, words in (
        (f"%timer -n 2 -r 2 --save {store} x + 1", ["display_data"], "x + 1"),
        ("%tprofile batched_dot_bmm(x, x)", ["display_data"], "batched_dot_bmm"),
        (f"%tcompare {store}", ["display_data"], "x + 1"),
        ("%tdoctor", ["display_data"], "outside load"),
    ):
        ran = kernel.run(source)
        assert (ran.kinds, ran.error) == (kinds, ""), source
        assert words in ran.text(), source
        assert "<" in ran.text("text/html"), source
    assert kernel.run("type(_timer).__name__, type(_tprofile).__name__, type(_tdoctor).__name__").text() == (
        "('Comparison', 'Profile', 'Diagnosis')"
    )
