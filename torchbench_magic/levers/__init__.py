"""Levers: changes that may make a cell faster, tried on the cell itself."""
