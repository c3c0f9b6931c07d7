"""What is said of cells that keep memory, and what the text of the code says of a container that grows."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.cure_cases.leak_cells import HEALTHY, LEAKING, LeakCell, leaks_said, profile_in_shell
from tests.torch_versions import shows_what_graphs_save
from torchbench_magic.insights.leak import is_emptied, is_made_in, is_read_after_its_loop
from torchbench_magic.profiling.lines_view import first_insights
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.result_base import Doubt, Insight
from torchbench_magic.storage.store import load, save

# ==== kept on purpose =================================================================================================


LOOP = "for i in range(9):\n    kept.append(i)\n"


@pytest.mark.parametrize(
    "text",
    [
        "kept.pop(0)",
        "if len(kept) > 3:\n    kept.popleft()",
        "kept.clear()",
        "del kept[0]",
        "kept = kept[-10:]",
        "def f():\n    kept.remove(1)",
    ],
)
def test_a_container_that_is_emptied_is_known(text: str) -> None:
    assert is_emptied(ast.parse(text), "kept")


@pytest.mark.parametrize(
    "text", ["other.pop(0)", "kept.append(1)", "del kept", "kept[0] = 1", "x = kept[-1]", "kept.pop"]
)
def test_others_are_not(text: str) -> None:
    assert not is_emptied(ast.parse(text), "kept")


def test_an_attribute_is_known_within_the_methods_of_its_class() -> None:
    text = "class Log:\n    def note(self):\n        self.past.pop(0)"
    assert is_emptied(ast.parse(text), "log.past")
    assert not is_emptied(ast.parse(text), "past")
    assert not is_emptied(ast.parse(text), "log.other")


def test_results_are_read_after_the_loop_or_not() -> None:
    assert is_read_after_its_loop(ast.parse(f"{LOOP}y = torch.cat(kept)"), "kept")
    assert not is_read_after_its_loop(ast.parse(LOOP), "kept")
    assert not is_read_after_its_loop(ast.parse(f"{LOOP}kept = 1"), "kept")
    assert not is_read_after_its_loop(ast.parse("y = kept"), "kept"), "there is no loop"
    assert not is_read_after_its_loop(ast.parse(f"y = kept\n{LOOP}"), "kept"), "it is read before"


def test_a_container_is_made_in_the_cell_or_came_from_before() -> None:
    assert is_made_in(ast.parse(f"kept = []\n{LOOP}"), "kept")
    assert is_made_in(ast.parse(f"kept: list = []\n{LOOP}"), "kept")
    assert not is_made_in(ast.parse(LOOP), "kept")
    assert not is_made_in(ast.parse("for i in x:\n    kept = [i]"), "kept"), "it is another one each time"


# ==== memory insights =================================================================================================
# What is said of cells that keep memory, of healthy ones, and of what a peak is made of; all of them run.


FIRST = ("a list of outputs", "losses added up with their graph", "an output of an earlier cell")
"""The others take half a minute more."""


def cells(every: tuple[LeakCell, ...]) -> list[Any]:
    return [pytest.param(cell, id=cell.name, marks=() if cell.name in FIRST else pytest.mark.slow) for cell in every]


@pytest.mark.parametrize("cell", cells(LEAKING))
@pytest.mark.slow
def test_the_holder_of_what_grows_or_stays_is_named(cell: LeakCell) -> None:
    (said,) = leaks_said(profile_in_shell(cell))
    assert cell.holder in said.text
    assert said.evidence["kind_of_holder"] == cell.kind
    assert said.nbytes > 2**20
    assert said.cures
    if cell.line:
        assert said.places[0].line == cell.line


@pytest.mark.slow
@pytest.mark.parametrize("cell", cells(HEALTHY))
def test_nothing_is_said_of_a_cell_that_keeps_nothing(cell: LeakCell) -> None:
    assert not leaks_said(profile_in_shell(cell))


@shows_what_graphs_save
def test_steps_that_are_recorded_are_enough() -> None:
    cell = LEAKING[0]
    (said,) = leaks_said(profile_in_shell(cell, "--steps 10 --warmup 2"))
    assert cell.holder in said.text


@shows_what_graphs_save
@pytest.mark.parametrize("name", ["losses added up in one line", "layers made in one line"])
def test_a_loop_in_one_line_is_known_by_what_each_turn_allocates(name: str) -> None:
    cell = next(each for each in (*LEAKING, *HEALTHY) if each.name == name)
    said = leaks_said(profile_in_shell(cell))
    assert ["keeps more with each turn of the loop in it: " in each.text for each in said] == [True] * bool(cell.holder)


@pytest.mark.slow
def test_a_stored_profile_says_the_same(tmp_path: Path) -> None:
    profile = profile_in_shell(LEAKING[0])
    save(profile, tmp_path / "runs.sqlite")
    (again,) = load(tmp_path / "runs.sqlite")
    assert isinstance(again, Profile)
    assert [each.as_dict() for each in again.insights if each.nbytes] == [
        each.as_dict() for each in profile.insights if each.nbytes
    ]


def test_nothing_is_said_where_bytes_are_doubtful_and_something_where_times_are() -> None:
    profile = profile_in_shell(LEAKING[0])
    assert leaks_said(replace(profile, warnings=[Doubt("busy", "Others computed.")]))
    for kind in ("partial", "events-dropped", "events-lost"):
        assert not leaks_said(replace(profile, warnings=[Doubt(kind, "")]))


def test_an_output_is_not_blamed_where_the_search_was_cut_off() -> None:
    profile = profile_in_shell(next(cell for cell in LEAKING if cell.name == "an output of an earlier cell"))
    assert leaks_said(profile)
    assert not leaks_said(replace(profile, warnings=[Doubt("holders-in-part", "")]))


def test_the_first_about_memory_is_among_those_that_are_shown() -> None:
    def of_time(seconds: float) -> Insight:
        return Insight("copies", seconds, 0.1, "")

    of_memory = Insight("leak", 0.0, 0.0, "", nbytes=5)
    assert first_insights([of_time(3), of_time(2), of_time(1), of_memory]) == [of_time(3), of_time(2), of_memory]
    assert first_insights([of_time(3), of_memory, of_memory]) == [of_time(3), of_memory, of_memory]
    assert first_insights([of_memory] * 4) == [of_memory] * 3


# ---- the peak -----------------------------------------------------------------------------------------------------

NET = (
    "net = torch.nn.Sequential(*[layer for _ in range(10) for layer in (torch.nn.Linear(512, 512), torch.nn.ReLU())])\n"
)
LARGE = NET + "x = torch.rand(1024, 512)\nopt = torch.optim.SGD(net.parameters(), lr=0.1)"
STEP = "opt.zero_grad()\nloss = net(x).square().mean()\nloss.backward()\nopt.step()"
WIDE = "net = torch.nn.Linear(2048, 2048)\nx = torch.rand(8, 2048)\n"


def peak_of_cell(name: str, setup: str, body: str) -> tuple[Profile, list[Insight]]:
    profile = profile_in_shell(LeakCell(name, (setup,), body))
    return profile, [each for each in profile.insights if each.kind == "peak"]


def parts(profile: Profile) -> dict[str, int]:
    return dict(profile.peak_parts.groupby("part")["bytes"].sum())


@pytest.mark.slow
def test_activations_make_up_the_peak_of_a_large_batch() -> None:
    profile, said = peak_of_cell("batch", LARGE, STEP)
    found = parts(profile)
    assert len(said) == 1, f"{found}; {[doubt.kind for doubt in profile.warnings]}"
    assert found["activations"] == 10 * 1024 * 512 * 4  # of each ReLU its result, which the layer above saves too
    assert found["parameters"] == 10 * (512 * 512 + 512) * 4
    assert "activations" in said[0].text
    assert "checkpoint" in (said[0].cures[0].code or "")


def test_the_parts_add_up_to_the_peak_and_what_was_there() -> None:
    profile, _ = peak_of_cell("batch", LARGE, STEP)
    assert profile.memory is not None
    own = profile.peak_parts[~profile.peak_parts["before"]]["bytes"].sum()
    freed = profile.memory[profile.memory["block"].isna() & (profile.memory["change"] < 0)]
    peak = int(profile.memory["bytes"].idxmax())
    assert own == profile.memory["bytes"].max() - int(freed.loc[:peak, "change"].sum())


@shows_what_graphs_save
def test_a_graph_that_nothing_uses_is_to_be_left_out() -> None:
    _, (said,) = peak_of_cell("evaluation", LARGE, "for i in range(3):\n    y = net(x)")
    assert said.cures[0].lever == "inference_mode"


def test_nothing_is_said_of_evaluation_without_a_graph() -> None:
    _, said = peak_of_cell(
        "inference", LARGE, "with torch.inference_mode():\n    for i in range(3):\n        y = net(x)"
    )
    assert not [each for each in said if "activations" in each.text]


def test_state_and_temporaries_of_the_optimizer_are_told() -> None:
    setup = WIDE + "opt = torch.optim.Adam(net.parameters(), foreach=True)"
    profile, (said,) = peak_of_cell("adam", setup, STEP)
    found = parts(profile)
    size = (2048 * 2048 + 2048) * 4
    assert found["optimizer temporaries"] >= size
    assert found["optimizer state"] == 2 * size + 2 * 4  # and a step count for each parameter
    assert any(cure.lever == "fused-optimizer" for cure in said.cures)


def test_state_that_another_optimizer_left_is_a_part_of_the_peak() -> None:
    setup = WIDE + (
        "old = torch.optim.Adam(net.parameters())\nnet(x).sum().backward()\nold.step()\nold.zero_grad()\n"
        "small = torch.nn.Linear(2048, 4)\nopt = torch.optim.SGD(small.parameters(), lr=0.1, momentum=0.9)"
    )
    body = "for i in range(3):\n    opt.zero_grad()\n    small(x).sum().backward()\n    opt.step()"
    profile, (said,) = peak_of_cell("two optimizers", setup, body)
    size = (2048 * 2048 + 2048) * 4
    assert parts(profile)["parameters"] == size + (2048 * 4 + 4) * 4, "keys of the state are no state"
    assert "% optimizer state" in said.text
    assert [cure.text.split()[0] for cure in said.cures] == ["Adam", "Delete"]


def test_gradients_that_stay_through_the_forward_pass_are_to_be_freed_before() -> None:
    setup = WIDE + "opt = torch.optim.SGD(net.parameters(), lr=0.1)\nbig = torch.rand(2048, 2048)"
    loss = "    loss = (net(x) + (big * big).sum()).mean()\n"
    body = f"for i in range(3):\n{loss}    opt.zero_grad()\n    loss.backward()\n    opt.step()"
    profile, (said,) = peak_of_cell("late zero_grad", setup, body)
    assert "gradients" in parts(profile)
    assert any(cure.code == "optimizer.zero_grad(set_to_none=True)" for cure in said.cures)


def test_a_small_peak_is_nobodys_concern() -> None:
    _, said = peak_of_cell("small", "x = torch.rand(100, 100)", "y = (x * 2).relu()")
    assert not said
