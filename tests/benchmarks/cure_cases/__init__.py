"""Cells with a fault that was planted, and healthy ones, for what is said of them."""
