"""Why code is slow and what would help: the kinds of insights."""
