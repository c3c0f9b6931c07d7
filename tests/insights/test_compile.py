"""What is said of compiling, on tables whose figures are known: when it speaks, and when it must not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.schema import COMPILATION_COLUMNS, GRAPH_BREAK_COLUMNS, frame_of
from torchbench_magic.result_base import Doubt, Insight

from .built import SOURCE, Did, Op, built_profile

TEXT = "%%tprofile\ndef f(x, n):\n    print(n)\n    return x * n\ng = torch.compile(f)\ng(x, 1)\ng(x, 2)\n"
NAMES = ("compile_id", "function", "line", "seconds", "kind", "reason", "argument", "before", "after", "fell_back")


def compiled(*rows: tuple[Any, ...], breaks: tuple[tuple[Any, ...], ...] = (), wall: float = 1.0) -> Profile:
    """A run of ``wall`` seconds that compiled these (values of `NAMES`), with graph breaks (line, reason, hint)."""
    did = {6: Did(1, wall / 2), 7: Did(1, wall / 2, [Op("aten::mul", 1, 1e-6)])}
    made = built_profile(TEXT, did)
    columns: dict[str, Any] = {name: [row[at] for row in rows] for at, name in enumerate(NAMES)}
    more = {"source_id": [SOURCE] * len(rows), "file": ["<cell>"] * len(rows), "cell": [1] * len(rows)}
    table = frame_of(COMPILATION_COLUMNS, {**columns, **more, "guard": [None] * len(rows)})
    broken = {name: [row[at] for row in breaks] for at, name in enumerate(("line", "reason", "hint"))}
    places = {"source_id": [SOURCE] * len(breaks), "file": ["<cell>"] * len(breaks), "count": [1] * len(breaks)}
    return replace(made, compilations=table, graph_breaks=frame_of(GRAPH_BREAK_COLUMNS, {**broken, **places}))


def row(number: str, line: int, seconds: float, kind: str = "first", **known: Any) -> tuple[Any, ...]:
    values = {"function": "f", "reason": None, "argument": None, "before": None, "after": None, "fell_back": None}
    values |= {"compile_id": number, "line": line, "seconds": seconds, "kind": kind} | known
    return tuple(values[name] for name in NAMES)


def said(profile: Profile) -> dict[str, Insight]:
    return {
        each.kind: each
        for each in profile.insights
        if each.kind in ("compiling", "recompiles", "graph-break", "fell-back")
    }


def again(seconds: float, reason: str, argument: str | None = "n", before: str | None = "1") -> tuple[Any, ...]:
    return row("0/1", 2, seconds, "recompile", reason=reason, argument=argument, before=before)


def test_compiling_says_how_much_of_the_run_and_of_which_function() -> None:
    found = said(compiled(row("0/0", 2, 0.3), row("1/0", 2, 0.1, function="h")))
    assert set(found) == {"compiling"}
    assert found["compiling"].seconds == pytest.approx(0.4)
    assert found["compiling"].share == pytest.approx(0.4, rel=0.01)
    assert "`f` 300 ms and `h` 100 ms" in found["compiling"].text
    assert found["compiling"].evidence["seconds_f"] == pytest.approx(0.3)
    assert "Run the cell again" in found["compiling"].cures[0].text


@pytest.mark.parametrize("rows", [(), (row("0/0", 2, 0.0),), (row("0/0", 2, 0.01),)])
def test_no_or_little_compiling_is_not_worth_a_word(rows: tuple[tuple[Any, ...], ...]) -> None:
    assert said(compiled(*rows)) == {}


CHANGES = (
    ("`n` was 1, now 2", "n", "1", "n = torch.tensor(n)"),
    ("`self.scale` was 2.0, now 3.0", "self.scale", "2.0", None),
    ("`x` had size 4 in dimension 1, now 9", "x", "4", "torch._dynamo.mark_dynamic(x, 1)"),
    ("`x` had 1 dimension, now 2", "x", "1", None),
    ("`x` was float32, now float64", "x", "float32", None),
    ("a value kept across the graph break changed", None, None, None),
    ("`net.training` was True, now False", "net.training", "True", None),
    ("whether gradients are recorded (`torch.no_grad`) changed", None, None, None),
)


@pytest.mark.parametrize(("reason", "argument", "before", "code"), CHANGES)
def test_a_recompile_names_what_changed_and_has_a_cure_for_that(
    reason: str, argument: str | None, before: str | None, code: str | None
) -> None:
    found = said(compiled(row("0/0", 2, 0.1), again(0.2, reason, argument, before)))["recompiles"]
    assert reason in found.text
    assert found.seconds == pytest.approx(0.2)
    assert found.places[0].line == 2
    assert found.cures
    assert code is None or code in [cure.code for cure in found.cures]
    words = {cure.text for cure in found.cures}
    assert any("fail_on_recompile" in str(cure.code) for cure in found.cures)
    assert len(words) == len(found.cures)


def test_a_first_compilation_is_no_recompile() -> None:
    assert "recompiles" not in said(compiled(row("0/0", 2, 0.9)))


def test_a_graph_break_names_its_line_its_reason_and_its_hint() -> None:
    rows = (row("0/0", 2, 0.1), row("1/0", 3, 0.2, "resume"))
    found = said(compiled(*rows, breaks=((3, "`print` cannot be compiled", "Move the `print` out"),)))["graph-break"]
    assert found.places[0].line == 3
    assert "`print` cannot be compiled" in found.text
    assert found.seconds == pytest.approx(0.2)
    assert found.cures[0].text == "Move the `print` out."
    assert "fullgraph=True" in found.cures[-1].text


def test_a_graph_break_after_which_little_is_compiled_is_not_worth_a_word() -> None:
    rows = (row("0/0", 2, 0.9), row("1/0", 3, 0.001, "resume"))
    assert "graph-break" not in said(compiled(*rows, breaks=((3, "`print` cannot be compiled", None),)))


def test_a_function_that_is_given_up_is_named_with_the_reason_and_a_cure() -> None:
    limit = row("0/2", 2, 0.0, "recompile", reason="`n` was 2, now 3", argument="n", before="2")
    limit = (*limit[:-1], "recompile_limit of 8 reached")
    found = said(compiled(row("0/0", 2, 0.5), again(0.2, "`n` was 1, now 2"), limit))["fell-back"]
    assert "recompile_limit of 8 reached" in found.text
    assert found.seconds == pytest.approx(0.2)  # the first compilation was of use
    assert "torch._dynamo.config.recompile_limit = 64" in [cure.code for cure in found.cures]
    error = row("0/0", 2, 0.5, fell_back="an error was suppressed: BackendCompilerFailed: no")
    found = said(compiled(error))["fell-back"]
    assert found.seconds == pytest.approx(0.5)
    assert found.cures[0].code == "torch._dynamo.config.suppress_errors = False"
    assert "fell-back" not in said(compiled(row("0/0", 2, 0.5)))


def test_other_doubts_leave_the_compilers_own_account_and_a_set_clock_does_not() -> None:
    made = compiled(row("0/0", 2, 0.5))
    assert said(replace(made, warnings=[Doubt("busy", "")]))
    assert said(replace(made, warnings=[Doubt("partial", "")], partial=True))
    assert not said(replace(made, warnings=[Doubt("clock-set", "")]))


def test_compiling_in_several_threads_is_no_more_than_the_run() -> None:
    found = said(compiled(row("0/0", 2, 3.0)))["compiling"]
    assert found.share <= 1
    assert not pd.isna(found.seconds)


def test_what_the_compiler_refused_at_its_limit_is_not_counted_as_compiled() -> None:
    change = "`n` was 1, now 2"
    refused = row("0/2", 2, 0.1, "recompile", reason=change, fell_back="recompile_limit of 2 reached")
    found = said(compiled(row("0/0", 2, 0.3), again(0.2, change), refused))
    assert found["compiling"].text.startswith("torch.compile compiled 2 times:")
    assert found["compiling"].evidence["recompile_compilations"] == 1
    assert found["recompiles"].text.startswith("`f` was compiled again (")
    assert found["fell-back"].evidence["compilations"] == 2
    assert "recompiles" not in said(compiled(row("0/0", 2, 0.3), refused))


def test_that_compiled_code_stays_is_not_said_where_the_compiler_was_reset() -> None:
    cures = said(compiled(row("0/0", 2, 0.3), row("0/0", 2, 0.3)))["compiling"].cures
    assert [cure.text for cure in cures] == [
        "Reset the compiler less often: everything was compiled again after each reset in this run."
    ]
