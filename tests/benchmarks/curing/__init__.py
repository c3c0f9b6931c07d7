"""Sections of `cures.py`: planted causes, and whether what is said of them is right."""
