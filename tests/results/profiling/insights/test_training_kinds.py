"""Kinds of a training loop on profiles whose every figure is given: when they speak, and when they stay silent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from torchbench_magic.profiling.loops.phases import long_first_step, outliers_of
from torchbench_magic.profiling.options import ProfileOptions
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.schema import (
    FRAME_COLUMNS,
    LINE_COLUMNS,
    LOOP_COLUMNS,
    OP_COLUMNS,
    WORKER_COLUMNS,
    frame_of,
)
from torchbench_magic.profiling.trace import Source
from torchbench_magic.results import Doubt

TEXT = """\
%%tprofile
for x, y in loader:
    optimizer.zero_grad()
    out = net(x)
    out.sum().backward()
    optimizer.step()
for x, y in held_out:
    net(x)
for _ in range(20):
    net(x)
for _ in range(20): net(x)
"""
LINES = {"input": 2, "zero_grad": 3, "forward": 4, "backward": 5, "optimizer": 6}
USUAL = {"input": 0.001, "zero_grad": 0.0005, "forward": 0.01, "backward": 0.02, "optimizer": 0.002}


def rows(steps: int, took: dict[str, Any] | None = None, **changes: Any) -> list[dict[str, Any]]:
    """Rows of so many steps, each phase as long as said: a number, or a function of the step."""
    made = []
    for step in range(steps):
        for phase, given in (USUAL | (took or {})).items():
            seconds = given(step) if callable(given) else given
            if seconds is None:
                continue
            place = {"cell": 1, "line": LINES[phase], "file": "<cell>", "source_id": "ab"}
            mode = {"mode": "train graph trained"} if phase == "forward" else {}
            row = {"step": step, "phase": phase, "seconds": seconds, "calls": 1, **place, **mode}
            made.append(row | {key: value(step) for key, value in changes.get(phase, {}).items()})
    return made


def evaluated(line: int, mode: str, seconds: float = 0.5) -> dict[str, Any]:
    place = {"cell": 1, "line": line, "file": "<cell>", "source_id": "ab"}
    return {"step": None, "phase": "forward", "seconds": seconds, "calls": 20, "mode": mode, **place}


def profile_of(given: list[dict[str, Any]], wall: float | None = None, **changes: Any) -> Profile:
    columns = {name: [row.get(name, _NOTHING[kind]) for row in given] for name, kind in LOOP_COLUMNS.items()}
    table = frame_of(LOOP_COLUMNS, columns)
    fields = {
        "lines": frame_of(LINE_COLUMNS, {}),
        "ops": frame_of(OP_COLUMNS, {}),
        "wall_time": float(table["seconds"].sum()) if wall is None else wall,
        "num_threads": 1,
        "sources": {"ab": Source("ab", "<cell>", TEXT, cell=1)},
        "source_id": "ab",
        "options": ProfileOptions(phases=True),
        "phases_by_line": table,
    }
    return Profile(**(fields | changes))


_NOTHING: dict[str, Any] = {"object": None, "int64": 0, "Int64": pd.NA, "float64": float("nan")}


def said(profile: Profile) -> list[tuple[str, int]]:
    return [(each.kind, each.places[0].line) for each in profile.insights]


def test_a_loop_that_keeps_up_has_no_insight() -> None:
    assert said(profile_of(rows(10))) == []


def test_a_loop_that_waits_for_its_loader_is_input_bound() -> None:
    (found,) = profile_of(rows(10, {"input": 0.05})).insights
    assert (found.kind, found.places[0].line) == ("input-bound", 2)
    assert found.seconds == pytest.approx(0.5)
    assert found.text.startswith("`In[1]:2` waits for input, up to 500 ms")


@pytest.mark.parametrize(
    "profile",
    [
        profile_of(rows(10, {"input": lambda step: 0.5 if step == 0 else 0.001})),  # the start of workers
        profile_of(rows(10, {"input": lambda step: 0.3 if step == 5 else 0.001})),  # one batch
        profile_of(rows(2, {"input": 0.05})),
        profile_of(rows(10, {"input": 0.05}), warnings=[Doubt("busy", "Busy machine.")]),
        profile_of(rows(10, {"input": 0.05}), partial=True),
        profile_of(rows(10, {"input": 0.05, "forward": 1.0})),  # 5 % of the step
        profile_of([*rows(10, {"input": 0.05}), {"step": 1, "phase": "transfer", "seconds": 0.001, "calls": 1}]),
    ],
)
def test_a_wait_that_is_of_the_start_small_doubtful_or_beside_a_device_is_not_said(profile: Profile) -> None:
    assert said(profile) == []


def workers(*seconds: tuple[str, float]) -> pd.DataFrame:
    whole = sum(took for _, took in seconds)
    columns: dict[str, list[Any]] = {
        "worker": [0] * len(seconds),
        "cell": [2] * len(seconds),
        "line": [7] * len(seconds),
        "file": ["<set>"] * len(seconds),
        "function": [name for name, _ in seconds],
        "seconds": [took for _, took in seconds],
        "share": [took / whole for _, took in seconds],
    }
    return frame_of(WORKER_COLUMNS, columns)


def test_what_the_workers_do_is_said_with_the_wait() -> None:
    busy = profile_of(rows(10, {"input": 0.05}), workers=workers(("__getitem__", 9.0), ("waiting for the loop", 1.0)))
    (found,) = busy.insights
    assert "its worker is busy 90 % of the time, most at `In[2]:7` in `__getitem__`" in found.text
    assert found.cures[-1].code == "DataLoader(..., num_workers=2)"
    assert found.evidence["most_in_workers"] == "In[2]:7"
    assert found.evidence["share_of_their_time"] == 0.9
    assert "share_in_it" not in found.evidence
    idle = profile_of(rows(10, {"input": 0.05}), workers=workers(("__getitem__", 1.0), ("waiting for the loop", 9.0)))
    assert "only 10 % of the time" in idle.insights[0].text


def test_workers_that_start_anew_with_each_epoch_are_said() -> None:
    starts = lambda step: 0.2 if step % 5 == 0 else 0.0001
    made = profile_of(rows(20, {"input": starts}), workers=workers(("starting the worker", 9.0), ("work", 1.0)))
    (found,) = made.insights
    assert "workers are started again" in found.text
    assert found.cures[0].code == "DataLoader(..., persistent_workers=True)"


def test_the_line_of_the_data_set_is_said_where_the_loop_loads_itself() -> None:
    inner = {"inner_source_id": lambda _: "ab", "inner_line": lambda _: 9, "inner_seconds": lambda _: 0.045}
    (found,) = profile_of(rows(10, {"input": 0.05}, input=inner)).insights
    assert [place.line for place in found.places] == [2, 9]
    assert "`In[1]:9` takes 90 % of it" in found.text
    assert found.cures[-1].code == "DataLoader(..., num_workers=2)"


def test_of_looks_the_line_of_the_data_set_is_said_where_most_fell_on_it() -> None:
    one = {"inner_source_id": "ab", "inner_line": 9, "inner_seconds": 0.01}
    seen = {name: (lambda step, value=value: value if step < 4 else None) for name, value in one.items()}
    seen |= {"looks": lambda step: 2 * (step < 4), "inner_looks": lambda step: 2 if step < 4 else pd.NA}
    (found,) = profile_of(rows(10, {"input": 0.05}, input=seen)).insights
    assert "`In[1]:9` takes 100 % of it" in found.text
    few = seen | {"looks": lambda step: 2 * (step < 4), "inner_looks": lambda step: 1 if step < 4 else pd.NA}
    (found,) = profile_of(rows(10, {"input": 0.05}, input=few)).insights
    assert "In[1]:9" not in found.text


def test_workers_are_no_cure_for_what_a_generator_does_around_the_loader() -> None:
    inner = {"inner_source_id": lambda _: "ab", "inner_line": lambda _: 9, "inner_seconds": lambda _: 0.045}
    inner["loader_seconds"] = lambda _: 0.004
    (found,) = profile_of(rows(10, {"input": 0.05}, input=inner)).insights
    assert "`In[1]:9` takes 90 % of it" in found.text
    assert "`In[1]:9`" in found.cures[0].text
    assert not any("num_workers" in str(cure.code) for cure in found.cures)
    around = profile_of(rows(10, {"input": 0.05}, input={"loader_seconds": lambda _: 0.004}))
    assert not any("num_workers" in str(cure.code) for cure in around.insights[0].cures)


# ---- evaluation -----------------------------------------------------------------------------------------------------


def test_an_evaluation_that_records_a_graph_is_said() -> None:
    (found,) = profile_of([*rows(10), evaluated(8, "graph evaluation")]).insights
    assert (found.kind, found.places[0].line) == ("grad-unused", 8)
    assert found.cures[0].lever == "inference_mode"


def test_a_module_that_is_tried_again_and_again_in_training_mode_is_no_evaluation() -> None:
    assert said(profile_of([*rows(10), evaluated(10, "train graph evaluation")])) == []
    assert said(profile_of([*rows(10), evaluated(11, "train graph evaluation")])) == []
    assert said(profile_of([*rows(10), evaluated(10, "graph evaluation")])) == [("grad-unused", 10)]


@pytest.mark.parametrize("mode", ["evaluation", "varies evaluation", "graph", "train graph", "graph trained"])
def test_an_evaluation_without_a_graph_or_what_is_none_is_not_said(mode: str) -> None:
    assert said(profile_of([*rows(10), evaluated(8, mode)])) == []


def test_an_evaluation_in_training_mode_is_said_where_it_makes_a_difference() -> None:
    assert said(profile_of([*rows(10), evaluated(8, "train varies evaluation")])) == [("eval-mode", 8)]
    assert said(profile_of([*rows(10), evaluated(8, "train evaluation")])) == []
    assert said(profile_of([*rows(10), evaluated(10, "train varies evaluation")])) == []  # several times over, as meant
    assert said(profile_of([*rows(10), evaluated(8, "train varies evaluation", 0.001)])) == []


def trained_in(modes: list[bool], evaluated_in: int | None = 3) -> Profile:
    change = {"mode": lambda step: f"{'train ' if modes[step] else ''}graph varies trained"}
    looked = [evaluated(8, "varies evaluation", 0.001) | {"step": evaluated_in}]
    return profile_of([*rows(len(modes), forward=change), *looked])


def test_training_that_goes_on_in_evaluation_mode_is_said_from_that_step_on() -> None:
    (found,) = trained_in([True] * 4 + [False] * 6).insights
    assert (found.kind, found.places[0].line) == ("eval-mode", 4)
    assert "from step 4 on" in found.text


@pytest.mark.parametrize(
    "modes", [[False] * 10, [True] * 10, [True] * 4 + [False] * 3 + [True] * 3, [True] * 9 + [False]]
)
def test_a_mode_that_never_was_another_or_came_back_is_not_said(modes: list[bool]) -> None:
    assert said(trained_in(modes)) == []


@pytest.mark.parametrize("evaluated_in", [None, 1, 7])
def test_a_mode_that_was_left_without_an_evaluation_before_is_meant(evaluated_in: int | None) -> None:
    assert said(trained_in([True] * 4 + [False] * 6, evaluated_in)) == []


# ---- operations -----------------------------------------------------------------------------------------------------


def tree(*given: tuple[int, str, str, int, float, float]) -> pd.DataFrame:
    """Frames (parent, kind, name, calls, wall, self) on the line of the optimizer, or of backward."""
    names = ("parent", "kind", "name", "calls", "wall_time", "self_time")
    columns: dict[str, Any] = {name: [row[at] for row in given] for at, name in enumerate(names)}
    at_line = 6 if any("Optimizer" in row[2] for row in given) else 5
    lines = [pd.NA if row[0] < 0 else at_line for row in given]
    columns |= {"line": lines, "source_id": ["ab"] * len(given), "thread": [0] * len(given)}
    return frame_of(FRAME_COLUMNS, columns)


ROOT = (-1, "thread", "MainThread", 1, 1.0, 0.0)


def stepped(name: str, op: str, calls: int, seconds: float) -> Profile:
    frames = tree(
        ROOT,
        (0, "line", "In[1]:6", 10, seconds, 0.0),
        (1, "python", f"Optimizer.step#{name}.step", 10, seconds, 0.1 * seconds),
        (2, "op", op, calls, 0.9 * seconds, 0.9 * seconds),
    )
    return profile_of(rows(10, {"optimizer": seconds / 10}), frames=frames, options=ProfileOptions())


def test_an_optimizer_that_goes_through_its_parameters_is_said() -> None:
    (found,) = stepped("AdamW", "aten::add_", 4000, 0.5).insights
    assert (found.kind, found.places[0].line) == ("optimizer-loop", 6)
    assert found.cures[0].lever == "fused-optimizer"


@pytest.mark.parametrize(
    ("name", "op", "calls", "seconds"),
    [
        ("AdamW", "aten::_fused_adamw_", 4000, 0.5),
        ("AdamW", "aten::_foreach_add_", 4000, 0.5),
        ("LBFGS", "aten::add_", 4000, 0.5),
        ("AdamW", "aten::add_", 40, 0.5),
        ("AdamW", "aten::add_", 4000, 0.01),
        ("SGD", "aten::add_", 400, 0.5),  # a few large parameters, one pass
    ],
)
def test_an_optimizer_that_has_no_better_form_or_takes_little_is_not_said(
    name: str, op: str, calls: int, seconds: float
) -> None:
    assert said(stepped(name, op, calls, seconds)) == []


def backward(added: int, took: dict[str, Any] | None = None, zeroed: int = 0, backwards: int = 1) -> Profile:
    frames = tree(
        ROOT,
        (0, "line", "In[1]:5", 10, 0.2, 0.0),
        (1, "op", "torch::autograd::AccumulateGrad", 100, 0.1, 0.0),
        (2, "op", "aten::add_", added, 0.1, 0.1),
        (2, "op", "aten::zero_", 100, 0.0, 0.0),  # an operation's own
        (1, "op", "aten::zero_", zeroed, 0.0, 0.0),
    )
    given = rows(10, {"zero_grad": None} | (took or {}), backward={"calls": lambda _: backwards})
    return profile_of(given, frames=frames, options=ProfileOptions())


def test_gradients_that_nothing_clears_are_said() -> None:
    (found,) = backward(90).insights
    assert (found.kind, found.places[0].line) == ("no-zero-grad", 5)
    assert found.cures[0].code == "optimizer.zero_grad()"
    assert "all but the first step are wrong" in found.text


def test_the_cure_names_the_optimizer_as_the_code_does() -> None:
    made = backward(90)
    renamed = {key: replace(each, text=TEXT.replace("optimizer", "opt")) for key, each in made.sources.items()}
    (found,) = replace(made, sources=renamed).insights
    assert found.cures[0].code == "opt.zero_grad()"


def test_a_name_of_another_file_is_none_that_the_loop_knows() -> None:
    there = {"source_id": lambda _: "mod", "line": lambda _: 2, "cell": lambda _: pd.NA, "file": lambda _: "mod.py"}
    made = backward(90)
    given = rows(10, {"zero_grad": None}, optimizer=there)
    module = Source("mod", "mod.py", "def update():\n    opt.step()\n")
    sources = {**made.sources, "mod": module}
    (found,) = profile_of(given, frames=made.frames, options=ProfileOptions(), sources=sources).insights
    assert (found.kind, found.cures[0].code) == ("no-zero-grad", None)


def test_gradients_that_were_there_before_the_loop_make_its_first_step_wrong_too() -> None:
    (found,) = backward(100).insights
    assert "10 steps, so all steps are wrong" in found.text


@pytest.mark.parametrize(
    "profile",
    [
        backward(0),  # set to None by hand
        backward(90, zeroed=100),  # set to zero by hand
        backward(90, {"zero_grad": 0.0005}),
        backward(90, {"zero_grad": lambda step: 0.0005 if step == 5 else None}),
        backward(90, backwards=4),  # accumulation
        backward(90, {"optimizer": None}),
    ],
)
def test_gradients_that_are_cleared_or_meant_to_add_up_are_not_said(profile: Profile) -> None:
    assert said(profile) == []


@pytest.mark.parametrize("line", ["p.grad.mul_(0.9)", "p.grad *= 0.9", "p.grad = 0.9 * p.grad", "p.grad.data.mul_(m)"])
def test_gradients_that_the_code_changes_itself_are_kept_on_purpose(line: str) -> None:
    made = backward(90)
    changed = {key: replace(each, text=f"{each.text}\n{line}") for key, each in made.sources.items()}
    assert changed
    assert said(replace(made, sources=changed)) == []


def test_what_rests_on_calls_is_said_on_a_busy_machine_too() -> None:
    busy = [Doubt("busy", "Busy machine.")]
    assert said(replace(backward(90), warnings=busy)) == [("no-zero-grad", 5)]
    assert said(replace(backward(90), warnings=[Doubt("partial", "Partial.")])) == []


# ---- outliers -------------------------------------------------------------------------------------------------------


def test_a_step_that_took_long_is_named_with_what_it_did() -> None:
    place = {"cell": 1, "line": 9, "file": "<cell>", "source_id": "ab"}
    saved = {"step": 7, "phase": "other", "seconds": 0.3, "calls": 0, **place}
    (found,) = outliers_of(profile_of([*rows(20), saved]).phases_by_line)
    assert (found.step, found.phase, found.line) == (7, "other", 9)
    assert found.times == pytest.approx(0.3335 / 0.0335)
    assert found.share == pytest.approx(0.3 / 0.3335)


def test_of_a_long_step_it_is_said_that_more_of_it_may_be_on_the_line_where_looks_fell_on_none() -> None:
    place = {"cell": 1, "line": 9, "file": "<cell>", "source_id": "ab"}
    saved = {"step": 7, "phase": "other", "seconds": 0.3, "calls": 0, "looks": 3, **place}
    unknown = {"step": 7, "phase": "other", "seconds": 0.1, "calls": 0, "looks": 1}
    (found,) = outliers_of(profile_of([*rows(20), saved, unknown]).phases_by_line)
    assert (found.line, found.is_least) == (9, True)
    (found,) = outliers_of(profile_of([*rows(20), saved]).phases_by_line)
    assert not found.is_least


def test_a_first_step_that_takes_ten_times_as_long_is_told_by_itself() -> None:
    made = profile_of(rows(20, {"forward": lambda step: 9.0 if not step else 0.01})).phases_by_line
    found = long_first_step(made)
    assert found is not None
    assert (found.step, found.phase) == (0, "forward")
    assert found.times == pytest.approx((0.0335 + 8.99) / 0.0335, rel=0.01)
    less = profile_of(rows(20, {"forward": lambda step: 0.2 if not step else 0.01}))
    assert long_first_step(less.phases_by_line) is None
    assert long_first_step(profile_of(rows(20)).phases_by_line) is None


def test_the_first_step_and_steps_like_the_others_are_no_outliers() -> None:
    assert outliers_of(profile_of(rows(20, {"forward": lambda step: 1.0 if not step else 0.01})).phases_by_line) == ()
    assert outliers_of(profile_of(rows(3, {"forward": lambda step: 1.0 if step == 1 else 0.01})).phases_by_line) == ()
