"""Who made others wait: which calls belong together, who is named, what is said and drawn of it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from torchbench_magic import load_ranks
from torchbench_magic.cluster.job_profile import RankProfile, joined_stretches
from torchbench_magic.cluster.rank_blame import (
    ABSENT,
    LEAST_SHARE,
    CollectiveCalls,
    blame_of,
    kind_of_collective,
    match_collectives,
    straggler_of,
)
from torchbench_magic.cluster.rank_view import document, strips

# ==== blame ===========================================================================================================
# Planted waits: who is named, from how much on, and that chance names nobody.


MS = 1_000_000


def arrivals(ranks: int, count: int, noise: float, seed: int, late: int = -1, by: float = 0.0) -> np.ndarray:
    """[ranks, count] ns: a collective each 50 ms."""
    numbers = np.random.default_rng(seed)
    made = np.arange(count)[None] * 50 * MS + numbers.exponential(noise * MS, (ranks, count)).astype(np.int64)
    if late >= 0:
        made[late] += int(by * MS)
    return made


def named(arrival: np.ndarray, error: int = 0) -> int | None:
    ranks, count = arrival.shape
    nothing = [np.zeros((0, 2), dtype=np.int64)] * ranks
    blame = blame_of(arrival, np.full((ranks, ranks), error), nothing)
    found = straggler_of(blame, 0.05 * count, error / 1e9)
    return found.rank if found.beyond_chance and blame.totals[found.rank] > found.threshold else None


@pytest.mark.parametrize("late", [0, 1, 2])
@pytest.mark.parametrize("seed", range(10))
def test_a_planted_straggler_is_named_in_every_run(late: int, seed: int) -> None:
    assert named(arrivals(3, 12, 2.0, seed, late, by=20.0)) == late


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("noise", [0.5, 5.0, 20.0])
def test_chance_names_nobody_in_nine_of_ten_runs(ranks: int, noise: float) -> None:
    """Of 300 runs of 2 ranks at most 8 name one, of 3 ranks 2, of 8 none: those of many ranks, which take long, need
    no more than 60 (had each run 1 % of it, more than 6 would name one in 6 of ten million)."""
    runs = {2: 300, 3: 150, 8: 60}[ranks]
    wrong = sum(named(arrivals(ranks, 13, noise, seed)) is not None for seed in range(runs))
    assert wrong <= runs // 10


def test_noise_that_lasts_names_nobody_in_eight_of_ten_runs() -> None:
    """Another process takes the core of one rank for some steps on end."""
    wrong = 0
    for seed in range(300):
        numbers, arrival = np.random.default_rng(seed), arrivals(2, 33, 2.0, seed)
        hit = np.repeat(numbers.integers(0, 2, 7), 5)[:33]
        arrival[hit, np.arange(33)] += numbers.exponential(10 * MS, 33).astype(np.int64)
        wrong += named(arrival) is not None
    assert wrong <= 60, f"{wrong} of 300"


@pytest.mark.parametrize("begins", range(2, 20))
def test_a_burst_that_holds_up_another_rank_does_not_hide_the_straggler(begins: int) -> None:
    """As recorded: rank 0 led in 20 of 23 waits by 20 to 35 ms, and not in three in a row."""
    arrival = arrivals(2, 24, 2.0, begins, late=0, by=25.0)
    arrival[1, begins : begins + 3] += 50 * MS
    assert named(arrival) == 0


def test_one_long_wait_is_no_straggler_and_three_are() -> None:
    arrival = arrivals(2, 20, 0.001, 0)
    arrival[1, 7] += 40 * MS
    assert named(arrival) is None
    arrival[1, [9, 13]] += 40 * MS
    assert named(arrival) == 1


def test_the_first_collective_does_not_count() -> None:
    arrival = arrivals(2, 20, 0.001, 0)
    arrival[1, 0] += 40 * MS
    found = blame_of(arrival, np.zeros((2, 2), dtype=np.int64), [np.zeros((0, 2), dtype=np.int64)] * 2)
    assert found.totals.max() < 1e-3
    assert found.of == 19


def test_below_five_per_cent_nobody_is_named() -> None:
    assert named(arrivals(2, 40, 0.001, 0, late=1, by=50 * LEAST_SHARE * 0.9)) is None
    assert named(arrivals(2, 40, 0.001, 0, late=1, by=50 * LEAST_SHARE * 1.2)) == 1


def test_what_the_clocks_may_be_off_is_nobodys_fault() -> None:
    arrival = arrivals(2, 20, 0.001, 0, late=1, by=10.0)
    assert named(arrival, error=11 * MS) is None
    none = [np.zeros((0, 2), dtype=np.int64)] * 2
    found = blame_of(arrival, np.full((2, 2), 4 * MS), none)
    assert found.totals[1] == pytest.approx(19 * 6e-3, rel=0.01), "only what is beyond the error counts"


def test_a_wait_behind_computation_holds_nobody_up() -> None:
    arrival = np.array([[0, 50], [0, 80]]) * MS
    compute = [joined_stretches(np.array([50 * MS]), np.array([75 * MS])), np.zeros((0, 2), dtype=np.int64)]
    found = blame_of(arrival, np.zeros((2, 2), dtype=np.int64), compute)
    assert found.totals.tolist() == [0, pytest.approx(5e-3)]
    assert found.seconds.tolist() == [[0, pytest.approx(5e-3)]]


def test_waits_of_several_ranks_for_one_count_once() -> None:
    arrival = np.array([[0, 50], [0, 60], [0, 80]]) * MS
    found = blame_of(arrival, np.zeros((3, 3), dtype=np.int64), [np.zeros((0, 2), dtype=np.int64)] * 3)
    assert found.totals.tolist() == [0, 0, pytest.approx(30e-3)]
    assert found.last.tolist() == [0, 0, 1]


def test_a_rank_that_is_no_member_neither_waits_nor_is_waited_for() -> None:
    arrival = np.array([[0, 50, 90, 0, 60], [0, 50, 90, 0, 80], [0, 70, 90, ABSENT, ABSENT]])
    arrival[arrival > ABSENT] *= MS
    found = blame_of(arrival, np.zeros((3, 3), dtype=np.int64), [np.zeros((0, 2), dtype=np.int64)] * 3)
    assert found.totals.tolist() == [0, pytest.approx(20e-3), pytest.approx(20e-3)]
    assert found.of == 3, "the first of all ranks and the first of the group do not count"


def test_waits_that_are_alike_for_long_are_few() -> None:
    """A rank has the worse core for the first third, another one for the rest: two spells, not 300 waits."""
    numbers = np.random.default_rng(0)
    wrong = 0
    for _ in range(100):
        lead = np.repeat(numbers.normal(0, 1, 5), 60) + numbers.normal(0, 3, 300)
        arrival = np.tile(np.arange(301) * 50 * MS, (2, 1))
        arrival[1, 1:] += (np.maximum(lead, 0) * 5 * MS).astype(np.int64)
        arrival[0, 1:] += (np.maximum(-lead, 0) * 5 * MS).astype(np.int64)
        wrong += named(arrival) is not None
    assert wrong <= 15, f"{wrong} of 100"


# ==== collectives =====================================================================================================
# Names of every backend, and which call on one rank is which on another.


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("c10d::allreduce_", "allreduce"),
        ("gloo:all_reduce", "allreduce"),
        ("c10d::_allgather_base_", "allgather"),
        ("gloo:all_gather", "allgather"),
        ("c10d::reduce_scatter_tensor_coalesced_", "reducescatter"),
        ("c10d::alltoall_base_", "alltoall"),
        ("gloo:all_to_all", "alltoall"),
        ("c10d::barrier", "barrier"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)", "allreduce"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "allreduce"),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "allgather"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "reducescatter"),
        ("ncclSymkDevKernel_AllReduce_AGxLL_R_sum_f32(ncclSymkDevWorkArgs*)", "allreduce"),
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "allreduce"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "send"),
        ("ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "broadcast"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "reduce"),
        ("c10d::broadcast_", "broadcast"),
        ("gloo:reduce", "reduce"),
        ("c10d::gather_", "gather"),
        ("c10d::recv_any_source_", "recv"),
        ("aten::mm", ""),
    ],
)
def test_a_collective_has_one_kind_whoever_names_it(name: str, kind: str) -> None:
    assert kind_of_collective(name) == kind


def calls(*rows: tuple[str, int, int]) -> CollectiveCalls:
    key, arrival, end = zip(*rows, strict=True)
    return CollectiveCalls(key, np.array(arrival), np.array(arrival), np.array(end))


def test_the_kth_of_a_key_is_the_kth_on_the_others() -> None:
    one = calls(("allreduce [3]", 0, 10), ("allreduce [5]", 20, 30), ("allreduce [3]", 40, 50))
    other = calls(("allreduce [3]", 5, 10), ("allreduce [3]", 21, 50), ("allreduce [5]", 25, 30))
    found = match_collectives([one, other], one_clock=False)
    assert found.arrival.tolist() == [[0, 20, 40], [5, 25, 21]]
    assert found.left_out == 0


def test_a_step_more_on_one_rank_is_matched_by_time_on_one_clock_only() -> None:
    one = calls(*[("allreduce [3]", 100 * n, 100 * n + 20) for n in range(5)])
    other = calls(*[("allreduce [3]", 100 * n + 3, 100 * n + 20) for n in range(1, 5)])
    found = match_collectives([one, other], one_clock=True)
    assert found.arrival.tolist() == [[100, 200, 300, 400], [103, 203, 303, 403]]
    assert found.left_out == 1
    apart = match_collectives([one, other], one_clock=False)
    assert (len(apart), apart.left_out) == (0, 9)


def test_one_rank_alone_matches_nothing_and_leaves_nothing_out() -> None:
    found = match_collectives([calls(("allreduce", 0, 1))], one_clock=True)
    assert (len(found), found.left_out) == (0, 0)


def test_calls_of_some_ranks_are_not_matched_where_the_trace_does_not_tell_their_group() -> None:
    both = calls(*[("allreduce [3]", 100 * n, 100 * n + 20) for n in range(4)])
    away = calls(*[("allreduce [7]", 100 * n + 50, 100 * n + 60) for n in range(4)])
    found = match_collectives([both, away, both], one_clock=True)
    assert (len(found), found.left_out) == (0, 12)


def test_what_goes_on_after_a_rank_has_ended_is_no_group_of_the_others() -> None:
    one = calls(("allreduce [3]", 0, 20), ("allreduce [5]", 100, 900))
    other = calls(("allreduce [3]", 3, 20), ("allreduce [5]", 104, 900))
    dead = calls(("allreduce [3]", 5, 20))
    found = match_collectives([one, other, dead], one_clock=True)
    assert (len(found), found.left_out) == (1, 2)
    assert found.unmatched(0, one).tolist() == [[100, 900]]


def test_a_told_group_is_matched_by_its_order_and_needs_all_its_members() -> None:
    key = "allreduce [3] (None, 'tp', '[0, 2]', 2)"
    one, other = calls((key, 0, 20), (key, 40, 60)), calls((key, 9, 25), (key, 44, 60))
    away = calls(("allreduce [7]", 1, 2))
    assert len(match_collectives([one, away, other], one_clock=False)) == 2
    three = calls((key.replace(" 2)", " 3)"), 0, 20))
    assert len(match_collectives([three, away, three], one_clock=True)) == 0


# ==== rank document ===================================================================================================
# What is said and drawn of ranks.


TRACES = Path(__file__).parent / "traces"


@pytest.fixture(scope="module")
def slept() -> RankProfile:
    return load_ranks(TRACES / "sleep_1_of_3")


def test_text_and_markdown_name_the_straggler_its_line_and_the_threshold(slept: RankProfile) -> None:
    assert slept.straggler is not None
    for text in (repr(slept), slept.to_markdown()):
        flat = " ".join(text.split())
        assert "Rank 1 delays the others by" in flat
        assert re.search(r"A rank is named only if it delays the others by at least [\d.]+ ms", flat)
        assert "augment" in flat
        assert "straggler" in flat
        assert "Clocks agree within" in flat
    rows = [line.split()[0] for line in repr(slept).splitlines() if re.match(r"^ +\d ", line)]
    assert rows == ["0", "1", "2"]


def test_without_a_straggler_the_most_blame_and_the_threshold_are_said() -> None:
    none = load_ranks(TRACES / "none_of_2")
    most = int(none.ranks["rank"].iloc[none.ranks["blame"].argmax()])
    assert f"No rank delays the others: rank {most} delays them most, by" in " ".join(repr(none).split())
    assert "not often enough to rule out chance" in " ".join(repr(none).split())
    quiet = replace(none, ranks=none.ranks.assign(blame=[1e-4, 0.0]))
    assert "below the threshold of" in " ".join(repr(quiet).split())
    unknown = replace(none, collectives=1)
    assert "the first does not count" in " ".join(repr(unknown).split())
    lost = replace(none, threshold=float("inf"))
    assert "how their clocks differ is unknown" in " ".join(repr(lost).split())


def test_the_strip_draws_each_rank_and_who_was_waited_for(slept: RankProfile) -> None:
    markup = strips(slept)
    assert re.findall(r">(rank \d)</text><rect", markup) == ["rank 0", "rank 1", "rank 2"]
    assert 'class="w5">rank 1<' in markup
    assert markup.count('class="br"') == min(12, len(slept.waits))
    for what, drawn in (("compute", 'class="compute"'), ("wait", 'fill="url(#')):
        assert (what in set(slept.timeline["what"])) == (drawn in markup)
    ends = [float(x) + float(w) for x, w in re.findall(r'x="([\d.]+)" y="\d+" width="([\d.]+)" height="16"', markup)]
    assert 600 < max(ends) <= 690.1


def test_of_many_ranks_the_strip_and_the_operations_show_some(slept: RankProfile) -> None:
    import pandas as pd

    many = pd.concat([slept.ranks.assign(rank=slept.ranks["rank"] + 3 * n) for n in range(10)], ignore_index=True)
    ops = slept.ops.assign(**{f"rank_{rank}": 1e-3 for rank in range(30)})
    big = replace(slept, ranks=many, ops=ops, hosts=("a",) * 30)
    assert len(re.findall(r">rank \d+</text>", strips(big).split('class="br"')[0])) == 16
    table = document(big).tables[1]
    assert sum(column.name.startswith("rank_") for column in table.columns) == 8


def test_hosts_are_a_column_where_they_differ_and_are_escaped(slept: RankProfile) -> None:
    hosts = ("a", "<b>", "c")
    page = replace(slept, hosts=hosts).to_html() or ""
    assert "<b>" not in page
    assert "host" in [column.name for column in document(replace(slept, hosts=hosts)).tables[0].columns]
    assert "host" not in [column.name for column in document(slept).tables[0].columns]


def test_selected_rows_of_the_widget_are_ranks(slept: RankProfile) -> None:
    widget = slept.explore()
    widget.selection = ["rank 2"]
    assert widget.rows["rank"].tolist() == [2]
