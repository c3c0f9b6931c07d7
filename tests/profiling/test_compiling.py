"""What torch.compile did stands in a profile: on which lines, why, how long; nothing where it did nothing."""

from __future__ import annotations

import contextlib
import functools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.insights.insight_runs import calm
from tests.profiling.profiling_text import profiled
from tests.show.builders import profile_of
from tests.torch_versions import LIMIT_OF_2, VERSION, compiles_as_today
from torchbench_magic import load, profile
from torchbench_magic.profiling.attribution import COMPILING, gather_compiling
from torchbench_magic.profiling.call_tree_tables import compiled_from
from torchbench_magic.profiling.events import Events
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.schema import COMPILATION_COLUMNS, frame_of
from torchbench_magic.profiling.view import compilations_table, document

pytestmark = pytest.mark.usefixtures("compiled_anew")

# ==== compilations ====================================================================================================


BROKEN = """%%tprofile
def f(x, n):
    y = x * n
    print(end="")
    if y.sum() > 0:
        y = y + 1
    return y.sin()
g = torch.compile(f, backend="eager")
x = torch.ones(4)
for n in (1, 2):
    g(x, n)
g(x.double(), 3)
"""
LIMIT = """%%tprofile
def f(x, name):
    return x + len(name)
g = torch.compile(f, backend="eager")
for i in range(4):
    g(x, "n" * i)
"""
PLAIN = "%%tprofile\ny = x @ x\n"


def seen(text: str, names: dict[str, Any] | None = None, **options: Any) -> Profile:
    outcome = profiled(text.replace("%%tprofile", ""), {"torch": torch, "x": torch.ones(4)} | (names or {}), **options)
    if outcome.error is not None:
        raise outcome.error
    return outcome.profile


@functools.cache
def broken() -> Profile:
    """Of BROKEN; run once, right after the compiler was reset, and only read."""
    return seen(BROKEN)


@functools.cache
def recompiled() -> Profile:
    """Of LIMIT, with each of its calls compiled; likewise."""
    return seen(LIMIT)


def test_each_compiled_frame_is_a_row_with_its_line_its_kind_and_its_reason() -> None:
    table = broken().compilations
    rows = [(row.function, row.line, row.kind, row.calls) for row in table.itertuples()]
    assert rows[:3] == [("f", 2, "first", 1), ("f", 4, "resume", 2), ("f", 5, "resume", 2)]
    assert [row[2] for row in rows[3:]] == ["recompile"] * 4
    assert set(table["cell"]) == {7}
    assert table["reason"].tolist()[:5] == [None, None, None, "`n` was 1, now 2", "`x` was float32, now float64"]
    assert (table["seconds"] > 0).all()
    by_n = table.iloc[3]
    assert (by_n["argument"], by_n["before"], by_n["after"], by_n["guard"]) == ("n", "1", "2", "n == 1")
    assert table["fell_back"].isna().all()


def test_each_line_that_breaks_the_graph_is_a_row_with_its_reason() -> None:
    rows = broken().graph_breaks.to_dict("records")
    assert [(row["cell"], row["line"]) for row in rows] == [(7, 4), (7, 5)]
    assert rows[0]["reason"] == "`print` cannot be compiled"
    assert "branch" in rows[1]["reason"]
    assert all(row["hint"] for row in rows)
    assert rows[0]["count"] == 3  # f was compiled for 1, for any n, and for float64


def test_the_lines_from_which_on_code_is_compiled_as_one_piece_are_known() -> None:
    assert {line for _, line in compiled_from(broken().frames)} == {2, 4, 5}
    as_it_is = seen("%%tprofile\ndef f(x):\n    print(end='')\n    return x.sin()\nf(x)\n")
    assert not compiled_from(as_it_is.frames)


