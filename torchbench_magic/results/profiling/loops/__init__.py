"""Steps and phases of training loops: what their table holds and what is read off it."""
