"""What a ratio is over several processes: each has its own addresses, and with them a ratio of its own."""
