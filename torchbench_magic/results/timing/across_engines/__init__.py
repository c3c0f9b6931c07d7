"""What several engines measured: the points of a sweep, each on one of them, or the same on all."""
