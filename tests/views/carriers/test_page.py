"""Results as files: pages that need no kernel and no network, and plots as SVG and PNG."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from torchbench_magic.errors import InputError, MissingTool, OptionError

from ..builders import HOSTILE, comparison_of, flame_graph, profile_of, two_shapes
from ..counting.test_counts import compared, counted
from ..profiling.test_memory import made as memory_profile

TREE = pd.DataFrame(
    {
        "parent": [-1, 0, 1, 0],
        "name": ["root", "first", "inner", "second"],
        "kind": ["line", "python", "op", "other"],
        "self": [0.1, 0.2, 0.3, 0.4],
        "total": [1.0, 0.5, 0.3, 0.4],
    }
)
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(autouse=True)
def closed_figures() -> Iterator[None]:
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcParams["svg.fonttype"] = "none"
    yield
    from matplotlib import pyplot

    pyplot.close("all")


def saved(ax: Any, folder: Path) -> list[str]:
    """Saved as SVG and as PNG; the texts of the SVG."""
    ax.figure.savefig(folder / "plot.png")
    assert (folder / "plot.png").read_bytes().startswith(b"\x89PNG")
    ax.figure.savefig(folder / "plot.svg")
    return ["".join(each.itertext()) for each in ElementTree.parse(folder / "plot.svg").iter(f"{SVG}text")]


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (two_shapes(), "mul_sum"),
        (compared(A=counted(mul=100, add=20), B=counted(mul=150, add=21)).diff("B"), "at::"),
        (profile_of(), "addmm"),
        (memory_profile(), "at the peak"),
        (flame_graph(TREE, "four frames"), "second"),
    ],
    ids=["comparison", "counts", "profile", "memory", "flame"],
)
def test_every_result_becomes_a_page_that_asks_for_nothing(result: Any, said: str, tmp_path: Path) -> None:
    file = tmp_path / "a page.html"
    assert result.to_html(file) is None
    page = file.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert said in page
    assert not re.search(r"""(src|href)=["']?(https?:)?//|@import|\burl\(|\bimport\(""", page)
    returned = result.to_html()
    assert said in returned
    assert returned.startswith("<!doctype html>")


def test_a_page_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist") as said:
        two_shapes().to_html(tmp_path / "missing" / "page.html")
    assert "\n" not in str(said.value)


def test_samples_are_drawn_with_a_row_per_measurement_and_its_median(tmp_path: Path) -> None:
    made = comparison_of([("64", 1, (4e-6, 8e-6)), ("64", 2, (3e-6, 6e-6))])
    ax = made.plot(kind="distribution")
    medians = [float(line.get_xdata()[0]) for line in ax.get_lines()]
    np.testing.assert_allclose(medians, [1e6 * np.median(made.call_times(row)) for row in range(4)])
    heights = [float(np.max(np.abs(patch.get_data().values - patch.get_data().baseline))) for patch in ax.patches]
    np.testing.assert_allclose(heights, 0.85)
    said = saved(ax, tmp_path)
    assert "time of one call (µs)" in said
    assert sum("1 thread" in text for text in said) == 2


def test_a_name_is_drawn_as_it_stands(tmp_path: Path) -> None:
    names = [*(f"$x_{{{name}" for name in HOSTILE), "b$"]
    ax = comparison_of([("64 × 64", 1, [1e-6] * len(names))], names).plot(kind="distribution")
    assert any("b$" in text for text in saved(ax, tmp_path))
    assert len(ax.patches) == len(names)


def test_one_sample_and_many_measurements_are_drawn() -> None:
    assert len(comparison_of([("n", 1, (1e-3,))], ["a"], samples=1).plot(kind="distribution").patches) == 1
    many = comparison_of([(f"n={n}", 1, (1e-6, 2e-3)) for n in range(25)], samples=3).plot(kind="distribution")
    assert len(many.patches) == 40
    assert "10 more measurements are not drawn" in many.get_xlabel()
    assert many.get_xscale() == "log"


def test_memory_is_drawn_as_layers_that_reach_the_peak(tmp_path: Path) -> None:
    profile = memory_profile()
    ax = profile.plot("memory")
    assert profile.memory is not None
    tops = [float(np.max(patch.get_data().values)) for patch in ax.patches]
    device = ax.get_ylabel().split()[2]
    mine = profile.memory[profile.memory["device"] == device]
    assert max(tops) == pytest.approx(float(mine["bytes"].max()) / 2**20)
    assert any(text.startswith("peak ") for text in saved(ax, tmp_path))


def test_a_flame_graph_has_a_bar_per_frame_in_its_place(tmp_path: Path) -> None:
    graph = flame_graph(TREE, "four frames")
    ax = graph.plot()
    bars = {
        (round(bar.get_x(), 6), round(bar.get_width(), 6), round(bar.get_y() + bar.get_height() / 2))
        for bar in ax.patches
    }
    size = graph.measures[0].scale.size
    wanted = {(0, 1.0, 0), (0, 0.5, 1), (0, 0.3, 2), (0.5, 0.4, 1)}
    assert bars == {(round(left / size, 6), round(wide / size, 6), level) for left, wide, level in wanted}
    assert {"root", "second"} <= {text.strip() for text in saved(ax, tmp_path)}


def test_frames_too_narrow_to_be_seen_are_counted() -> None:
    narrow = pd.DataFrame(
        {
            "parent": [-1, 0, 0],
            "name": ["r", "a", "b"],
            "kind": "op",
            "self": [0.0, 1.0, 1e-5],
            "total": [1.00001, 1, 1e-5],
        }
    )
    assert "1 narrow frame" in flame_graph(narrow, "three").plot().get_xlabel()


def test_what_was_not_recorded_or_is_no_kind_is_said() -> None:
    with pytest.raises(InputError, match="--memory"):
        profile_of().plot("memory")
    with pytest.raises(OptionError, match="use flame or memory"):
        profile_of().plot("pie")
    with pytest.raises(OptionError, match="use scaling or distribution"):
        two_shapes().plot(kind="pie")
    with pytest.raises(InputError, match="kind='distribution'"):
        comparison_of([("n", 1, (1e-6, 2e-6))]).plot()


def test_without_matplotlib_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for draw in (
        lambda: two_shapes().plot(kind="distribution"),
        lambda: memory_profile().plot("memory"),
        lambda: flame_graph(TREE, "four").plot(),
    ):
        with pytest.raises(MissingTool, match="pip install") as said:
            draw()
        assert "\n" not in str(said.value)
