"""The doctor: what on this machine spoils a measurement now, and what the smallest effect is that it can resolve."""
