"""What a first call leaves for later ones: a result that they only look up, a queue with nothing in it."""
