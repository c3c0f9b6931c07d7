from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
import pytest

from torchbench_magic.process.contention import Contention
from torchbench_magic.process.environment import Environment
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.samples import Subject
from torchbench_magic.timing.scaling import crossovers, main_axis, thread_curves, times_along

Point = tuple[tuple[tuple[str, object], ...], int, Sequence[float]]


def comparison_of(
    points: Sequence[Point], names: Sequence[str | None] = ("a", "b"), cores: int = 4, extra: Sequence[str] = ()
) -> Comparison:
    """One group per (axes, threads, seconds of each alternative); 20 blocks each, spread over +-0.2 %."""
    subjects, rows = [], []
    for group, (axes, threads, seconds) in enumerate(points):
        for place, (name, median) in enumerate(zip(names, seconds, strict=True)):
            text = ", ".join([*(f"{axis}={value}" for axis, value in axes), *extra[group : group + 1]])
            subjects.append(
                Subject(
                    sub_label=text or None, description=name, num_threads=threads, axes=axes, group=group, look="once"
                )
            )
            for turn in range(20):
                wall = median * (1 + 0.002 * math.cos(7 * turn + 3 * place))
                rows.append((turn, len(subjects) - 1, wall, wall * threads, 1, place))
    frame = pd.DataFrame(rows, columns=["round", "measurement", "wall", "cpu", "number", "position"])
    return Comparison(tuple(subjects), frame, Environment(python="3", torch="2", usable_cores=cores))


def along(axis: str, values: Sequence[float], a: Sequence[float], b: Sequence[float]) -> list[Point]:
    return [(((axis, v),), 1, (x, y)) for v, x, y in zip(values, a, b, strict=True)]


# ---- the axis ---------------------------------------------------------------------------------------------------


def test_the_main_axis_is_the_numeric_one_with_the_most_values() -> None:
    points: list[Point] = [((("mode", f"m{n}"), ("k", n % 2), ("n", n)), 1, (1.0, 1.0)) for n in range(4)]
    assert main_axis(comparison_of(points)) == "n"


@pytest.mark.parametrize("values", [("sum", "mean"), (True, False), (1.0,), (1.0, math.inf), ((1, 2), (3, 4))])
def test_an_axis_that_cannot_be_drawn_along_is_none(values: tuple[object, ...]) -> None:
    assert main_axis(comparison_of([((("n", v),), 1, (1.0, 1.0)) for v in values])) is None


def test_a_curve_ascends_along_the_axis_whatever_the_order_of_measuring() -> None:
    (a, b) = times_along(comparison_of(along("n", [64, 16, 32], [3.0, 1.0, 2.0], [6.0, 2.0, 4.0])), "n")
    assert (a.description, b.description) == ("a", "b")
    assert [p.at for p in a.points] == [16, 32, 64]
    assert [round(p.median, 2) for p in b.points] == [2, 4, 6]
    assert all(p.low < p.median < p.high for p in a.points)


def test_curves_of_other_axes_and_thread_counts_are_kept_apart_and_say_what_differs() -> None:
    points: list[Point] = [
        ((("n", n), ("mode", mode)), t, (1.0, 2.0)) for n in (1, 2, 4) for mode in ("sum", "max") for t in (1, 2)
    ]
    found = times_along(comparison_of(points), "n")
    assert len(found) == 8
    assert {c.fixed for c in found} == {(("num_threads", t), ("mode", mode)) for t in (1, 2) for mode in ("sum", "max")}
    assert all(len(c.points) == 3 for c in found)


def test_several_inputs_at_one_value_are_lines_of_their_own() -> None:
    points: list[Point] = [((("k", k),), 1, (k * size, 2.0 * k * size)) for k in (1, 2) for size in (1.0, 10.0)]
    found = times_along(comparison_of(points, extra=["1 x 2", "3 x 4"] * 2), "k")
    assert [(c.description, c.fixed) for c in found] == [
        ("a", (("input", 1),)),
        ("b", (("input", 1),)),
        ("a", (("input", 2),)),
        ("b", (("input", 2),)),
    ]
    assert [round(p.median, 1) for p in found[2].points] == [10, 20]


def test_runs_of_one_point_are_told_from_inputs() -> None:
    points: list[Point] = [((("k", k),), 1, (1.0 * k,)) for _ in range(2) for k in (1, 2)]
    assert [c.fixed for c in times_along(comparison_of(points, (None,)), "k")] == [(("run", 1),), (("run", 2),)]


# ---- where alternatives swap --------------------------------------------------------------------------------


