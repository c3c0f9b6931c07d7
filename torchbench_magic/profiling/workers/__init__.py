"""DataLoader workers that start during a profile."""