def test_a_break_in_a_function_that_is_called_stands_on_the_line_of_that_function() -> None:
    text = """%%tprofile
import time
def inner(y):
    time.sleep(0)
    return y * 2
def f(x):
    return inner(x.sin())
torch.compile(f, backend="eager")(x)
"""
    assert seen(text).graph_breaks["line"].unique().tolist() == [4]


def test_after_a_reset_it_is_not_known_which_compilation_was_called() -> None:
    text = """%%tprofile
def f(x):
    return x * 2
g = torch.compile(f, backend="eager")
for i in range(3):
    torch._dynamo.reset()
    for j in range(i + 1):
        g(x)
"""
    made = seen(text)
    assert made.compilations["calls"].isna().tolist() == [True] * 3
    (cure,) = next(each for each in made.insights if each.kind == "compiling").cures
    assert cure.text == "Take the reset of the compiler out of the cell: everything is compiled again after each one."


@pytest.mark.compiler  # of all that an optimizer calls: seconds
def test_the_break_in_an_optimizers_step_is_said_to_be_torchs_own() -> None:
    text = """%%tprofile
p = torch.ones(3, requires_grad=True)
p.grad = torch.ones(3)
adam = torch.optim.Adam([p])
def step():
    adam.step()
torch.compile(step, backend="eager")()
"""
    made = seen(text)
    rows = made.graph_breaks
    assert 6 in set(rows["line"])
    assert rows["reason"].str.startswith("torch's own code breaks it on purpose, in an optimizer's step").all()
    assert rows["hint"].isna().all()
    found = [each for each in made.insights if each.kind == "graph-break"]
    assert not any(each.cures for each in found)


def test_the_rest_of_a_method_is_named_as_the_method_and_is_a_rest() -> None:
    text = """%%tprofile
class Net(torch.nn.Module):
    def helper(self, x):
        x = x + 1
        print(end="")
        return x * 2
    def forward(self, x):
        return self.helper(x.sin()).relu()
torch.compile(Net(), backend="eager")(x)
"""
    table = seen(text).compilations
    assert not table["function"].str.contains("torch_dynamo").any()
    assert set(table[table["line"] == 5]["kind"]) == {"resume"}


def test_a_function_that_is_kept_from_being_compiled_is_named_without_an_address() -> None:
    text = """%%tprofile
@torch.compiler.disable
def plain(x):
    return x + 1
def f(x):
    return plain(x * 2).sin()
torch.compile(f, backend="eager")(x)
"""
    reason = seen(text).graph_breaks["reason"].iloc[0]
    assert reason == "`plain` is called, which `torch.compiler.disable` keeps from being compiled"


def test_a_module_of_a_library_is_named_with_its_own_line_and_argument() -> None:
    text = "%%tprofile\nm(torch.ones(4))\nm(torch.ones(2, 4))\n"
    table = seen(text, {"m": torch.compile(torch.nn.Sequential(torch.nn.Linear(4, 4)), backend="eager")}).compilations
    assert set(table["function"]) == {"Sequential.forward"}
    assert {Path(file).name for file in table["file"]} == {"container.py"}
    assert table["reason"].iloc[1] == "`input` had 1 dimension, now 2"
    assert table["source_id"].isna().all()


def test_a_function_of_another_cell_has_the_source_of_that_cell() -> None:
    made = recompiled()
    assert set(made.compilations["source_id"]) == {made.source_id}


@compiles_as_today
def test_compiled_code_stands_on_the_def_line_and_what_comes_after_a_break_on_that_line() -> None:
    frames = broken().frames
    functions = frames[frames["kind"] == "function"]["name"]
    assert {"f", "the rest of f"} <= set(functions)
    ops = seen("%%tprofile\n" + BROKEN.partition("for n")[0].partition("\n")[2] + "g(x, 1)\n").ops
    on = {op: set(lines) for op, lines in ops.dropna(subset="line").groupby("op")["line"]}
    assert on["aten::mul"] == {2}
    assert on["aten::add"] == {5}
    assert on["aten::sin"] == {5}


