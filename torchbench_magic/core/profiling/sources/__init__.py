"""Which text and which module a code object of a run came from."""
