"""What was seen: frozen records and pure functions. No clock, no shell, no widget."""