def test_warm_code_and_code_that_is_not_compiled_have_no_rows_and_no_insight() -> None:
    names = {"g": torch.compile(lambda x: x.sin() + 1, backend="eager"), "x": torch.ones(4)}
    names["g"](names["x"])
    for text in ("%%tprofile\nfor i in range(50): g(x)\n", PLAIN):
        made = seen(text, names)
        assert made.compilations.empty
        assert made.graph_breaks.empty
        kinds = {each.kind for each in calm(made).insights}
        assert not kinds & {"compiling", "recompiles", "graph-break", "fell-back"}


@pytest.mark.compiler
@compiles_as_today
def test_the_four_kinds_of_insights_speak_about_planted_causes() -> None:
    found = {each.kind: each for each in calm(broken()).insights}
    assert {"compiling", "recompiles", "graph-break"} <= set(found)
    assert "`n` was 1, now 2" in found["recompiles"].text
    assert 2 in {place.line for place in found["recompiles"].places}
    assert found["graph-break"].places[0].line in (4, 5)
    torch._dynamo.reset()
    with torch._dynamo.config.patch(recompile_limit=2):
        found = {each.kind: each for each in calm(seen(LIMIT)).insights}
    assert LIMIT_OF_2 in found["fell-back"].text
    assert found["fell-back"].places[0].line == 2
    assert found["fell-back"].evidence["seconds_uncompiled"]
    assert any(cure.code == "torch._dynamo.config.recompile_limit = 64" for cure in found["fell-back"].cures)


@compiles_as_today
def test_what_changed_is_told_against_the_newest_compilation() -> None:
    names: dict[str, Any] = {"g": torch.compile(lambda x, n: x * n, backend="eager")}
    for n in (1, 2, 1.5):
        names["g"](torch.ones(4), n)
    again = "%%tprofile\ng(torch.ones(5), 2)\n"
    assert seen(again, names).compilations["reason"].tolist() == ["`n` was of type float, now int"]


def test_a_graph_break_that_is_raised_does_not_run_uncompiled() -> None:
    text = """
def f(x):
    print(end="")
    return x + 1
g = torch.compile(f, backend="eager", fullgraph=True)
for _ in range(2):
    try:
        g(x)
    except Exception:
        pass
"""
    made = calm(seen(text))
    assert len(made.compilations) == 2
    assert made.compilations["fell_back"].isna().all()
    assert made.graph_breaks["reason"].tolist() == ["`print` cannot be compiled"]
    assert "fell-back" not in {each.kind for each in made.insights}


@pytest.mark.parametrize(
    ("calls", "never"),
    [
        ("g(x, 1); g(x, 1.5); g(torch.ones(5), 1.5)", "mark_dynamic(n"),
        pytest.param("g(x, 1); g(x, 2); g(x.double(), 2)", "Convert `n`", marks=pytest.mark.compiler),
        pytest.param("m.train(); c(x); m.eval(); c(x)", "unsqueeze", marks=pytest.mark.compiler),
        pytest.param("h([x]); h([x, x])", "torch.tensor", marks=pytest.mark.compiler),
    ],
)
def test_a_cure_of_a_recompilation_is_of_what_changed_and_can_be_carried_out(calls: str, never: str) -> None:
    m = torch.nn.Sequential(torch.nn.Dropout())
    names = {
        "m": m,
        "c": torch.compile(m, backend="eager"),
        "g": torch.compile(lambda x, n: x * n, backend="eager"),
        "h": torch.compile(lambda each: sum(each), backend="eager"),
    }
    found = {each.kind: each for each in calm(seen(calls.replace("; ", "\n"), names)).insights}
    said = [f"{cure.text} {cure.code}" for cure in found["recompiles"].cures]
    assert not [one for one in said if never in one]
    assert len(said) > 1


