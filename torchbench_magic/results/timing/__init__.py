"""What was timed: the comparison of alternatives, its intervals and verdicts, and what spoils them."""
