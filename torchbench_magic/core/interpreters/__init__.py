"""The alternatives of a cell timed in fresh interpreters, one after the other: the addresses are drawn anew in each."""
