"""Each kind of insight: on profiles whose figures are known, and on slow and healthy cells that were recorded."""

from __future__ import annotations

import gc
import json
import pickle
import re
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.every_case import every_case
from torchbench_magic import load_trace, units
from torchbench_magic.insights import outside_torch
from torchbench_magic.insights.evidence import recorded_lines
from torchbench_magic.profiling.profile import VOIDING, Profile
from torchbench_magic.result_base import Doubt, Insight
from torchbench_magic.storage.store import load, save

from .built import SOURCE, Did, Op, built_profile
from .insight_cells import HEALTHY, SLOW, recorded
from .insight_runs import Planted, found, profiled

# ==== kinds ===========================================================================================================
# Each kind of insight on profiles whose figures are known: when it speaks, about which line, and when it must not.


MATMUL = Did(100, 0.001, [Op("aten::mm", 100, 0.2)])
INPUTS = (
    *(("values", "list of 2000"), ("table", "dict of 9"), ("x", "64 × 64 float32"), ("rows", "generator")),
    *(("n", "64"), ("size", "16.0")),
)
LOOP = "%%tprofile\nfor i in range(100):\n    {}\n    z = x @ x"


def kinds(profile: Profile) -> list[tuple[str, int]]:
    return [(each.kind, each.places[0].line) for each in profile.insights]


def loop(line: str, did: Did, **changes: Any) -> Profile:
    """100 turns of ``line`` (line 3) and a matrix product that takes 0.2 s in all (line 4)."""
    return built_profile(LOOP.format(line), {2: Did(101, 1e-4), 3: did, 4: MATMUL}, **{"inputs": INPUTS} | changes)


# ---- overhead ---------------------------------------------------------------------------------------------------

SMALL = Did(20_000, 0.05, [Op("aten::add", 20_000, 0.04)])


def test_many_small_operations_are_overhead_at_most_their_time_and_that_of_calling_them() -> None:
    profile = loop("y = y + 1", SMALL)
    (insight,) = profile.insights
    assert kinds(profile) == [("overhead", 3)]
    surely = 0.5 * 20_000 * (0.6e-6 + 0.5e-6)  # half of what 20 000 ops and lines are estimated to have cost
    assert insight.seconds == pytest.approx(0.09 - surely)
    whole = 0.5 * (20_101 * 0.5e-6 + 100 * 0.5e-6 + 20_100 * 0.6e-6)
    assert whole < 0.1 * profile.wall_time
    assert insight.share == pytest.approx(insight.seconds / profile.wall_time)
    assert insight.evidence["operations"] == 20_000
    assert insight.evidence["most_called"] == "aten::add"
    assert str(insight.places[0]) == "In[1]:3"
    assert [cure.lever for cure in insight.cures] == [None, "compile"]
    assert "20 000 small operations" in insight.text.replace("\u202f", " ")


@pytest.mark.parametrize("line", ["loss.backward()", "accelerator.backward(loss)", "g = torch.autograd.grad(loss, w)"])
def test_a_backward_pass_is_not_to_be_replaced_by_operations_on_whole_tensors(line: str) -> None:
    (insight,) = loop(line, SMALL).insights
    assert insight.kind == "overhead"
    assert insight.cures[0].text.startswith("Use larger batches")


def test_the_loop_in_an_optimizer_is_torchs_own_and_neither_replaced_nor_compiled_by_the_user() -> None:
    profile = loop("opt.step(closure)", SMALL)
    step = profile.frames[profile.frames["line"] == 3].head(1)
    step = step.assign(kind="python", name="Optimizer.step#LBFGS.step", self_time=0.0, self_cpu_time=0.0)
    (insight,) = replace(profile, frames=pd.concat([profile.frames, step], ignore_index=True)).insights
    assert insight.kind == "overhead"
    assert insight.cures == ()


@pytest.mark.parametrize(
    "did",
    [
        Did(20_000, 0.05, [Op("aten::add", 20_000, 0.4)]),  # 20 us each: they compute
        Did(99, 0.05, [Op("aten::add", 99, 0.0004)]),  # too few
        Did(2000, 0.002, [Op("aten::add", 2000, 0.004)]),  # less than 5 % of the time
        Did(200, 0.5, [Op("aten::add", 200, 0.0008)]),  # the time is outside torch, and more than calling takes
        Did(1000, 0.002, [Op("aten::mm", 1000, 0.2), Op("aten::t", 5000, 0.01)]),  # small ones beside large ones
        Did(100_000, 0.05, [Op("aten::add", 150, 0.0005)]),  # Python, and what recording cost of it
    ],
)
def test_no_overhead_where_something_else_has_the_time(did: Did) -> None:
    assert not loop("y = f(y)", did).insights


