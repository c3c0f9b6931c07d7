"""Instruction counts: a fork server under valgrind's callgrind, counts and their differences, and how they look."""
