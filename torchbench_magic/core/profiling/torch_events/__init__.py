"""torch's own profiler: started, stopped, and its events as columns."""
