"""Efficiency as it is shown: a clause, columns of operations and lines, a footer and the roofline."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from tests.insights.built import SOURCE, Did, Op, built_profile
from torchbench_magic.process.peak_performance import Peaks
from torchbench_magic.profiling.efficiency.table import Efficiency, OpEfficiency
from torchbench_magic.profiling.efficiency.view import efficiency_clause, efficiency_footer, roofline_svg
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.view import document
from torchbench_magic.show import html, markdown, text
from torchbench_magic.show.document import plain

PEAKS = Peaks(
    threads=2,
    flops=(("float32", 1, 5e10), ("float32", 2, 1e11)),
    bandwidth=((1 << 20, 2, 1e11), (1 << 28, 2, 2e10)),
    dispatch=1e-6,
    caches=(("L1", 1 << 15), ("L2", 1 << 20), ("L3", 1 << 25)),
)
PRODUCT = OpEfficiency(
    "aten::mm", "[[512, 512], [512, 512]]", "", SOURCE, 2, 0, 10, 0.006,
    flops=4e8, bytes=3e6, written=1e6, dtype="float32", roof=0.004, side="compute", kind="compute",
)  # fmt: skip
SUM = OpEfficiency(
    "aten::add", "[[9999], []]", "", SOURCE, 3, 0, 10, 0.004,
    bytes=4e7, written=2e7, fresh=2e7, roof=0.0004, side="memory", kind="page-fault", faults=4096.0,
    fault_seconds=0.004,
)  # fmt: skip


def shown(rows: Sequence[OpEfficiency] = (PRODUCT, SUM), **changes: Any) -> Profile:
    did = {2: Did(10, 0.001, [Op("aten::mm", 10, 0.06)]), 3: Did(10, 0.001, [Op("aten::add", 10, 0.04)])}
    made = built_profile("%%tprofile --efficiency\ny = a @ b\nz = y + 1", did)
    by_op = {row.op: row for row in rows}
    kinds = [by_op[op].kind or None if op in by_op else None for op in made.ops["op"]]
    shares = [by_op[op].fraction if op in by_op else math.nan for op in made.ops["op"]]
    by_line = {row.line: row.kind for row in reversed(rows)}
    lines = [None if pd.isna(line) else by_line.get(int(line)) for line in made.lines["line"]]
    facts = {"peaks": PEAKS, "coverage": 0.97, "notes": ("Hardware counters: none.",)} | changes
    found = Efficiency(rows=tuple(rows), **facts)
    return replace(
        made,
        efficiency=found,
        ops=made.ops.assign(efficiency_class=kinds, fraction_of_peak=shares),
        lines=made.lines.assign(efficiency_class=lines, fraction_of_peak=0.5),
    )


def test_the_sentence_names_the_two_classes_with_the_most_time() -> None:
    said = plain(efficiency_clause(shown()))
    assert said == "; of the time in torch 60 % computes near this machine's peak, 40 % is page faults"


def test_of_page_faults_only_their_part_is_said_and_what_is_far_below_besides() -> None:
    held_up = replace(SUM, fault_seconds=0.4 * SUM.seconds, is_bounded=True)
    said = plain(efficiency_clause(shown([held_up])))
    assert "16 % is page faults" in said
    assert "24 % is far below" in said
    assert "far below" not in plain(efficiency_clause(shown([replace(held_up, is_bounded=False)])))


def test_near_the_peak_of_a_dtype_that_is_slow_here_is_no_good_news() -> None:
    peaks = replace(PEAKS, flops=(("float32", 2, 1e11), ("float16", 2, 2e9)))
    said = plain(efficiency_clause(shown([replace(PRODUCT, dtype="float16")], peaks=peaks)))
    assert "peak" not in said
    assert "60 % computes in float16, slow on this machine" in said


def test_it_says_where_nothing_is_known_and_is_silent_without_the_option() -> None:
    unknown = shown([replace(PRODUCT, kind="")], coverage=0.0)
    assert "is unknown" in plain(efficiency_clause(unknown))
    assert plain(efficiency_clause(replace(shown(), efficiency=None))) == ""


def test_operations_and_lines_have_the_class_and_the_share_of_the_roof() -> None:
    made = document(shown())
    tables = {table.name: table for table in made.tables}
    for name, expected in (("operations", {"compute": "67", "page-fault": "10"}), ("lines", {"compute": "50"})):
        table = tables[name]
        at = [column.name for column in table.columns].index("efficiency_class")
        cells = {row.cells[at].text: row.cells[at + 1].text for group in table.groups for row in group.rows}
        assert expected.items() <= cells.items()
        for each in table.totals:
            assert len(each.cells) == len(table.columns)


def test_without_the_option_there_is_no_such_column() -> None:
    made = document(replace(shown(), efficiency=None))
    assert not [c for table in made.tables for c in table.columns if c.name == "efficiency_class"]
    assert made.picture == ""


def test_the_footer_has_peaks_bandwidth_coverage_and_what_is_missing() -> None:
    said = efficiency_footer(shown())
    assert "97 %" in said
    assert "float32 100" in said
    assert "20 at 256 MiB" in said
    assert said.endswith("Hardware counters: none.")


def test_the_picture_has_a_dot_for_each_operation_with_a_roof() -> None:
    drawn = roofline_svg(shown())
    assert drawn is not None
    assert drawn.count("<circle") == 2
    assert drawn.count("<svg") == 2
    assert "aten::mm at In[1]:2: compute, 67 % of the roof, 60 ms" in drawn.replace("60.0 ms", "60 ms")
    for number in re.findall(r' (?:cx|cy|r|x|y|x1|x2|y1|y2)="([^"]*)"', drawn):
        assert math.isfinite(float(number))


def test_every_text_in_the_picture_is_escaped() -> None:
    drawn = roofline_svg(shown([replace(PRODUCT, op="aten::<script>alert(1)</script>")]))
    assert drawn is not None
    assert "<script" not in drawn


def test_what_has_no_roof_is_not_drawn() -> None:
    assert roofline_svg(shown([replace(PRODUCT, kind=""), replace(SUM, kind="overhead")])) is None
    unknown = replace(shown(), efficiency=Efficiency(Peaks(2), (PRODUCT, SUM)))
    assert roofline_svg(unknown) is None
    assert roofline_svg(replace(shown(), efficiency=None)) is None


def test_many_operations_are_few_dots() -> None:
    many = [replace(PRODUCT, line=n, seconds=0.006 + n / 1e4) for n in range(100)]
    drawn = roofline_svg(shown(many))
    assert drawn is not None
    assert drawn.count("<circle") == 16
    assert len(drawn) < 12_000


def test_all_carriers_show_it() -> None:
    made = document(shown())
    assert "of roof" in text.render(made)
    assert "page-fault" in markdown.render(made)
    assert "tb-roof" in html.render(made)
