"""What this machine reaches at most, measured in some seconds and kept in the user's cache."""
