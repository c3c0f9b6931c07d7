"""Insights in each carrier: at most three under the sentence, each unfolds; all in the widget; new and gone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.results.profiling.insights.built import SOURCE, Did, Op, built_profile
from torchbench_magic.notebook.explorers import ProfileExplorer
from torchbench_magic.profiling.diff import ProfileDiff
from torchbench_magic.profiling.diff_view import document as diff_document
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.trace import Source
from torchbench_magic.profiling.view import document
from torchbench_magic.results import Doubt
from torchbench_magic.show import document_json, html
from torchbench_magic.show.document import plain

MATMUL = Did(100, 0.001, [Op("aten::mm", 100, 0.2)])
COPIES = Did(100, 1e-3, [Op("aten::contiguous", 100, 1e-4), Op("aten::contiguous > aten::clone", 100, 0.1)])
SMALL = Did(20_000, 0.05, [Op("aten::add", 20_000, 0.04)])
BOTH = "%%tprofile\nfor i in range(100):\n    y = y + 1\n    w = x.t().contiguous()\n    z = x @ x"


def both() -> Profile:
    """`copies` on line 4, and with less at stake `overhead` on line 3."""
    return built_profile(BOTH, {3: SMALL, 4: COPIES, 5: MATMUL})


def many() -> Profile:
    text = "%%tprofile\nfor i in range(100):\n" + "    y = x.contiguous()\n" * 5
    return built_profile(text, dict.fromkeys(range(3, 8), COPIES))


def test_text_has_each_with_its_kind_its_evidence_and_its_cures_under_the_sentence() -> None:
    lines = repr(both()).splitlines()
    (at,) = [n for n, line in enumerate(lines) if line.startswith("* overhead: In[1]:3 runs 20")]
    assert lines[0].startswith("In[1]:5 takes")
    assert lines[1].startswith("* copies: In[1]:4 copies 100 tensors into another layout")
    under = " ".join(line.strip() for line in lines[at + 1 : at + 8] if line.startswith("  "))
    assert "operations 20 000" in under.replace("\u202f", " ")
    assert "most called aten::add" in under
    assert "torch.compile" in under


def test_markdown_has_them_as_a_list_in_a_list() -> None:
    shown = both().to_markdown()
    assert "\n- copies: `In[1]:4` copies 100 tensors" in shown
    assert "\n  - Leave out `contiguous`" in shown


def test_html_unfolds_them_without_script_and_the_module_gets_the_same() -> None:
    drawn = document(both())
    static = html.static(drawn)
    assert static.count("<details>") == 2
    assert "<summary><strong>copies</strong>: <code>In[1]:4</code>" in static
    sent = document_json.as_dict(drawn)["insights"]
    assert [each[0][1][0] if each[0][0] == "" else each[0][0][0] for each in sent] == ["copies", "overhead"]
    assert len(sent[0]) == 1 + 1 + len(both().insights[0].cures)


def test_at_most_three_are_shown_and_the_rest_counted_and_all_are_in_the_widget() -> None:
    profile = many()
    drawn = document(profile)
    assert len(profile.insights) == 5
    assert len(drawn.insights) == 3
    assert "2 more in" in " ".join(map(plain, drawn.footer))
    tables = {table.name: table for table in ProfileExplorer(profile).document.tables}
    assert len(tables["insights"]) == 5
    assert "insights" not in [table.name for table in ProfileExplorer(profile_without()).document.tables]


def profile_without() -> Profile:
    return replace(many(), partial=True)


def test_nothing_is_added_where_there_are_none() -> None:
    drawn = document(profile_without())
    assert drawn.insights == ()
    assert "insights" not in document_json.as_dict(drawn)
    assert "Insights" not in repr(profile_without())


EDITED = """\
%%tprofile
w = x.t().contiguous()
for i in range(100):
    y = y + 1
    z = x @ x
    v = z.contiguous()"""


def edited() -> Profile:
    """The copy of line 4 is made once now, `overhead` stays on what was line 3, and line 6 copies."""
    did = {2: Did(1, 1e-5), 4: SMALL, 5: MATMUL, 6: COPIES}
    profile = built_profile(EDITED, did)
    other = {"source_id": {SOURCE: "cd34"}}
    moved = {name: getattr(profile, name).replace(other) for name in ("lines", "ops", "frames")}
    return replace(profile, **moved, sources={"cd34": Source("cd34", "<cell>", EDITED, 2)}, source_id="cd34")


def test_a_diff_says_which_are_new_and_which_are_gone_by_the_line_that_it_is() -> None:
    diff = ProfileDiff(both(), edited())
    assert [(each.kind, each.places[0].line) for each in edited().insights] == [("copies", 6), ("overhead", 4)]
    assert [(each.kind, each.places[0].label) for each in diff.insights_new] == [("copies", "In[2]:6")]
    assert [(each.kind, each.places[0].label) for each in diff.insights_gone] == [("copies", "In[1]:4")]
    words = [plain(each.line).split(" copies 100")[0] for each in diff_document(diff).insights]
    assert words == ["new, copies: In[2]:6", "gone, copies: In[1]:4"]
    assert "* gone, copies: In[1]:4" in repr(diff)


def test_a_diff_of_one_profile_with_itself_has_none() -> None:
    diff = ProfileDiff(both(), both())
    assert diff.insights_new == diff.insights_gone == ()
    assert not diff_document(diff).insights


@pytest.mark.parametrize(
    "changes", [{"partial": True}, {"profiler_cost": "most"}, {"warnings": [Doubt("busy", "Busy.")]}], ids=str
)
def test_what_is_not_known_of_one_is_neither_new_nor_gone(changes: dict[str, object]) -> None:
    doubtful = replace(both(), **changes)  # type: ignore[arg-type]
    for diff in (ProfileDiff(both(), doubtful), ProfileDiff(doubtful, both())):
        assert diff.insights_new == diff.insights_gone == ()
        assert "insights-not-known" in [doubt.kind for doubt in diff.warnings]


def test_a_name_with_markup_is_text() -> None:
    text = BOTH.replace("x.t()", "f('<b>`|*').t()")
    profile = replace(both(), sources={SOURCE: Source(SOURCE, "<i>.py", text)})
    static = html.static(document(profile))
    assert "<i>.py" not in static
    assert "&lt;i&gt;.py:4" in static
