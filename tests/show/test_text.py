"""text/plain and markdown: what a terminal, GitHub, a diff or an exported notebook shows."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.profiling.profiles import profile_of_two_kernels
from torchbench_magic.printable import printable
from torchbench_magic.profiling import view as profiling_view
from torchbench_magic.show import markdown, text
from torchbench_magic.show.document import Document, Phrase, backticked, plain
from torchbench_magic.show.renderers import to_text
from torchbench_magic.show.table import Cell, Column, Group, Row, Table
from torchbench_magic.timing import view as timing_view
from torchbench_magic.timing.comparison import Comparison

from .builders import HOSTILE, comparison_of, judged_as, profile_of, two_shapes

# ==== text ============================================================================================================


COMPARED = """\
mul_sum is 1.64 to 1.65 times as fast as bmm at both points

sub label  threads  alternative  median  IQR    times  95 % interval  verdict
                                     µs    %  as fast
------------------------------------------------------------------------------
64 × 64          1  bmm            4.62  2.8    1                     baseline
                    mul_sum        2.80  1.7    1.65     1.63 … 1.66  faster
64 × 65          1  bmm            4.59  2.1    1                     baseline
                    mul_sum        2.81  2.4    1.638  1.627 … 1.650  faster

Times as fast = time of bmm / time at the same point, measured in adjacent blocks. “same” means
within ±1 %.
1 of 2 threads · CPU · torch 2.13.0+cpu · Python 3.11.7 · 4 measurements in 11.6 s · seed 0"""

THREADS = """\
threads       time  speed-up  efficiency  CPU time  extra CPU  others
                µs         ×           %        µs          %   cores
---------------------------------------------------------------------
bmm
      1  use  4.62      1.00         100      4.61          ·       –
      2       4.59      1.01          50      4.57         −1       –
mul_sum
      1  use  2.80      1.00         100      2.79          ·       –
      2       2.81      1.00          50      2.81          1       –"""

ANNOTATED = """\
    self time   torch  Python  backward  allocated     peak  calls  source
    0 … 976 ms     ms      ms        ms        MiB      MiB
