"""What the system's files say of a machine: limits, libraries, clocks. Read below a root, so that a test has one."""
