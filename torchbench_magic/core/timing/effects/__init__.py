"""What timed code does to the objects around it, and to the code that is timed beside it."""