----------------------------------------------------------------------------------------------------
In[3], this cell
 1                                                                  %%tprofile --memory --shapes
 2  |#          121       0.9       ·         64.1     64.1      1  model = MyModule(4096, 4096)
 3  |########   905       0.1       ·        954    1 026        1  mask = torch.rand((500, 500, 50…
 4
 5                ·      <0.1       ·          ·        ·        4  for _ in range(3):
 6                ·       0.4       ·          ·    1 062        3      out, hi_idx = model(input, …
 7  |#########  975       0.6       ·        216    1 170        3      out.square().mean().backwar…
In[2], MyModule.forward
 6                ·       0.1       ·          ·        ·        3  def forward(self, input, mask):
 7                0.1     0.1       ·          ·        ·        3      with record_function("LINEA…
 8  |#########  486       0.3     968         24.0  1 042        3          out = self.linear(input)
 9  |#######     <0.1   724         ·          ·    1 042        3      hi_idx = np.argwhere(mask.n…
10                ·      <0.1       ·          ·        ·        3      return out, hi_idx
----------------------------------------------------------------------------------------------------
not attributed 8.3 ms
wall time 3 222.0 ms = 2 487.1 torch + 726.6 Python + 8.3 not attributed"""

OPERATIONS = """\
operation            calls   self  self  total  allocated  line                 input shapes
                               ms     %     ms        MiB
----------------------------------------------------------------------------------------------------
aten::mm                 3  906    28.1  906        192    In[3]:7              [4096, 512] [512, 4…
aten::uniform_           3  905    28.1  905          ·    In[3]:3              [500, 500, 500]
aten::addmm              3  484    15.0  484         24.0  In[2]:8              [4096] [512, 4096] …
engine: AddmmBackw…      3   69.0   2.1  975         24.0  In[3]:7              [512, 4096]
aten::empty             11    0.2  <0.1    0.2    1 018    In[3]:2 (50 %) and…
5 of 8 operations; the other 3 take 2.2 ms. All rows: .ops"""


def compared() -> Comparison:
    base = ("baseline", 1.0, 1.0, 1.0)
    return judged_as(two_shapes(), base, ("faster", 0.6052, 0.6011, 0.6128), base, ("faster", 0.6101, 0.6064, 0.6142))


def spaced(text: str) -> str:
    """Thousands with the space that the expected outputs are typed with."""
    return text.replace("\u202f", " ")


def test_a_comparison_reads_answer_first_then_table_then_how_it_was_measured() -> None:
    assert spaced(to_text(compared())) == COMPARED


def test_several_thread_counts_are_a_table_of_their_own() -> None:
    _, threads = timing_view.document(comparison_of()).tables
    assert spaced(text.table_text(threads)) == THREADS


def test_a_profile_prints_the_annotated_source_and_the_operations() -> None:
    lines, operations = profiling_view.document(profile_of()).tables
    assert spaced(text.table_text(lines)) == ANNOTATED
    assert spaced(text.table_text(operations)) == OPERATIONS


def test_no_line_is_longer_than_a_hundred_columns() -> None:
    long_names = comparison_of(names=("a rather long name of an alternative " * 3, "another " * 20))
    for shown in (to_text(long_names), to_text(profile_of())):
        assert max(map(len, shown.splitlines())) <= 100


def test_a_terminal_without_unicode_gets_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    shown = to_text(compared())
    assert shown.isascii()
    assert "1.63 .. 1.66" in shown
    assert " us " in shown
    assert "64 x 64" in shown


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_on_their_line_and_cannot_move_the_cursor(name: str) -> None:
    usual = to_text(two_shapes()).splitlines()
    shown = to_text(two_shapes(names=(name, name + " 2"))).splitlines()
    table = slice(shown.index(""), None)
    assert len([line for line in shown[table] if "64 × 6" in line]) == 2
    assert len(usual[2:9]) == len(shown[table][1:8])
    assert all(char.isprintable() or char == "\u202f" for line in shown for char in line)


def test_a_row_of_one_column_table_without_rows_is_just_its_header() -> None:
    empty = Table("t", (Column("a", "a", "ms", "number"),), (), hidden="none")
    assert text.table_text(empty).splitlines() == [" a", "ms", "--", "none"]


def test_decimal_points_stand_under_each_other() -> None:
    rows = tuple(Row((Cell(value),)) for value in ("121", "14.2", "<0.1", "·", "–"))
    table = Table("t", (Column("a", "time", "ms", "number"),), (Group(rows),))
    assert text.table_text(table).splitlines()[3:] == ["121", " 14.2", " <0.1", "  ·", "    –"]


def test_control_and_direction_characters_are_written_as_escapes() -> None:
    assert printable("a\x1b[31m\u202eb\nc") == "a\\x1b[31m\\u202eb c"
    assert printable("日本 🔥 é") == "日本 🔥 é"


def test_code_between_backticks_is_code() -> None:
    line = backticked("Fix: `torch.set_num_threads(2)` now")
    assert [run.style for run in line] == ["", "code", ""]
    assert plain(line) == "Fix: torch.set_num_threads(2) now"
    assert backticked("one ` only") == (Phrase("one ` only"),)


def test_markdown_is_a_github_table_with_the_units_in_the_header() -> None:
    lines = compared().to_markdown().splitlines()
    assert lines[0] == "`mul_sum` is 1.64 to 1.65 times as fast as `bmm` at both points"
    assert [cell.strip() for cell in lines[2].split("|")[4:6]] == ["median (µs)", "IQR (%)"]
    assert [cell.strip() for cell in lines[5].split("|")[1:5]] == ["64 × 64", "1", "`mul_sum`", "2.80"]
    assert any(line.endswith("4 measurements in 11.6 s · seed 0") for line in lines)


def test_nothing_that_was_named_is_markdown_or_markup() -> None:
    table = Table(
        "t",
        (Column("a", "a|b"), Column("c", "c", kind="code")),
        (Group((Row((Cell("<b>*x* | [y](z)</b>"), Cell("f(`a`) | g"))),)),),
    )
    shown = markdown.render(Document("k", (Phrase("# <i>x</i>"),), (table,)))
    assert "<b>" not in shown
    assert "<i>" not in shown
    assert shown.startswith("\\# &lt;i&gt;x")
    assert "&lt;b&gt;\\*x\\* \\| \\[y\\](z)&lt;/b&gt;" in shown
    assert "``f(`a`) \\| g``" in shown


def test_rows_that_do_not_say_where_they_belong_stand_below_the_name_of_their_group() -> None:
    columns = (Column("threads", "threads", kind="number"), Column("time", "time", kind="number"))
    groups = [Group((Row((Cell("1"), Cell("7.5"))),), title=name) for name in ("bmm", "a*b")]
    shown = markdown.render(Document("k", (), (Table("t", columns, tuple(groups)),)))
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in shown.splitlines() if line][2:]
    assert cells == [["**bmm**", ""], ["1", "7.5"], ["**a\\*b**", ""], ["1", "7.5"]]


def test_a_profile_as_markdown_names_every_line_by_its_place() -> None:
    shown = profile_of().to_markdown()
    assert "In\\[2\\]:9" in shown
    assert "hi_idx = np.argwhere(mask.numpy() > 0.9)  # outside torch`" in shown


def test_where_it_is_narrow_a_bar_gives_way_before_the_names_of_the_rows() -> None:
    name, shapes = "aten::convolution_backward", "[16, 8, 30, 30] [16, 3, 32, 32]"
    numbers = [Column(f"number{at}", f"number {at}", kind="number") for at in range(6)]
    columns = (
        Column("op", "operation", kind="code", widest=36),
        Column("bar", "", kind="bar"),
        *numbers,
        Column("input_shapes", "input shapes", kind="code", widest=40),
    )
    bar = Cell(picture=((("torch", 1.0),), ()))
    row = Row((Cell(name), bar, *[Cell("1", 1.0)] * len(numbers), Cell(shapes)))
    table = Table("operations", columns, (Group((row,)),))
    shown = text.table_text(table).splitlines()
    assert max(map(len, shown)) <= text.WIDTH
    assert shown[-1].startswith("aten::convolution")
    assert "#" not in shown[-1]
    wide = text.table_text(table, width=160).splitlines()
    assert name in wide[-1]
    assert "|#########" in wide[-1]


def test_where_it_is_narrow_the_name_of_an_input_goes_on_in_the_rows_below() -> None:
    name, next_name = "k0 5678, k1 1234, x discontiguous", "k0 5678, k1 1234"
    columns = (
        Column("sub_label", "sub label", leading=True, widest=44),
        Column("num_threads", "threads", kind="number", leading=True),
        Column("description", "alternative", kind="code", widest=32),
        *[Column(f"number{at}", f"number {at}", kind="number") for at in range(5)],
    )

    def group(label: str, *alternatives: str) -> Group:
        numbers = [Cell("1", 1.0)] * 5
        return Group(tuple(Row((Cell(label), Cell("1", 1.0), Cell(which), *numbers)) for which in alternatives))

    groups = (group(name, "mul_sum", "bmm"), group(name, "alone"), group(next_name, "mul_sum", "bmm", "third"))
    shown = text.table_text(Table("points", columns, groups), width=92).splitlines()
    assert max(map(len, shown)) <= 92
    leads = [line[: shown[0].index("threads")].strip() for line in shown[2:]]
    assert leads == ["k0 5678, k1 1234, x", "discontiguous"] * 2 + [next_name, "", ""]
    assert ["alone" in line for line in shown[2:]].index(True) == 2
    assert "…" not in "\n".join(shown)


@pytest.mark.parametrize(("room", "shown"), [(70, "undecided, see below"), (56, "undecided")])
def test_where_it_is_narrow_a_note_after_a_verdict_is_left_out_whole(room: int, shown: str) -> None:
    columns = (
        Column("name", "alternative", kind="code", widest=40),
        *[Column(f"n{at}", "median", "µs", "number") for at in range(2)],
        Column("verdict", "verdict", kind="verdict", widest=30),
    )
    row = Row((Cell("a name of some length"), *[Cell("12", 12.0)] * 2, Cell("undecided", note="see below")))
    drawn = text.table_text(Table("rows", columns, (Group((row,)),)), width=room)
    (line,) = (line for line in drawn.splitlines() if "undecided" in line)
    assert line.rstrip().endswith(f" {shown}")


# ==== exported ========================================================================================================
# Outputs of a notebook that nbconvert writes as text: tables, and not what draws them.


CONFIG = Path(__file__).parents[2] / "jupyter-config"
CELL = "%%timer --baseline bmm\n# --- bmm\nbmm(x, x)\n# --- mul_sum\nmul_sum(x, x)"
OF_OTHERS = "<p>mine</p><script>mine()</script>"


def exported(bundles: list[dict[str, Any]], folder: Path, to: str = "markdown", ending: str = "md") -> str:
    """A notebook with these outputs as ``jupyter nbconvert`` writes it, where the wheel is installed."""
    cells = [
        nbformat.v4.new_code_cell(CELL, outputs=[nbformat.v4.new_output("display_data", bundle)]) for bundle in bundles
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / "book.ipynb")
    command = [sys.executable, "-m", "nbconvert", "--to", to, str(folder / "book.ipynb")]
    done = subprocess.run(
        command, env=os.environ | {"JUPYTER_CONFIG_PATH": str(CONFIG)}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return (folder / f"book.{ending}").read_text(encoding="utf-8")


@pytest.mark.interpreter
def test_a_comparison_is_less_than_four_kilobytes_of_markdown(tmp_path: Path) -> None:
    text = exported([comparison_of()._repr_mimebundle_()], tmp_path)
    assert len(text.encode()) < 4000
    assert "|`mul_sum`|" in text
    assert "<script" not in text
    assert "<table" not in text


@pytest.mark.interpreter
def test_outputs_of_others_stay_and_pictures_are_their_tables(tmp_path: Path) -> None:
    timeline = profile_of_two_kernels().timeline()._repr_mimebundle_()
    text = exported([{"text/html": OF_OTHERS, "text/markdown": "theirs"}, timeline], tmp_path)
    assert OF_OTHERS in text
    assert text.count("<script") == 1
    assert "<table>" in text
    assert len(text) < 6000


@pytest.mark.interpreter
def test_a_page_of_the_same_notebook_keeps_what_draws_it(tmp_path: Path) -> None:
    assert "<script data-brings=" in exported([comparison_of()._repr_mimebundle_()], tmp_path, "html", "html")


@pytest.mark.interpreter
@pytest.mark.parametrize("make", [comparison_of, two_shapes, profile_of])
def test_an_outputs_markdown_is_that_of_its_document_without_padding(make: Any) -> None:
    short, document = make()._repr_mimebundle_()["text/markdown"], make()
    drawn = markdown.render(timing_view.document(document)) if make is not profile_of else document.to_markdown()

    def squeezed(text: str) -> list[str]:
        """Cells without the spaces round them; rules of tables apart."""
        lines = (line for line in text.splitlines() if line.strip() and not set(line) <= set("|:- "))
        return ["|".join(cell.strip() for cell in line.split("|")) for line in lines]

    assert squeezed(short) == squeezed(drawn)
    assert len(short) < len(drawn)