def test_operations_are_overhead_by_their_number_where_recording_seems_to_have_taken_all_the_time() -> None:
    nested = [Op("aten::mul_", 10_000, 0.01), Op("aten::mul_ > aten::to", 40_000, 0.01)]
    profile = loop("y.mul_(2.0)", Did(10_000, 0.01, nested))  # 30 ms, of which 35 would be recording
    assert kinds(profile) == [("overhead", 3)]
    assert profile.insights[0].seconds == pytest.approx(0.03 - 0.5 * 0.035)


def test_small_operations_of_one_loop_are_one_insight_about_its_most_expensive_line() -> None:
    text = "%%tprofile\nfor i in range(9000):\n    a = x + 1\n    b = a * 2\nfor i in range(9000):\n    c = x - 1"
    ops = [Op("aten::add", 9000, 0.018)]
    profile = built_profile(
        text,
        {
            3: Did(9000, 0.015, ops),
            4: Did(9000, 0.025, ops),
            6: Did(9000, 0.01, ops),
        },
    )
    assert [[at.line for at in each.places] for each in profile.insights] == [[4, 3], [6]]
    assert "and 1 more line run 18 000 small" in profile.insights[0].text.replace("\u202f", " ")


def test_recording_that_took_most_of_the_time_leaves_overhead_and_nothing_else() -> None:
    assert kinds(loop("y = y + 1", SMALL, profiler_cost="most")) == [("overhead", 3)]
    copying = Did(100, 0.001, [Op("aten::contiguous", 100, 1e-4), Op("aten::contiguous > aten::clone", 100, 0.1)])
    assert kinds(loop("y = x.contiguous()", copying)) == [("copies", 3)]
    assert not loop("y = x.contiguous()", copying, profiler_cost="most").insights


@pytest.mark.parametrize("without", [2e-3, 1.2e-3, None])
def test_a_tiny_loop_has_no_more_at_stake_than_it_took(without: float | None) -> None:
    """Nor, where that was measured, than it took without recording, though that added more than it is known to."""
    did = Did(1000, 0.002, [Op("aten::add", 1000, 0.004)])
    made = built_profile("%%tprofile\nfor t in ts:\n    y = t + 1", {3: did}, unprofiled_time=without)
    (insight,) = made.insights
    assert insight.kind == "overhead"
    assert insight.seconds <= (without or 0.006)
    assert insight.share <= 1


def test_with_twice_all_that_recording_added_is_taken_off() -> None:
    (estimated,) = loop("y = y + 1", SMALL).insights
    profile = loop("y = y + 1", SMALL, unprofiled_time=0.291 - 0.03)
    (measured,) = profile.insights
    assert measured.seconds == pytest.approx(0.09 - 0.03 * 0.022 / 0.02222, rel=0.02)
    assert measured.seconds < estimated.seconds


def test_a_loop_over_parameters_in_an_optimizer_may_be_one_call() -> None:
    profile = loop("opt.step()", SMALL)
    frames = profile.frames.copy()
    frames.loc[len(frames)] = frames.loc[frames["name"] == "In[1]:3"].iloc[0]
    frames.loc[len(frames) - 1, ["parent", "kind", "name"]] = [2, "python", "Optimizer.step#Adam.step"]
    frames = frames.astype(profile.frames.dtypes.to_dict())
    (insight,) = replace(profile, frames=frames).insights
    assert insight.cures[0].lever == "fused-optimizer"
    frames.loc[len(frames) - 1, "wall_time"] *= 0.2
    (insight,) = replace(profile, frames=frames).insights
    assert [cure.lever for cure in insight.cures] == [None, "compile", "fused-optimizer", "foreach"]
    added = 0.5 * 20_000 * (0.6e-6 + 0.5e-6)
    part = f"{0.2 * (0.09 - added) * 1e3:.0f} ms of these {insight.seconds * 1e3:.0f} ms"
    assert part in insight.cures[-2].text


