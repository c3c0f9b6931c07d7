"""How near operations came to what the machine can do, from the one run: bytes, roofs, classes, and what to look at."""
