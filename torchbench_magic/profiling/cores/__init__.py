"""Whether the cores were used well while a profile ran."""
