"""``%tdoctor`` in a shell: what it shows and keeps, its options, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from torchbench_magic.errors import Interrupted
from torchbench_magic.notebook.display import bundle_of
from torchbench_magic.notebook.option_parser import declared_options
from torchbench_magic.notebook.options import DoctorOptions
from torchbench_magic.tdoctor import examination
from torchbench_magic.tdoctor.findings import Diagnosis, SelfTest

Run = Callable[..., str]
VIEW = "application/vnd.jupyter.widget-view+json"
KNOWN = SelfTest("tiny operation", 1e-6, 1.0, 0.99, 1.01, "same", 1.2)


def test_it_shows_and_keeps_what_it_finds(loaded: InteractiveShell, run: Run) -> None:
    shown = run(loaded, "%tdoctor")
    made = loaded.user_ns["_tdoctor"]
    assert isinstance(made, Diagnosis)
    assert loaded.user_ns["Out"][1] is made
    assert shown.count("outside load") >= 1
    assert f"{len(made.findings)} findings in" in shown
    assert not made.self_test


def output_binds_the_result(shell: Any, run: Run) -> None:
    run(shell, "%tdoctor -o found")
    assert shell.user_ns["found"] is shell.user_ns["_tdoctor"]


def quiet_shows_nothing(shell: Any, run: Run) -> None:
    assert not run(shell, "%tdoctor -q").strip()
    assert shell.user_ns["_tdoctor"].findings
    assert not shell.user_ns["Out"]


def explore_shows_the_widget(shell: Any, run: Run) -> None:
    shell.kernel = object()  # what tells a kernel from a terminal
    published: list[Any] = []
    shell.display_pub.publish = lambda **sent: published.append(sent["data"])
    run(shell, "%tdoctor")
    run(shell, "%tdoctor -w")
    assert [VIEW in data for data in published] == [False, False, True]
    assert VIEW in bundle_of(shell, shell.user_ns["_tdoctor"], explore=True)[0]
    explorer = shell.user_ns["_tdoctor"].explore()
    explorer.table.state = {"tables": {"findings": {"selected": ["quota"]}}}
    assert explorer.rows["kind"].tolist() == ["quota"]
    del shell.display_pub.publish, shell.kernel


def self_test_compares_equal_code(shell: Any, run: Run) -> None:
    shown = run(shell, "%tdoctor --self-test")
    made = shell.user_ns["_tdoctor"]
    assert [one.name for one in made.self_test] == list(examination.CASES)
    assert "resolves from" in shown
    assert "can be resolved now" in " ".join(shown.split())


EFFECTS = {
    "output": output_binds_the_result,
    "quiet": quiet_shows_nothing,
    "explore": explore_shows_the_widget,
    "self_test": self_test_compares_equal_code,
}


def test_every_declared_option_has_an_effect_below() -> None:
    assert set(declared_options(DoctorOptions)) == set(EFFECTS)


@pytest.mark.parametrize(
    "option", [pytest.param(option, marks=[pytest.mark.slow] if option == "self_test" else []) for option in EFFECTS]
)
def test_an_option_has_its_effect(
    loaded: InteractiveShell, run: Run, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examination, "TEST_SECONDS", 0.05)
    EFFECTS[option](loaded, run)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("%tdoctor now", "UsageError: %tdoctor takes options only, not 'now'"),
        ("%tdoctor --selftest", "UsageError: %tdoctor has no option --selftest; write --self-test"),
        ("%tdoctor --baseline a", "UsageError: %tdoctor has no option --baseline: it is an option of"),
        ("%tdoctor -o taken", "UsageError: -o taken: taken holds a int, which is not replaced"),
        ("%tcompare --self-test", "UsageError: %tcompare has no option --self-test: it is an option of %tdoctor"),
    ],
)
def test_what_is_asked_wrongly_is_one_line_and_loses_nothing(
    loaded: InteractiveShell, run: Run, line: str, said: str
) -> None:
    loaded.user_ns["taken"] = 1
    shown = run(loaded, line)
    assert shown.startswith(said)
    assert shown.count("\n") == 1
    assert loaded.user_ns["taken"] == 1
    assert "_tdoctor" not in loaded.user_ns


def test_an_interrupted_self_test_shows_and_keeps_what_there_is(
    loaded: InteractiveShell, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(progress: object) -> Any:
        yield KNOWN
        raise Interrupted(None)

    monkeypatch.setattr(examination, "self_tests", stopped)
    shown = run(loaded, "%tdoctor --self-test -o kept")
    made = loaded.user_ns["kept"]
    assert made is loaded.user_ns["_tdoctor"]
    assert made.partial
    assert made.self_test == (KNOWN,)
    assert "It was interrupted: this is what was measured until then." in " ".join(shown.split())
    assert "KeyboardInterrupt" in shown


def test_the_progress_of_the_self_test_is_told(
    loaded: InteractiveShell, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def telling(progress: Any) -> Any:
        progress.update(0.0, 1.0, "x")
        told.append(type(progress).__name__)
        yield KNOWN

    monkeypatch.setattr(examination, "self_tests", telling)
    run(loaded, "%tdoctor --self-test")
    run(loaded, "%tdoctor --self-test -q")
    assert told == ["Output", "_NoProgress"]


def test_the_help_has_the_options(loaded: InteractiveShell, run: Run) -> None:
    text = loaded.find_line_magic("tdoctor").__doc__
    assert "--self-test" in text
    assert "not available" in text
