"""Memory over time: what the sentence, the table and the picture say of rows that are known."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tests.show.builders import HOSTILE, profile_of, rows_of
from tests.show.sent import sent
from torchbench_magic import units
from torchbench_magic.profiling.memory import allocations, view
from torchbench_magic.profiling.memory.picture import BlocksByColumn, _highest, blocks_by_column, picture, stack
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.schema import MEMORY_COLUMNS
from torchbench_magic.show import text
from torchbench_magic.show.document import plain
from torchbench_magic.show.renderers import mimebundle, to_text

# ==== memory ==========================================================================================================


MIB = 2**20
# seconds, MiB, block (None: was there before), line, device
CHANGES = (
    (0.5, 8, 1, 2, "cpu"),
    (1.0, 100, 2, 3, "cpu"),
    (1.2, 50, 7, 3, "cuda:0"),
    (1.5, -4, None, 5, "cpu"),
    (2.0, 20, 3, 7, "cpu"),
    (2.5, 20, 4, 7, "cpu"),
    (3.0, -20, 3, 7, "cpu"),
    (3.2, -50, 7, 7, "cuda:0"),
    (3.4, -100, 2, 7, "cpu"),
)


def made(**fields: object) -> Profile:
    built = profile_of(memory=True)
    return replace(built, memory=memory_frame(), **fields)  # type: ignore[arg-type]


def memory_frame() -> pd.DataFrame:
    held = {"cpu": 0, "cuda:0": 0}
    rows = []
    for seconds, change, block, line, device in CHANGES:
        held[device] += change * MIB
        rows.append((seconds, held[device], device, change * MIB, pd.NA if block is None else block, line))
    values = dict(
        zip(("time", "bytes", "device", "change", "block", "line"), map(list, zip(*rows, strict=True)), strict=True)
    )
    return rows_of(MEMORY_COLUMNS, cell=3, source_id="cell", **values)


def test_there_is_a_document_per_device_and_none_without_memory() -> None:
    assert [d.kind for d in view.documents(made())] == ["memory over time, cpu", "memory over time, cuda:0"]
    assert view.documents(profile_of(memory=False)) == ()


def test_the_sentence_names_the_peak_its_line_and_what_holds_most() -> None:
    cpu, cuda = view.documents(made())
    assert plain(cpu.sentence) == "Memory of the CPU: peak 144 MiB in In[3]:7; In[3]:3 holds 69 % of it"
    assert plain(cuda.sentence) == "Memory of cuda:0: peak 50.0 MiB in In[3]:3; In[3]:3 holds 100 % of it"


def test_a_line_that_holds_more_than_the_peak_has_bytes_and_no_share_of_it() -> None:
    """Where blocks from before the cell were freed, the peak is less than what the cell's own lines hold."""
    frame = memory_frame().iloc[[1]].reset_index(drop=True)
    freed = frame.assign(bytes=-40 * MIB, change=-40 * MIB, block=pd.array([pd.NA], dtype="Int64"), time=0.1)
    frame = pd.concat([freed, frame.assign(bytes=60 * MIB)], ignore_index=True)
    (cpu,) = view.documents(replace(made(), memory=frame))
    said = "Memory of the CPU: peak 60.0 MiB in In[3]:3; In[3]:3 holds 100 MiB, less 40.0 MiB freed"
    assert plain(cpu.sentence).startswith(said)
    shown = to_text(replace(made(), memory=frame))
    assert "167" not in shown
    assert "less 40.0 MiB freed of what was there before" in " ".join(shown.split())


def test_what_stays_to_the_end_is_said() -> None:
    frame = memory_frame()
    (cpu, _) = view.documents(replace(made(), memory=frame.iloc[:-1].reset_index(drop=True)))
    assert plain(cpu.sentence).endswith("holds 69 % of it, to the end")


