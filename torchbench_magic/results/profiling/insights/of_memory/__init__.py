"""Insights about memory, with ``--memory``: what grows with each step, what stays and why, what a peak is made of."""
