"""A timing on engines: one engine of a host at a time, each point on whichever host is free, or the same on all.

The way of a run: `engine_runs.compare_on_engines` -> `host_queues` (who measures what next) -> `sent_points` (one point
as a question) -> on the engine `on_engine.time_point` (under `host_lock`) -> `engine_rows` (which engine a row is of)
-> `results.timing.across_engines`.
"""