def test_the_per_cent_name_what_they_are_of_where_recording_added_to_the_wall_time() -> None:
    many = Did(20_000, 0.02, [Op("aten::add", 20_000, 0.04)])
    profile = built_profile("%%tprofile\nfor i in range(20000):\n    y = y + 1", {3: many}, profiler_cost="most")
    (insight,) = profile.insights
    left = 0.06 - 0.5 * 20_000 * (0.6e-6 + 0.5e-6)
    assert insight.seconds == pytest.approx(left)
    of = f"{insight.seconds / left * 100:.0f} % of the at most {left * 1e3:.0f} ms that it takes without recording"
    assert of in insight.text
    (little,) = loop("y = y + 1", SMALL).insights
    assert "% of the time)" in little.text
    assert [share_said(each) for each in (insight, little)] == [units.percent(each.share) for each in (insight, little)]


def share_said(insight: Insight) -> str:
    """The per cent of what is at stake, in the insight's own sentence."""
    said = re.search(r"\((\S+) % of the (?:time|at most)", insight.text)
    assert said is not None, insight.text
    return said[1]


def test_the_share_of_an_insight_is_the_one_in_its_sentence() -> None:
    """Of every recorded cell that has one with a time at stake."""
    every = [each for case in SLOW for each in recorded(case).insights if "% of the" in each.text and each.seconds]
    assert len({each.kind for each in every}) >= 5
    assert [share_said(each) for each in every] == [units.percent(each.share) for each in every]


def test_numpy_that_sorts_is_not_told_for_torch_would_be_slower() -> None:
    slow = Did(20, 0.4, [Op("aten::detach", 20, 1e-4)])
    assert kinds(loop("y = np.unique(x.numpy())", slow)) == [("numpy", 3)]
    for name in ("sort", "argsort"):
        assert not loop(f"y = np.{name}(x.numpy())", slow).insights


# ---- copies -----------------------------------------------------------------------------------------------------


def converting(calls: int = 100, each: float = 1e-3) -> Did:
    return Did(calls, 1e-3, [Op("aten::to", calls, 1e-4), Op("aten::to > aten::_to_copy", calls, calls * each)])


def test_conversions_of_a_line_are_copies_that_the_op_it_calls_made() -> None:
    profile = loop("y = x.double()", converting())
    (insight,) = profile.insights
    assert kinds(profile) == [("copies", 3)]
    assert insight.seconds == pytest.approx(0.1 - 100 * 0.3e-6)
    assert insight.evidence["called_by"] == "aten::to"
    assert "converts 100 tensors" in insight.text


def test_a_layout_that_an_op_changes_for_itself_names_that_op() -> None:
    ops = [
        Op("aten::matmul", 100, 0.01),
        Op("aten::matmul > aten::reshape", 100, 1e-4),
        Op("aten::matmul > aten::reshape > aten::clone", 100, 0.05),
        Op("aten::matmul > aten::reshape > aten::clone > aten::copy_", 100, 0.05),
    ]
    (insight,) = loop("y = a @ b", Did(100, 1e-3, ops)).insights
    assert (insight.kind, insight.evidence["called_by"]) == ("copies", "aten::matmul")
    assert insight.seconds == pytest.approx(0.1 - 200 * 0.3e-6)
    assert insight.cures[0].lever == "contiguous"


@pytest.mark.parametrize(
    "did",
    [
        converting(calls=5, each=0.02),  # converted a few times
        converting(each=1e-4),  # 10 ms of 211
        Did(100, 1e-3, [Op("aten::matmul", 100, 0.02), Op("aten::matmul > aten::clone", 100, 0.018)]),  # 8 %
        Did(100, 1e-3, [Op("aten::clone", 100, 0.1)]),  # asked for
        Did(100, 1e-3, [Op("aten::conv2d", 100, 1e-3), Op("aten::conv2d > aten::contiguous", 100, 0.1)]),
        Did(
            100,
            1e-3,
            [
                Op("autograd::engine::evaluate_function: MmBackward0", 100, 1e-3),
                Op("autograd::engine::evaluate_function: MmBackward0 > aten::clone", 100, 0.1),
            ],
        ),
    ],
)
def test_no_copies_that_nobody_would_change(did: Did) -> None:
    assert not loop("y = f(x)", did).insights


