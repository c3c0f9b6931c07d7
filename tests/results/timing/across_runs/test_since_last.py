"""What changed since the last run: inputs, edited sources, alternatives that did not change, environments."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from torchbench_magic.errors import InputError
from torchbench_magic.process.contention import Contention
from torchbench_magic.storage.store import Store, load
from torchbench_magic.timing.across_runs import LAYOUT, side_by_side, since_last
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.identity import MOST_LINES, identity_differences, likeness, nearest_words, source_diffs
from torchbench_magic.timing.samples import Subject

from ...samples import HERE, lone, made, pair

QUIET = Contention(wall=1.0, pressure=0.0, steal=0.0, ext=0.0, wanted=1.0, waiting=0.0)
X = (("x", "4 × 8 float32"),)


def two(manual: float, sdpa: float, *, edited: str = "", seed: int = 0, **more: object) -> Comparison:
    """``manual`` and ``sdpa`` side by side; ``edited`` is the id of a function that only manual calls."""
    subjects = (
        Subject(description="manual", label="L", stmt="f(x)", functions=(("f", edited),), inputs=X, contention=QUIET),
        Subject(description="sdpa", label="L", stmt="g(x)", inputs=X, contention=QUIET),
    )
    return made(*subjects, medians=(manual, sdpa), seed=seed, **more)  # type: ignore[arg-type]


def texts(result: Comparison, kind: str) -> list[str]:
    return [doubt.text for doubt in result.warnings if doubt.kind == kind]


# ---- inputs ------------------------------------------------------------------------------------------------


def test_a_run_on_other_inputs_is_no_repetition_and_says_in_words_what_differs() -> None:
    before, now = lone(1e-6, inputs=X), lone(1e-4, inputs=(("x", "4000 × 8 float32"),), seed=1)
    assert identity_differences(before, 0, now, 0) == ["`x` was 4 × 8 float32, is 4000 × 8 float32"]
    assert likeness(before, 0) != likeness(now, 0)
    found = since_last(now, {0: (before, 0)})
    assert texts(found, "changed") == ["Since the last stored run: `x` was 4 × 8 float32, is 4000 × 8 float32."]
    assert not texts(found, "unchanged")


@pytest.mark.parametrize(
    ("then", "words"),
    [
        ({"num_threads": 2}, "threads: 2 -> 1"),
        ({"env": "old"}, "env: old -> none"),
        ({"setup": "y = 1"}, "setup, line 1: y = 1 -> none"),
        ({"label": "L"}, "label: L -> none"),
        (
            {"sub_label": "s", "environment": replace(HERE, torch="2.14.0")},
            "sub-label: s -> none; torch: 2.14.0 -> 2.13.0",
        ),
        (
            {"stmt": "g(x)", "inputs": (("x", "5 float32"),)},
            "source, line 1: g(x) -> f(x); `x` was 5 float32, is 4 × 8 float32",
        ),
    ],
)
def test_what_tells_a_run_from_the_nearest_stored_one_is_said(then: dict[str, object], words: str) -> None:
    now, far = lone(1e-3, inputs=X), lone(1e-3, "h(z)", inputs=X, env="E", num_threads=4, setup="z = 1", seed=2)
    near = lone(1e-3, **{"inputs": X, "seed": 1, **then})  # type: ignore[arg-type]
    assert nearest_words(now, 0, [far, near, now]) == f"the nearest differs in {words}"
    assert nearest_words(now, 0, [now]) == ""
    both = pair(1e-3, 2e-3)
    assert nearest_words(both, 0, [both]) == ""  # its other row is no other run
    with pytest.raises(InputError, match=r"matches this result: the nearest differs in threads: 2 -> 1$"):
        since_last(now, {}, {0: "the nearest differs in threads: 2 -> 1"})


def test_inputs_that_were_not_recorded_are_said_not_to_be_known() -> None:
    found = since_last(lone(1e-3, inputs=X, seed=1), {0: (lone(1e-3), 0)})
    (text,) = texts(found, "unchanged")
    assert "the shapes of its inputs were not recorded" in text
    (text,) = texts(since_last(lone(1e-3, inputs=X, seed=1), {0: (lone(1e-3, inputs=X), 0)}), "unchanged")
    assert text == "Since the last stored run: source, inputs, options and environment are the same."


def test_a_value_that_changed_is_told_by_how_the_code_says_it() -> None:
    before = lone(1e-6, inputs=X, values=(("cfg", "contents a", ""), ("cfg['size']", "10", ""), ("mode", "text a", "")))
    now = lone(
        1e-4,
        inputs=X,
        values=(("cfg", "contents b", ""), ("cfg['size']", "10000", ""), ("mode", "text b", "")),
        seed=1,
    )
    told = ["`cfg` holds other values", "`cfg['size']` was 10, is 10000", "`mode` is a different text"]
    assert identity_differences(before, 0, now, 0) == told
    assert likeness(before, 0) != likeness(now, 0)
    assert texts(since_last(now, {0: (before, 0)}), "changed") == [f"Since the last stored run: {'; '.join(told)}."]


def test_what_only_one_of_the_runs_found_is_no_likeness() -> None:
    """As after ``mymod.f = lambda: ...``: the function's own text is not recorded, its replacement is."""
    before = lone(1e-6, inputs=X, values=(("k", "2", ""),))
    now = lone(1e-4, inputs=X, values=(("k", "2", ""), ("mymod.f", "code a", "")), seed=1)
    assert identity_differences(before, 0, now, 0) == ["the code reads other values (`mymod.f`)"]
    assert texts(since_last(now, {0: (before, 0)}), "unchanged") == []


