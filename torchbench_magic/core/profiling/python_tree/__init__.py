"""Where Python time goes: samples of the cell's own thread, taken by pyinstrument."""
