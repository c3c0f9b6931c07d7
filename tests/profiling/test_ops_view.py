"""The tables of operations and of modules."""

from __future__ import annotations

import pytest

from torchbench_magic.profiling.ops_view import modules_table, op_text
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.schema import FRAME_COLUMNS, LINE_COLUMNS, OP_COLUMNS, frame_of
from torchbench_magic.show.table import Table

# ==== modules =========================================================================================================
# The table of modules: each below the one that called it.


SECOND = "\u00a0\u00a0"

Called = tuple[int, str, float]  # place of the parent in the list, -1 for none; name; seconds of its own


def profile_of(*called: Called) -> Profile:
    """Modules called by the one line of a cell."""
    columns = {
        "parent": [-1, 0, *(parent + 2 for parent, *_ in called)],
        "kind": ["thread", "line", *["module"] * len(called)],
        "name": ["MainThread", "In[1]:2", *(name for _, name, _ in called)],
        "line": [None, *[2] * (len(called) + 1)],
        "source_id": [None, *["ab"] * (len(called) + 1)],
        "thread": [0] * (len(called) + 2),
        "calls": [1] * (len(called) + 2),
        "self_time": [0.0, 0.0, *(seconds for *_, seconds in called)],
    }
    whole = sum(seconds for *_, seconds in called)
    frames, lines, ops = frame_of(FRAME_COLUMNS, columns), frame_of(LINE_COLUMNS, {}), frame_of(OP_COLUMNS, {})
    return Profile(lines=lines, ops=ops, frames=frames, wall_time=whole, num_threads=1, source_id="ab")


def table_of(profile: Profile) -> Table:
    table = modules_table(profile)
    assert table is not None
    return table


def names(table: Table) -> list[str]:
    return [row.cells[0].text for row in table.rows()]


SMALL = profile_of(
    (-1, "model", 0.2),
    (0, "model.first", 0.3),
    (1, "model.first.norm", 0.0002),
    (1, "model.first.drop", 0.0001),
    (0, "model.scale", 0.0003),
    (0, "model.last", 0.4),
    (-1, "loss", 0.0004),
)


def test_modules_that_take_little_are_left_out_and_counted() -> None:
    assert names(table_of(SMALL)) == ["model", SECOND + "model.first", SECOND + "model.last"]
    assert table_of(SMALL).hidden.startswith("3 of 7 modules.")


def test_only_forty_are_shown() -> None:
    blocks: list[Called] = [(-1, "model", 0.1)]
    for block in range(10):
        at = len(blocks)
        blocks += [(0, f"block{block}", 0.1), *((at, f"block{block}.{n}", 0.1) for n in range(9))]
    table = table_of(profile_of(*blocks))
    assert len(table) == 40
    assert table.hidden.startswith("40 of 101 modules.")


def test_modules_that_a_later_call_adds_stand_with_their_parent() -> None:
    """The second pass through a loop may call a module of a block that the first did not."""
    table = table_of(profile_of((-1, "model", 0.1), (0, "one", 0.1), (0, "two", 0.1), (1, "one.late", 0.1)))
    assert names(table) == ["model", SECOND + "one", 2 * SECOND + "one.late", SECOND + "two"]


def test_nothing_is_marked_where_all_are_shown() -> None:
    table = table_of(profile_of((-1, "model", 0.5), (0, "model.inner", 0.5)))
    assert names(table) == ["model", SECOND + "model.inner"]
    assert not table.hidden


# ==== place names =====================================================================================================
# How operations are named where a reader sees them.


NAMES = (
    ("graph_0_cpp_fused_add_sin_0", "fused add_sin"),
    ("cpp_fused_mm_0", "fused mm"),
    ("triton_poi_fused_add_relu_3", "fused add_relu"),
    ("triton_per_fused__to_copy_native_layer_norm_1", "fused _to_copy_native_layer_norm"),
    ("triton_red_fused__log_softmax_sum_2", "fused _log_softmax_sum"),
    ("aten::add", "aten::add"),
    ("aten::_fused_adam_", "aten::_fused_adam_"),
    ("autograd::engine::evaluate_function: SinBackward0", "engine: SinBackward0"),
    ("## Call CompiledFxGraph foreopgxgcvoa44o3nsreul5mfal ##", "compiled graph foreop"),
)


@pytest.mark.parametrize(("op", "shown"), NAMES)
def test_a_fused_kernel_is_named_by_the_operations_in_it_and_others_stay(op: str, shown: str) -> None:
    assert op_text(op) == shown
