"""The steps of a training loop: a clause, a table of phases, a strip a step."""