# ---- constant ---------------------------------------------------------------------------------------------------

FILLED = [Op("aten::ones", 100, 1e-3), Op("aten::ones > aten::fill_", 100, 0.05), Op("aten::triu", 100, 0.05)]
MASK = Did(100, 1e-3, FILLED)


@pytest.mark.parametrize(
    "line",
    [
        "m = torch.triu(torch.ones(64, 64), 1)",
        "m = torch.triu(torch.ones(n, n), diagonal=1)",
        "y = x + torch.triu(torch.ones(n * 2, 64))",
        "y += torch.triu(torch.ones(x.shape[0], 64))",
    ],
)
def test_the_same_tensor_made_anew_is_a_constant(line: str) -> None:
    profile = loop(line, MASK)
    (insight,) = profile.insights
    assert kinds(profile) == [("constant", 3)]
    assert insight.seconds == pytest.approx(0.101 - 300 * 0.3e-6)
    assert "runs `torch.triu(torch.ones(" in insight.text
    assert "` 100 times, and this code does not rebind its arguments: up to" in insight.text
    assert insight.cures[0].code is not None
    assert insight.cures[0].code.endswith(line.partition("torch.triu")[2])


@pytest.mark.parametrize(
    "line",
    [
        "m = torch.triu(torch.ones(i, 64), 1)",  # another one each time
        "m = torch.triu(torch.ones(x.size(0), 64), 1)",  # a size that a call gives
        "z = 3; m = torch.triu(torch.ones(z, 64), 1)",  # bound in the loop
        "m = torch.triu(torch.ones(64, 64, requires_grad=True))",
        "out.append(torch.triu(torch.ones(64, 64)))",  # kept
        "m = torch.triu(torch.ones(64, 64)); m[0] = i",  # changed
        "m = torch.triu(torch.ones(64, 64)); m += i",
        "m = torch.triu(torch.ones(64, 64)); m.add_(i)",
        "m = torch.triu(torch.ones(64, 64)); b = m",
        "torch.add(x, 1, out=torch.triu(torch.ones(64, 64)))",
        "m = torch.triu(torch.ones(64, 64)) + torch.ones(i)",  # whose `ones` took the time is not known
        "m = torch.triu(torch.rand(64, 64))",
        "m = torch.zeros(64, 64)",  # made to be written to
    ],
)
def test_no_constant_where_it_may_be_another_tensor_or_change(line: str) -> None:
    assert "constant" not in [each.kind for each in loop(line, MASK).insights]


def test_no_constant_outside_of_loops_and_functions() -> None:
    text = "%%tprofile\nm = torch.triu(torch.ones(64, 64), 1)"
    assert not built_profile(text, {2: MASK}).insights
    inside = "%%tprofile\ndef f(x):\n    return x + torch.triu(torch.ones(64, 64), 1)"
    assert kinds(built_profile(inside, {3: MASK})) == [("constant", 3)]
    of_argument = "%%tprofile\ndef f(x, n):\n    return x + torch.triu(torch.ones(n, n), 1)"
    assert not built_profile(of_argument, {3: MASK}).insights


NUMPY = "n = np.argwhere(x.numpy() > 2)"


@pytest.mark.parametrize(
    "line",
    [
        "m = torch.triu(torch.ones(64, 64) * float('-inf'), diagonal=1)",
        "m = torch.ones(64, 64 * int(size)).triu(1)",
        "m = torch.triu(torch.ones(64, 64) / math.sqrt(size))",
    ],
)
def test_numbers_and_methods_in_a_constant_are_the_same_each_time(line: str) -> None:
    op = "mul" if "inf" in line else "div"
    did = Did(100, 1e-3, [Op("aten::ones", 100, 0.05), Op("aten::triu", 100, 0.05), Op(f"aten::{op}", 100, 0.01)])
    profile = loop(line, did)
    assert kinds(profile) == [("constant", 3)]
    arithmetic = 0.01 - 100 * 0.3e-6 if "size)).triu" not in line and "ones(64, 64)" in line else 0.0
    assert profile.insights[0].seconds == pytest.approx(0.1 - 200 * 0.3e-6 + arithmetic)
    other = "constant" in [each.kind for each in loop(f"{line}; h = x * 2 / 3", did).insights]
    assert other == (arithmetic == 0.0)  # whose `mul` or `div` took the time is not known


