"""Time and bytes of one run on the lines that caused them: line events and op events, joined by time."""
