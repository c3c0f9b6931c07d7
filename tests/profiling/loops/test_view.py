"""The steps of a loop in every carrier: the sentence, the table of phases, the strips; and no text is markup."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from tests.insights.test_training import USUAL, profile_of, rows
from torchbench_magic.profiling.diff import ProfileDiff
from torchbench_magic.profiling.diff_view import document as diff_document
from torchbench_magic.profiling.loops.view import loop_clause, loop_footer, phases_table, step_strips
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.trace import Source
from torchbench_magic.profiling.view import document
from torchbench_magic.result_base import Doubt
from torchbench_magic.show.document import plain

SAVED = {"cell": 1, "line": 9, "file": "<cell>", "source_id": "ab"}


UNKNOWN = "which phase takes the most time is not known: with the profiler it is"


def looped(steps: int = 20) -> Profile:
    late = {"step": 7, "phase": "other", "seconds": 0.3, "calls": 0, **SAVED}
    return profile_of([*rows(steps), late])


def sentence_of(made: Profile) -> str:
    return "".join(phrase.text for phrase in loop_clause(made))


def footer_of(made: Profile) -> str:
    """What stands about the phases below the tables."""
    return plain(next(loop_footer(made)))


def test_the_sentence_says_what_a_step_is_made_of_and_which_took_long() -> None:
    said = plain(document(looped()).sentence)
    assert said == (
        "a step takes 48.5 ms on average (median 33.5 ms): 41 % is the backward pass at In[1]:5; "
        "step 7 took 10 times the median, 90 % of it at In[1]:9 for _ in range(20):"
    )


def test_where_mean_and_median_differ_both_are_said_and_shares_are_of_the_mean() -> None:
    late = [{"step": at, "phase": "other", "seconds": 0.1, "calls": 0, **SAVED} for at in range(4, 20, 5)]
    made = profile_of([*rows(20, dict.fromkeys(USUAL, 0.0001)), *late])
    shown = document(made)
    said = plain(shown.sentence)
    assert said.startswith("a step takes 20.5 ms on average (median 500 µs): 98 % is other code at In[1]:9; step ")
    (table,) = (each for each in shown.tables if each.name == "phases")
    assert [column.name for column in table.columns][1:4] == ["median", "mean", "share"]
    assert plain(document(profile_of(rows(20))).sentence).startswith("a step takes 33.5 ms: ")


@pytest.mark.parametrize(("seconds", "said"), [(0.006, "backward pass, 77 % of it at"), (0.0001, "backward pass at")])
def test_a_line_that_has_not_all_of_a_phase_is_said_with_its_share(seconds: float, said: str) -> None:
    other = [{"step": at, "phase": "backward", "seconds": seconds, "calls": 1, **SAVED} for at in range(20)]
    assert f" is the {said} In[1]:5" in sentence_of(profile_of([*rows(20), *other]))


def slowed(other: float, recording: float, **took: float) -> Profile:
    """20 steps with so many seconds of other code on line 9, of which recording is estimated to have added so many."""
    late = {"phase": "other", "calls": 0, "seconds": other, "recording_seconds": recording, **SAVED}
    return profile_of([*rows(20, took), *({"step": step, **late} for step in range(20))])


@pytest.mark.parametrize(
    ("other", "recording", "said"),
    [
        (0.1, 0.001, "a step takes 134 ms: 75 % is other code at In[1]:9"),
        (
            0.1,
            0.095,
            f"a step takes 134 ms with the profiler; {UNKNOWN} other (75 %), without it probably backward",
        ),
        (0.1, 0.045, f"a step takes 134 ms with the profiler; {UNKNOWN} other (75 %)"),
        (0.03, 0.029, "a step takes 63.5 ms with the profiler; without it 41 to 60 % is the backward pass at In[1]:5"),
        (1.0, 0.15, "a step takes 1.03 s with the profiler; without it 95 to 97 % is other code at In[1]:9"),
        (0.9, 0.34, "a step takes 934 ms with the profiler; without it 60 to 96 % is other code at In[1]:9"),
    ],
)
def test_shares_of_phases_are_those_without_what_recording_added(other: float, recording: float, said: str) -> None:
    made = slowed(other, recording)
    assert sentence_of(made) == said
    assert ("include what the profiler added" in footer_of(made)) == ("with the profiler" in said)


def test_a_share_that_may_be_the_same_without_recording_is_said_as_it_was_recorded() -> None:
    parts = profile_of(rows(20)).phases_by_line
    added = parts["seconds"].where(parts["phase"].isin(["forward", "backward"]), 0.0) / 5
    said = sentence_of(replace(profile_of(rows(20)), phases_by_line=parts.assign(recording_seconds=added)))
    assert said == "a step takes 33.5 ms with the profiler: 60 % is the backward pass at In[1]:5"


def test_a_line_that_recording_may_have_made_the_first_of_its_phase_is_not_named() -> None:
    """Of the backward pass 60 ms stand on line 9, a third of them added, and 50 ms on line 5."""
    late = {"phase": "backward", "calls": 0, "seconds": 0.06, "recording_seconds": 0.02, **SAVED}
    steps = rows(20, {"backward": 0.05})
    said = sentence_of(profile_of([*steps, *({"step": step, **late} for step in range(20))]))
    assert said.endswith("is the backward pass")


@pytest.mark.parametrize(("recording", "is_told"), [(0.02, True), (0.29, False)])
def test_a_step_that_recording_may_have_made_long_is_not_told(recording: float, is_told: bool) -> None:
    late = {"step": 7, "phase": "other", "seconds": 0.3, "calls": 0, "recording_seconds": recording, **SAVED}
    slow = [{"step": at, "phase": "forward", "seconds": 0.004, "recording_seconds": 0.004, **SAVED} for at in range(20)]
    assert ("step 7 took" in sentence_of(profile_of([*rows(20), *slow, late]))) == is_told


def looked(*looks: tuple[int | None, int], seconds: float = 0.04) -> Profile:
    """20 steps, most of each in `other`, which is on these lines by so many looks; the rest of it no look saw."""
    other = {"phase": "other", "calls": 0, "cell": 1, "file": "<cell>"}
    unseen = [{**other, "step": step, "seconds": seconds, "looks": 0} for step in range(20)]
    seen = [
        {**other, "step": 3, "seconds": 1e-6, "looks": n, "line": line, "source_id": None if line is None else "ab"}
        for line, n in looks
    ]
    return profile_of([*rows(20), *unseen, *seen])


def line_of_other(made: Profile) -> str:
    table = phases_table(made)
    assert table is not None
    return next(row.cells[3].text for group in table.groups for row in group.rows if row.key == "other")


def test_the_share_of_a_line_that_was_looked_at_is_of_all_looks_that_fell_into_the_phase() -> None:
    made = looked((9, 15), (10, 8), (None, 2))
    assert line_of_other(made) == "In[1]:9 ≥ 60 %"
    assert line_of_other(looked((9, 15), (10, 10))) == "In[1]:9 60 %"
    shown = document(made)
    assert plain(shown.sentence).startswith("a step takes 73.5 ms: 54 % is other code")
    assert "is other code at" not in plain(shown.sentence)
    assert "from samples of the stack" in plain(shown.footer[0])
    assert "is other code at In[1]:9" in sentence_of(looked((9, 25)))
    assert "from samples of the stack" not in footer_of(looped())


def test_of_few_looks_their_number_is_said_and_no_share() -> None:
    assert line_of_other(looked((9, 3), (10, 1))) == "In[1]:9, 3 of 4 samples"
    assert line_of_other(looked((9, 1))) == "In[1]:9, 1 of 1 sample"
    assert line_of_other(looked()) == ""


def test_where_more_looks_fell_on_no_line_than_on_any_none_is_named() -> None:
    """Python code makes looks wait, and they then see the sleep after it: that is not where the time is."""
    made = looked((9, 2), (None, 7))
    assert line_of_other(made) == "no line in 7 of 9 samples"
    assert "Samples that Python code delayed are on no line" in footer_of(made)
    assert "Samples that Python code delayed" not in footer_of(looked((9, 7)))


def test_a_long_first_step_is_told_below_the_table_with_its_cause() -> None:
    first = {"step": 0, "phase": "other", "seconds": 0.6, "calls": 0, "looks": 5, **SAVED}
    unknown = {"step": 0, "phase": "other", "seconds": 0.1, "calls": 0, "looks": 1}
    made = profile_of([*rows(20), first, unknown])
    shown = document(made)
    told = [plain(line) for line in shown.footer]
    assert any(
        line.startswith("The first step took 22 times the median, at least 82 % of it at In[1]:9") for line in told
    ), told
    assert "22 times" not in plain(shown.sentence)


def test_a_long_step_on_no_line_is_told_without_one() -> None:
    for step, told in ((0, "The first step took 22 times the median"), (7, "step 7 took 22 times the median")):
        late = {"step": step, "phase": "other", "seconds": 0.7, "calls": 0, "looks": 1}
        made = document(profile_of([*rows(20), late]))
        assert f"{told}, 95 % of it in other code" in " ".join(plain(line) for line in (made.sentence, *made.footer))


def test_what_the_steps_leave_of_the_cell_is_said_where_no_line_has_it() -> None:
    made = looked((9, 25))
    only_phases = replace(made, wall_time=2.0, options=replace(made.options, phases=True))
    told = [plain(each) for each in document(only_phases).footer]
    assert "The steps take 1.47 s of the 2.00 s that the cell took." in told
    whole = replace(only_phases, wall_time=1.5)
    assert not [each for each in document(whole).footer if "The steps take" in plain(each)]


def test_steps_that_took_long_are_not_named_where_others_had_the_processor() -> None:
    assert "step 7" not in plain(document(replace(looped(), warnings=[Doubt("busy", "Busy machine.")])).sentence)


def test_every_carrier_has_the_phases() -> None:
    made = looped()
    for text in (str(made), made.to_markdown(), made.to_html()):
        for phase in ("input", "forward", "backward", "optimizer", "zero_grad", "other"):
            assert phase in text
    (table,) = (each for each in document(made).tables if each.name == "phases")
    at = [column.name for column in table.columns].index("share")
    shares = [row.cells[at].value for group in table.groups for row in group.rows]
    assert abs(sum(float(str(share)) for share in shares) - 1) < 1e-9


def test_the_picture_has_a_strip_a_step_and_as_much_of_each_phase_as_it_took() -> None:
    made = profile_of(rows(4))
    picture = step_strips(made)
    root = ET.fromstring(picture[picture.index("<svg") : picture.index("</svg>") + 6])
    drawn = {str(each.get("color")): str(each.get("d")) for each in root.iter() if each.tag == "path"}
    hues = {"forward": "#2468b0", "backward": "#5b9bd5"}
    found = {name: re.findall(r"v([\d.]+)", drawn[hue]) for name, hue in hues.items()}
    height = {name: [*map(float, each)] for name, each in found.items()}
    assert [len(each) for each in height.values()] == [4, 4]
    assert all(abs(back / forth - 2) < 0.05 for forth, back in zip(*height.values(), strict=True))


def test_many_steps_share_strips_and_a_step_that_goes_beyond_is_marked() -> None:
    many = step_strips(profile_of(rows(400)))
    assert "3 a strip (their mean)" in many
    assert len(many) < 30_000
    assert 'class="cut"' in step_strips(looped())
    assert 'class="cut"' not in step_strips(profile_of(rows(20)))


def test_without_steps_there_is_no_table_and_no_picture() -> None:
    made = profile_of([], wall=1.0)
    assert step_strips(made) == ""
    assert plain(document(made).sentence) == "no training loop steps in 1.00 s"
    assert not [each for each in document(made).tables if each.name == "phases"]


def test_the_text_of_a_line_is_never_markup() -> None:
    made = replace(looped(), sources={"ab": Source("ab", "<cell>", "\n" * 8 + "<script>alert(1)</script>", cell=1)})
    assert "<script>alert" not in made.to_html()


def test_two_profiles_have_their_phases_side_by_side() -> None:
    diff = ProfileDiff(profile_of(rows(10)), profile_of(rows(10, {"input": 0.021})), ("before", "after"))
    (table,) = (each for each in diff_document(diff).tables if each.name == "phases")
    values = {row.cells[0].text: [cell.value for cell in row.cells[1:]] for group in table.groups for row in group.rows}
    assert values["input"] == [pytest.approx(0.001), pytest.approx(0.021), pytest.approx(0.02)]
    assert values["step"] == [pytest.approx(0.0335), pytest.approx(0.0535), pytest.approx(0.02)]
    assert [column.label for column in table.columns[1:3]] == ["before", "after"]
    without = ProfileDiff(profile_of([], wall=1.0), profile_of(rows(10)), ("before", "after"))
    assert not [each for each in diff_document(without).tables if each.name == "phases"]
