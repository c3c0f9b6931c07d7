"""What a text says about its lines."""

from __future__ import annotations

from torchbench_magic.profiling.file_texts import Statements, read_statements


def test_lines_of_a_statement_are_taken_together() -> None:
    text = "x = f(\n  1,\n  2)\ny = 3\nif (x and\n    y):\n    pass\n"
    assert read_statements(text).first == {1: 1, 2: 1, 3: 1, 5: 5, 6: 5}


def test_a_magic_line_is_no_statement_and_counts_as_a_line() -> None:
    assert read_statements("%%tprofile --memory\nx = f(\n  1)\n").first == {2: 2, 3: 2}


def test_a_decorated_function_is_found_by_its_decorator() -> None:
    assert read_statements("@a\n@b(\n 1)\ndef f(): pass\n").definition == {1: 4}


def test_the_end_of_a_with_block_is_known() -> None:
    assert read_statements("with a:\n    b\n    c\nd\n").with_end == {1: 3}


def test_calls_into_numpy_are_named() -> None:
    text = "import numpy as nump\nx = nump.linalg.norm(y.cpu().numpy())\nz = torch.ones(3)\n"
    assert read_statements(text).numpy_calls == {2: ("nump.linalg.norm", ".numpy()")}


def test_the_first_text_that_parses_is_read() -> None:
    assert read_statements("!ls\n", "x = (\n1)\n").first == {1: 1, 2: 1}
    assert read_statements("!ls\n") == Statements()
