"""Timings of different occasions side by side, and what is to be said of them."""
