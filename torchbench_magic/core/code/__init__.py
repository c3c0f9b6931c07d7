"""A cell's text as code that runs or is timed, and what that code reads."""
