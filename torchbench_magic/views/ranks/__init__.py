"""The ranks of a job side by side: sentence, strip over time, tables."""
