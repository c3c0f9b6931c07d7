"""Settings of the process: how each is read, set for a run, and put back whatever happens, a Ctrl-C included.

And its memory: what was freed of much is given back to the system.
"""
