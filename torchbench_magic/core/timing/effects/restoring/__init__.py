"""The state that a training step changes: what holds it, copies to put it back from, what is not put back."""