def test_the_table_adds_up_to_the_peak_with_what_older_blocks_gave_back() -> None:
    cpu, _ = view.documents(made())
    (table,) = cpu.tables
    rows = {row.cells[0].text: row for row in table.rows()}
    alive = {name: row.cells[2].value / MIB for name, row in rows.items() if row.cells[2].value is not None}
    assert alive == {"In[3]:3": 100, "In[3]:7": 40, "In[3]:2": 8}
    freed, total = table.totals
    assert freed.cells[2].text == "−4.0"
    assert float(total.cells[2].text) == 144
    assert sum(alive.values()) - 4 == 144
    assert rows["In[3]:7"].cells[5].text == "2"
    kept = {name: row.cells[7].value / MIB for name, row in rows.items() if row.cells[7].value is not None}
    assert kept == {"In[3]:3": 0, "In[3]:7": 20, "In[3]:2": 8}


def test_the_picture_stacks_what_each_line_holds_over_time() -> None:
    drawn = stack(made(), "cpu", columns=40)
    by_name = {layer.name: layer.held // MIB for layer in drawn.layers}
    assert len(by_name) == 3
    assert drawn.total.max() == 144 * MIB
    assert (drawn.total >= 0).all()
    end = {layer.name: layer.at_end // MIB for layer in drawn.layers}
    assert sorted(end.values()) == [0, 8, 20]
    assert (drawn.older >= 0).all()
    assert drawn.older[-1] == 4 * MIB


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("y = torch.ones(10)", "y In[3]:3"),
        ("y = torch.ones(10); keep.append(torch.zeros(100000))", "In[3]:3"),
        ("keep.append(torch.zeros(100000)); y = 1", "In[3]:3"),
        ("y == keep.append(torch.zeros(100000))", "In[3]:3"),
    ],
)
def test_a_layer_has_the_name_that_its_line_assigns_to_where_the_line_does_nothing_else(line: str, said: str) -> None:
    text = "\n".join(["pass", "pass", line, *["pass"] * 6])
    built = made()
    source = replace(built.sources["cell"], text=text)
    drawn = stack(replace(built, sources={**built.sources, "cell": source}), "cpu", columns=40)
    assert said in {layer.name for layer in drawn.layers}


def test_what_older_blocks_gave_back_lies_below_zero_and_within_the_picture() -> None:
    drawn = picture(made(), "cpu", units.BYTES[2])
    heights = [
        float(y)
        for path in re.findall(r'class="ly"[^>]* d="([^"]*)"', drawn)
        for y in re.findall(r"(?:V|[ML][\d.]+ )(-?[\d.]+)", path)
    ]
    zero = float(re.search(r'class="ax"[^>]* y1="([\d.]+)"', drawn)[1])
    assert min(heights) >= 0
    assert zero < max(heights) <= 170


def test_a_spike_within_one_column_is_seen() -> None:
    times = np.array([0.0, 0.5, 0.5001, 0.5002])
    change = np.array([1, 99, -99, 0])
    shown = _highest(times, np.cumsum(change), 10)
    assert np.append(np.cumsum(change), 0)[shown].max() == 100


def test_every_number_of_the_picture_is_json_without_markup() -> None:
    markup = picture(made(), "cpu", units.BYTES[2])
    (read,) = sent(markup)
    assert max(read["total"]) == 144
    assert len(read["layers"]) == 3
    assert all(len(held) == len(read["total"]) for _, held, _ in read["layers"])


def test_text_of_the_cell_is_never_markup() -> None:
    built = made()
    sources = {
        key: replace(source, text="\n".join(HOSTILE * 2), file=HOSTILE[1]) for key, source in built.sources.items()
    }
    frame = memory_frame().assign(file=HOSTILE[1], cell=pd.array([pd.NA] * len(CHANGES), dtype="Int64"))
    shown = mimebundle(replace(built, sources=sources, memory=frame))["text/html"]
    assert "<img" not in shown
    assert "<script>window.INJECTED" not in shown


def test_text_plain_has_the_peak_and_the_lines() -> None:
    shown = to_text(made(bytes_before=10.0 * MIB))
    assert "Memory of the CPU: peak 144 MiB" in shown
    assert "tensors of 10.0 MiB were there before it, 4.00 MiB of them freed by it" in " ".join(shown.split())
    assert text.for_stdout(view.documents(made())[0]) in to_text(made())


