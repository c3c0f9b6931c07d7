"""The doctor: what on this machine spoils a measurement now, and the smallest effect that it can resolve."""
