"""Timings: the plan, the rounds, what spoils them, the comparison with its intervals and verdicts, and how it looks."""
