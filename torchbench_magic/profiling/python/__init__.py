"""Where Python's own time goes, by samples of its stack."""
