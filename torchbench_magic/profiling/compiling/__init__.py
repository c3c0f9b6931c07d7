"""What was compiled during a profile, and where graphs broke."""