@pytest.mark.parametrize(
    "line", ["m = torch.triu(torch.full((64, 64), float(i)))", "m = torch.ones(64, 64).triu(int(x.sum()))"]
)
def test_a_number_of_what_changes_is_no_constant(line: str) -> None:
    said = loop(line, Did(100, 1e-3, [Op("aten::triu", 100, 0.1), Op("aten::full", 100, 0.01)])).insights
    assert "constant" not in [each.kind for each in said]


@pytest.mark.parametrize("within", ["aten::masked_fill_", "aten::matmul"])
def test_the_result_of_an_operation_that_runs_in_place_on_a_clone_is_no_copy(within: str) -> None:
    ops = [
        Op("aten::masked_fill", 100, 0.01),
        Op("aten::masked_fill > aten::clone", 100, 0.1),
        Op(f"aten::masked_fill > {within}", 100, 0.01),
    ]
    said = [each.kind for each in loop("y = x.masked_fill(keep, 0)", Did(100, 1e-3, ops)).insights]
    assert said == ([] if within == "aten::masked_fill_" else ["copies"])


# ---- python and numpy -------------------------------------------------------------------------------------------

MAKES_TENSORS = Did(100, 0.1, [Op("aten::lift_fresh", 100, 1e-4), Op("aten::relu", 100, 1e-4)])


@pytest.mark.parametrize(
    "line",
    [
        "y = torch.tensor(values)",
        "y = torch.tensor(sorted(values, reverse=True)) * 2",
        "y = torch.tensor([v * 2 for v in values])",
        "y = torch.tensor(list(map(table.__getitem__, values)))",
        "y = torch.tensor([v * 2 for v in table.values()])",
        "w = sorted(values); y = torch.tensor(list(w))",
    ],
)
def test_time_outside_torch_around_operations_is_python(line: str) -> None:
    profile = loop(line, MAKES_TENSORS)
    (insight,) = profile.insights
    assert kinds(profile) == [("python", 3)]
    surely = 0.5 * (200 * 0.6e-6 + 100 * 0.5e-6)
    assert insight.seconds == pytest.approx(0.1 - surely - 200 * 2e-6)
    assert "outside torch" in insight.text


@pytest.mark.parametrize(
    "line",
    [
        "y = torch.tensor(load(i))",  # unknown: it may read a file
        "time.sleep(0.001); y = x.relu()",
        "y = queue.get().relu()",
        "y = x.relu(); time.sleep(0.001)",
        "if i: y = torch.tensor(load(i))",
        "y = torch.load('x.pt').relu()",
        "y = requests.get(url).relu()",
        "print(x.relu())",
        "with lock: y = x.relu()",
        "y = pool.map(f, values)",
        "y = torch.tensor(open('x').read())",
        "y = await x.relu()",
        "y = torch.hub.load('a', 'b').relu()",
        "y = torch.tensor(list(w)); w = iter(loader)",
        "for nth, row in enumerate(rows): y = row.relu()",
    ],
)
def test_nothing_is_said_of_time_that_may_be_waiting(line: str) -> None:
    assert not loop(line, MAKES_TENSORS).insights


@pytest.mark.parametrize("line", ["y = torch.tensor(values)", "n = np.argwhere(x.numpy() > 2)"])
def test_nothing_is_said_of_a_line_that_is_known_to_wait(line: str) -> None:
    waits = Doubt("waits", "It waits.", facts={"source_id": SOURCE, "line": 3})
    elsewhere = Doubt("waits", "It waits.", facts={"source_id": SOURCE, "line": 4})
    assert not loop(line, MAKES_TENSORS, warnings=[waits]).insights
    assert loop(line, MAKES_TENSORS, warnings=[elsewhere]).insights


def test_no_python_without_operations_or_in_one_long_run() -> None:
    line = "y = torch.tensor(values)"
    assert kinds(loop(line, MAKES_TENSORS)) == [("python", 3)]
    assert not loop(line, replace(MAKES_TENSORS, ops=())).insights
    assert not loop(line, replace(MAKES_TENSORS, longest=0.08)).insights
    assert not loop(line, MAKES_TENSORS, trace=None).insights


