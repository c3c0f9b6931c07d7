"""Kinds of a training loop, and of work on a device, on profiles whose every figure is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.profiling.profiles import MS, profile_of_two_kernels, trace_of_two_kernels
from torchbench_magic.insights.training import sync, transfer
from torchbench_magic.profiling.device_times import host_waits, share_of_devices, waited_for
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
from torchbench_magic.profiling.trace import EVENT_COLUMNS, KINDS, Source, Trace, compact
from torchbench_magic.result_base import Doubt, Insight

# ==== training kinds ==================================================================================================
# Kinds of a training loop on profiles whose every figure is given: when they speak, and when they stay silent.


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


def test_two_lines_that_wait_for_input_are_said_together() -> None:
    place = {"cell": 1, "line": 9, "file": "<cell>", "source_id": "ab"}
    second = [{"step": at, "phase": "input", "seconds": 0.03, "calls": 1, **place} for at in range(10)]
    (found,) = profile_of([*rows(10, {"input": 0.05}), *second]).insights
    assert found.text.startswith("`In[1]:2` and 1 more line wait for input, up to 800 ms")


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


def workers(*seconds: tuple[str, float], each: int = 1, loaders: tuple[int | None, ...] = (1,)) -> pd.DataFrame:
    """What each worker did, ``each`` of them from each start; the loader of each start."""
    starts = [(loader, loaders[:at].count(loader)) for at, loader in enumerate(loaders) for _ in range(each)]
    of_each = [worker(number, *start, *seconds) for number, start in enumerate(starts)]
    return frame_of(WORKER_COLUMNS, pd.concat(of_each, ignore_index=True).to_dict("list"))


def worker(number: int, loader: int | None, start: int, *seconds: tuple[str, float]) -> pd.DataFrame:
    whole = sum(took for _, took in seconds)
    columns: dict[str, list[Any]] = {
        "worker": [number] * len(seconds),
        "loader": [loader] * len(seconds),
        "start": [None if loader is None else start] * len(seconds),
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
    did = ("starting the worker", 0.18), ("work", 0.02)
    made = profile_of(rows(20, {"input": starts}), workers=workers(*did, each=2, loaders=(1, 1, 1, 1)))
    (found,) = made.insights
    assert "in some steps the workers are started again" in found.text
    assert found.cures[0].code == "DataLoader(..., persistent_workers=True)"
    assert found.evidence["workers"] == 2
    for loaders in [(1,), (1, 2, 3, 4), (None, None)]:  # each loader once; whose they are is not known
        assert said(profile_of(rows(20, {"input": starts}), workers=workers(*did, loaders=loaders))) == []


IN_TURNS = lambda step: 0.06 if step % 2 == 0 else 0.005
"""Seconds that a loop waits whose two workers need 60 ms for each batch, and have theirs ready at the same time."""


@pytest.mark.parametrize("loaders", [(1,), (1, 2), (1, 1, 1)])
def test_workers_that_have_their_batches_ready_at_the_same_time_are_not_started_again(loaders: tuple[int, ...]) -> None:
    loads = workers(("__getitem__", 0.95), ("starting the worker", 0.05), each=2, loaders=loaders)
    (found,) = profile_of(rows(24, {"input": IN_TURNS}), workers=loads).insights
    assert "started" not in found.text
    assert "its 2 workers are busy 100 % of the time, most at `In[2]:7`" in found.text
    assert found.cures[-1].code == "DataLoader(..., num_workers=4)"


def test_the_one_start_of_workers_that_has_most_of_their_time_is_said_in_seconds() -> None:
    did = ("starting the worker", 0.3), ("__getitem__", 0.1)
    waits = lambda step: 0.4 if step == 0 else 0.02
    (found,) = profile_of(rows(4, {"input": waits}), workers=workers(*did, each=2)).insights
    assert found.text.endswith("; starting its 2 workers takes 300 ms.")
    assert found.cures[-1].code == "DataLoader(..., persistent_workers=True)"
    assert not any("epoch" in cure.text for cure in found.cures)
    again = profile_of(rows(4, {"input": waits}), workers=workers(*did, loaders=(1, 1))).insights[0]
    assert "in one step the workers are started again" in again.text


def test_the_line_of_the_data_set_is_said_where_the_loop_loads_itself() -> None:
    inner = {"inner_source_id": lambda _: "ab", "inner_line": lambda _: 9, "inner_seconds": lambda _: 0.045}
    (found,) = profile_of(rows(10, {"input": 0.05}, input=inner)).insights
    assert [place.line for place in found.places] == [2, 9]
    assert "`In[1]:9` takes 90 % of that" in found.text
    assert found.cures[-1].code == "DataLoader(..., num_workers=2)"


def test_of_looks_the_line_of_the_data_set_is_said_where_most_fell_on_it() -> None:
    one = {"inner_source_id": "ab", "inner_line": 9, "inner_seconds": 0.01}
    seen = {name: (lambda step, value=value: value if step < 4 else None) for name, value in one.items()}
    seen |= {"looks": lambda step: 2 * (step < 4), "inner_looks": lambda step: 2 if step < 4 else pd.NA}
    (found,) = profile_of(rows(10, {"input": 0.05}, input=seen)).insights
    assert "`In[1]:9` takes 100 % of that" in found.text
    few = seen | {"looks": lambda step: 2 * (step < 4), "inner_looks": lambda step: 1 if step < 4 else pd.NA}
    (found,) = profile_of(rows(10, {"input": 0.05}, input=few)).insights
    assert "In[1]:9" not in found.text


def test_workers_are_no_cure_for_what_a_generator_does_around_the_loader() -> None:
    inner = {"inner_source_id": lambda _: "ab", "inner_line": lambda _: 9, "inner_seconds": lambda _: 0.045}
    inner["loader_seconds"] = lambda _: 0.004
    (found,) = profile_of(rows(10, {"input": 0.05}, input=inner)).insights
    assert "`In[1]:9` takes 90 % of that" in found.text
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


def test_what_a_closure_of_the_step_does_is_no_update() -> None:
    frames = tree(
        ROOT,
        (0, "line", "In[1]:6", 10, 0.5, 0.0),
        (1, "python", "Optimizer.step#AdamW.step", 10, 0.5, 0.05),
        (2, "function", "closure", 10, 0.4, 0.1),
        (3, "op", "aten::addmm", 4000, 0.3, 0.3),
        (2, "op", "aten::add_", 400, 0.05, 0.05),
    )
    of_loop = rows(10, {"optimizer": 0.05})
    (found,) = profile_of(of_loop, frames=frames, options=ProfileOptions()).insights
    assert (found.kind, found.evidence["operations"]) == ("optimizer-loop", 400)
    assert found.seconds == pytest.approx(0.1, rel=0.01)  # less what recording took


def uncleared(steps: int = 9) -> dict[str, Any]:
    return {"mode": lambda step: "uncleared" if 0 < step <= steps else None}


def backward(took: dict[str, Any] | None = None, kept: int = 9, backwards: int = 1) -> Profile:
    calls = {"calls": lambda _: backwards}
    given = rows(10, {"zero_grad": None} | (took or {}), backward=calls, optimizer=uncleared(kept))
    return profile_of(given, options=ProfileOptions())


def test_gradients_that_nothing_clears_are_said() -> None:
    (found,) = backward().insights
    assert (found.kind, found.places[0].line) == ("no-zero-grad", 6)
    assert found.cures[0].code == "optimizer.zero_grad()"
    assert "steps `optimizer` on gradients that nothing clears in 10 steps" in found.text


def test_the_cure_names_the_optimizer_as_the_code_does() -> None:
    made = backward()
    renamed = {key: replace(each, text=TEXT.replace("optimizer", "opt")) for key, each in made.sources.items()}
    (found,) = replace(made, sources=renamed).insights
    assert found.cures[0].code == "opt.zero_grad()"


def test_a_name_of_another_file_is_none_that_the_loop_knows() -> None:
    there = {"source_id": lambda _: "mod", "line": lambda _: 2, "cell": lambda _: pd.NA, "file": lambda _: "mod.py"}
    made = backward()
    given = rows(10, {"zero_grad": None}, optimizer=there | uncleared())
    module = Source("mod", "mod.py", "def update():\n    opt.step()\n")
    sources = {**made.sources, "mod": module}
    (found,) = profile_of(given, options=ProfileOptions(), sources=sources).insights
    assert (found.kind, found.cures[0].code) == ("no-zero-grad", None)


@pytest.mark.parametrize(
    "profile",
    [
        backward(kept=0),  # set to None or to zero by hand, or changed
        backward({"zero_grad": 0.0005}, kept=0),
        backward({"zero_grad": lambda step: 0.0005 if step == 5 else None}, kept=4),
        backward(kept=0, backwards=4),  # accumulation
        backward({"optimizer": None}),
    ],
)
def test_gradients_that_are_cleared_or_meant_to_add_up_are_not_said(profile: Profile) -> None:
    assert said(profile) == []


@pytest.mark.parametrize("line", ["p.grad.mul_(0.9)", "p.grad *= 0.9", "p.grad = 0.9 * p.grad", "p.grad.data.mul_(m)"])
def test_gradients_that_the_code_changes_itself_are_kept_on_purpose(line: str) -> None:
    made = backward()
    changed = {key: replace(each, text=f"{each.text}\n{line}") for key, each in made.sources.items()}
    assert changed
    assert said(replace(made, sources=changed)) == []


def test_what_rests_on_calls_is_said_on_a_busy_machine_too() -> None:
    busy = [Doubt("busy", "Busy machine.")]
    assert said(replace(backward(), warnings=busy)) == [("no-zero-grad", 6)]
    assert said(replace(backward(), warnings=[Doubt("partial", "Partial.")])) == []


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


# ==== on device =======================================================================================================
# ``sync`` and ``transfer`` on traces of a device whose every event is given.


NAMES = (
    *("launch", "cudaStreamSynchronize", "kernel"),
    *("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pinned -> Device)"),
    *("cudaMemcpyAsync", "Memcpy DtoH (Device -> Pageable)", "aten::nonzero"),
)
LINE_2, LINE_3 = 1, 2  # nodes


def device_profile_of(
    *events: tuple[str, int, float, float, int],
    wall: float = 0.1,
    parent: dict[int, int] | None = None,
    by: dict[int, int] | None = None,
) -> Profile:
    """(kind, number of the name, start and duration in ms, node): in their order; ``parent`` and ``by``: in which op an
    event runs, and by which call it was launched."""
    none = np.full(len(events), -1)
    parents, launched_by = (
        np.array([(given or {}).get(at, -1) for at in range(len(events))], dtype=np.int64) for given in (parent, by)
    )
    on_device = np.array([kind in ("kernel", "memcpy") for kind, *_ in events])
    columns = {
        "name": np.array([name for _, name, *_ in events]),
        "kind": np.array([KINDS.index(kind) for kind, *_ in events]),
        "start": np.array([start * MS for *_, start, _, _ in events]).astype(np.int64),
        "duration": np.array([length * MS for *_, length, _ in events]).astype(np.int64),
        "track": on_device.astype(np.int64),
        "parent": parents,
        "launched_by": launched_by,
        "node": np.array([node for *_, node in events]),
        "caused_by": none,
        "inputs": none,
    }
    known = trace_of_two_kernels()
    given: dict[str, Any] = {item.name: getattr(known, item.name) for item in fields(Trace)}
    given |= {"events": compact(EVENT_COLUMNS, columns), "names": NAMES, "duration": int(wall * 1e9)}
    return profile_of_two_kernels(trace=Trace(**given), wall_time=wall)


def steps(count: int, wait: float = 2.0, gap: float = 5.0) -> list[tuple[str, int, float, float, int]]:
    """Kernels of 3 ms; after each the host has waited for it, and the next one comes ``gap`` ms later."""
    made: list[tuple[str, int, float, float, int]] = []
    for at in range(count):
        start = at * (3 + gap)
        made += [("kernel", 2, start, 3, LINE_2), ("runtime", 1, start + 3 - wait, wait, LINE_3)]
    return made


def places(found: Sequence[Insight]) -> list[int]:
    return [each.places[0].line for each in found]


def test_the_idle_time_after_a_wait_stands_on_the_line_of_the_wait() -> None:
    (found,) = sync(device_profile_of(*steps(5)))
    assert places([found]) == [3]
    assert found.seconds == pytest.approx(0.008)  # of four gaps of 5 ms the 2 ms that each wait took; the last has none
    assert "4 times" in found.text


@pytest.mark.parametrize(
    "events",
    [
        steps(3),  # two gaps
        steps(6, gap=0.1),  # the next launch comes at once
        [("runtime", 1, 9, 2, LINE_3), *((("kernel", 2, 8.0 * n, 7.9, LINE_2)) for n in range(8))],  # it goes on
        [event for event in steps(6) if event[0] == "kernel"],  # idle for another reason
    ],
)
def test_waits_that_make_no_idle_time_and_idle_time_without_waits_are_not_said(events: list[Any]) -> None:
    assert sync(device_profile_of(*events)) == []


def test_a_wait_saves_no_more_than_it_took_and_what_is_idle_later_counts_too() -> None:
    """As ``nonzero`` does: after each wait of 2 ms a short kernel follows at once, and then the device idles for 3."""
    made = []
    for at in range(5):
        start = 8.0 * at
        made += [("kernel", 2, start, 4, LINE_2), ("runtime", 1, start + 2, 2, LINE_3)]
        made += [("kernel", 2, start + 4.01, 0.99, LINE_3)]
    (found,) = sync(device_profile_of(*made))
    assert places([found]) == [3]
    assert found.seconds == pytest.approx(0.008 + 1e-5)  # of four gaps 2 ms, and 10 us after the last wait


def with_copy(name: int) -> list[tuple[str, int, float, float, int]]:
    return [*steps(5), ("memcpy", name, 60, 0.001, LINE_3)]


@pytest.mark.parametrize(
    ("name", "cure", "not_said"), [(3, "pin_memory", "loss.detach"), (6, "loss.detach", "pin_memory")]
)
def test_the_cure_of_a_wait_is_that_of_its_copy(name: int, cure: str, not_said: str) -> None:
    (found,) = sync(device_profile_of(*with_copy(name)))
    assert cure in str(found.cures)
    assert not_said not in str(found.cures)


def test_the_cure_of_an_operation_whose_shape_depends_on_values_is_a_mask() -> None:
    ops = [("op", 7, 8.0 * at, 3.0, LINE_3) for at in range(5)]
    (found,) = sync(device_profile_of(*ops, *steps(5), parent={6 + 2 * at: at for at in range(5)}))
    assert "torch.where" in str(found.cures)


def test_a_copy_waits_where_its_call_has_not_returned_when_it_begins() -> None:
    blocking = [("kernel", 2, 0, 10, LINE_2), ("runtime", 5, 1, 10, LINE_3), ("memcpy", 6, 10, 1, LINE_3)]
    waits = host_waits(device_profile_of(*blocking, by={2: 1}).trace)
    assert waits["seconds"].tolist() == [0.01]
    assert waits["node"].tolist() == [LINE_3]
    returns = [("kernel", 2, 0, 10, LINE_2), ("runtime", 5, 1, 0.01, LINE_3), ("memcpy", 6, 10, 1, LINE_3)]
    assert host_waits(device_profile_of(*returns, by={2: 1}).trace).empty


def test_a_wait_within_a_wait_is_counted_once() -> None:
    nested = [("kernel", 2, 0, 10, LINE_2), ("runtime", 1, 1, 9, LINE_3), ("runtime", 1, 2, 7, LINE_3)]
    assert host_waits(device_profile_of(*nested).trace)["seconds"].tolist() == [0.009]


@pytest.mark.parametrize(
    "name",
    [
        *("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cuCtxSynchronize"),
        *("hipDeviceSynchronize", "zeEventHostSynchronize", "urQueueFinish"),
    ],
)
def test_calls_that_wait_are_known_by_their_names(name: str) -> None:
    trace = device_profile_of(("kernel", 2, 0, 10, LINE_2), ("runtime", 1, 1, 9, LINE_3)).trace
    assert trace is not None
    named = {item.name: getattr(trace, item.name) for item in fields(Trace)}
    names = tuple(name if each == "cudaStreamSynchronize" else each for each in NAMES)
    assert host_waits(Trace(**named | {"names": names}))["seconds"].tolist() == [0.009]
    for other in ("cudaLaunchKernel", "cudaStreamWaitEvent", "cudaEventQuery"):
        names = tuple(other if each == "cudaStreamSynchronize" else each for each in NAMES)
        assert host_waits(Trace(**named | {"names": names})).empty


def test_the_share_of_a_device_and_what_the_host_waits_for() -> None:
    made = device_profile_of(
        ("kernel", 2, 0, 40, LINE_2), ("kernel", 2, 30, 20, LINE_2), ("runtime", 1, 45, 15, LINE_3)
    )
    assert share_of_devices(made.trace) == pytest.approx(0.5)
    assert share_of_devices(made.trace, with_waits=True) == pytest.approx(0.6)
    assert made.trace is not None
    assert waited_for(made.trace, host_waits(made.trace)) == ("ab12", 2)
    assert share_of_devices(None) == 0


def test_a_copy_and_the_wait_for_its_end_are_one_wait_of_their_operation_and_not_of_a_range() -> None:
    pairs = []
    for at in range(5):
        start = 8.0 * at
        pairs += [("kernel", 2, start, 3, LINE_2), ("runtime", 1, start + 1, 1, LINE_3)]
        pairs += [("runtime", 1, start + 2, 1, LINE_3)]
    for kind, often in (("op", "4 times"), ("range", "8 times")):  # after the fifth nothing comes
        around = [(kind, 0, 8.0 * at, 3.5, LINE_3) for at in range(5)]
        parents = {5 + 3 * at + each: at for at in range(5) for each in (1, 2)}
        made = device_profile_of(*around, *pairs, parent=parents)
        (found,) = sync(made)
        assert often in found.text
        assert found.seconds == pytest.approx(0.008)  # 2 ms of each of four gaps


def copies(count: int, name: int, length: float) -> list[tuple[str, int, float, float, int]]:
    return [("memcpy", name, 10.0 * at, length, LINE_2) for at in range(count)]


def test_copies_of_memory_that_is_not_pinned_are_said() -> None:
    (found,) = transfer(device_profile_of(*copies(5, 3, 3.0)))
    assert places([found]) == [2]
    assert found.seconds == pytest.approx(0.015)


@pytest.mark.parametrize("events", [copies(5, 4, 3.0), copies(2, 3, 3.0), copies(5, 3, 0.1)])
def test_pinned_few_and_short_copies_are_not_said(events: list[Any]) -> None:
    assert transfer(device_profile_of(*events)) == []


def test_both_are_silent_without_a_device() -> None:
    made = profile_of_two_kernels(trace=None)
    assert sync(made) == transfer(made) == []


def test_they_are_among_the_insights_of_a_profile_of_a_device() -> None:
    assert [each.kind for each in device_profile_of(*steps(5), *copies(5, 3, 0.001)).insights] == ["sync"]
