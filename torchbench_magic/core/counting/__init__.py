"""Instruction counts: a fork server under valgrind's callgrind, and how its answers are read."""