def test_the_python_of_modules_may_be_compiled() -> None:
    did = Did(100, 0.1, [Op("aten::linear", 100, 0.01)], modules=100)
    (insight,) = loop("y = net(x)", did).insights
    assert (insight.kind, insight.cures[0].lever) == ("python", "compile")
    assert not loop("y = trainer(x)", did).insights


def test_a_module_that_is_compiled_already_is_not_to_be_compiled() -> None:
    ran = [Op("Torch-Compiled Region: 0/0", 100, 0.005), Op("aten::linear", 100, 0.005)]
    (insight,) = loop("y = net(x)", Did(100, 0.1, ran, modules=100)).insights
    assert insight.kind == "python"
    assert [cure.lever for cure in insight.cures] == [None]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("n = np.argwhere(x.numpy() > 2)", "`np.argwhere`"),
        ("y = torch.from_numpy(np.cumsum(a))", "`np.cumsum`"),
        ("n = numpy.unique(x.cpu().numpy())", "`numpy.unique`"),
    ],
)
def test_a_line_that_hands_a_tensor_to_numpy_is_named_with_the_calls(line: str, named: str) -> None:
    did = Did(100, 0.1, [Op("aten::detach", 100, 1e-4)])
    profile = loop(line, did)
    assert kinds(profile) == [("numpy", 3)]
    assert named in profile.insights[0].text
    assert "compare both with `%%timer`" in profile.insights[0].cures[0].text


@pytest.mark.parametrize("runs", [1, 3, 9])
def test_a_tensor_of_long_work_in_numpy_needs_no_many_runs(runs: int) -> None:
    """Less than what a first run may import is no evidence, and data that comes from numpy once is none either."""
    text = f"%%tprofile\n{NUMPY}\ny = x @ x"
    least = outside_torch.LARGE + runs * (0.6e-6 + 0.5e-6)
    for line, seconds, said in (
        ("n = np.argwhere(x.numpy() > 2)", 1.1 * least, [("numpy", 2)]),
        ("n = np.argwhere(x.numpy() > 2)", 0.9 * least, []),
        ("y = torch.from_numpy(np.cumsum(a))", 1.1 * least, []),
    ):
        did = Did(runs, seconds, [Op("aten::detach", runs, 1e-6)])
        assert kinds(built_profile(text.replace(NUMPY, line), {2: did, 3: MATMUL})) == said


def test_numpy_of_a_tensor_that_was_handed_over_before_is_named() -> None:
    text = LOOP.replace("{}", "a = np.log(h)").replace("for", "h = x.numpy()\nfor")
    profile = built_profile(text, {4: Did(100, 0.1, []), 5: MATMUL})
    assert kinds(profile) == [("numpy", 4)]


@pytest.mark.parametrize(
    "line",
    [
        "n = np.argsort(table)",  # no tensor
        "x = torch.from_numpy(np.load('x.npy'))",  # a file
        "n = np.argwhere(fetch(x.numpy()))",  # what else it calls is not known
        "y = x.relu().foo()",
    ],
)
def test_no_numpy_where_it_is_not_known(line: str) -> None:
    assert not loop(line, Did(100, 0.1, [])).insights


# ---- all kinds --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(VOIDING))
def test_a_doubt_about_the_figures_silences_all(kind: str) -> None:
    assert not loop("y = y + 1", SMALL, warnings=[Doubt(kind, "Doubtful.")]).insights
    assert loop("y = y + 1", SMALL, warnings=[Doubt("compiled-modules", "Something else.")]).insights


def test_partial_runs_devices_and_profiles_without_lines_are_silent() -> None:
    profile = loop("y = y + 1", SMALL)
    assert not replace(profile, partial=True).insights
    assert not replace(profile, frames=profile.frames[:0]).insights
    assert not replace(profile, ops=profile.ops.assign(self_device_time=0.1)).insights
    assert not replace(profile, wall_time=0.0).insights


def test_of_two_kinds_about_the_same_time_the_one_that_names_a_cause_stays() -> None:
    ops = [Op("aten::arange", 20_000, 0.08)]
    profile = built_profile(
        "%%tprofile\nfor i in range(20000):\n    y = torch.arange(8) + 1\n    z = x @ x",
        {3: Did(20_000, 0.02, ops), 4: MATMUL},
    )
    assert kinds(profile) == [("constant", 3)]


