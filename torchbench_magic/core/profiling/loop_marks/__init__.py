"""The phases of training loops, noted as they begin and end: hooks and patches, and what they write."""
