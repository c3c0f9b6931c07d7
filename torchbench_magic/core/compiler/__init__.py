"""``torch.compile`` as it is seen from outside: what it compiled and why, told without changing any of it."""
