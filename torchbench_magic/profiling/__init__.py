"""Profiles: what is recorded of a run, how it is joined to lines, `Profile` with its tables, and how it looks.

What a profile has on request stands in the rooms within: memory, cores, efficiency, compiling, loops, python, workers.
"""
