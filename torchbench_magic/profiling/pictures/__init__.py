"""Pictures of a profile: what ran when, the flame graph, and the same with matplotlib."""
