"""The machine: its caches and environment, and what else wants the processor."""
