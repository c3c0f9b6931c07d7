"""Traces of the ranks of a job: recorded, read, put on one clock, and merged."""
