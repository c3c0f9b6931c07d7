"""How counts look: the table of a difference, and what opens in it."""