def test_power_laws_cross_where_they_are_equal() -> None:
    values = [2.0**k for k in range(4, 15)]
    a, b = [v * 1e-6 for v in values], [v * v * 1e-6 / 300 for v in values]  # equal at 300
    (found,) = crossovers(comparison_of(along("n", values, a, b)))
    assert (found.axis, found.faster_below, found.faster_above) == ("n", "b", "a")
    assert (found.low, found.high) == (256, 512)
    assert found.at == pytest.approx(300, rel=0.01)


def test_no_swap_and_a_side_that_is_not_decided_are_no_crossover() -> None:
    values = [1.0, 10.0, 100.0]
    assert crossovers(comparison_of(along("n", values, values, [2 * v for v in values]))) == []
    same = comparison_of(along("n", values, [1.0, 1.0, 1.0], [0.5, 0.5, 1.0005]))
    assert [str(v) for v in same.frame["verdict"] if v != "baseline"] == ["faster", "faster", "same"]
    assert crossovers(same) == []


def test_points_that_are_the_same_lie_between_the_decided_ends() -> None:
    values = [1.0, 10.0, 100.0]
    (found,) = crossovers(comparison_of(along("n", values, [1.0, 1.0, 1.0], [0.5, 1.0005, 2.0])))
    assert (found.low, found.high) == (1, 100)
    assert found.at == pytest.approx(10, rel=0.01)


def test_places_below_zero_are_interpolated_straight() -> None:
    (found,) = crossovers(comparison_of(along("shift", [-1.0, 1.0], [1.0, 1.0], [0.5, 2.0])))
    assert found.at == pytest.approx(0, abs=0.01)


def test_there_and_back_are_two_crossovers() -> None:
    found = crossovers(comparison_of(along("n", [1, 10, 100], [1.0, 1.0, 1.0], [0.5, 2.0, 0.5])))
    assert [(c.faster_below, c.faster_above) for c in found] == [("b", "a"), ("a", "b")]


def test_each_thread_count_has_its_own_crossover() -> None:
    points: list[Point] = [
        ((("n", n),), t, (1.0, ratio))
        for t, ratios in ((1, (0.5, 2.0)), (2, (0.5, 0.6)))
        for n, ratio in zip((8, 32), ratios, strict=True)
    ]
    (found,) = crossovers(comparison_of(points))
    assert found.fixed == (("num_threads", 1),)
    assert found.at == pytest.approx(16, rel=0.01)


def test_against_another_baseline_the_other_pair_crosses() -> None:
    points: list[Point] = [((("n", n),), 1, (1.0, 4.0, c)) for n, c in ((1, 3.0), (10, 5.0))]
    made = comparison_of(points, ("a", "b", "c"))
    assert crossovers(made) == []
    (found,) = crossovers(made.rebase("b"))
    assert (found.faster_below, found.faster_above) == ("c", "b")


def test_a_lone_statement_crosses_nothing() -> None:
    made = comparison_of([((("n", n),), 1, (1.0 * n,)) for n in (1, 2)], (None,))
    assert crossovers(made) == []
    assert len(times_along(made, "n")) == 1


# ---- thread curves ----------------------------------------------------------------------------------------------


def threads_of(times: dict[int, float], cores: int = 4) -> Comparison:
    return comparison_of([((), t, (seconds,)) for t, seconds in times.items()], (None,), cores)


def test_speed_up_efficiency_and_cpu_seconds_are_against_the_smallest_count() -> None:
    (curve,) = thread_curves(threads_of({1: 8.0, 2: 5.0, 4: 4.0}))
    assert [p.threads for p in curve.points] == [1, 2, 4]
    assert [round(p.speed_up, 2) for p in curve.points] == [1, 1.6, 2]
    assert [round(p.efficiency, 2) for p in curve.points] == [1, 0.8, 0.5]
    assert [round(p.cpu_seconds, 1) for p in curve.points] == [8, 10, 16]
    assert [round(p.extra_cpu, 2) for p in curve.points] == [0, 0.25, 1]


def test_a_curve_that_does_not_begin_at_one_thread_counts_efficiency_from_where_it_begins() -> None:
    (curve,) = thread_curves(threads_of({2: 8.0, 4: 4.0}))
    assert [round(p.efficiency, 2) for p in curve.points] == [1, 1]


