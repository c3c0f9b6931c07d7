"""The pictures of a profile: memory over time, flame graph, timeline."""
