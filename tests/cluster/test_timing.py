"""Timings on several engines: which engine measures what next, one at a time on a host, joined to one result."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from tests.timing.samples import HERE, lone, pair
from torchbench_magic import load
from torchbench_magic.cluster.timing import HostQueues, Share, join_engines
from torchbench_magic.errors import InputError
from torchbench_magic.process.environment import EnginePlace, Environment
from torchbench_magic.timing.across_runs import side_by_side
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.samples import Subject
from torchbench_magic.timing.verdict import ONE_WINDOW, RUNS, Range

# ==== joined engines ==================================================================================================
# What several engines measured, as one result.


OTHER = replace(HERE, torch="2.14.0", usable_cores=8, cpu="B", load=3.0)


def of_engine(result: Comparison, engine: int, host: str = "h", at: Environment = HERE, **more: object) -> Comparison:
    place = EnginePlace(engine, host, at)
    subjects = tuple(replace(subject, place=place, **more) for subject in result.subjects)  # type: ignore[arg-type]
    return replace(result, subjects=subjects, environment=at)


def env(result: Comparison, engine: int, host: str = "h", at: Environment = HERE) -> Comparison:
    return of_engine(result, engine, host, at, env=f"{host}/{engine}")


def point(result: Comparison, n: int, engine: int, host: str = "h", at: Environment = HERE) -> Comparison:
    return of_engine(result, engine, host, at, axes=(("n", n),), sub_label=f"n={n}")


def kinds(result: Comparison) -> list[str]:
    return [doubt.kind for doubt in result.warnings]


def test_alternatives_are_paired_on_their_engine_and_not_between_engines() -> None:
    whole = join_engines([env(pair(1e-3, 2e-3), 0), env(pair(1e-3, 3e-3, seed=1), 1)])
    assert whole.frame["method"].tolist() == ["paired"] * 4
    assert whole.frame["verdict"].tolist() == ["baseline", "slower"] * 2
    assert whole.frame["ratio"].round(1).tolist() == [1, 2, 1, 3]
    assert whole.unpaired == {}


@pytest.mark.parametrize("times", [1.0, 1.01, 3.0, 1000.0])
def test_one_window_on_either_engine_decides_nothing_however_far_the_times_are_apart(times: float) -> None:
    whole = join_engines([env(lone(1e-3), 0), env(lone(times * 1e-3, seed=1), 1, "g", OTHER)])
    frame = whole.frame
    assert frame["method"].tolist() == ["unpaired", "unpaired"]
    assert frame["verdict"].tolist() == ["baseline", "undecided"]
    assert frame["ratio"][1] == pytest.approx(times, rel=0.01)
    assert (frame["ratio_low"][1], frame["ratio_high"][1]) == (0, math.inf)
    assert [doubt.text for doubt in whole.warnings if doubt.kind == "unpaired"] == [
        f"No verdict between engines: {ONE_WINDOW}."
    ]


def test_engines_of_which_it_is_known_how_times_repeat_can_be_told_apart() -> None:
    parts = []
    for engine, median in enumerate((1e-3, 2e-3)):
        known = {0: Range(0.99 * median, 1.01 * median, RUNS, of_runs=True)}
        parts.append(env(lone(median), engine))
        parts[-1] = replace(parts[-1], history=known)
    whole = join_engines(parts)
    assert whole.frame["verdict"].tolist() == ["baseline", "undecided"], "a join knows no store"
    history = {row: part.history[0] for row, part in enumerate(parts)}
    from torchbench_magic.cluster import timing

    known_whole = replace(whole, history=history)
    assert timing._between_envs(known_whole)[1].verdict == "slower"


def test_stored_runs_of_engines_are_compared_by_their_environments() -> None:
    def stored(seed: int) -> Comparison:
        whole = join_engines([env(lone(1e-3, seed=seed), 0), env(lone(2e-3, seed=seed + 9), 1, "g", OTHER)])
        known = {row: Range(0.99 * time, 1.01 * time, RUNS, of_runs=True) for row, time in enumerate((1e-3, 2e-3))}
        return replace(whole, history=known)

    made = side_by_side({"first": stored(0), "second": stored(1)}, by="env")
    assert made.frame["verdict"].tolist() == ["baseline", "slower"]
    assert "f(x) in second on g/1 takes" in repr(made)
    assert "as f(x) in second on h/0" in repr(made)


def test_what_was_not_measured_is_a_row_with_the_reason(tmp_path: Path) -> None:
    dead = Subject(env="h/1", place=EnginePlace(1, "h", None, "has no torch"))
    whole = join_engines([env(pair(1e-3, 2e-3), 0)], [dead])
    assert whole.frame["samples"].tolist() == [20, 20, 0]
    assert math.isnan(whole.frame["median"][2])
    assert pd.isna(whole.frame["verdict"][2])
    assert len(whole.measurements) == 3
    text = repr(whole)
    assert "has no torch" in text
    assert "not measured" in text
    assert "2 measurements" not in text or "3 measurements" not in text
    whole.save(tmp_path / "runs.sqlite")
    (again,) = load(tmp_path / "runs.sqlite")
    assert isinstance(again, Comparison)
    assert [subject.place for subject in again.subjects] == [subject.place for subject in whole.subjects]
    assert again.rebase("bmm").frame["verdict"].tolist()[:2] == ["faster", "baseline"]


def test_nothing_measured_is_an_error() -> None:
    with pytest.raises(InputError, match="nothing was measured on any engine"):
        join_engines([], [Subject(place=EnginePlace(0, "h", None, "died"))])


def test_points_of_unlike_hosts_are_not_to_be_compared_by_their_times() -> None:
    like = join_engines([point(pair(1e-3, 2e-3), 1, 0), point(pair(1e-3, 2e-3), 2, 0)])
    assert "several-hosts" not in kinds(like)
    unlike = join_engines([point(pair(1e-3, 2e-3), 1, 0), point(pair(1e-3, 2e-3), 2, 1, "g", OTHER)])
    (said,) = (doubt for doubt in unlike.warnings if doubt.kind == "several-hosts")
    assert "h: A, 2 cores, torch 2.13.0" in said.text
    assert "g: B, 8 cores, torch 2.14.0" in said.text
    assert unlike.frame["verdict"].tolist() == ["baseline", "slower"] * 2
    assert unlike.environment.torch == "2.13.0 / 2.14.0"


def test_the_cores_of_a_row_are_those_of_its_engine() -> None:
    parts = [of_engine(pair(1e-3, 2e-3), 0, at=HERE, env="h/0"), of_engine(pair(1e-3, 2e-3), 1, at=OTHER, env="h/1")]
    parts = [replace(part, subjects=tuple(replace(s, num_threads=4) for s in part.subjects)) for part in parts]
    whole = join_engines(parts)
    assert [whole.cores_of(row) for row in range(4)] == [2, 2, 8, 8]
    (said,) = (doubt for doubt in whole.warnings if doubt.kind == "oversubscribed")
    assert said.facts["cores"] == 2


def test_the_table_has_engine_load_and_the_versions_that_differ() -> None:
    whole = join_engines([point(pair(1e-3, 2e-3), 1, 0), point(pair(1e-3, 2e-3), 2, 1, "g", OTHER)])
    text = repr(whole)
    assert "h/0" in text
    assert "g/1" in text
    assert "0.5" in text
    assert "3.0" in text
    assert "2.14.0" in text
    alike = repr(join_engines([env(lone(1e-3), 0), env(lone(1e-3), 1)]))
    assert "on h/1 against" in alike
    assert "2 engines of 1 host, one per host at a time" in " ".join(alike.split())


def test_all_engines_in_the_sentence() -> None:
    assert "on both engines" in repr(join_engines([env(pair(1e-3, 2e-3), n) for n in (0, 1)]))
    assert "on all 3 engines" in repr(join_engines([env(pair(1e-3, 2e-3), n) for n in (0, 1, 2)]))


# ==== host queues =====================================================================================================
# Which engine measures what next: pure, without a cluster.


def numbers(begun: list[tuple[int, Share]]) -> list[tuple[int, int]]:
    return [(engine, job.number) for engine, job in begun]


def queues(hosts: dict[int, str], points: int) -> HostQueues:
    return HostQueues(hosts, [Share(number) for number in range(points)])


def test_a_host_has_one_engine_at_work_and_hosts_work_side_by_side() -> None:
    made = queues({0: "a", 1: "a", 2: "b"}, 3)
    assert numbers(made.due()) == [(0, 0), (2, 1)]
    assert made.due() == []
    made.finish(2)
    assert numbers(made.due()) == [(2, 2)]
    made.finish(0)
    assert made.due() == []
    made.finish(2)
    assert not made.is_open


def test_where_all_measure_the_same_engines_of_a_host_take_turns() -> None:
    made = HostQueues({0: "a", 1: "a", 2: "b"}, [Share(each, each) for each in (0, 1, 2)])
    assert numbers(made.due()) == [(0, 0), (2, 2)]
    made.finish(0)
    assert numbers(made.due()) == [(1, 1)]


@pytest.mark.parametrize(
    "made", [queues({0: "a", 1: "a"}, 2), HostQueues({0: "a", 1: "a"}, [Share(0, 0), Share(1, 1)])]
)
def test_the_work_that_an_engine_died_over_is_left_over_and_another_of_its_host_does_the_rest(made: HostQueues) -> None:
    made.due()
    made.lose(0)
    assert [job.number for job in made.left_over] == [0]
    assert numbers(made.due()) == [(1, 1)]


def test_an_engine_that_is_merely_unsuitable_costs_its_work_no_try() -> None:
    made = queues({0: "a", 1: "a", 2: "a"}, 1)
    for engine in (0, 1):
        made.due()
        made.lose(engine, dies_over_it=False)
    assert numbers(made.due()) == [(2, 0)]


def test_without_an_engine_all_that_waits_is_left_over() -> None:
    made = queues({0: "a"}, 3)
    made.due()
    made.lose(0)
    assert made.due() == []
    assert not made.is_open
    assert [job.number for job in made.left_over] == [0, 1, 2]