@pytest.mark.parametrize(
    ("times", "cores", "knee"),
    [
        ({1: 8.0, 2: 4.1, 4: 2.2}, 4, 4),
        ({1: 8.0, 2: 4.1, 4: 3.9}, 4, 2),  # 5 % for two more cores
        ({1: 8.0, 2: 7.8, 4: 7.7}, 4, 1),  # serial
        ({1: 8.0, 2: 4.1, 4: 2.2}, 2, 2),  # the fastest is oversubscribed
        ({1: 4.0, 2: 8.0, 4: 6.0}, 4, 1),  # 4 gains on 2, but 1 is best
        ({1: 8.0, 2: 7.9, 4: 4.0}, 4, 4),
    ],
)
def test_the_knee_is_the_largest_count_that_still_pays_within_the_cores(times, cores, knee) -> None:
    (curve,) = thread_curves(threads_of(times, cores))
    assert (curve.knee, curve.refused) == (knee, "")


def with_load(made: Comparison, ext: Sequence[float], steal: float = math.nan) -> Comparison:
    seen = [Contention(wall=1.0, ext=cores, steal=steal) for cores in ext]
    return replace(made, subjects=tuple(replace(s, contention=c) for s, c in zip(made.subjects, seen, strict=True)))


def test_outside_load_refuses_the_knee_and_says_how_much_it_was() -> None:
    made = threads_of({1: 8.0, 2: 4.0})
    (curve,) = thread_curves(with_load(made, (0.02, 0.4)))
    assert curve.knee is None
    assert "0.4 cores" in curve.refused
    assert [p.outside for p in curve.points] == [0.02, 0.4]
    assert thread_curves(with_load(made, (0.02, 0.15)))[0].knee == 2


def test_what_the_host_gives_to_other_guests_is_outside_load_too() -> None:
    made = threads_of({1: 8.0, 2: 4.0})
    assert thread_curves(with_load(made, (0.1, 0.1), steal=0.1))[0].knee is None
    assert thread_curves(with_load(made, (0.1, 0.1), steal=0.0))[0].knee == 2


def test_load_that_was_not_read_refuses_nothing() -> None:
    (curve,) = thread_curves(threads_of({1: 8.0, 2: 4.0}))
    assert curve.knee == 2
    assert all(math.isnan(p.outside) for p in curve.points)


def test_times_that_are_known_roughly_name_no_count() -> None:
    made = threads_of({1: 8.0, 2: 8.1})
    assert thread_curves(made)[0].knee == 1
    rough = made.samples.assign(wall=made.samples["wall"] * (1 + 0.5 * (made.samples["round"] % 3)))
    assert thread_curves(replace(made, samples=rough))[0].refused.endswith("are rough")
    few = made.samples[made.samples["round"] < 3]
    assert thread_curves(replace(made, samples=few))[0].knee == 1, "of too few blocks no interval is known"


def test_counts_beyond_the_cores_alone_name_no_knee() -> None:
    (curve,) = thread_curves(threads_of({4: 8.0, 8: 4.0}, cores=2))
    assert curve.knee is None
    assert "2 usable cores" in curve.refused


def test_one_thread_count_is_no_curve() -> None:
    assert thread_curves(threads_of({2: 1.0})) == []


def test_each_input_and_alternative_has_a_thread_curve() -> None:
    points: list[Point] = [((("n", n),), t, (8.0 / t, 3.0)) for n in (1, 2) for t in (1, 2)]
    found = thread_curves(comparison_of(points))
    assert [(c.description, c.fixed, c.knee) for c in found] == [
        ("a", (("n", 1),), 2),
        ("b", (("n", 1),), 1),
        ("a", (("n", 2),), 2),
        ("b", (("n", 2),), 1),
    ]


def test_a_speed_up_that_cannot_be_is_not_given() -> None:
    # The smallest count was held up: 131 times the speed at two threads, an efficiency of 6550 %.
    points: list[Point] = [((), 1, (13.1, 1.0)), ((), 2, (0.1, 0.4))]
    held_up, superlinear = thread_curves(comparison_of(points))
    assert math.isnan(held_up.points[1].speed_up)
    assert math.isnan(held_up.points[1].efficiency)
    assert held_up.knee is None
    assert held_up.refused == "the times at 2 threads contradict the time at 1, or are rough"
    assert superlinear.points[1].efficiency == pytest.approx(1.25, rel=0.01), "each core brings its own cache"
    assert superlinear.knee == 2


def test_processor_time_is_that_of_all_blocks_since_the_kernel_books_it_by_ticks() -> None:
    made = comparison_of([((), 1, (1.0, 1.0)), ((), 2, (0.5, 0.5))])
    ticks = made.samples["wall"].where(made.samples["round"] % 4 > 0, 5 * made.samples["wall"])
    (curve, _) = thread_curves(replace(made, samples=made.samples.assign(cpu=ticks)))
    assert curve.points[1].cpu_seconds == pytest.approx(1.0, rel=0.01)
    assert curve.points[1].extra_cpu == pytest.approx(-0.5, rel=0.02)