def test_a_device_that_only_gave_back_says_so() -> None:
    frame = memory_frame()
    only = frame[frame["block"].isna()].reset_index(drop=True).assign(bytes=-4 * MIB)
    (document,) = view.documents(replace(made(), memory=only))
    assert (
        plain(document.sentence)
        == "Memory of the CPU never exceeded the memory at the start; it ends 4.00 MiB below"
    )
    assert allocations.peak_of(only, "cpu").bytes == 0


def test_an_output_with_very_many_changes_stays_small() -> None:
    count = 50_000
    frame = rows_of(
        MEMORY_COLUMNS,
        time=[*np.linspace(0, 3, count)],
        bytes=[MIB, 0] * (count // 2),
        device="cpu",
        change=[MIB, -MIB] * (count // 2),
        block=[*np.repeat(np.arange(count // 2), 2)],
        cell=3,
        line=2,
        source_id="cell",
    )
    html = mimebundle(replace(made(), memory=frame))["text/html"]
    assert len(html) < 400_000


def test_moments_of_a_short_run_are_in_a_unit_that_tells_them_apart() -> None:
    frame = memory_frame()
    cpu, _ = view.documents(replace(made(), memory=frame.assign(time=frame["time"] / 1000)))
    (table,) = cpu.tables
    at = [column.name for column in table.columns].index("since")
    assert table.columns[at].unit == "µs"
    assert [row.cells[at].text for row in table.rows()][:3] == ["1\u202f000", "2\u202f000", "500"]


# ==== blocks by column ================================================================================================
# The blocks that are alive at the moments of a picture: all of them, to the byte, whatever is summed.


def history(seed: int, count: int = 4000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(change, row that allocated its block, owner) of blocks that come and go; some were there before."""
    random = np.random.default_rng(seed)
    change, given, owner, there = [], [], [], []
    for row in range(count):
        if there and random.random() < 0.45:
            born = there.pop(int(random.integers(len(there))))
            change.append(-change[born])
            given.append(born)
            owner.append(owner[born])
        elif random.random() < 0.05:
            change.append(-int(random.integers(1, 9)))
            given.append(row)
            owner.append(-1)
        else:
            there.append(row)
            change.append(int(random.choice([4, 64, 512, 4096])))
            given.append(row)
            owner.append(int(random.integers(5)))
    return np.array(change), np.array(given), np.array(owner)


def alive_in(found: BlocksByColumn, column: int) -> tuple[int, int]:
    """(blocks, bytes)"""
    there = (found.first <= column) & (found.end > column)
    blocks, size = found.count[there], found.size[there]
    return int(blocks.sum() + found.rest_blocks[column]), int((blocks * size).sum() + found.rest_bytes[column])


@pytest.mark.parametrize("most", [10_000, 50, 0])
def test_every_moment_has_all_of_its_blocks_however_few_have_names_of_their_own(most: int) -> None:
    change, given, owner = history(seed=most)
    shown = np.sort(np.append(np.random.default_rng(1).integers(-1, len(change), 99), len(change) - 1))
    found = blocks_by_column(change, given, owner, shown, most)
    assert len(found.owner) <= most
    for column, row in enumerate(shown.tolist()):
        rows = np.arange(row + 1)
        born = set(rows[(change[: row + 1] > 0) & (owner[: row + 1] >= 0)].tolist())
        left = born - set(given[: row + 1][change[: row + 1] < 0].tolist())
        assert alive_in(found, column) == (len(left), int(change[list(left)].sum()) if left else 0)
    assert found.spec().get("restBlocks") is None or most < 10_000


def test_a_block_between_two_moments_is_counted_as_unseen() -> None:
    change, given, owner = np.array([8, 4, -4, 2]), np.array([0, 1, 1, 3]), np.array([0, 0, 0, 1])
    found = blocks_by_column(change, given, owner, np.array([0, 3]))
    assert found.unseen == 1
    assert found.spec() == {
        "owner": [0, 1], "size": [8, 2], "first": [0, 1], "end": [2, 2], "count": [1, 1], "unseen": 1,
    }  # fmt: skip


def test_without_a_change_nothing_is_alive() -> None:
    none = np.zeros(0, dtype=np.int64)
    found = blocks_by_column(none, none, none, np.array([-1, -1]))
    assert alive_in(found, 1) == (0, 0)
