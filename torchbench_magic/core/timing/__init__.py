"""Timing: blocks of all alternatives, interleaved, until their ratios are known well enough."""