@pytest.mark.compiler
def test_what_was_compiled_is_kept_in_the_store_and_shown_behind_the_switch(tmp_path: Path) -> None:
    made = broken()
    made.save(tmp_path / "kept.db")
    (kept,) = load(tmp_path / "kept.db")
    assert kept.compilations.equals(made.compilations)
    assert kept.graph_breaks.equals(made.graph_breaks)
    assert [each.text for each in kept.insights] == [each.text for each in made.insights]
    shown = document(kept)
    assert {"compilations", "graph breaks"} <= {table.name for table in shown.tables}
    assert len(shown.insights) <= 3
    assert "n was 1, now 2" in repr(made)
    written = made.to_markdown()
    assert "graph-break" in written or "compiling" in written
    assert {"compilations", "graph breaks"}.isdisjoint(table.name for table in document(seen(PLAIN)).tables)


def test_a_look_at_the_compiler_that_fails_is_said_and_the_cell_runs_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchbench_magic.process import dynamo_internals

    monkeypatch.setattr(dynamo_internals, "being_compiled", lambda: 1 / 0)
    made = seen(LIMIT)
    assert "compile-unseen" in [doubt.kind for doubt in made.warnings]
    assert made.compilations["reason"].dropna().tolist()[0] == "`name` is no longer ''"


def test_cycles_of_a_schedule_add_up_what_they_compiled() -> None:
    from torchbench_magic import profile

    text = "def run():\n    for n in (1, 2, 3):\n        g(x, n)\n        torchbench_magic.step()\n"
    names: dict[str, Any] = {"x": torch.ones(4), "g": torch.compile(lambda x, n: x * n, backend="eager")}
    exec("import torchbench_magic\n" + text, names)
    made = profile(names["run"], schedule="wait=0,warmup=0,active=1,repeat=3")
    assert made.compilations["kind"].tolist() == ["first", "recompile"]
    assert sum(len(cycle.compilations) for cycle in made.cycles) == 2


def test_under_a_stance_that_forbids_compiling_the_users_error_is_what_comes(tmp_path: Path) -> None:
    names = {"torch": torch, "g": torch.compile(lambda x, n: x * n, backend="eager"), "x": torch.ones(4)}
    names["g"](names["x"], 1)
    torch.compiler.set_stance("fail_on_recompile")
    outcome = profiled("\ng(x, 1)\ng(x, 2)\n", names)
    assert "fail_on_recompile" in str(outcome.error)
    assert outcome.profile.compilations.empty
    torch.compiler.set_stance("force_eager")
    outcome = profiled("\ng(x, 2)\n", names)
    assert outcome.error is None
    assert outcome.profile.compilations.empty


BROKEN_FOR_GOOD = """%%tprofile
def f(x, name):
    for _ in range(2):
        x = x + 1
        print(end="")
    return x
torch.compile(f, backend="eager")(x, "n")
"""


def test_a_compiler_that_is_switched_off_is_said_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "compile-off" not in [doubt.kind for doubt in recompiled().warnings]
    fell_back = seen(BROKEN_FOR_GOOD).compilations["fell_back"]
    assert VERSION < (2, 10) or fell_back.notna().any()  # of a function of this name and line
    for name in ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"):
        with monkeypatch.context() as patched:
            patched.setenv(name, "1")
            with torch._dynamo.config.patch(disable=name == "TORCH_COMPILE_DISABLE"):  # as its import reads it
                made = seen(LIMIT)
        assert "compile-off" in [doubt.kind for doubt in made.warnings], name
        assert made.compilations.empty, name
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")
    assert "compile-off" not in [doubt.kind for doubt in seen(PLAIN).warnings]


@pytest.mark.slow
def test_without_a_compiler_on_the_path_the_users_error_comes_and_a_suppressed_one_is_said() -> None:
    inductor = pytest.importorskip("torch._inductor.config")
    settings = inductor.patch({"cpp.cxx": (None, "/nowhere/c++"), "fx_graph_cache": False, "compile_threads": 1})
    with settings, torch._functorch.config.patch(enable_autograd_cache=False):
        errors_without_a_compiler()


