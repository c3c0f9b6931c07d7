"""Each block of memory on its line, torch's and the host's."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.profiling.profiling_text import profiled, profiled_with_torch, row
from torchbench_magic.profiling.events import number_blocks
from torchbench_magic.profiling.kineto import OlderBlocks, living_blocks

# ==== memory table ====================================================================================================
# Each block of memory on its line, from allocation to freeing; the totals are torch's own.


TRAINING = """net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
optimizer = torch.optim.AdamW(net.parameters())
x = torch.rand(128, 64)
for _ in range(3):
    loss = net(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def torchs_allocations(profiler: Any, begin: float, end: float) -> np.ndarray[Any, Any]:
    """(start ns, bytes, total of all that torch counts after it) of torch's own tree, from ``begin`` on."""
    found, todo = [], list(profiler.profiler.kineto_results.experimental_event_tree())
    while todo:
        node = todo.pop()
        todo.extend(node.children)
        if node.tag.name == "Allocation" and begin <= node.start_time_ns < end:
            fields = node.extra_fields
            found.append((node.start_time_ns, fields.alloc_size, fields.total_allocated))
    return np.array(sorted(found))


def figures_against_torch(text: str, namespace: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """(ours, torch's) of net and peak bytes in one run: also a figure of the benchmark of profiles."""
    outcome, profiler = profiled_with_torch(text, namespace, memory=True)
    profile = outcome.profile
    assert profile.trace is not None
    begin = profile.trace.begin
    seen = torchs_allocations(profiler, begin, begin + profile.trace.duration)
    baseline = int(seen[0, 2] - seen[0, 1])
    return {
        "net": (int(profile.lines["net"].sum()), int(seen[-1, 2]) - baseline),
        "peak": (int(profile.memory["bytes"].max()), int(seen[:, 2].max()) - baseline),
    }


def test_net_bytes_of_all_lines_and_the_peak_are_torchs_own() -> None:
    figures = figures_against_torch(TRAINING, {"torch": torch})
    assert figures["net"][0] == figures["net"][1] > 0
    assert figures["peak"][0] == figures["peak"][1] > figures["net"][0]


def test_the_freeing_of_what_was_there_before_counts_and_stands_on_its_line() -> None:
    names = {"torch": torch, "old": torch.ones(250_000), "kept": torch.ones(10)}
    outcome = profiled("new = torch.ones(1000)\ndel old\n", names, memory=True)
    assert row(outcome, 2)["freed"] == 1_000_000
    assert row(outcome, 2)["net"] == -1_000_000
    assert (outcome.profile.lines["allocated"] >= 0).all()
    assert outcome.profile.lines["net"].sum() == 4000 - 1_000_000
    freed = outcome.profile.memory.iloc[-1]
    assert freed["block"] is not freed["block"] or str(freed["block"]) == "<NA>", "no allocation of the cell's"
    assert outcome.profile.bytes_before >= 1_000_040


def test_gradients_and_views_of_older_tensors_are_found_once() -> None:
    before = living_blocks()
    weight = torch.ones(1000, requires_grad=True)
    view = weight.detach()[3:]
    weight.sum().backward()
    new = {at: n for at, n in living_blocks().items() if at not in before}
    assert sorted(n for n in new.values() if n == 4000) == [4000, 4000], "the weight and its gradient"
    assert view is not None


@pytest.mark.slow
def test_a_block_at_the_address_of_one_from_an_earlier_profile_has_its_own_size() -> None:
    """torch keeps the sizes of blocks of an earlier profile and would report the freeing of a later one with them."""
    names: dict[str, Any] = {"torch": torch}
    for size in (100_000, 60_000, 30_000):
        profiled(f"x = torch.empty({size})\n", names, memory=True)
        del names["x"]
        names["old"] = torch.empty(size // 2)
        outcome = profiled("del old\n", names, memory=True)
        assert row(outcome, 1)["freed"] == size // 2 * 4


@pytest.mark.interpreter
def test_torchs_table_of_sizes_is_left_as_it_was_found() -> None:
    """Blocks that a profile entered are taken out: a later profile of torch's own starts at its own zero."""
    code = """
import torch
from torchbench_magic import profile
old = torch.ones(1000)
profile("x = torch.ones(10)", globals={"torch": torch}, memory=True)
with torch.profiler.profile(profile_memory=True) as prof:
    y = torch.ones(5)
node = [n for n in prof.profiler.kineto_results.experimental_event_tree()]
todo, totals = node, []
while todo:
    n = todo.pop()
    todo.extend(n.children)
    if n.tag.name == "Allocation":
        totals.append(n.extra_fields.total_allocated)
print(max(totals))
"""
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=True)
    assert int(done.stdout) == 20


def test_without_the_reporters_functions_older_blocks_are_said_to_be_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchbench_magic.profiling import kineto

    monkeypatch.setattr(kineto, "_NEW", f"{kineto._NEW}i")  # a reporter that wants to know more
    assert not OlderBlocks().known
    outcome = profiled("x = torch.ones(3)\n", memory=True)
    assert "older-unseen" in [doubt.kind for doubt in outcome.profile.warnings]
    assert row(outcome, 1)["allocated"] == 12


def test_what_is_alive_at_the_peak_stands_on_the_lines_that_allocated_it() -> None:
    text = "a = torch.empty(1000)\nb = torch.empty(2000)\ndel a\nc = torch.empty(3000)\ndel c\nd = torch.empty(10)\n"
    profile = profiled(text, memory=True).profile
    alive = profile.alive_at_peak
    assert dict(zip(alive["line"], alive["bytes"], strict=True)) == {4: 12_000, 2: 8_000}
    assert alive["bytes"].sum() == profile.memory["bytes"].max() == 20_000
    assert alive["source"].tolist() == ["c = torch.empty(3000)", "b = torch.empty(2000)"]
    retained = profile.retained
    assert dict(zip(retained["line"], retained["bytes"], strict=True)) == {2: 8_000, 6: 40}
    by_line = profile.memory_by_line.set_index("line")
    assert by_line.loc[1, ["allocated", "freed", "net"]].tolist() == [4000, 0, 4000]
    assert by_line.loc[3, ["allocated", "freed", "net"]].tolist() == [0, 4000, -4000]
    assert by_line["net"].sum() == profile.memory["bytes"].iloc[-1]


def test_of_one_line_blocks_and_the_largest_are_counted() -> None:
    profile = profiled("kept = [torch.empty(n) for n in (10, 30, 20)]\n", memory=True).profile
    (alive,) = profile.alive_at_peak.to_dict("records")
    assert (alive["bytes"], alive["blocks"], alive["largest"]) == (240, 3, 120)


def test_a_cell_that_only_frees_has_a_peak_of_nothing() -> None:
    profile = profiled("del old\n", {"old": torch.ones(100)}, memory=True).profile
    assert profile.alive_at_peak.empty
    assert profile.lines["net"].sum() == -400


def test_changes_know_their_op() -> None:
    memory = profiled("x = torch.ones(4)\ny = torch.add(x, x)\ndel x\n", memory=True).profile.memory
    assert memory["op"].tolist() == ["aten::empty", "aten::add", None]
    assert memory["line"].tolist() == [1, 2, 3]
    assert memory["block"].iloc[2] == memory["block"].iloc[0] != memory["block"].iloc[1]


def test_bytes_of_autograds_own_thread_are_part_of_the_sum() -> None:
    outcome, profiler = profiled_with_torch(
        "import threading\nt = threading.Thread(target=torch.empty, args=(1000,))\n"
        "t.start(); t.join()\nx = torch.ones(5)\n",
        memory=True,
    )
    lines = outcome.profile.lines
    assert lines["net"].sum() == outcome.profile.memory["bytes"].iloc[-1]
    assert profiler is not None


def test_blocks_are_not_numbered_where_kinetos_tree_says_otherwise() -> None:
    class Tree:
        def experimental_event_tree(self) -> list[Any]:
            return []

    blocks, addresses = number_blocks(Tree(), np.array([1, 2]), np.array([8, -8]))
    assert (blocks.tolist(), addresses.tolist()) == ([-1, -1], [0, 0])


def test_a_range_with_the_name_of_memory_events_is_none() -> None:
    text = "with torch.profiler.record_function('[memory]'):\n    pass\nx = torch.ones(1000)\n"
    outcome, _ = profiled_with_torch(text, memory=True)
    assert outcome.profile.lines["allocated"].sum() == 4000


# ==== host memory =====================================================================================================
# Bytes of Python and numpy per line, and that tracemalloc is left as it was found.


MIB = 1 << 20


def test_numpy_arrays_stand_on_their_lines_with_their_temporaries() -> None:
    text = "a = np.ones(MIB)\nb = (a + 1).sum()\nc = bytes(3 * MIB)\ndel a\nfor _ in range(1000):\n    d = 1\n"
    outcome = profiled(text, {"np": np, "MIB": MIB}, host_memory=True)
    slack = 100_000
    assert row(outcome, 1)["host_net"] == pytest.approx(8 * MIB, abs=slack)
    assert row(outcome, 2)["host_net"] == pytest.approx(0, abs=slack), "the sum is a number"
    assert row(outcome, 2)["host_peak"] == pytest.approx(16 * MIB, abs=slack), "a and its temporary copy"
    assert row(outcome, 3)["host_net"] == pytest.approx(3 * MIB, abs=slack)
    assert row(outcome, 4)["host_net"] == pytest.approx(-8 * MIB, abs=slack)
    assert row(outcome, 6)["host_net"] == pytest.approx(0, abs=slack)


def test_the_record_of_the_line_events_is_not_counted() -> None:
    outcome = profiled("for i in range(12_000):\n    pass\n", {}, host_memory=True)
    assert outcome.profile.n_line_events > 24_000, "a MB of them and of what is read at each"
    assert abs(outcome.profile.lines["host_net"].sum()) < 60_000
    assert outcome.profile.lines["host_peak"].max() < 400_000


def test_a_line_has_the_peak_of_what_it_calls_and_the_end_of_its_locals() -> None:
    outcome = profiled("def f():\n    b = bytes(5 * MIB)\n    return 1\nf()\n", {"MIB": MIB}, host_memory=True)
    assert row(outcome, 4)["host_peak"] == pytest.approx(5 * MIB, abs=100_000)
    assert row(outcome, 2)["host_net"] == pytest.approx(5 * MIB, abs=100_000)
    assert row(outcome, 4)["host_net"] == pytest.approx(-5 * MIB, abs=100_000), "locals end after the return"


def test_tensors_are_not_in_it_and_other_bytes_are_not_asked_for() -> None:
    outcome = profiled("x = torch.ones(MIB)\n", {"torch": torch, "MIB": MIB}, host_memory=True)
    assert abs(row(outcome, 1)["host_net"]) < 100_000
    assert outcome.profile.memory is None


def test_tracemalloc_is_off_afterwards_also_after_an_error() -> None:
    assert not tracemalloc.is_tracing()
    outcome = profiled("x = 1\n1 / 0\n", {}, host_memory=True)
    assert isinstance(outcome.error, ZeroDivisionError)
    assert not tracemalloc.is_tracing()


def test_a_tracemalloc_that_runs_already_goes_on() -> None:
    tracemalloc.start(3)
    try:
        kept = bytes(MIB)
        outcome = profiled("a = bytes(2 * MIB)\n", {"MIB": MIB}, host_memory=True)
        assert tracemalloc.is_tracing()
        assert tracemalloc.get_traceback_limit() == 3
        assert tracemalloc.get_object_traceback(kept) is not None, "what it knew it still knows"
    finally:
        tracemalloc.stop()
    assert row(outcome, 1)["host_net"] == pytest.approx(2 * MIB, abs=100_000)
    (doubt,) = [d for d in outcome.profile.warnings if d.kind == "host-memory"]
    assert "already running" in doubt.text


def test_its_cost_in_time_is_said() -> None:
    (doubt,) = [d for d in profiled("x = 1\n", {}, host_memory=True).profile.warnings if d.kind == "host-memory"]
    assert "made each of its allocations slower" in doubt.text


def test_with_it_no_line_is_said_to_be_partly_outside() -> None:
    names = {"torch": torch, "np": np}
    text = "x = torch.ones(9)\ny = x.numpy()\n"
    kinds = [d.kind for d in profiled(text, names, memory=True, host_memory=True).profile.warnings]
    assert "outside-torch" not in kinds
    assert "outside-torch" in [d.kind for d in profiled(text, names, memory=True).profile.warnings]