def test_a_difference_is_told_once_by_its_shape_where_that_tells_it() -> None:
    before = lone(1e-6, inputs=(("d", "list of 1"),), values=(("d", "contents a", ""),))
    now = lone(1e-6, inputs=(("d", "list of 2"),), values=(("d", "contents b", ""),), seed=1)
    assert identity_differences(before, 0, now, 0) == ["`d` was list of 1, is list of 2"]


def test_a_run_without_values_has_the_likeness_that_it_had() -> None:
    assert likeness(lone(1e-6, inputs=X, values=()), 0) == likeness(lone(1e-6, inputs=X), 0)


def test_what_was_not_compared_is_said_where_nothing_else_changed() -> None:
    file, log = ("f", "contents a", "TextIOWrapper"), ("log", "", "the code changes it")
    now = lone(1e-3, inputs=X, values=(file, log, ("k", "2", "")), seed=1)
    (text,) = texts(since_last(now, {0: (lone(1e-3, inputs=X, values=now.subjects[0].values), 0)}), "unchanged")
    said = "`log` (the code changes it), `f` (TextIOWrapper)"
    assert text.endswith(f"environment are the same. Not compared: {said}.")
    (text,) = texts(since_last(now, {0: (lone(1e-3, inputs=X), 0)}), "unchanged")
    assert text.endswith("Not compared: `f` (not recorded then), `log` (not recorded then), `k` (not recorded then).")


def test_inputs_and_sources_are_kept_in_a_store_and_an_old_record_has_none(tmp_path: Path) -> None:
    values = (("cfg['n']", "1", ""), ("f", "contents a", "TextIOWrapper"))
    more: dict[str, object] = {"values": values, "given_values": values}
    result = lone(1e-3, inputs=X, given=X, **more, functions=(("f", "1"),), sources={"1": "def f(x): ..."})
    store = Store(tmp_path / "s.sqlite")
    store.append(result, lone(2e-3, seed=1))
    first, second = load(store.path)
    assert isinstance(first, Comparison)
    assert isinstance(second, Comparison)
    assert (first.subjects[0].inputs, first.subjects[0].given, first.sources) == (X, X, {"1": "def f(x): ..."})
    assert (first.subjects[0].values, first.subjects[0].given_values) == (values, values)
    assert second.subjects[0].inputs is None
    assert second.subjects[0].values is None


# ---- edited source -----------------------------------------------------------------------------------------

OLD = "def f(x):\n    y = x * 2\n    return y.sum()\n"
NEW = "def f(x):\n    y = x * 2\n    y = y + 1\n    return y.mean()\n"


def edited_pair() -> tuple[Comparison, Comparison]:
    before = lone(1e-3, functions=(("f", "1"),), sources={"1": OLD})
    return before, lone(1e-3, functions=(("f", "2"),), sources={"2": NEW}, seed=1)


def test_an_edited_function_is_shown_as_a_diff() -> None:
    before, now = edited_pair()
    context, new = (" def f(x):", "     y = x * 2"), ("+    y = y + 1", "+    return y.mean()")
    diff = ("@@ -1,3 +1,4 @@", *context, "-    return y.sum()", *new)
    assert source_diffs(before, 0, now, 0) == {"source of f": diff}
    found = since_last(now, {0: (before, 0)})
    assert texts(found, "changed") == ["Since the last stored run: source of f, line 3: return y.sum() -> y = y + 1."]
    shown = str(found)
    assert "f was edited: 1 line removed, 2 lines added" in shown
    for line in diff[1:]:
        assert line.strip() in shown


def test_a_diff_is_escaped_in_html() -> None:
    before, now = edited_pair()
    now = replace(now, sources={"2": NEW.replace("y.mean()", "'<script>alert(1)</script>'")})
    html = since_last(now, {0: (before, 0)})._repr_mimebundle_()["text/html"]
    assert "<script>alert(1)" not in html
    assert "&lt;script&gt;alert(1)" in html


def test_a_long_diff_is_cut_and_says_so() -> None:
    before, now = (lone(1e-3, "\n".join(f"f({i + by})" for i in range(100)), label="L") for by in (0, 1000))
    (lines,) = source_diffs(before, 0, now, 0).values()
    assert len(lines) == MOST_LINES + 1
    assert lines[-1] == f"… {201 - MOST_LINES} more lines"


