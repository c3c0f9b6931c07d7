"""Names of every backend, and which call on one rank is which on another."""

from __future__ import annotations

import numpy as np
import pytest

from torchbench_magic.cluster.rank_blame import ABSENT, CollectiveCalls, kind_of_collective, match_collectives


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
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "sendrecv"),
        ("ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "broadcast"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "reduce"),
        ("c10d::broadcast_", "broadcast"),
        ("gloo:reduce", "reduce"),
        ("c10d::gather_", "gather"),
        ("c10d::send", "sendrecv"),
        ("c10d::recv_any_source_", "sendrecv"),
        ("gloo:recv", "sendrecv"),
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


def test_calls_of_some_ranks_are_matched_where_times_prove_the_group() -> None:
    both = calls(*[("allreduce [3]", 100 * n, 100 * n + 20) for n in range(4)])
    other = calls(*[("allreduce [3]", 100 * n + 9, 100 * n + 20) for n in range(4)])
    away = calls(*[("allreduce [7]", 100 * n + 50, 100 * n + 60) for n in range(4)])
    found = match_collectives([both, away, other], one_clock=True)
    assert found.index.tolist() == [[0, 1, 2, 3], [-1] * 4, [0, 1, 2, 3]]
    assert found.arrival[2].tolist() == [9, 109, 209, 309]
    assert found.arrival[1].tolist() == [ABSENT] * 4
    assert found.left_out == 4, "those of the rank that is alone"
    apart = calls(*[("allreduce [3]", 100 * n + 30, 100 * n + 40) for n in range(4)])
    assert len(match_collectives([both, away, apart], one_clock=True)) == 0, "they do not overlap"
    assert len(match_collectives([both, away, other], one_clock=False)) == 0


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


def test_between_two_ranks_who_waits_in_a_broadcast_is_read_from_times() -> None:
    """In the first and the last call the root comes late; in the second it leaves before the receiver comes."""
    root = calls(("broadcast [3]", 0, 20), ("broadcast [3]", 100, 105), ("broadcast [3]", 230, 240))
    receiver = calls(("broadcast [3]", 1, 20), ("broadcast [3]", 150, 160), ("broadcast [3]", 201, 241))
    away = calls(("allreduce [7]", 300, 310))
    found = match_collectives([root, receiver], one_clock=True)
    assert found.index.tolist() == [[0, 2], [0, 2]]
    assert found.sure.tolist() == [False, False], "clocks are not bounded by these"
    assert match_collectives([root, receiver, away], one_clock=True).index.tolist() == [[0, 2], [0, 2], [-1, -1]]
    assert len(match_collectives([root, receiver], one_clock=False)) == 0
    assert len(match_collectives([root, receiver, receiver], one_clock=True)) == 0, "of three, one may wait for a third"
