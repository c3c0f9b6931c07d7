"""Which text is "this cell", on which line of it a magic stands, and which lines of it are visible."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.inputtransformer2 import TransformerManager
from IPython.core.interactiveshell import InteractiveShell

from torchbench_magic.notebook import cells
from torchbench_magic.notebook.cells import Book, Place, aligned_text, line_map

# ==== cells ===========================================================================================================


class Probe:
    """A line and cell magic that asks the book where it stands."""

    def __init__(self, shell: Any, book: Book) -> None:
        self.book = book
        self.places: list[Place] = []
        shell.register_magic_function(self, "line_cell", "probe")

    def __call__(self, line: str, cell: str | None = None) -> None:
        book = self.book
        place = book.place_of_line("probe", line) if cell is None else book.place_of_cell("probe", cell)
        self.places.append(place)

    def seen(self) -> list[tuple[str, int, int | None]]:
        """(visible text, line, n of In[n]) of each place."""
        shown = [self.book.text_of(place.file) for place in self.places]
        return [(c.text if c else "", p.magic_line, p.number) for c, p in zip(shown, self.places, strict=True)]


@pytest.fixture
def book(shell: InteractiveShell) -> Iterator[Book]:
    made = Book(shell)
    made.open()
    yield made
    made.close()


@pytest.fixture
def probe(shell: InteractiveShell, book: Book) -> Probe:
    return Probe(shell, book)


def run(shell: InteractiveShell, *cells: str) -> None:
    for cell in cells:
        shell.run_cell(cell, store_history=True).raise_error()


@pytest.mark.parametrize(
    ("cell", "line"),
    [
        ("%%probe -t 1\nx = 1\ny = 2", 1),
        ("\n\n%%probe\nx = 1\n", 3),
        ("%%capture out\n%%probe\nx = 1\n", 2),
        ("%%capture\nx = 1\n%probe f(x)\n", 3),
    ],
)
def test_a_magic_stands_on_its_line_of_the_visible_cell(
    shell: InteractiveShell, probe: Probe, cell: str, line: int
) -> None:
    run(shell, "1", cell)
    assert probe.seen() == [(cell, line, 2)]


def test_a_line_magic_stands_on_its_line(shell: InteractiveShell, probe: Probe) -> None:
    cell = "x = 1\n\nif x:\n    %probe f(x)\ny = %probe  g(x)\n"
    run(shell, cell)
    assert probe.seen() == [(cell, 4, 1), (cell, 5, 1)]
    assert [place.column_of(code) for place, code in zip(probe.places, ["f(x)", "g(x)"], strict=True)] == [11, 12]


def test_two_equal_magics_in_a_cell_are_told_apart_by_the_line_that_runs(shell: InteractiveShell, probe: Probe) -> None:
    run(shell, "%probe f(x)\n%probe f(x)")
    assert [place.magic_line for place in probe.places] == [1, 2]


def test_a_magic_in_a_loop_and_in_a_function_stands_where_it_is_written(shell: InteractiveShell, probe: Probe) -> None:
    run(shell, "def f():\n    %probe g(x)\n", "for i in range(2):\n    f()")
    assert [(p.magic_line, p.number) for p in probe.places] == [(2, 1), (2, 1)]


def test_a_continued_line_magic_stands_on_its_first_line(shell: InteractiveShell, probe: Probe) -> None:
    run(shell, "x = 1\n%probe f(a, \\\n  b)")
    assert [(p.magic_line, p.number) for p in probe.places] == [(2, 1)]


def test_below_a_joined_shell_line_the_numbering_of_the_cells_other_code_is_kept(
    shell: InteractiveShell, book: Book, probe: Probe
) -> None:
    cell = "\n!true \\\n  yes\nx = 1\n%probe x"
    run(shell, cell)
    (place,) = probe.places
    shown = book.text_of(place.file)
    assert shown is not None
    assert (place.magic_line, shown.visible_line(place.magic_line)) == (3, 5)


def test_a_body_built_at_run_time_makes_no_claim(shell: InteractiveShell, probe: Probe) -> None:
    run(shell, "body = 'x = 1\\n'\nfor i in range(2):\n    get_ipython().run_cell_magic('probe', '', body)")
    assert [(p.magic_line, p.number) for p in probe.places] == [(0, None), (0, None)]
    assert probe.places[0].file == "<probe-1>"
    assert probe.seen()[0][0] == "x = 1\n"
    assert linecache.getline("<probe-1>", 1) == "x = 1\n"


def test_the_same_text_by_call_is_one_file_and_another_text_another(shell: InteractiveShell, probe: Probe) -> None:
    run(shell, "for body in ('1', '2', '1'):\n    get_ipython().run_cell_magic('probe', '', body)")
    assert [place.file for place in probe.places] == ["<probe-1>", "<probe-2>", "<probe-1>"]


def test_a_line_that_happens_to_read_like_the_body_is_not_claimed(shell: InteractiveShell, probe: Probe) -> None:
    run(shell, "x = 1\nget_ipython().run_line_magic('probe', 'x = 1')")
    assert [(p.file, p.number) for p in probe.places] == [("<probe-1>", None)]


def shown_of(book: Book, function: Any) -> tuple[str, int, int | None]:
    """(text of its cell, visible line of its ``def``, n of In[n])"""
    code = function.__code__
    cell = book.text_of(code.co_filename)
    assert cell is not None
    return cell.text, cell.visible_line(code.co_firstlineno), cell.number


CAPTURED = "\n%%capture\ndef f():\n    return 1\n"


@pytest.mark.parametrize("cell", [CAPTURED, "%%capture a\n" + CAPTURED.lstrip()])
def test_what_a_captured_cell_defines_stands_in_that_cell(shell: InteractiveShell, book: Book, cell: str) -> None:
    run(shell, "1", cell, "2")
    assert shown_of(book, shell.user_ns["f"]) == (cell, 3, 2)


def test_text_that_a_cell_runs_has_the_number_of_the_cell(shell: InteractiveShell, book: Book) -> None:
    run(shell, "1", "get_ipython().run_cell('def f():\\n    return 1')", "2")
    assert shown_of(book, shell.user_ns["f"]) == ("def f():\n    return 1", 1, 2)


def test_a_book_opened_late_knows_what_a_captured_cell_defined(shell: InteractiveShell) -> None:
    late = Book(shell)
    shell.user_ns["open_book"] = late.open
    run(shell, "1", CAPTURED, "2", "open_book()")
    assert shown_of(late, shell.user_ns["f"]) == (CAPTURED.rstrip("\n"), 3, 2)  # as the history has it
    late.close()


def test_a_book_opened_in_a_captured_cell_knows_what_that_defines(shell: InteractiveShell) -> None:
    late = Book(shell)
    shell.user_ns["open_book"] = late.open
    cell = "%%capture\nopen_book()\ndef f():\n    return 1\n"
    run(shell, "1", cell)
    assert shown_of(late, shell.user_ns["f"]) == (cell, 3, 2)
    late.close()


def test_a_cell_run_again_has_its_last_number(shell: InteractiveShell, book: Book, probe: Probe) -> None:
    run(shell, "%%probe\nx = 1", "1", "%%probe\nx = 1")
    assert [p.number for p in probe.places] == [1, 3]


def test_functions_of_earlier_cells_are_in_the_book(shell: InteractiveShell, book: Book) -> None:
    run(shell, "def f():\n    return 1\n")
    shown = book.text_of(shell.user_ns["f"].__code__.co_filename)
    assert shown is not None
    assert (shown.text, shown.number) == ("def f():\n    return 1\n", 1)


def test_a_book_opened_late_knows_the_cells_before_it_and_the_running_one(shell: InteractiveShell) -> None:
    late = Book(shell)
    probe = Probe(shell, late)
    shell.user_ns["open_book"] = late.open
    run(shell, "def f():\n    return 1\n\n", "\nopen_book()\n%probe f()")
    shown = late.text_of(shell.user_ns["f"].__code__.co_filename)
    assert shown is not None
    assert shown.number == 1
    assert [(p.number, late_line(late, p)) for p in probe.places] == [(2, 3)]
    late.close()


def test_a_book_opened_late_knows_a_running_cell_that_is_not_in_the_history(shell: InteractiveShell) -> None:
    late = Book(shell)
    probe = Probe(shell, late)
    shell.user_ns["open_book"] = late.open
    shell.run_cell("open_book()\n%probe x", store_history=False).raise_error()
    assert [place.magic_line for place in probe.places] == [2]
    assert not probe.places[0].file.startswith("<probe")
    late.close()


def late_line(book: Book, place: Place) -> int:
    shown = book.text_of(place.file)
    assert shown is not None
    return shown.visible_line(place.magic_line)


def test_where_all_cells_share_a_name_nothing_is_claimed(
    shell: InteractiveShell, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IPYKERNEL_CELL_NAME", "notebook")
    run(shell, "%%probe\nx = 1")
    assert [(p.file, p.number) for p in probe.places] == [("<probe-1>", None)]


def test_closing_the_book_puts_the_sources_back(shell: InteractiveShell) -> None:
    before = dict(linecache.cache)
    book = Book(shell)
    book.open()
    probe = Probe(shell, book)
    run(shell, "%%probe\nx = 1")
    file = probe.places[0].file
    assert linecache.getline(file, 1) == "%%probe\n"
    book.close()
    assert linecache.getline(file, 1).startswith("get_ipython().run_cell_magic")
    assert not [name for name in linecache.cache if name not in before and name.startswith("<probe")]
    assert book._note not in shell.events.callbacks["pre_run_cell"]


def test_the_number_of_a_cell_is_right_whenever_ipython_counts_it(
    shell: InteractiveShell, book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 9.8 on before `pre_run_cell`, in older versions after the cell."""
    entered: list[int] = []
    monkeypatch.setattr(book, "_enter", lambda raw, transformed, number: entered.append(number))
    monkeypatch.setattr(shell, "execution_count", 5)
    for version in ((8, 12, 3), (9, 7, 0), (9, 8, 0), (10, 0, 0)):
        monkeypatch.setattr(cells, "version_info", version)
        book._note(SimpleNamespace(raw_cell="x", store_history=True, silent=False))
    assert entered == [5, 5, 4, 4]


# ==== alignment =======================================================================================================
# Visible lines of transformed text.


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
