"""How busy each DataLoader worker was."""

from __future__ import annotations

import pandas as pd

__all__ = ["STARTING", "WAITING", "busy_shares"]

WAITING, STARTING = "waiting for the loop", "starting the worker"
"""``function`` of rows of `Profile.workers` that are no work."""


def busy_shares(workers: pd.DataFrame) -> pd.Series[float]:
    """Share of the time that each worker was looked at in which it did something for the loop, by its number."""
    whole = workers.groupby("worker")["seconds"].sum()
    idle = workers[workers["function"].isin([WAITING, STARTING])].groupby("worker")["seconds"].sum()
    shares: pd.Series[float] = 1 - (idle.reindex(whole.index, fill_value=0.0) / whole)
    return shares[whole > 0]
