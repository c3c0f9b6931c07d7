"""Whether the cores were used well while a body ran: threads seen by a process beside it, and what that means."""
