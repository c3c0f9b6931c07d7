"""Levers: what may make a cell faster without a change of its text, tried beside it, with the result compared."""
