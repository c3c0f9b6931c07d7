"""Visible lines of transformed text."""

from __future__ import annotations

import pytest
from IPython.core.inputtransformer2 import TransformerManager

from torchbench_magic.notebook.cells import aligned_text, line_map


def transformed(raw: str) -> str:
    return TransformerManager().transform_cell(raw)


@pytest.mark.parametrize(
    ("raw", "lines"),
    [
        ("x\ny\n", (1, 2)),
        ("\n\nx\ny\n", (3, 4)),
        ("!echo a \\\n  b\nx\n", (1, 3)),
        ("x\n!echo a \\\n  b \\\n c\n%time y\nz\n", (1, 2, 5, 6)),
        ("\n!echo a \\\n  b\n!ls\nx\n", (2, 4, 5)),
        ("%%timer\na\nb\n", (1,)),
        ("\n\n%%timer\na\nb\n", (3,)),
        ("x = '''\n!not shell \\\n'''\ny\n", (1, 2, 3, 4)),
    ],
)
def test_each_transformed_line_knows_its_visible_line(raw: str, lines: tuple[int, ...]) -> None:
    assert line_map(raw.splitlines(), transformed(raw).splitlines()) == lines


@pytest.mark.parametrize(
    "raw", ["\n\nx\n!ls \\\n -l\nif y:\n    !pwd\n    z\nlast\n", "!a \\\n b\n!c\n!d \\\n e\nlast\n"]
)
def test_aligned_text_keeps_every_line_on_its_visible_number(raw: str) -> None:
    aligned = aligned_text(raw, transformed(raw)).splitlines()
    for number, line in enumerate(raw.splitlines()):
        if line.strip() in {"x", "if y:", "z", "last"}:
            assert aligned[number] == line
    assert len(aligned) == len(raw.splitlines())
    compile("\n".join(aligned), "<cell>", "exec")