def test_insights_come_with_the_most_seconds_first_and_survive_pickle_and_json() -> None:
    text = LOOP.format("y = x.double()\n    w = x.t().contiguous()")
    laid = Did(100, 1e-3, [Op("aten::contiguous", 100, 1e-4), Op("aten::contiguous > aten::clone", 100, 0.2)])
    profile = built_profile(text, {3: converting(), 4: laid, 5: MATMUL})
    assert kinds(profile) == [("copies", 4), ("copies", 3)]
    again = pickle.loads(pickle.dumps(profile.insights))
    assert again == profile.insights
    assert [dict(each.evidence) for each in again] == [dict(each.evidence) for each in profile.insights]
    said = json.loads(json.dumps([each.as_dict() for each in profile.insights]))
    assert said[0]["places"] == [{"label": "In[1]:4", "source_id": SOURCE, "line": 4}]
    assert isinstance(hash(profile.insights[0]), int)
    with pytest.raises(TypeError):
        profile.insights[0].evidence["more"] = 1  # type: ignore[index]
    assert isinstance(again[0], Insight)


# ==== line uses =======================================================================================================
# What each line did is read from a profile once, however many kinds of insights ask.


def test_of_one_profile_it_is_read_once_and_of_another_anew() -> None:
    profile = built_profile("%%tprofile\ny = x + 1", {2: Did(1, 1e-3, [Op("aten::add", 1, 1e-3)])})
    found = recorded_lines(profile)
    assert recorded_lines(profile) is found
    again = recorded_lines(replace(profile))
    assert again is not found
    assert again == found
    other = recorded_lines(replace(profile, wall_time=2 * profile.wall_time))
    assert other.wall > found.wall
    assert recorded_lines(profile) == found


def test_a_profile_is_not_kept_for_it() -> None:
    profile = built_profile("%%tprofile\ny = x + 1", {2: Did(1, 1e-3)})
    recorded_lines(profile)
    seen = weakref.ref(profile)
    del profile
    gc.collect()
    assert seen() is None


# ==== insights ========================================================================================================
# Slow cells, of which the right kind and line is said; and healthy ones, of which nothing is.
#
# What is said of a run depends on its times, so each cell's run was recorded (`insight_cells`); cells that run, their
# cures and what these save are ``tests/benchmarks/insights.py``.


def said(case: Planted) -> list[tuple[str, int]]:
    return list(found(recorded(case)))


def test_a_slow_cell_is_told_by_its_kind_and_line() -> None:
    def check(case: Planted) -> None:
        assert said(case)[:1] == [(case.kind, case.line)], case.body

    every_case(((case,) for case in SLOW), check)


def test_nothing_is_said_of_a_healthy_cell() -> None:
    def check(case: Planted) -> None:
        assert said(case) == [], case.body

    every_case(((case,) for case in HEALTHY), check)


def test_what_is_at_stake_is_no_more_than_the_run_took() -> None:
    profile = recorded(SLOW[0])
    (insight,) = profile.insights
    assert 0 < insight.seconds <= profile.wall_time
    assert 0.3 < insight.share <= 1


def facts(insights: tuple[Insight, ...]) -> list[dict[str, object]]:
    return [each.as_dict() for each in insights]


def stored(profile: Profile, file: Path) -> Profile:
    save(profile, file)
    (again,) = load(file)
    assert isinstance(again, Profile)
    return again


def test_a_stored_profile_and_a_trace_that_was_exported_have_their_insights_again(tmp_path: Path) -> None:
    profile = recorded(SLOW[2])
    assert profile.insights
    assert facts(stored(profile, tmp_path / "runs.sqlite").insights) == facts(profile.insights)
    profile = recorded(SLOW[5])
    profile.export_trace(tmp_path / "trace.json")
    assert profile.insights
    assert facts(load_trace(tmp_path / "trace.json").insights) == facts(profile.insights)


def test_a_run_of_now_is_read_as_its_trace_and_its_stored_result_are(tmp_path: Path) -> None:
    """Whatever is said of it, which its times decide."""
    profile = profiled(SLOW[1])
    profile.export_trace(tmp_path / "trace.json")
    told = facts(profile.insights)
    assert facts(load_trace(tmp_path / "trace.json").insights) == told
    assert facts(stored(profile, tmp_path / "runs.sqlite").insights) == told
