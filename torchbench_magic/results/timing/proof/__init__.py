"""What a change of code was seen to do besides its time: to the result, and what compiling cost."""
