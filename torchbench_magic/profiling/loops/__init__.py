"""Training loops: marks and hooks while one runs, its steps and phases, the table, and how it looks."""
