"""Names of every backend, and which call on one rank is which on another."""

from __future__ import annotations

import numpy as np
import pytest

from torchbench_magic.results.ranks.collectives import CollectiveCalls, kind_of_collective, match_collectives


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
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", ""),
        ("ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)", ""),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", ""),
        ("c10d::broadcast_", ""),
        ("gloo:reduce", ""),
        ("c10d::gather_", ""),
        ("c10d::send", ""),
        ("aten::mm", ""),
    ],
)
def test_only_what_all_wait_in_has_a_kind(name: str, kind: str) -> None:
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
