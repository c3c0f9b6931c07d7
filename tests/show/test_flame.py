"""Flame graphs: what is drawn, what is cut away and said to be, what is read without scripts."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

from torchbench_magic.errors import InputError, OptionError
from torchbench_magic.profiling import view
from torchbench_magic.profiling.options import ProfileOptions
from torchbench_magic.profiling.pictures import profile_flame
from torchbench_magic.profiling.schema import FRAME_COLUMNS, frame_of
from torchbench_magic.show import flame, html, page_data
from torchbench_magic.show.document import plain

from .builders import HOSTILE, MIB, flame_graph, profile_of
from .sent import sent

# In[3] > line 6 > module > function > line of In[2] > op > op, twice with other shapes; line 7 > backward > op
TREE = (
    # parent, kind, name, source, self ms, torch ms, backward ms, bytes, shapes
    (-1, "thread", "MainThread", None, 8.0, 0.0, 0.0, 0, None),
    (0, "line", "In[3]:6", "out = model(x)", 1.0, 0.0, 0.0, 0, None),
    (1, "module", "model", None, 2.0, 0.0, 0.0, 0, None),
    (2, "function", "MyModule.forward", None, 0.0, 0.0, 0.0, 0, None),
    (3, "line", "In[2]:8", "out = self.linear(x)", 1.0, 0.0, 0.0, 0, None),
    (4, "op", "aten::linear", None, 3.0, 3.0, 0.0, 0, "[[8, 8]]"),
    (5, "op", "aten::addmm", None, 40.0, 40.0, 70.0, MIB, "[[8], [8, 8]]"),
    (4, "op", "aten::linear", None, 5.0, 5.0, 0.0, 0, "[[9, 9]]"),
    (4, "python", "MY RANGE", None, 6.0, 0.0, 0.0, 0, None),
    (0, "line", "In[3]:7", "loss.backward()", 2.0, 0.0, 0.0, 0, None),
    (9, "op", "autograd::engine::evaluate_function: AddmmBackward0", None, 4.0, 4.0, 0.0, 0, "[]"),
    (10, "op", "aten::mm", None, 66.0, 66.0, 0.0, 3 * MIB, "[[8, 8]]"),
)


def frames() -> pd.DataFrame:
    own = [row[4] / 1e3 for row in TREE]
    total = list(own)
    for at in range(len(TREE) - 1, 0, -1):
        total[TREE[at][0]] += total[at]
    return frame_of(
        FRAME_COLUMNS,
        {
            "parent": [row[0] for row in TREE],
            "kind": [row[1] for row in TREE],
            "name": [row[2] for row in TREE],
            "source": [row[3] for row in TREE],
            "line": [int(row[2].rpartition(":")[2]) if row[1] == "line" else pd.NA for row in TREE],
            "source_id": ["cell" if row[2].startswith("In[3]") else None for row in TREE],
            "calls": [1] * len(TREE),
            "self_time": own,
            "wall_time": total,
            "self_cpu_time": [row[5] / 1e3 for row in TREE],
            "backward_cpu_time": [row[6] / 1e3 for row in TREE],
            "allocated": [row[7] for row in TREE],
            "freed": [0] * len(TREE),
            "input_shapes": [row[8] for row in TREE],
        },
    )


def profiled():
    return dataclasses.replace(profile_of(), frames=frames())


def spec_in(markup: str) -> dict:
    (found,) = sent(markup)
    return found


def many(count: int, seed: int = 0) -> pd.DataFrame:
    """A random tree with proper totals."""
    rng = np.random.default_rng(seed)
    parent = np.array([-1, *(int(rng.integers(max(0, at - 40), at)) for at in range(1, count))])
    own = rng.exponential(1e-3, count)
    total = own.copy()
    for at in range(count - 1, 0, -1):
        total[parent[at]] += total[at]
    names = [f"frame {at % 997}" for at in range(count)]
    return pd.DataFrame({"parent": parent, "name": names, "kind": "op", "self": own, "total": total})


# ---- of a profile -----------------------------------------------------------------------------------------------


def test_frames_are_named_as_the_cell_shows_them() -> None:
    graph = profiled().flamegraph()
    assert graph.names == [
        "In[3]",
        ":6 out = model(x)",
        "model",
        "MyModule.forward",
        "In[2]:8 out = self.linear(x)",
        "aten::linear",
        "aten::addmm",
        "MY RANGE",
        ":7 loss.backward()",
        "engine: AddmmBackward0",
        "aten::mm",
    ]
    assert graph.kinds == [
        "thread", "line", "module", "function", "line", "op", "op", "python", "line", "backward", "backward",
    ]  # fmt: skip


def test_ops_of_other_shapes_are_one_frame_and_the_shapes_are_said() -> None:
    graph = profiled().flamegraph()
    at = graph.names.index("aten::linear")
    assert graph.measures[0].own is not None
    assert graph.measures[0].own[at] == pytest.approx(8e-3)
    assert graph.notes[at] == ["[8, 8]", "[9, 9]"]


def test_widths_are_time_or_bytes_with_what_is_inside() -> None:
    graph = profiled().flamegraph("bytes")
    assert [measure.name for measure in graph.measures] == ["allocated", "time"]
    assert graph.measures[0].total[0] == 4 * MIB
    assert graph.measures[1].total[0] == pytest.approx(sum(row[4] for row in TREE) / 1e3)
    backward = next(fact for fact in graph.facts if fact.name == "backward")
    assert backward.total[graph.names.index("model")] == pytest.approx(70e-3)


def test_what_was_not_measured_or_is_unknown_is_one_line() -> None:
    with pytest.raises(InputError, match="device"):
        profiled().flamegraph("device")
    with pytest.raises(OptionError, match="use time, device or bytes"):
        profiled().flamegraph("tiem")
    with pytest.raises(InputError, match=r"no call tree to draw$"):
        profile_of().flamegraph()
    with pytest.raises(InputError, match="no call tree to draw: profile without --phases"):
        profile_of(options=ProfileOptions(phases=True)).plot()


def test_a_profiles_output_has_the_flame_graph_behind_the_view_switch() -> None:
    document = view.document(profiled())
    (drawn,) = document.drawn
    made = html.render(document)
    assert drawn.name == "flame graph"
    assert "slot=drawn-0" in made
    assert len(sent(made)) == 2
    assert len(made) < html.MOST_BYTES
    assert view.document(profile_of()).drawn == ()


# ---- any tree ---------------------------------------------------------------------------------------------------


def test_fifty_thousand_frames_stay_below_the_limit_and_the_rest_is_counted() -> None:
    tree = many(50_000)
    made = "".join(flame.markup(flame_graph(tree, "many")))
    assert page_data.stored(made) <= flame.MOST_BYTES
    spec = spec_in(made)
    kept = len(spec["parent"])
    assert 5_000 < kept < 50_000
    assert f"{50_000 - kept:,}".replace(",", "\u202f") in spec["note"]
    assert "are not drawn" in spec["note"]
    assert spec["metrics"][0]["unit"] == "s"
    assert spec["metrics"][0]["total"][0] == pytest.approx(tree["total"][0], rel=1e-4)


def test_what_is_cut_away_is_the_smallest() -> None:
    tree = many(2_000)
    graph = flame_graph(tree, "t").largest(300)
    left = sorted(tree["total"], reverse=True)[300:]
    assert len(graph) == 300
    assert graph.measures[0].total.min() >= max(left)
    assert (graph.parent < np.arange(300)).all()


@pytest.mark.parametrize("name", HOSTILE)
def test_text_is_never_markup(name: str) -> None:
    tree = many(3).assign(name=name)
    made = "".join(flame.markup(flame_graph(tree, name)))
    assert "<script>window" not in made
    assert "<img" not in made
    assert made.lower().count("</script") == 1
    spec_in(made)


def test_the_table_says_the_same_without_scripts() -> None:
    document = flame.flame_document(profiled().flamegraph())
    (table,) = document.tables
    first = next(table.rows())
    assert first.cells[0].text == "aten::mm"
    assert first.cells[1].text == "engine: AddmmBackward0"
    assert first.cells[2].value == pytest.approx(66e-3)
    assert plain(document.sentence).startswith("Where the time of In[3] goes")
    assert "aten::mm" in repr(profiled().flamegraph())


def test_a_tree_with_a_child_before_its_parent_is_refused() -> None:
    with pytest.raises(ValueError, match="parents before their children"):
        flame_graph(many(3).assign(parent=[-1, 2, 0]), "t")


def test_an_empty_profile_draws_nothing() -> None:
    assert profile_flame.graph_of(profile_of()) is None
