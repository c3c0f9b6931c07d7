"""The events of a run over time, and the Chrome traces they are read from."""
