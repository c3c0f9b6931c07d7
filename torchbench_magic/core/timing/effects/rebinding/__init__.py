"""Names that are bound for timed code alone, and the functions that do not see them."""