def errors_without_a_compiler() -> None:
    text = "\ndef f(x):\n    return x.sin() + 1\ny = torch.compile(f)(x)\n"
    outcome = profiled(text, {"torch": torch, "x": torch.ones(4)})
    assert outcome.error is not None
    assert outcome.profile.partial
    assert outcome.profile.compilations["function"].tolist() == ["f"]
    assert outcome.profile.compilations["fell_back"].isna().all()
    torch._dynamo.reset()
    with torch._dynamo.config.patch(suppress_errors=True):
        outcome = profiled(text, {"torch": torch, "x": torch.ones(4)})
    assert outcome.error is None
    (row,) = outcome.profile.compilations.to_dict("records")
    assert row["fell_back"].startswith("an error was suppressed")
    assert "fell-back" in {each.kind for each in calm(outcome.profile).insights}


@pytest.mark.compiler
def test_a_graph_of_the_compilers_has_no_internal_name_among_the_modules() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    g = torch.compile(net, backend="aot_eager")
    x = torch.ones(2, 4)
    g(x)
    made = seen("%%tprofile\nfor i in range(3):\n    g(x)\n", {"g": g, "x": x})
    assert not made.modules["name"].str.contains("GraphModuleImpl").any()
    assert "compiled graph" in set(made.modules["name"])


# ==== compiling =======================================================================================================
# ``torch.compile``: what compiling takes is one row on the call line, compiled code stands on its function's.


