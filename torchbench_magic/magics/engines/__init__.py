"""Cells that run on the engines of a cluster: what may be asked of them, and how their results are delivered."""
