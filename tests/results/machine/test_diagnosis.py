"""The order of findings, and the diagnosis as a frame, as JSON and as text."""

from __future__ import annotations

import json
import math
import pickle

from torchbench_magic.diagnosis.findings import Diagnosis, Finding, SelfTest

OK = Finding("threads", "ok", "torch uses 2 threads on 2 usable cores.", "torch.get_num_threads() 2")
LOAD = Finding(
    "outside load", "warn", "Other processes use 1.20 of 2 cores: absolute times are unreliable.", "in 0.5 s", "Wait."
)
MEMORY = Finding("memory", "warn", "Memory is scarce: 1 of 9 GiB.", "/proc/meminfo", "Free memory.")
UNKNOWN = Finding("turbo", "not available", "Whether turbo is on is unknown.")
NOVEL = Finding("something new", "warn", "Something is new.", "", "Look.")
QUIET = Finding("outside load", "ok", "Other processes use 0.02 of 2 cores.")
TEST = SelfTest("product", 2e-4, 1.001, 0.98, 1.02, "undecided", 1.3)


def test_what_spoils_most_comes_first_and_what_is_well_last() -> None:
    made = Diagnosis((OK, UNKNOWN, NOVEL, MEMORY, LOAD))
    assert [one.kind for one in made.findings] == ["outside load", "memory", "something new", "turbo", "threads"]
    assert made.warnings == (LOAD, MEMORY, NOVEL)


def sentence(made: Diagnosis) -> str:
    return str(made).partition("\n\n")[0].replace("\n", " ")


def test_the_sentence_is_the_worst_or_that_the_machine_can_be_trusted() -> None:
    worst = "Other processes use 1.20 of 2 cores: absolute times are unreliable"
    assert sentence(Diagnosis((OK, LOAD))) == worst
    assert sentence(Diagnosis((OK, MEMORY, LOAD))) == f"{worst}; 1 more problem below"
    assert sentence(Diagnosis((NOVEL, MEMORY, LOAD))) == f"{worst}; 2 more problems below"
    trusted = "This machine is ready to measure: nothing was found that distorts a measurement"
    assert sentence(Diagnosis((OK, QUIET, UNKNOWN))) == trusted
    assert sentence(Diagnosis((QUIET,), (TEST,))) == trusted


def test_the_self_test_stands_below_with_what_it_resolves() -> None:
    said = str(Diagnosis((QUIET, LOAD), (TEST,)))
    assert "\n\nDifferences of 2.0 % or more can be resolved now (worst: product)\n\n" in said
    assert said.index("outside load: Wait.") < said.index("Differences of") < said.index("0.98 … 1.02")
    explored = Diagnosis((QUIET,), (TEST,)).explore()
    assert [table.name for table in explored.document.tables] == ["findings", "self-test"]
    assert "Differences of 2.0 % or more" in str(explored.table.spec["sentence"])


def test_a_machine_whose_load_is_not_known_is_not_called_trusted() -> None:
    unknown = Finding("outside load", "not available", "What other processes use is not known: no /proc/stat here.")
    said = "Nothing was found that distorts a measurement, but the load of other processes is unknown here"
    assert sentence(Diagnosis((OK, unknown))) == said


def test_a_self_test_without_an_interval_claims_no_resolution() -> None:
    without = SelfTest("stream", 1e-3, 4.2, math.nan, math.nan, "undecided", 1.3)
    made = Diagnosis((QUIET,), (TEST, without))
    assert made.smallest_effect == math.inf
    assert "No difference can be resolved now for stream\n" in str(made)
    assert "4.2" not in str(made), "a ratio without an interval is no figure"
    assert json.loads(made.to_json())["self_test"][1]["smallest_effect"] is None


def test_frame_json_and_pickle_hold_everything() -> None:
    made = Diagnosis((OK, LOAD), (TEST,), 0.6, 0.5, "CPU", partial=True)
    assert made.frame.to_dict("records")[0] == {
        "kind": "outside load", "state": "warn", "text": LOAD.text, "evidence": "in 0.5 s", "fix": "Wait.",
    }  # fmt: skip
    read = json.loads(made.to_json())
    assert [one["kind"] for one in read["findings"]] == ["outside load", "threads"]
    assert read["self_test"][0]["verdict"] == "undecided"
    assert read["partial"] is True
    assert pickle.loads(pickle.dumps(made)) == made


def test_text_and_html_show_each_finding_whole_with_its_fix() -> None:
    made = Diagnosis((OK, LOAD, UNKNOWN), (TEST,))
    words = " ".join(str(made).split())
    for part in ("not available", "outside load: Wait.", "product", "0.98 … 1.02"):
        assert part in words
    html = made._repr_mimebundle_()["text/html"]
    assert LOAD.text in html
    assert "Whether turbo is on is unknown." in html
    assert "| outside load" in made.to_markdown()
    assert len(max(str(made).splitlines(), key=len)) <= 100


def test_names_of_processes_cannot_steer_a_terminal() -> None:
    evil = Finding("outside load", "warn", "x", "most by \x1b[31mevil (pid 3) 0.90", "\x1b]0;title\x07")
    assert "\x1b" not in str(Diagnosis((evil,)))
    assert "\x1b" not in Diagnosis((evil,)).to_markdown()
    assert "\x1b" not in Diagnosis((evil,))._repr_mimebundle_()["text/html"]