TEXT = """def work(x):
    y = x.sin()
    return (y + 1).relu()
compiled = torch.compile(work, backend=backend)
x = torch.ones(16)
first = compiled(x)
again = compiled(x)
plain = work(x)
"""


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("aot_eager", marks=pytest.mark.compiler),
        pytest.param(
            "inductor",
            marks=[
                pytest.mark.compiler,
                pytest.mark.one_of_each,
                pytest.mark.skipif(not shutil.which("g++"), reason="inductor needs g++"),
                pytest.mark.skipif(" " in torch.__file__, reason="inductor quotes no path with a space"),
            ],
        ),
    ],
)
def test_compiling_is_one_row_beside_the_call_and_compiled_code_stands_on_its_def_line(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tqdm = pytest.importorskip("tqdm")
    monkeypatch.setattr(tqdm.tqdm, "monitor_interval", 0)  # the compiler's progress bar would leave a thread
    with_one: Any = contextlib.nullcontext()
    if backend == "inductor":
        inductor = pytest.importorskip("torch._inductor.config")
        with_one = inductor.patch({"compile_threads": 1})  # no pool of compilers that stays
    torch._dynamo.reset()
    with with_one:
        result = profile(TEXT, globals={"torch": torch, "backend": backend})
    ops = result.ops.dropna(subset="line")
    (compiling,) = ops[ops["op"] == COMPILING].to_dict("records")
    assert (compiling["line"], compiling["calls"]) == (6, 1)
    assert compiling["cpu_time"] > 0
    assert COMPILING in result.ranges
    rest = ops[ops["op"] != COMPILING]
    assert not rest["op"].str.contains("dynamo_timed").any()
    lines = {line: set(found["op"]) for line, found in rest.groupby("line")}
    assert {"aten::sin", "aten::relu"} <= lines[2] | lines[3], "the plain call has its own lines"
    assert 1 in lines, "compiled code is on its `def`"
    assert result.lines.set_index("line")["calls"][[2, 3, 6, 7, 8]].to_dict() == dict.fromkeys([2, 3, 6, 7, 8], 1)
    if backend == "aot_eager":
        sines = rest[rest["op"] == "aten::sin"].set_index("line")["calls"].to_dict()
        assert sines.keys() == {1, 2}
        assert sines[2] == 1
    else:
        assert any("aten::" not in op for op in lines[7]), "the compiled region and its kernel"
        assert "aten::sin" not in lines[6] | lines[7]
    took = result.lines.set_index("line")
    assert took.loc[6, "wall_time"] >= compiling["cpu_time"]
    assert set(ops[ops["op"] == COMPILING]["line"]) == {6}, "the second call compiles nothing"
    assert took.loc[6, "wall_time"] + took.loc[7, "wall_time"] <= result.wall_time
    own = result.lines[result.lines["thread"] == 0]
    assert (own["self_cpu_time"] + own["python_time"]).sum() == pytest.approx(result.wall_time, rel=0.01)


def events(*rows: tuple[str, int, int, int]) -> Events:
    """(name, start, end, thread) of each."""
    names = tuple(dict.fromkeys(row[0] for row in rows))
    kinds = tuple("user_annotation" if row[0].startswith(("my ", "of 2.8")) else "cpu_op" for row in rows)
    distinct = tuple(dict.fromkeys(kinds))
    numbers: dict[str, Any] = {
        "name": [names.index(row[0]) for row in rows],
        "kind": [distinct.index(kind) for kind in kinds],
        "start": [row[1] for row in rows],
        "end": [row[2] for row in rows],
        "native": [row[3] for row in rows],
    }
    columns = ("device", "tid", "fwd", "seq", "scope", "corr", "link", "nbytes")
    zeros = {name: np.zeros(len(rows), dtype=np.int64) for name in columns}
    return Events(names, distinct, ("cpu",), **{name: np.array(v) for name, v in numbers.items()}, **zeros)


def named(found: Events) -> list[str]:
    return [found.names[i] for i in found.name]


def test_ops_inside_a_compilation_are_part_of_it_and_others_are_not() -> None:
    given = events(
        ("aten::mm", 0, 5, 1),
        ("my dynamo", 0, 100, 3),
        ("dynamo", 10, 50, 1),
        ("aten::sin", 12, 20, 1),
        ("aten::sin", 15, 18, 2),
        ("inner (dynamo_timed)", 22, 40, 1),
        ("aten::relu", 25, 30, 1),
        ("compile (dynamo_timed)", 60, 70, 1),
        ("aten::relu", 71, 72, 1),
        ("of 2.8 (dynamo_timed)", 80, 90, 1),
        ("aten::mm", 82, 83, 1),
    )
    made = gather_compiling(given)
    assert named(made) == ["aten::mm", "my dynamo", COMPILING, "aten::sin", COMPILING, "aten::relu", COMPILING]
    assert made.native.tolist() == [1, 3, 1, 2, 1, 1, 1]
    assert made.is_range.tolist() == [False, True, True, False, True, False, True]


def test_without_a_compilation_nothing_changes() -> None:
    given = events(("aten::mm", 0, 5, 1), ("aten::sin", 1, 2, 1))
    assert gather_compiling(given) is given


# ==== compilations table ==============================================================================================
# The table of what was compiled: kinds and units.


def shown(seconds: float, kind: str, fell_back: str | None) -> list[str]:
    row: dict[str, Any] = {
        "compile_id": ["0/0"],
        "function": ["f"],
        "cell": [3],
        "line": [2],
        "seconds": [seconds],
        "calls": [0],
        "kind": [kind],
        "fell_back": [fell_back],
    }
    table = compilations_table(profile_of(compilations=frame_of(COMPILATION_COLUMNS, row)))
    assert table is not None
    return [*(column.unit for column in table.columns), *(cell.text for cell in table.groups[0].rows[0].cells)]


def test_what_was_given_up_before_the_run_has_no_time_in_nanoseconds() -> None:
    said = shown(0.0, "earlier", "recompile_limit of 8 reached before this run")
    assert "ns" not in said
    assert "ms" in said
    assert "before this run" in said


def test_an_attempt_at_the_limit_was_refused() -> None:
    assert "refused" in shown(0.001, "recompile", "recompile_limit of 8 reached")
    assert "again" in shown(0.001, "recompile", None)
