"""Every result as JSON: of the published schema, strict, in ASCII, bounded, and saying what was left out."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.test_hostile_texts import RESULTS as HOSTILE_RESULTS
from tests.timing.test_view import COMPILED, DIFFERS, EQUAL, tried
from torchbench_magic.errors import OptionError
from torchbench_magic.process.values_between_runs import CHANGES
from torchbench_magic.profiling.options import ProfileOptions
from torchbench_magic.profiling.schema import COMPILATION_COLUMNS, GRAPH_BREAK_COLUMNS, LOOP_COLUMNS, frame_of
from torchbench_magic.result_base import Doubt, Shown
from torchbench_magic.show.json_output import FEW, FEW_BYTES, MOST_BYTES
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.samples import Trial

from .builders import HOSTILE, comparison_of, profile_of
from .test_outputs_stay import RESULTS

ROOT = Path(__file__).parents[2]
JSON_RESULTS = {
    name: make for name, make in RESULTS.items() if name not in ("torch_compare", "counts", "timeline", "page")
}


@cache
def schema() -> dict[str, Any]:
    text = (files("torchbench_magic.show") / "result-1.schema.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    jsonschema.Draft202012Validator.check_schema(found)
    return found


@cache
def validator() -> Any:
    return jsonschema.Draft202012Validator(schema())


def read(text: str) -> dict[str, Any]:
    """The JSON, of the schema; NaN and infinities are refused as the standard has them not."""

    def refused(name: str) -> Any:
        raise AssertionError(f"{name} is no JSON")

    made: dict[str, Any] = json.loads(text, parse_constant=refused)
    validator().validate(made)
    return made


@pytest.mark.parametrize("name", JSON_RESULTS)
def test_every_result_is_of_the_published_schema_and_keeps_a_bound_of_ones_own(name: str) -> None:
    result = JSON_RESULTS[name]()
    text = result.to_json()
    made = read(text)
    assert made["kind"] == type(result).__name__
    assert made["sentence"]
    assert len(text) <= MOST_BYTES
    assert text.isascii()
    assert "<" not in text
    for most in (2048, 3000, 5000):
        bounded = result.to_json(max_bytes=most)
        assert len(bounded) <= most
        read(bounded)


def test_the_schema_sees_what_is_wrong() -> None:
    for change in ({"version": 2}, {"doubts": [{"kind": "x"}]}, {"more": 1}, {"alternatives": [{"name": "a"}]}):
        made = json.loads(comparison_of().to_json()) | change
        with pytest.raises(jsonschema.ValidationError):
            validator().validate(made)


def test_every_class_of_results_has_it() -> None:
    known = {type(make()).__name__ for make in JSON_RESULTS.values()}
    assert known == set(schema()["properties"]["kind"]["enum"])
    assert {kind.__name__ for kind in _below(Shown)} - {"Storable"} == known


def _below(kind: type) -> set[type]:
    return {
        each
        for sub in kind.__subclasses__()
        for each in (sub, *_below(sub))
        if each.__module__.startswith("torchbench_magic")
    }


def test_a_comparison_says_what_a_person_reads() -> None:
    made = comparison_of(warnings=[Doubt("busy", "Others computed.", "Wait.")])
    said = read(made.to_json())
    assert said["sentence"] == str(made).splitlines()[0] or said["sentence"] in " ".join(str(made).split())
    row = said["alternatives"][1]
    frame = made.frame.iloc[1]
    assert (row["name"], row["verdict"], row["baseline"]) == ("mul_sum", "faster", "bmm")
    for name in ("median", "ratio", "ratio_low", "ratio_high"):
        assert row[name] == pytest.approx(frame[name], rel=1e-5)
    assert said["doubts"] == [{"kind": "busy", "text": "Others computed.", "action": "Wait."}]
    assert said["environment"]["torch"] == "2.13.0+cpu"
    assert said["verdicts"] == {"faster": 2}
    assert said["repeat"]["cell"].startswith("%%timer -t 1,2\n")
    assert "# --- mul_sum\nf(x)" in said["repeat"]["cell"]


def test_a_few_alternatives_take_no_more_than_4_kb_whatever_they_are_called() -> None:
    names = tuple(f"{n}{text}" for n, text in enumerate(HOSTILE[:3]))
    doubts = [Doubt(f"kind-{n}", "text " * 200, "act " * 200) for n in range(20)]
    made = comparison_of(
        [("x" * 5000, 1, (1e-6, 2e-6, 3e-6)), ("y", 1, (1e-6, 2e-6, 3e-6))],
        names,
        warnings=doubts,
        stmt="f(x)\n" * 3000,
    )
    assert len(made.frame) == FEW
    text = made.to_json()
    assert len(text) <= FEW_BYTES
    said = read(text)
    assert said["left_out"]["doubts"] >= 15
    assert [row["verdict"] for row in said["alternatives"]][:1] == ["baseline"]


def test_a_large_sweep_is_bounded_and_says_how_much_is_not_there() -> None:
    points = [(f"n={n}", 1, (1e-6, 2e-6)) for n in range(300)]
    made = comparison_of(points, axes=[(("n", n),) for n in range(300)], samples=6)
    text = made.to_json()
    said = read(text)
    assert len(text) <= MOST_BYTES
    assert len(said["alternatives"]) + said["left_out"]["alternatives"] == 600
    assert sum(said["verdicts"].values()) == 300, "verdicts are of all of them"
    assert len(json.loads(made.to_json(max_bytes=200_000))["alternatives"]) == 600


@pytest.mark.parametrize("most", [0, 100, -1, True, 1e6, "4096"])
def test_a_bound_that_no_result_fits_is_refused(most: Any) -> None:
    with pytest.raises(OptionError, match="max_bytes"):
        comparison_of().to_json(max_bytes=most)


@pytest.mark.parametrize("kind", HOSTILE_RESULTS)
def test_texts_of_users_are_escaped_as_json_does(kind: str) -> None:
    text = HOSTILE_RESULTS[kind]().to_json()
    assert text.isascii()
    assert text.isprintable()
    read(text)


def test_a_name_that_is_markup_comes_back_as_it_was() -> None:
    made = comparison_of([(None, 1, (1e-6, 2e-6))], ("</script><b>", 'a "quoted" \\ name'))
    said = read(made.to_json())
    assert [row["name"] for row in said["alternatives"]] == ["</script><b>", 'a "quoted" \\ name']


def test_a_lever_whose_result_differs_is_not_only_faster() -> None:
    made = tried(bf16=(0.4, DIFFERS), no_grad=(0.8, EQUAL), compile=(0.5, COMPILED), foreach=(0.5, Trial()))
    said = read(made.to_json())
    base, bf16, no_grad, compiled, foreach = said["alternatives"]
    assert (bf16["verdict"], bf16["result"], bf16["max_difference"], bf16["recommended"]) == (
        "faster", "differs", 0.03, False,
    )  # fmt: skip
    assert (no_grad["result"], no_grad["max_difference"], no_grad["recommended"]) == ("equal", 0, True)
    assert (compiled["compile_time"], compiled["recommended"]) == (1.5, True)
    assert compiled["break_even"] == made.frame["break_even"].iloc[3]
    assert "result" not in foreach
    assert foreach["recommended"] is False
    assert not {"result", "recommended"} & base.keys()
    assert said["repeat"]["cell"].startswith("%%timer -t 1 --try bf16,no_grad,compile,foreach\n")


def test_six_alternatives_with_levers_take_no_more_than_4_kb() -> None:
    levers = {f"lever-{n}" * 12: (0.3 + 0.1 * n, COMPILED) for n in range(FEW - 1)}
    made = tried(**levers)
    object.__setattr__(made, "warnings", [Doubt(f"k{n}", "why " * 99, "do " * 50) for n in range(9)])
    text = made.to_json()
    assert len(text) <= FEW_BYTES
    assert len(read(text)["alternatives"]) == FEW


def test_doubts_about_numbers_come_before_levers_that_do_not_apply() -> None:
    kinds = ("lever", "busy", "noisy", "page-faults")  # a noisy row beside a busy machine is no doubt of its own
    said = read(comparison_of(warnings=[Doubt(kind, "a") for kind in kinds]).to_json())
    assert [doubt["kind"] for doubt in said["doubts"]] == ["busy", "page-faults", "lever"]


def test_a_profile_has_the_phases_of_its_loop() -> None:
    phases = {"step": [0, 0, 1, 1], "phase": ["input", "forward"] * 2, "seconds": [0.2, 0.3, 0.4, 0.1]}
    parts = frame_of(LOOP_COLUMNS, phases | {"cell": [3] * 4, "line": [5, 6] * 2, "source_id": ["cell"] * 4})
    said = read(profile_of(phases_by_line=parts).to_json())
    assert said["steps"] == 2
    assert [(each["phase"], each["seconds"], each["share"]) for each in said["phases"]] == [
        ("input", 0.6, 0.6),
        ("forward", 0.4, 0.4),
    ]
    assert [each["place"] for each in said["phases"]] == ["In[3]:5", "In[3]:6"]
    alone = profile_of(phases_by_line=parts, options=ProfileOptions(phases=True), wall_time=1.25)
    assert read(alone.to_json())["not_attributed"] == pytest.approx(0.25)
    assert (read(profile_of().to_json())["steps"], read(profile_of().to_json())["phases"]) == (0, [])


def test_a_profile_has_what_was_compiled_and_the_lines_that_broke_a_graph() -> None:
    compiled: dict[str, list[Any]] = {
        "compile_id": ["0/0", "0/1", "1/0"],
        "function": ["f", "f", "g"],
        "cell": [3, 3, 3],
        "line": [2, 2, 3],
        "seconds": [0.5, 2.0, float("nan")],
        "calls": [4, 1, 0],
        "kind": ["first", "recompile", "earlier"],
        "reason": [None, "`k` was 1 and is 2", None],
        "fell_back": [None, None, "its limit of compilations was reached"],
    }
    broken = {"cell": [3], "line": [7], "reason": ["print was called"], "hint": [None], "count": [2]}
    made = profile_of(
        compilations=frame_of(COMPILATION_COLUMNS, compiled), graph_breaks=frame_of(GRAPH_BREAK_COLUMNS, broken)
    )
    said = read(made.to_json())
    assert said["compilations"] == [
        {"function": "f", "place": "In[3]:2", "kind": "recompile", "seconds": 2.0, "calls": 1,
         "reason": "`k` was 1 and is 2"},
        {"function": "f", "place": "In[3]:2", "kind": "first", "seconds": 0.5, "calls": 4},
        {"function": "g", "place": "In[3]:3", "kind": "earlier", "calls": 0,
         "fell_back": "its limit of compilations was reached"},
    ]  # fmt: skip
    assert said["graph_breaks"] == [{"place": "In[3]:7", "reason": "print was called", "count": 2}]
    many = frame_of(COMPILATION_COLUMNS, {name: values * 40 for name, values in compiled.items()})
    assert len(profile_of(compilations=many).to_json()) <= MOST_BYTES


def test_a_cell_of_phases_alone_is_repeated_as_such() -> None:
    made = profile_of(cell_text="for x in loader:\n    step(x)", lines=(), ops=(), options=ProfileOptions(phases=True))
    assert read(made.to_json())["repeat"]["cell"].startswith("%%tprofile --phases\n")


def test_what_the_code_changes_is_needed_too() -> None:
    made = profile_of(inputs=(("x", "4 float32"),), values=(("log", "", CHANGES), ("cfg['n']", "3", "")))
    assert read(made.to_json())["repeat"]["needs"] == {"log": "the code changes it", "x": "4 float32"}


def test_what_has_no_end_is_not_there() -> None:
    made = replace(comparison_of([(None, 1, (1e-6, 2e-6))], samples=2), elapsed=float("nan"))
    said = read(made.to_json())
    assert said["elapsed"] is None
    assert "ratio_high" not in said["alternatives"][1]


def test_a_profile_has_its_lines_its_insights_and_its_cell() -> None:
    said = read(profile_of().to_json())
    assert said["lines"][0]["place"]
    assert said["operations"][0]["op"].startswith("aten::")
    assert said["repeat"]["cell"].startswith("%%tprofile")
    assert said["repeat"]["options"] == {"memory": True, "shapes": True}


def test_the_page_names_every_member() -> None:
    page = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    kinds = schema()["properties"]["kind"]["enum"]
    members = [*schema()["properties"], *(name for kind in kinds for name in schema()["$defs"][kind]["properties"])]
    members += [
        name for part in ("doubt", "insight", "environment", "repeat") for name in schema()["$defs"][part]["properties"]
    ]
    members += list(schema()["$defs"]["Comparison"]["properties"]["alternatives"]["items"]["properties"])
    for name in ("phases", "compilations", "graph_breaks", "lines"):
        members += list(schema()["$defs"]["Profile"]["properties"][name]["items"]["properties"])
    missing = sorted({name for name in members if f"`{name}`" not in page})
    assert not missing
    assert all(f"### {kind}" in page for kind in kinds)


def test_the_example_of_the_page_is_of_the_schema() -> None:
    page = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    _, _, example = page.partition("```json\n")
    made = read(example.partition("\n```")[0])
    assert made["kind"] == "Comparison"


def test_a_comparison_with_nothing_in_it_is_written_too() -> None:
    made = Comparison((), comparison_of().samples.iloc[:0], comparison_of().environment)
    said = read(made.to_json())
    assert said["alternatives"] == []
    assert said["repeat"]["cell"] is None
