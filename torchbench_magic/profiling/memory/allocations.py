"""What a profile's memory events say: the peak, what was alive at a moment, and bytes per line and device.

All of it is derived from the rows of ``Profile.memory``, one per block that was allocated or freed. A block that
was there before the cell has no number: its freeing lowers the total below what the cell itself holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from torchbench_magic.profiling.schema import ALIVE_COLUMNS, frame_of
from torchbench_magic.profiling.trace import Source, line_text

_LINE = ["device", "source_id", "line", "thread"]


@dataclass(frozen=True)
class Peak:
    """The highest total of one device.

    Attributes:
        device: "cpu", "cuda:0".
        bytes: above the total at the start; 0 where it never rose above it.
        time: seconds since the body was entered; 0 for a peak at the start.
        row: position of the change in the rows of ``Profile.memory``; -1 for a peak at the start.
    """

    device: str
    bytes: int
    time: float
    row: int


def devices_of(memory: pd.DataFrame | None) -> list[str]:
    """Devices whose totals changed, the CPU first; none where bytes were not recorded."""
    return sorted(set() if memory is None else set(memory["device"].unique()), key=lambda name: (name != "cpu", name))


def peak_of(memory: pd.DataFrame, device: str) -> Peak:
    """The first moment at which ``device`` held the most."""
    rows = np.flatnonzero((memory["device"] == device).to_numpy())
    totals = memory["bytes"].to_numpy()[rows]
    if not len(rows) or totals.max() <= 0:
        return Peak(device, 0, 0.0, -1)
    row = int(rows[int(totals.argmax())])
    return Peak(device, int(totals.max()), float(memory["time"].iloc[row]), row)


def alive_blocks(memory: pd.DataFrame, device: str, until: int) -> pd.DataFrame:
    """Allocations of the rows up to ``until`` that none of these rows freed."""
    seen = memory.iloc[: until + 1]
    seen = seen[(seen["device"] == device) & seen["change"].notna()]
    given = seen[seen["change"] > 0]
    freed = seen.loc[seen["change"] < 0, "block"].dropna()
    return given[~given["block"].isin(freed)]


def older_freed(memory: pd.DataFrame, device: str, until: int) -> int:
    """Bytes of blocks from before the cell that the rows up to ``until`` freed."""
    seen = memory.iloc[: until + 1]
    older = (seen["device"] == device) & seen["block"].isna() & (seen["change"] < 0).fillna(False)
    return int(-seen.loc[older, "change"].sum())


def alive(memory: pd.DataFrame, sources: Mapping[str, Source], moments: Iterable[tuple[str, int]]) -> pd.DataFrame:
    """What was alive after given changes, by the line that allocated it: columns of `ALIVE_COLUMNS`.

    Args:
        moments: (device, position of a row of ``memory``).
    """
    parts = [alive_blocks(memory, device, row) for device, row in moments if row >= 0]
    held = pd.concat(parts) if parts else memory.iloc[:0]
    if held.empty:
        return frame_of(ALIVE_COLUMNS, {})
    grouped = held.groupby(_LINE, dropna=False, sort=False)
    made = grouped.agg(
        bytes=("change", "sum"),
        blocks=("change", "size"),
        largest=("change", "max"),
        since=("time", "min"),
        cell=("cell", "first"),
        file=("file", "first"),
    ).reset_index()
    made["source"] = [line_text(sources, *where) for where in zip(made["source_id"], made["line"], strict=True)]
    made = made.astype({"device": object})
    order = {device: at for at, device in enumerate(devices_of(memory))}
    made["_device"] = [order[device] for device in made["device"]]
    made = made.sort_values(["_device", "bytes"], ascending=[True, False], kind="stable")
    return frame_of(ALIVE_COLUMNS, {name: made[name].tolist() for name in ALIVE_COLUMNS})


def by_line(memory: pd.DataFrame, sources: Mapping[str, Source]) -> pd.DataFrame:
    """Bytes of each line on each device: ``allocated freed net alive_at_peak retained``.

    The sum of ``net`` on a device is the last total of it in ``memory``.
    """
    if memory.empty or memory["change"].isna().all():
        return pd.DataFrame(
            columns=[*_LINE, "cell", "source", "allocated", "freed", "net", "alive_at_peak", "retained"]
        )
    change = memory["change"].fillna(0).astype("int64")
    parts = memory[[*_LINE, "cell"]].assign(allocated=change.clip(lower=0), freed=-change.clip(upper=0), net=change)
    sums = parts.groupby(_LINE, dropna=False, sort=False)
    made = sums.agg(
        cell=("cell", "first"), allocated=("allocated", "sum"), freed=("freed", "sum"), net=("net", "sum")
    ).reset_index()
    made.insert(
        len(_LINE) + 1, "source", [line_text(sources, *w) for w in zip(made["source_id"], made["line"], strict=True)]
    )
    ends = {device: int(np.flatnonzero((memory["device"] == device).to_numpy())[-1]) for device in devices_of(memory)}
    for name, moments in (
        ("alive_at_peak", [(device, peak_of(memory, device).row) for device in ends]),
        ("retained", list(ends.items())),
    ):
        found = alive(memory, sources, moments)
        held = {_key(row): int(row[-1]) for row in found[[*_LINE, "bytes"]].itertuples(index=False)}
        made[name] = [held.get(_key(row), 0) for row in made[_LINE].itertuples(index=False)]
    return made


def _key(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(None if pd.isna(part) else part for part in row[: len(_LINE)])
