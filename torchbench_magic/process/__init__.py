"""The process and the machine that code runs in: what code reads and shows, settings, interrupts, cores, load, memory.

And its memory: what was freed of much is given back to the system.
"""
