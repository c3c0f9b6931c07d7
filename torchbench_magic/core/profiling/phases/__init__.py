"""From marks to steps and phases: pure functions, and the run of ``--phases``."""