# ---- an alternative that did not change --------------------------------------------------------------------


def test_an_unchanged_alternative_is_the_yardstick_between_two_runs() -> None:
    before, now = two(1.21e-3, 1e-3), two(5.04e-3, 2e-3, edited="2", seed=1)  # the machine is at half its speed
    found = since_last(now, {0: (before, 0), 1: (before, 1)})
    row = found.frame.iloc[2]
    assert (row["description"], row["verdict"], row["method"]) == ("manual", "slower", "unpaired")
    assert row["ratio"] == pytest.approx(2.52 / 1.21, rel=0.01)
    assert row["ratio_low"] < row["ratio"] / LAYOUT < row["ratio"] * LAYOUT < row["ratio_high"]
    (text,) = texts(found, "unpaired-verdict")
    assert "`manual` is slower: relative to `sdpa`, which did not change: 1.21 times its time then, 2.52 times" in text


def test_a_ratio_of_ratios_within_what_runs_differ_by_is_undecided_and_said_in_words() -> None:
    found = since_last(two(1.26e-3, 1e-3, edited="2", seed=1), {at: (two(1.21e-3, 1e-3), at) for at in (0, 1)})
    assert found.frame["verdict"].iloc[2] == "undecided"
    (text,) = [text for text in texts(found, "unpaired") if "relative to" in text]
    assert "1.21 times its time then, 1.26 times now" in text


@pytest.mark.parametrize(
    "other",
    [
        {"environment": replace(HERE, torch="2.14.0")},
        {"environment": replace(HERE, variables={"OMP_NUM_THREADS": "1"})},
    ],
)
def test_an_alternative_in_another_environment_is_no_yardstick(other: dict[str, object]) -> None:
    before, now = two(1e-3, 1e-3), two(2.2e-3, 1e-3, edited="2", seed=1, **other)
    found = since_last(now, {0: (before, 0), 1: (before, 1)})
    assert found.frame["verdict"].iloc[2] == "undecided"
    assert not [d for d in found.warnings if "through" in d.text]


def test_an_alternative_that_was_given_something_else_is_no_yardstick() -> None:
    before, now = two(1e-3, 1e-3), two(2.2e-3, 1e-3, edited="2", seed=1)
    now = replace(now, subjects=tuple(replace(s, inputs=(("x", "5 float32"),)) for s in now.subjects))
    found = since_last(now, {0: (before, 0), 1: (before, 1)})
    assert not [d for d in found.warnings if "through" in d.text]


def test_an_alternative_whose_inputs_are_not_known_is_no_yardstick() -> None:
    before, now = pair(1e-3, 1e-3), pair(2.2e-3, 1e-3, seed=1)
    assert not [d for d in side_by_side({"a": before, "b": now}).warnings if "through" in d.text]


def test_a_yardstick_that_was_held_up_gives_no_verdict() -> None:
    held = replace(QUIET, ext=1.5, wanted=2.0, waiting=0.5)
    before, now = two(1e-3, 1e-3), two(9e-3, 1e-3, edited="2", seed=1)
    before, now = (
        replace(one, subjects=tuple(replace(s, num_threads=2, contention=by) for s in one.subjects))
        for one, by in ((before, QUIET), (now, held))
    )
    found = since_last(now, {0: (before, 0), 1: (before, 1)})
    assert found.frame["verdict"].iloc[2] == "undecided"


# ---- environments ------------------------------------------------------------------------------------------


def test_by_env_compares_environments_and_not_ten_runs_with_the_first() -> None:
    old = [lone(1e-3 * (1 + i / 100), env="old", seed=i, contention=QUIET) for i in range(5)]
    new = [lone(4e-3 * (1 + i / 100), env="new", seed=9 + i, contention=QUIET) for i in range(5)]
    mixed = {f"r[{at}]": one for at, one in enumerate(x for both in zip(old, new, strict=True) for x in both)}
    found = side_by_side(mixed, by="env")
    assert list(found.frame["env"]) == ["old", "new"]
    assert list(found.frame["result"]) == ["r[8]", "r[9]"]
    assert list(found.frame["verdict"]) == ["baseline", "slower"]
    (text,) = texts(found, "earlier-runs")
    assert text == "The latest run of each environment is compared; 8 earlier rows are not shown."
    assert math.isclose(found.frame["ratio"].iloc[1], 4, rel_tol=0.01)


def test_the_first_env_stays_the_baseline_when_its_latest_run_is_the_newest() -> None:
    runs = {"a": lone(1e-3, env="old"), "b": lone(1e-3, env="new", seed=1), "c": lone(1e-3, env="old", seed=2)}
    assert list(side_by_side(runs, by="env").frame["env"]) == ["old", "new"]
